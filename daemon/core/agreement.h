// How the nodes of a job agree on the order of operations. One interface for every mode
// (docs/protocol.md); `negotiate` is the first (negotiate.cc).
//
// An Agreement lives for one epoch on one node. On the coordinator's node it plays both parts. It
// is pure: it is told what happened and leaves what is to be done in its Output.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "daemon/core/coordination.h"
#include "daemon/core/fusion.h"
#include "daemon/core/layout.h"
#include "daemon/core/messages.h"

namespace rueda::core {

struct AgreementOptions {
  Coordination mode = kDefaultCoordination;  // the same on all nodes
  FusionOptions fusion;
  // Operations decreed and not yet complete at the coordinator. While that many are under way,
  // ready tensors gather and are fused: the network's own pace sets the size of the batches, no
  // cycle does.
  int max_open_operations = 4;
  // In mode locked: identical steps before a lock. The coordinator's counts.
  int lock_after_steps = 3;
  // In the modes with a cache: tensors that have a bit (1024 in Horovod, too). The same on all
  // nodes.
  size_t cache_capacity = 1024;
};

struct AgreementOutput {
  std::vector<std::pair<NodeIndex, std::variant<Ready, Decree>>> sends;
  std::vector<OrderedOperation> ordered;  // the next operations, in order, for this node
};

class Agreement {
 public:
  virtual ~Agreement() = default;
  // "negotiate", ...
  virtual const char* mode() const = 0;

  // Every local rank has submitted the tensor.
  virtual void on_local_ready(ReadyTensor tensor) = 0;
  // Messages of a peer. An error means that the peer broke the protocol: the epoch must end.
  virtual Status on_ready(NodeIndex from, const Ready& ready) = 0;
  virtual Status on_decree(NodeIndex from, const Decree& decree) = 0;
  // The rank has left; what needs it and is not decreed yet will be decreed as an error.
  virtual void on_rank_left(Rank rank) = 0;
  // This node has completed (or, for an error, ended) the operation.
  virtual void on_operation_ended(Seq seq) = 0;
  // Everything known at this moment has been told: act on it.
  virtual void end_turn(AgreementOutput& output) = 0;
};

// Why a tensor can never complete once a rank it needs has said goodbye.
std::string describe_left(const std::string& tensor, Rank rank);

// The layout outlives the agreement.
std::unique_ptr<Agreement> make_negotiate_agreement(const Layout& layout, NodeIndex self,
                                                    const AgreementOptions& options);

}  // namespace rueda::core
