// The part of a job that is on GPUs: memory that its ranks share, and the worker that reduces it
// (engine/device/gpu_worker.h), which starts when the first rank shares some. It belongs to the
// control loop.
//
// Tensors that go between nodes lie in host memory meanwhile, which is there from the first such
// operation on, and grows to the largest of them.
//
// A worker that is lost is not replaced: all that it had is void, and what is asked for afterwards
// is refused with the reason. The next job of that name has a worker of its own.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include <boost/asio/io_context.hpp>

#include "daemon/base/lifetime.h"
#include "daemon/engine/device/device_operation.h"
#include "daemon/engine/device/device_staging.h"
#include "daemon/engine/device/gpu_worker.h"
#include "daemon/engine/memory/staging.h"
#include "daemon/observe/metrics.h"
#include "daemon/session/session.h"

namespace rueda::engine {

struct DeviceJobOptions {
  std::string who;                         // The worker's name in sentences.
  gpu::ForkServer* fork_server = nullptr;  // It starts the worker, and outlives it.
  TicksMs timeout_ms = 5'000;
  // The most host memory for tensors on their way between nodes, and the most memory of the device
  // for them.
  uint64_t max_staging_bytes = uint64_t{1} << 30;
  bool is_direct = false;  // Network cards read scratch memory where they can.
};

class DeviceJob {
 public:
  // The answer to add(), which may come from within it.
  using OnAdded = std::function<void(LocalRank, uint32_t id, const Status&)>;

  DeviceJob(boost::asio::io_context& loop, observe::Metrics& metrics, DeviceJobOptions options,
            OnAdded on_added);
  ~DeviceJob();
  DeviceJob(const DeviceJob&) = delete;
  DeviceJob& operator=(const DeviceJob&) = delete;

  void add(LocalRank rank, session::DeviceMemory memory);
  void remove(LocalRank rank, uint32_t id);
  // Forgets all memory of a rank whose process has gone; operations under way still have it.
  void drop(LocalRank rank);

  // Returns the worker's number of memory that has been added, which must be there.
  uint32_t number_of(LocalRank rank, uint32_t id) const;
  uint32_t counters_of(LocalRank rank) const;
  bool is_staging(LocalRank rank, uint32_t id) const;

  // Gives the worker operations, at least one. They are numbered here; those of a stream are
  // carried out one after another. `ended` is called once, never from within: when all have ended,
  // or one has failed.
  using Ended = std::function<void(const Status&)>;
  void run(std::vector<gpu::WorkerOperation> operations, Ended ended);

  // Finds a place for a batch of so many bytes on its way between nodes, which has to be given
  // back. `there` may be called from within, or once others have given theirs back; in the order of
  // the calls.
  using Staged = std::function<void(Result<StagedRow>)>;
  enum class Through : uint8_t { kScratch, kScratchAndHost };
  void stage(uint64_t bytes, Through through, Staged there);
  void unstage(const StagedRow& row);

  // Makes kernels reach this host memory, for operations to name from now on. Returns its number.
  // Operations that name it fail if it cannot be had, which is logged.
  uint32_t map(const StagingFile& file);
  void unmap(uint32_t number);

  // These three deal with communicators, which begin and end with the worker (GpuWorker). They may
  // be called once a worker has been started. `made` is called once, never from within.
  using OnId = std::function<void(const Result<gpu::CommunicatorId>&)>;
  void make_communicator_id(uint32_t communicator, OnId made);
  void connect(const gpu::ConnectBody& communicator);
  void disconnect(uint32_t communicator);

  // From here on nothing more is told. `ended` is called, from the loop, once no worker touches any
  // memory.
  void stop(std::function<void()> ended);

 private:
  struct Memory {
    uint32_t number = 0;
    bool is_answered = false;
    // It is the client's own staging memory, in place of memory that the worker cannot open.
    bool is_staging = false;
  };
  struct Rank {
    std::unordered_map<uint32_t, Memory> memories;  // By the id that the session gave it.
    uint32_t counters = 0;                          // The worker's number of them.
    bool is_refused = false;  // Some of its memory was refused, which has been logged.
  };
  // An operation that run() was given.
  struct UnderWay {
    size_t left = 0;
    Ended ended;  // Null if it has been called.
  };
  struct Wanted {
    uint64_t bytes = 0;
    Through through = Through::kScratchAndHost;
    Staged there;
  };

  Status start(const std::array<uint8_t, 16>& device);
  void join(LocalRank rank, uint32_t number, const session::DeviceMemory& memory);
  void on_memory_added(uint32_t number, const Status& status);
  void on_staging_added(uint32_t number, const Status& status);
  void on_exported(uint32_t number, const Result<GpuWorkerEvents::Exported>& exported);
  void on_ended(uint64_t number, const Status& status);
  void on_lost(const Status& why);
  void forget(uint32_t number);
  void log_refused(LocalRank rank, const Status& status);
  // Counts the ranks that have memory in place of what the worker cannot open.
  void count_staged_clients();
  void serve_staging();
  // Makes the staging larger. The staging that is there must not be in use.
  Status grow_staging(const Wanted& wanted);
  uint32_t add_staging(gpu::AddMemoryBody memory, UniqueFd fd);  // Returns its number.
  void drop_staging();

  boost::asio::io_context& loop_;
  observe::Metrics& metrics_;
  const DeviceJobOptions options_;
  const OnAdded on_added_;
  std::unique_ptr<GpuWorker> worker_;
  Status lost_;  // The reason why there is no worker any more.
  std::map<int32_t, Rank> ranks_;
  struct Awaited {
    LocalRank rank;
    uint32_t id = 0;
    bool is_counters = false;
  };
  std::map<uint32_t, Awaited> awaited_;  // By number.
  std::map<uint64_t, std::shared_ptr<UnderWay>> operations_;
  std::map<uint32_t, OnId> ids_;            // Ids that are being made.
  std::unique_ptr<DeviceStaging> staging_;  // Null if none has been asked for.
  uint32_t staging_host_ = 0;               // The worker's numbers of it.
  uint32_t staging_scratch_ = 0;
  // The scratch memory, if others may read it. The worker frees it once nobody has this any more.
  GpuWorkerEvents::Exported exported_;
  bool is_copying_told_ = false;
  bool staging_has_host_ = false;  // The worker has pinned it.
  int staging_unanswered_ = 0;
  Status staging_failed_;
  std::deque<Wanted> wanted_;
  std::set<uint32_t> mapped_;  // The numbers of mapped memory.
  uint32_t last_number_ = 0;
  uint64_t last_operation_ = 0;
  size_t open_ = 0;  // The number of memories that the worker has, as the metric counts them.
  int64_t staged_clients_ = 0;  // The number of such clients, as the metric counts them.
  Lifetime lifetime_;
};

}  // namespace rueda::engine
