// What of a job is on GPUs: memory that its ranks share, and the worker that reduces it
// (engine/gpu_worker.h), which starts when the first rank shares some. Belongs to the control loop.
//
// A worker that is lost is not replaced: all that it had is void, and what is asked for afterwards
// is refused with the reason. The next job of that name has a worker of its own.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include <boost/asio/io_context.hpp>

#include "daemon/engine/gpu_worker.h"
#include "daemon/observe/metrics.h"
#include "daemon/session/session.h"

namespace rueda::engine {

struct DeviceJobOptions {
  std::string who;                   // of the worker, in sentences
  std::vector<std::string> command;  // how it is started (GpuWorkerOptions)
  TicksMs timeout_ms = 10'000;
};

struct DeviceJobEvents {
  // The answer to add(); may come from within it.
  std::function<void(LocalRank, uint32_t id, const Status&)> on_added;
  // The answer to run(), once for each of its operations. Never from within it.
  std::function<void(uint32_t process_set, Seq, const Status&)> on_ended;
};

class DeviceJob {
 public:
  DeviceJob(boost::asio::io_context& loop, observe::Metrics& metrics, DeviceJobOptions options,
            DeviceJobEvents events);
  ~DeviceJob();
  DeviceJob(const DeviceJob&) = delete;
  DeviceJob& operator=(const DeviceJob&) = delete;

  void add(LocalRank rank, session::DeviceMemory memory);
  void remove(LocalRank rank, uint32_t id);
  // All of a rank whose process has gone; what is under way still has it.
  void drop(LocalRank rank);

  // The worker's number of what has been added. Must be there.
  uint32_t number_of(LocalRank rank, uint32_t id) const;
  uint32_t counters_of(LocalRank rank) const;

  // One at least, which are numbered here; carried out one after another.
  void run(uint32_t process_set, Seq seq, std::vector<gpu::WorkerOperation> operations);

  // -1: there is none.
  pid_t worker_pid() const { return worker_ ? worker_->pid() : -1; }

  // Nothing more is told. `ended` is called, from the loop, once no worker touches any memory.
  void stop(std::function<void()> ended);

 private:
  struct Memory {
    uint32_t number = 0;
    bool is_answered = false;
  };
  struct Rank {
    std::unordered_map<uint32_t, Memory> memories;  // by the session's id
    uint32_t counters = 0;                          // the worker's number
  };
  struct UnderWay {
    uint32_t process_set = 0;
    Seq seq;
  };

  Status start(const std::array<uint8_t, 16>& device);
  void on_memory_added(uint32_t number, const Status& status);
  void on_lost(const Status& why);
  void forget(uint32_t number);

  boost::asio::io_context& loop_;
  observe::Metrics& metrics_;
  const DeviceJobOptions options_;
  const DeviceJobEvents events_;
  std::unique_ptr<GpuWorker> worker_;
  Status lost_;  // why there is no worker any more
  std::map<int32_t, Rank> ranks_;
  struct Awaited {
    LocalRank rank;
    uint32_t id = 0;
    bool is_counters = false;
  };
  std::map<uint32_t, Awaited> awaited_;  // by number
  std::map<uint64_t, UnderWay> operations_;
  uint32_t last_number_ = 0;
  uint64_t last_operation_ = 0;
  size_t open_ = 0;  // memories that the worker has, as the metric counts them
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace rueda::engine
