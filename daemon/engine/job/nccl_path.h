// The way of a batch in device memory that NCCL carries between nodes
// (docs/decisions/0060-nccl-between-nodes.md). It belongs to the control loop.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <unordered_map>
#include <utility>

#include <boost/asio/steady_timer.hpp>

#include "daemon/base/lifetime.h"
#include "daemon/engine/device/nccl_sets.h"
#include "daemon/engine/job/device_launches.h"
#include "daemon/engine/job/job_links.h"
#include "daemon/engine/job/job_spec.h"

namespace rueda::engine {

class NcclPath {
 public:
  // All of them must outlive the object.
  NcclPath(const EngineContext& context, const JobSpec& spec, PathHost& host,
           SubmissionLedger& ledger, JobLinks& links, DeviceLaunches& device);

  // Returns the descriptor that the nodes agree on for a tensor, or a declared plan, that a rank
  // has submitted: one for NCCL to carry between nodes, or the one submitted. What was seen before
  // gives the same object.
  core::DescriptorPtr carried(const core::DescriptorPtr& submitted);
  // The job has a GPU worker now: batches may be launched if the job leaves them to NCCL.
  void open();
  void launch(const core::Launch& launch);
  // Another node of the job tells the id of a process set's communicator, which goes on to others.
  void on_communicator(LinkId link, const CommunicatorMessage& message);
  void close_set(uint32_t process_set);
  // From here on nothing more is given to NCCL.
  void stop();

 private:
  struct UnderWay {
    TicksMs since = 0;
    core::LaunchTensors tensors;
    bool is_told = false;
  };

  // Returns true if the job leaves to NCCL what goes between its nodes.
  bool is_wanted() const;
  // Returns true if NCCL carries the tensor in a job that leaves that to it.
  bool carries(const core::TensorDescriptor& tensor) const;
  void run(const core::Launch& launch, const StagedRow& row, NcclPlace across);
  void fail_later(Seq seq, const Status& status);
  // Logs, once, a batch that NCCL has had for longer than ranks may wait for each other.
  void watch();
  void pass_on(const CommunicatorMessage& message, std::optional<NodeIndex> from);

  const EngineContext& context_;
  const JobSpec& spec_;
  PathHost& host_;
  SubmissionLedger& ledger_;
  JobLinks& links_;
  DeviceLaunches& device_;
  std::unique_ptr<NcclSets> sets_;              // Null before open(), and after stop().
  std::map<OperationKey, UnderWay> under_way_;  // Operations from their launch to their end.
  boost::asio::steady_timer timer_;
  bool is_watched_ = false;
  // By the address of the tensor that was submitted: that tensor, and the one that is agreed on.
  std::unordered_map<const core::TensorDescriptor*,
                     std::pair<core::DescriptorPtr, core::DescriptorPtr>>
      carried_;
  Lifetime lifetime_;
};

}  // namespace rueda::engine
