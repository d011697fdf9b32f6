// This says whom a data job waits for: whether its channels are open, whether something has to go
// on, which neighbour keeps it from going on, and what is said about that neighbour. It only reads
// the parts of the data job, and belongs to its data loop.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "daemon/engine/channels/ring_link.h"
#include "daemon/engine/data/algorithm_probe.h"
#include "daemon/engine/data/data_host.h"
#include "daemon/engine/data/epoch_faults.h"
#include "daemon/engine/data/operation_table.h"
#include "daemon/engine/data/pairwise_path.h"
#include "daemon/engine/data/progress_watch.h"

namespace rueda::engine {

class AwaitedPeers final : public ProgressHost {
 public:
  // The object keeps the references, and reads none of the parts before the first call: they may be
  // made later. They outlive it.
  AwaitedPeers(const DataJobOptions& options, const RingLink& link, const PairwisePath& mesh,
               const AlgorithmProbe& probe, const OperationTable& operations,
               const EpochFaults& faults, DataHost& host)
      : options_(options),
        link_(link),
        mesh_(mesh),
        probe_(probe),
        operations_(operations),
        faults_(faults),
        host_(host) {}

  // Returns whether all channels are open, and it is known which algorithm is the quickest.
  bool is_open() const { return link_.is_open() && mesh_.is_open() && probe_.is_known(); }

  // --- ProgressHost
  bool has_to_go_on() const override;
  bool is_quiet() const override;
  std::optional<NodeIndex> culprit() const override;
  std::string describe_silence(NodeIndex peer) const override;
  uint64_t bytes_received() const override;
  void for_each_outlet(const VisitOutlet& visit) const override;
  void give_up(NodeIndex peer, const Status& status) override { host_.give_up(peer, status); }

 private:
  // Returns whether the job waits for its neighbours, or for an application.
  bool is_waiting() const { return !operations_.is_idle() || (link_.is_open() && !is_open()); }

  const DataJobOptions& options_;
  const RingLink& link_;
  const PairwisePath& mesh_;
  const AlgorithmProbe& probe_;
  const OperationTable& operations_;
  const EpochFaults& faults_;
  DataHost& host_;
};

}  // namespace rueda::engine
