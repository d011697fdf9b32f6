#include "daemon/gpu/nccl/nccl_communicator.h"

#include <utility>

namespace rueda::gpu::nccl {
namespace {

// The most thread blocks of NCCL: enough for a fast network, with a bounded loss for training.
constexpr int kMaxCtas = 16;

}  // namespace

Result<std::unique_ptr<Communicator>> NcclCommunicator::connect(const Library& library, Host host,
                                                                const CommunicatorId& id, int rank,
                                                                int size) {
  auto made = std::unique_ptr<NcclCommunicator>(new NcclCommunicator(library, std::move(host)));
  if (Status status = made->host_.enter(); !status.is_ok()) return status;
  Config config;
  config.max_ctas = kMaxCtas;
  const int outcome =
      library.comm_init_rank_config(&made->comm_, size, UniqueId{id}, rank, &config);
  const Status status = made->note(outcome, "connecting");
  if (!status.is_ok() && status.code() != Code::kUnavailable) return status;
  return std::unique_ptr<Communicator>(std::move(made));
}

NcclCommunicator::~NcclCommunicator() {
  if (comm_ != nullptr && host_.enter().is_ok()) library_.comm_abort(comm_);
}

Status NcclCommunicator::note(int outcome, const char* what) {
  if (outcome == kInProgress) {
    return {Code::kUnavailable, std::string("NCCL is ") + what};
  }
  if (outcome != kSuccess && failed_.is_ok()) failed_ = to_status(library_, comm_, outcome, what);
  return failed_;
}

Status NcclCommunicator::health() {
  if (!failed_.is_ok()) return failed_;
  if (Status status = host_.enter(); !status.is_ok()) return status;
  int state = kSuccess;
  const int outcome = library_.comm_get_async_error(comm_, &state);
  if (outcome != kSuccess) return note(outcome, "asked how it is");
  return note(state, "waiting for other nodes");
}

Status NcclCommunicator::call(const char* what, const std::function<int()>& begin) {
  const Status before = health();
  if (!before.is_ok() || std::exchange(is_calling_, false)) return before;
  const Status status = note(begin(), what);
  is_calling_ = status.code() == Code::kUnavailable;
  return status;
}

Status NcclCommunicator::all_reduce(Stream& stream, DeviceAddress at, uint64_t count, DType dtype,
                                    ReduceOp op) {
  const int dtype_number = number_of(dtype);
  const int op_number = number_of(op);
  if (dtype_number < 0 || op_number < 0) {
    return {Code::kInvalidArgument,
            std::string("NCCL has no ") + to_string(op) + " of " + to_string(dtype)};
  }
  return call("reducing", [&] {
    auto* const memory = reinterpret_cast<void*>(at);
    return library_.all_reduce(memory, memory, count, dtype_number, op_number, comm_,
                               host_.handle_of(stream));
  });
}

Status NcclCommunicator::broadcast(Stream& stream, DeviceAddress at, uint64_t bytes, int root) {
  return call("broadcasting", [&] {
    auto* const memory = reinterpret_cast<void*>(at);
    return library_.broadcast(memory, memory, bytes, number_of(DType::kUInt8), root, comm_,
                              host_.handle_of(stream));
  });
}

}  // namespace rueda::gpu::nccl
