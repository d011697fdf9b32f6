// A GPU worker as the daemon sees it: a process that it has started, commands for it, and its end.
// Belongs to the control loop.
//
// The daemon makes no CUDA context: what a lost device costs is the worker, and the job that it is
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
#include "daemon/gpu/worker/wire.h"
#include "daemon/observe/metrics.h"

namespace rueda::engine {

struct GpuWorkerOptions {
  std::string who;  // "the GPU worker of job j on node n", in sentences
  // The program and its arguments; what is added is the number of the descriptor that it is to talk
  // over.
  std::vector<std::string> command;
  std::array<uint8_t, 16> uuid{};  // of the first GPU
  // To be ready, and to open memory of another GPU: a driver takes seconds to make a context.
  TicksMs start_timeout_ms = 30'000;
  // Without a word while it has something to do, and for a batch on the device.
  TicksMs timeout_ms = 10'000;
  uint64_t memory_limit_bytes = 0;  // of a device, which it may allocate
};

// The worker's answers and its end. They are told from the loop, never from within a call.
struct GpuWorkerEvents {
  std::function<void(const gpu::ReadyBody&)> on_ready = [](const gpu::ReadyBody&) {};
  std::function<void(uint32_t memory, const Status&)> on_memory_added;
  std::function<void(uint64_t operation, const Status&)> on_ended;
  std::function<void(uint32_t communicator, const Result<gpu::CommunicatorId>&)> on_id_made;
  // It is of no more use, and nothing more is told. Its process may still be about to end.
  std::function<void(const Status&)> on_lost;
};

class GpuWorker {
 public:
  // kResourceExhausted or kInternal: there is no process to be had.
  static Result<std::unique_ptr<GpuWorker>> start(boost::asio::io_context& loop,
                                                  observe::Metrics& metrics,
                                                  GpuWorkerOptions options, GpuWorkerEvents events);
  // Ends it; see stop().
  ~GpuWorker();
  GpuWorker(const GpuWorker&) = delete;
  GpuWorker& operator=(const GpuWorker&) = delete;

  // Answered by on_memory_added, in the order of the calls. Numbers are never used again.
  // `behind_fd` is let go of after the descriptor.
  void add_memory(const gpu::AddMemoryBody& memory, UniqueFd fd,
                  std::shared_ptr<void> behind_fd = {});
  // Joins memories that were added by descriptors, one behind another, into one of that number. The
  // answer is on_memory_added.
  void join_memory(uint32_t memory, std::span<const uint32_t> pieces);
  // Removes memory. Operations that use it must have been given to the worker before.
  void remove_memory(uint32_t memory);
  // Answered by on_id_made. Numbers of communicators are never used again.
  void make_communicator_id(uint32_t communicator);
  // What fails is told by the operations that need it, or is the worker's end (gpu/worker/wire.h).
  void connect(const gpu::ConnectBody& communicator);
  // What uses it has ended.
  void disconnect(uint32_t communicator);
  // Answered by on_ended. kInvalidArgument: it cannot be told (make_packets()). kResourceExhausted:
  // the worker has too much to do.
  Status run(const gpu::WorkerOperation& operation);

  // Nothing more is told. `ended` is called when there is no process any more: nothing of it
  // touches memory from then on.
  void stop(std::function<void()> ended);

 private:
  class Impl;
  explicit GpuWorker(std::shared_ptr<Impl> impl);

  std::shared_ptr<Impl> impl_;  // lives until the process has been reaped
};

}  // namespace rueda::engine
