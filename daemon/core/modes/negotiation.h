// Reports and decrees, as they go between members and coordinator in every mode: members report
// what is ready, and the coordinator sends the order back. One class has both parts, since the
// coordinator's node has members too.
#pragma once

#include <array>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "daemon/core/model/tree.h"
#include "daemon/core/modes/combiner.h"
#include "daemon/core/modes/coordinator.h"
#include "daemon/core/modes/response_cache.h"
#include "daemon/core/order/agreement.h"
#include "daemon/core/plan/step_detector.h"

namespace rueda::core {

class Negotiation {
 public:
  // The features that a mode uses. With `cache`, tensors seen before travel as bits. With
  // `schedule`, the coordinator watches for repetition. With `combines`, reports are combined up
  // the tree, if the options have one, until a rank leaves: from then on they go up the same way
  // one by one.
  struct Features {
    bool cache = false;
    bool schedule = false;
    bool combines = false;
  };
  // Layout and submissions must outlive this object.
  Negotiation(const Layout& layout, NodeIndex self, const SubmissionTable& submissions,
              const AgreementOptions& options, Features features);

  bool is_coordinator() const { return coordinator_ != nullptr; }
  // Returns null on a member's node.
  Coordinator* coordinator() { return coordinator_.get(); }
  StepDetector* step_detector() { return step_detector_.get(); }

  // The tensor is ready on this node. take_ready() tells the coordinator; the coordinator itself
  // takes it in at once.
  void report(ReadyTensor tensor, TicksMs now);
  // Takes in a report. Entries of the lockable track count only if the sender is of this generation
  // (L4).
  Status on_ready(NodeIndex from, const Ready& ready, uint32_t generation, TicksMs now);
  // Appends the decreed operations to `ordered`, with the names in place of cache slots.
  Status on_decree(NodeIndex from, const Decree& decree, std::vector<OrderedOperation>& ordered);
  void on_rank_left(Rank rank);
  void on_operation_ended(Seq seq);

  // Decrees, on the coordinator, what can be decreed, and appends it to `ordered`. Returns whether
  // there was anything; then `decree` has to go to all members.
  bool call(uint32_t generation, std::vector<OrderedOperation>& ordered, Decree& decree);
  // Returns, on a member, the messages with what is ready: several if there is much, none if
  // nothing is ready.
  std::vector<Ready> take_ready(uint32_t generation);
  NodeIndex reports_to() const { return tree_ ? kNodeAbove : layout_.coordinator(); }
  bool has_unsent() const { return !unsent_.empty(); }

  // Returns the last operation of the track that was decreed, or that a plan has used up.
  Seq last(Track track) const;
  // These do what the functions of the same names in Coordinator do (L4, L7).
  void suspend_lockable();
  void resume_lockable(Seq first, BegunGroups begun);

 private:
  Result<std::vector<NodeIndex>> reporters(NodeIndex from, const Ready& ready) const;
  Status report_from(const std::vector<NodeIndex>& nodes, const ReadyTensor& tensor, TicksMs now);
  Status on_cached_bits(NodeIndex from, const std::vector<NodeIndex>& nodes, const Ready& ready,
                        uint32_t generation, TicksMs now);
  void forget_unused_versions();
  Status resolve(NodeIndex from, OrderedOperation& operation);
  void compress(const DecreedOperation& called, OrderedOperation& operation);

  const Layout& layout_;
  const NodeIndex self_;
  const SubmissionTable& submissions_;
  std::unique_ptr<Coordinator> coordinator_;
  std::unique_ptr<StepDetector> step_detector_;
  std::unique_ptr<ResponseCache> cache_;
  std::optional<Tree> tree_;  // The tree along which reports go up, if there is one.
  // Set on nodes that tell others what nodes below them report.
  std::unique_ptr<Combiner> combiner_;
  std::vector<TensorReport> unsent_;
  std::array<Seq, kTracks> last_seen_;
  // The oldest version of the cache that each node which reports to this one may still use.
  std::map<NodeIndex, uint64_t> cache_versions_;
};

}  // namespace rueda::core
