// The way of a batch in device memory: the job's GPU worker, and which way between nodes the batch
// goes, if it goes between nodes. It belongs to the control loop.
#pragma once

#include <cstdint>
#include <functional>

#include "daemon/base/lifetime.h"
#include "daemon/engine/job/device_launches.h"
#include "daemon/engine/job/host_path.h"
#include "daemon/engine/job/job_links.h"
#include "daemon/engine/job/job_spec.h"
#include "daemon/engine/job/nccl_path.h"
#include "daemon/engine/job/staged_path.h"

namespace rueda::engine {

class DevicePath {
 public:
  // All of them must outlive the object.
  DevicePath(const EngineContext& context, const JobSpec& spec, PathHost& host,
             SubmissionLedger& ledger, JobLinks& links, HostPath& host_path,
             observe::JobMetrics& metrics);

  // Returns why tensors in device memory cannot be reduced in this job, or OK.
  Status check() const;
  // A rank shares memory; the first one starts the job's worker, for which the job's owner pays.
  // The answer is PathHost::device_memory_added().
  void add(LocalRank rank, session::DeviceMemory memory);
  void remove(LocalRank rank, uint32_t id);
  // The rank's process has gone, with all its memory.
  void drop(LocalRank rank);

  void launch(const core::Launch& launch);
  NcclPath& nccl() { return nccl_; }
  StagedPath& staged() { return staged_; }
  void close_set(uint32_t process_set);
  // Calls `then`, from the loop, when no GPU worker touches memory of the job any more.
  void stop(std::function<void()> then);

 private:
  Status open();
  // Counts the submissions of a batch.
  void count(const core::Launch& launch);

  const EngineContext& context_;
  const JobSpec& spec_;
  PathHost& host_;
  SubmissionLedger& ledger_;
  HostPath& host_path_;
  observe::JobMetrics& metrics_;
  session::Charge worker_;  // It is charged while there is a worker.
  DeviceLaunches device_;
  NcclPath nccl_;
  StagedPath staged_;
  Lifetime lifetime_;
};

}  // namespace rueda::engine
