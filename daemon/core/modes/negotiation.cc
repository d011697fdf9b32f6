#include "daemon/core/modes/negotiation.h"

#include <algorithm>
#include <utility>

#include "daemon/core/model/mutants.h"

namespace rueda::core {
namespace {

// The number of entries in one message. A node with more ready tensors sends several messages.
constexpr size_t kMaxEntriesPerReady = 2048;
constexpr uint32_t kBitsPerWord = 64;

void set_bit(std::vector<uint64_t>& words, uint32_t bit) {
  if (words.size() <= bit / kBitsPerWord) words.resize(bit / kBitsPerWord + 1);
  words[bit / kBitsPerWord] |= uint64_t{1} << (bit % kBitsPerWord);
}

// Returns whether the report of the tensor is void, because it was made in another generation (L4).
bool is_stale(const Ready& ready, uint32_t generation, const TensorDescriptor& tensor) {
  return ready.generation != generation && track_of(tensor) == Track::kLockable &&
         !RUEDA_MUTANT(kStaleReadyBitAccepted);
}

}  // namespace

Negotiation::Negotiation(const Layout& layout, NodeIndex self, const SubmissionTable& submissions,
                         const AgreementOptions& options, Features features)
    : layout_(layout), self_(self), submissions_(submissions), last_seen_(options.taken) {
  if (features.combines && options.tree_fan_in > 0) tree_.emplace(layout, options.tree_fan_in);
  std::vector<NodeIndex> reporting;
  if (tree_) {
    reporting = tree_->children(self);
  } else if (self == layout.coordinator()) {
    reporting = layout.members();
    std::erase(reporting, self);
  }
  for (const NodeIndex node : reporting) cache_versions_[node] = 0;
  if (self == layout.coordinator()) {
    coordinator_ = std::make_unique<Coordinator>(layout, options);
    if (features.schedule) step_detector_ = std::make_unique<StepDetector>(options);
  } else if (!reporting.empty()) {
    combiner_ = std::make_unique<Combiner>(tree_->subtree(self).size());
  }
  if (features.cache) cache_ = std::make_unique<ResponseCache>(options.cache_capacity);
}

// --- Reports -------------------------------------------------------------------------------------

void Negotiation::report(ReadyTensor tensor, TicksMs now) {
  if (!coordinator_ && !combiner_) {
    unsent_.emplace_back(std::nullopt, std::move(tensor));
    return;
  }
  // The submission table lets no name in twice. But a peer that lies can end what is counted here
  // as reported; then that still counts as reported, and this tensor takes its place.
  (void)report_from({self_}, tensor, now);
}

Status Negotiation::report_from(const std::vector<NodeIndex>& nodes, const ReadyTensor& tensor,
                                TicksMs now) {
  if (step_detector_ && track_of(*tensor.descriptor) == Track::kLockable) {
    step_detector_->on_reported(tensor.descriptor->name, now);
  }
  if (coordinator_) return coordinator_->on_report(nodes, tensor);
  if (combiner_->add(nodes, tensor)) return Status::ok();
  return Status(Code::kInternal, "node " + layout_.node(nodes.front()).node_id +
                                     ", or one below it, reported tensor \"" +
                                     tensor.descriptor->name + "\" twice");
}

// Returns the nodes that have reported, when this message comes from the node `from`.
Result<std::vector<NodeIndex>> Negotiation::reporters(NodeIndex from, const Ready& ready) const {
  if (!tree_) return std::vector<NodeIndex>{from};
  if (!ready.of) {
    std::vector<NodeIndex> below = tree_->subtree(from);
    if (std::find(below.begin(), below.end(), self_) == below.end()) return below;
    return Status(Code::kInternal, "node " + layout_.node(from).node_id + " reported for node " +
                                       layout_.node(self_).node_id + ", which is below it");
  }
  if (tree_->is_member(*ready.of) && *ready.of != self_) return std::vector<NodeIndex>{*ready.of};
  return Status(Code::kInternal, "node " + layout_.node(from).node_id +
                                     " passed on what node index " +
                                     std::to_string(ready.of->value) + " is said to report");
}

Status Negotiation::on_ready(NodeIndex from, const Ready& ready, uint32_t generation, TicksMs now) {
  if (!coordinator_ && !combiner_) {
    return Status(Code::kInternal, "node " + layout_.node(from).node_id +
                                       " sent its ready tensors to node " +
                                       layout_.node(self_).node_id + ", which does not coordinate");
  }
  const Result<std::vector<NodeIndex>> nodes = reporters(from, ready);
  if (!nodes.is_ok()) return nodes.status();
  if (Status status = on_cached_bits(from, nodes.value(), ready, generation, now);
      !status.is_ok()) {
    return status;
  }
  for (const ReadyTensor& tensor : ready.entries) {
    if (is_stale(ready, generation, *tensor.descriptor)) continue;
    if (Status status = report_from(nodes.value(), tensor, now); !status.is_ok()) return status;
  }
  return Status::ok();
}

Status Negotiation::on_cached_bits(NodeIndex from, const std::vector<NodeIndex>& nodes,
                                   const Ready& ready, uint32_t generation, TicksMs now) {
  Rank lowest = layout_.node(from).ranks.front();
  for (const NodeIndex node : nodes) lowest = std::min(lowest, layout_.node(node).ranks.front());
  for (size_t word = 0; word < ready.cached.size(); ++word) {
    for (uint64_t rest = ready.cached[word]; rest != 0; rest &= rest - 1) {
      const auto slot =
          static_cast<uint32_t>(word * kBitsPerWord) + static_cast<uint32_t>(__builtin_ctzll(rest));
      const DescriptorPtr tensor = cache_ ? cache_->at(slot, ready.cache_version) : nullptr;
      if (!tensor) {
        return Status(Code::kInternal, "node " + layout_.node(from).node_id +
                                           " reported cache slot " + std::to_string(slot) +
                                           ", which is empty");
      }
      if (is_stale(ready, generation, *tensor)) continue;
      if (Status status = report_from(nodes, {tensor, lowest, {}}, now); !status.is_ok()) {
        return status;
      }
    }
  }
  const auto known = cache_versions_.find(from);
  if (cache_ && known != cache_versions_.end()) {
    known->second = std::max(known->second, std::min(ready.cache_version, cache_->version()));
  }
  return Status::ok();
}

std::vector<Ready> Negotiation::take_ready(uint32_t generation) {
  if (combiner_) unsent_ = combiner_->take_reports();
  std::vector<Ready> messages;
  Ready ready;
  ready.generation = generation;
  if (cache_) ready.cache_version = cache_->version();
  const auto say = [&] {
    if (!ready.cached.empty() || !ready.entries.empty()) messages.push_back(ready);
    ready.cached.clear();
    ready.entries.clear();
  };
  for (auto& [of, tensor] : unsent_) {
    if (of != ready.of || ready.entries.size() == kMaxEntriesPerReady) say();
    ready.of = of;
    // A bit says that all local ranks have submitted the tensor, and agree. A report of another
    // node has no bit, because that node's slots are not this one's.
    const bool may_have_slot = cache_ && tensor.mismatch.empty() && tensor.absent.value < 0 && !of;
    const auto slot = may_have_slot ? cache_->find(*tensor.descriptor) : std::optional<uint32_t>();
    if (slot) {
      set_bit(ready.cached, *slot);
    } else {
      ready.entries.push_back(std::move(tensor));
    }
  }
  unsent_.clear();
  say();
  return messages;
}

// A tensor that lacks the rank fails as soon as anybody has reported it, so reports do not wait for
// those of other nodes any more.
void Negotiation::on_rank_left(Rank rank) {
  if (coordinator_) coordinator_->on_rank_left(rank);
  if (combiner_) combiner_->stop();
}

void Negotiation::on_operation_ended(Seq seq) {
  if (coordinator_) coordinator_->on_operation_ended(seq);
  if (step_detector_) step_detector_->on_ended(seq);
}

// --- Decrees -------------------------------------------------------------------------------------

bool Negotiation::call(uint32_t generation, std::vector<OrderedOperation>& ordered,
                       Decree& decree) {
  std::vector<DecreedOperation> called;
  coordinator_->call(called);
  for (DecreedOperation& next : called) {
    next.operation.generation = generation;
    const bool lockable = track_of(next.operation.seq) == Track::kLockable;
    if (step_detector_ && lockable) {
      if (next.operation.error.is_ok() && !next.while_joined) {
        step_detector_->on_decreed(next.operation.seq, next.batch, next.is_within_group);
      } else {
        step_detector_->spoil();
      }
    }
    if (next.while_joined) next.operation.descriptors = next.batch;
    OrderedOperation said = next.operation;
    compress(next, said);
    decree.operations.push_back(std::move(said));
    ordered.push_back(std::move(next.operation));
  }
  return !called.empty();
}

void Negotiation::compress(const DecreedOperation& called, OrderedOperation& operation) {
  if (!cache_ || !operation.error.is_ok() || operation.outcome) return;
  std::vector<uint32_t> slots;
  for (const DescriptorPtr& tensor : called.batch) {
    const auto slot = cache_->find(*tensor);
    if (!slot) break;
    slots.push_back(*slot);
  }
  if (slots.size() == called.batch.size()) {
    operation.cached = std::move(slots);
    operation.tensors.clear();
    operation.descriptors.clear();
  }
  cache_->on_decreed(called.batch);
  forget_unused_versions();
}

// Decrees come in order, so a node to which none reports needs only the latest version.
void Negotiation::forget_unused_versions() {
  uint64_t oldest = cache_->version();
  for (const auto& [node, version] : cache_versions_) oldest = std::min(oldest, version);
  cache_->forget_before(oldest);
}

Status Negotiation::on_decree(NodeIndex from, const Decree& decree,
                              std::vector<OrderedOperation>& ordered) {
  if (from != layout_.coordinator() || coordinator_) {
    return Status(Code::kInternal, "node " + layout_.node(from).node_id +
                                       " sent a decree to node " + layout_.node(self_).node_id +
                                       " and does not coordinate");
  }
  for (OrderedOperation operation : decree.operations) {
    Seq& last = last_seen_[index_of(track_of(operation.seq))];
    if (operation.seq.value != last.value + 1) {
      return Status(Code::kInternal, "the coordinator on node " + layout_.node(from).node_id +
                                         " sent operation " +
                                         std::to_string(number_of(operation.seq)) + " after " +
                                         std::to_string(number_of(last)));
    }
    last = operation.seq;
    if (Status status = resolve(from, operation); !status.is_ok()) return status;
    if (operation.tensors.empty()) {
      return Status(Code::kInternal, "the coordinator on node " + layout_.node(from).node_id +
                                         " decreed operation " +
                                         std::to_string(number_of(operation.seq)) +
                                         ", which names no tensors");
    }
    for (const std::string& name : operation.tensors) {
      if (combiner_) combiner_->forget(name);
    }
    ordered.push_back(std::move(operation));
  }
  return Status::ok();
}

Status Negotiation::resolve(NodeIndex from, OrderedOperation& operation) {
  if (!operation.error.is_ok() || operation.outcome) return Status::ok();
  if (!cache_ && operation.cached.empty()) return Status::ok();
  for (const uint32_t slot : operation.cached) {
    const DescriptorPtr tensor = cache_ ? cache_->at(slot, cache_->version()) : nullptr;
    if (!tensor) {
      return Status(Code::kInternal, "the coordinator on node " + layout_.node(from).node_id +
                                         " decreed cache slot " + std::to_string(slot) +
                                         ", which is empty");
    }
    operation.tensors.push_back(tensor->name);
    if (submissions_.have_all_joined()) operation.descriptors.push_back(tensor);
  }
  operation.cached.clear();
  std::vector<DescriptorPtr> batch;
  for (size_t i = 0; i < operation.tensors.size(); ++i) {
    const DescriptorPtr tensor = submissions_.descriptor_of(operation, i);
    if (!tensor) return Status::ok();  // The launch will return the error.
    batch.push_back(tensor);
  }
  cache_->on_decreed(batch);
  forget_unused_versions();
  return Status::ok();
}

Seq Negotiation::last(Track track) const {
  return coordinator_ ? coordinator_->last(track) : last_seen_[index_of(track)];
}

void Negotiation::suspend_lockable() {
  std::erase_if(unsent_, [](const TensorReport& report) {
    return track_of(*report.second.descriptor) == Track::kLockable;
  });
  if (coordinator_) coordinator_->suspend_lockable();
  if (combiner_) combiner_->forget_lockable();
  if (step_detector_) step_detector_->on_locked();
}

void Negotiation::resume_lockable(Seq first, BegunGroups begun) {
  if (RUEDA_MUTANT(kSeqUsedTwice) && first.value > 1) --first.value;
  last_seen_[index_of(Track::kLockable)] = Seq{first.value - 1};
  if (coordinator_) coordinator_->resume_lockable(first, std::move(begun));
}

}  // namespace rueda::core
