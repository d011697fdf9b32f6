// Connects GPUs of several processes by NCCL (nccl/nccl_communicator.h).
#include "daemon/gpu/cuda/cuda_device.h"
#include "daemon/gpu/cuda/cuda_stream.h"
#include "daemon/gpu/nccl/nccl_communicator.h"

namespace rueda::gpu::cuda {
namespace {

const Result<nccl::Library>& library() {
  static const Result<nccl::Library> loaded = nccl::load();
  return loaded;
}

}  // namespace

Result<CommunicatorId> CudaDevice::make_communicator_id() {
  if (Status status = enter(); !status.is_ok()) return status;
  if (!library().is_ok()) return library().status();
  nccl::UniqueId id;
  const int outcome = library().value().get_unique_id(&id);
  Status status = nccl::to_status(library().value(), nullptr, outcome, "making an id");
  if (!status.is_ok()) return status;
  return id.bytes;
}

Result<std::unique_ptr<Communicator>> CudaDevice::connect(const CommunicatorId& id, int rank,
                                                          int size) {
  if (Status status = enter(); !status.is_ok()) return status;
  if (!library().is_ok()) return library().status();
  return nccl::NcclCommunicator::connect(library().value(),
                                         {.enter = [this] { return enter(); },
                                          .handle_of = [](Stream& stream) -> nccl::CudaStream {
                                            return static_cast<CudaStream&>(stream).handle();
                                          }},
                                         id, rank, size);
}

}  // namespace rueda::gpu::cuda
