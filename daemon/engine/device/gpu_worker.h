// A GPU worker as the daemon sees it: a process that its fork server has started, commands for it,
// and its end.
// It belongs to the control loop.
//
// The daemon makes no CUDA context, so a lost device costs only the worker, and the job that it is
// for. A worker that says nothing while it has something to do, or does not get ready, is killed.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <sys/types.h>

#include "daemon/base/clock.h"
#include "daemon/base/status.h"
#include "daemon/gpu/worker/commands.h"
#include "daemon/gpu/worker/fork_server.h"
#include "daemon/gpu/worker/wire.h"
#include "daemon/observe/metrics.h"

namespace rueda::engine {

struct GpuWorkerOptions {
  std::string who;                         // "the GPU worker of job j on node n", in sentences
  gpu::ForkServer* fork_server = nullptr;  // It starts the process, and outlives the worker.
  std::array<uint8_t, 16> uuid{};          // The first GPU's.
  // The time to be ready, and to open memory of another GPU: a driver takes seconds to make a
  // context.
  TicksMs start_timeout_ms = 30'000;
  // The time without a word while it has something to do, and the time for a batch on the device.
  TicksMs timeout_ms = 5'000;
  uint64_t memory_limit_bytes = 0;  // The memory of a device that it may allocate.
};

// The worker's answers and its end. They are told from the loop, never from within a call.
struct GpuWorkerEvents {
  std::function<void(const gpu::ReadyBody&)> on_ready = [](const gpu::ReadyBody&) {};
  std::function<void(uint32_t memory, const Status&)> on_memory_added;
  // What others may read scratch memory by, or why they cannot; before on_memory_added.
  using Exported = std::shared_ptr<const gpu::DmaBuf>;
  std::function<void(uint32_t memory, const Result<Exported>&)> on_exported =
      [](uint32_t, const Result<Exported>&) {};
  std::function<void(uint64_t operation, const Status&)> on_ended;
  std::function<void(uint32_t communicator, const Result<gpu::CommunicatorId>&)> on_id_made;
  // The worker is of no more use, and nothing more is told. Its process may still be about to end.
  std::function<void(const Status&)> on_lost;
};

class GpuWorker {
 public:
  // Starts a worker. The error is that of ForkServer::spawn() if no process can be had.
  static Result<std::unique_ptr<GpuWorker>> start(boost::asio::io_context& loop,
                                                  observe::Metrics& metrics,
                                                  GpuWorkerOptions options, GpuWorkerEvents events);
  // Ends the worker; see stop().
  ~GpuWorker();
  GpuWorker(const GpuWorker&) = delete;
  GpuWorker& operator=(const GpuWorker&) = delete;

  // Adds memory, which is answered by on_memory_added, in the order of the calls. Numbers are never
  // used again. `behind_fd` is let go of after the descriptor.
  void add_memory(const gpu::AddMemoryBody& memory, UniqueFd fd,
                  std::shared_ptr<void> behind_fd = {});
  // Joins memories that were added by descriptors, one behind another, into one of that number. The
  // answer is on_memory_added.
  void join_memory(uint32_t memory, std::span<const uint32_t> pieces);
  // Removes memory. Operations that use it must have been given to the worker before.
  void remove_memory(uint32_t memory);
  // Makes a communicator's id, which is answered by on_id_made. Numbers of communicators are never
  // used again.
  void make_communicator_id(uint32_t communicator);
  // Connects a communicator. A failure is told by the operations that need it, or is the worker's
  // end (gpu/worker/wire.h).
  void connect(const gpu::ConnectBody& communicator);
  // Disconnects a communicator. The operations that use it must have ended.
  void disconnect(uint32_t communicator);
  // Gives the worker an operation, which is answered by on_ended. The error is kInvalidArgument if
  // the operation cannot be told (make_packets()), and kResourceExhausted if the worker has too
  // much to do.
  Status run(const gpu::WorkerOperation& operation);

  // From here on nothing more is told. `ended` is called when there is no process any more: nothing
  // of it touches memory from then on.
  void stop(std::function<void()> ended);

 private:
  class Impl;
  explicit GpuWorker(std::shared_ptr<Impl> impl);

  std::shared_ptr<Impl> impl_;  // It lives until the process has been reaped.
};

}  // namespace rueda::engine
