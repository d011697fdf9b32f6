// A communicator of NCCL on which no call waits: calls that NCCL continues by itself are asked
// about later (ncclCommInitRankConfig with blocking = 0).
#pragma once

#include <functional>
#include <memory>

#include "daemon/gpu/nccl/library.h"

namespace rueda::gpu::nccl {

// The functions of the device that a communicator needs.
struct Host {
  // It is called before each call, and makes the device this thread's.
  std::function<Status()> enter;
  std::function<CudaStream(Stream&)> handle_of;
};

class NcclCommunicator final : public Communicator {
 public:
  // `library` and the objects that `host` refers to must outlive the communicator.
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
  // Makes one call of NCCL, and begins it only once, though this function may be called again and
  // again until NCCL is done with it.
  Status call(const char* what, const std::function<int()>& begin);

  const Library& library_;
  const Host host_;
  Comm comm_ = nullptr;
  bool is_calling_ = false;
  Status failed_;
};

}  // namespace rueda::gpu::nccl
