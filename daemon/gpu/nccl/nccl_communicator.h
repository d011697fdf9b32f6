// A communicator of NCCL, never waited for: calls that NCCL goes on with by itself are asked about
// (ncclCommInitRankConfig with blocking = 0).
#pragma once

#include <functional>
#include <memory>

#include "daemon/gpu/nccl/library.h"

namespace rueda::gpu::nccl {

// What NCCL needs of the device.
struct Host {
  // Before each call: the device is this thread's.
  std::function<Status()> enter;
  std::function<CudaStream(Stream&)> handle_of;
};

class NcclCommunicator final : public Communicator {
 public:
  // `library` and what `host` refers to outlive it.
  static Result<std::unique_ptr<Communicator>> connect(const Library& library, Host host,
                                                       const CommunicatorId& id, int rank,
                                                       int size);
  ~NcclCommunicator() override;

  Status health() override;
  Status all_reduce(Stream& stream, DeviceAddress at, uint64_t count, DType dtype,
                    ReduceOp op) override;
  Status broadcast(Stream& stream, DeviceAddress at, uint64_t bytes, int root) override;

 private:
  NcclCommunicator(const Library& library, Host host) : library_(library), host_(std::move(host)) {}

  Status note(int outcome, const char* what);
  // Once for each call, though it may be made again and again until NCCL is done with it.
  Status call(const char* what, const std::function<int()>& begin);

  const Library& library_;
  const Host host_;
  Comm comm_ = nullptr;
  bool is_calling_ = false;
  Status failed_;
};

}  // namespace rueda::gpu::nccl
