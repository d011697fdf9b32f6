#include "daemon/core/exchange.h"

#include <algorithm>
#include <utility>

#include "daemon/core/mutants.h"

namespace rueda::core {
namespace {

// Bounds a message: a node with more ready tensors sends several.
constexpr size_t kMaxEntriesPerReady = 2048;
constexpr uint32_t kBitsPerWord = 64;

void set_bit(std::vector<uint64_t>& words, uint32_t bit) {
  if (words.size() <= bit / kBitsPerWord) words.resize(bit / kBitsPerWord + 1);
  words[bit / kBitsPerWord] |= uint64_t{1} << (bit % kBitsPerWord);
}

// L4: reported in another generation.
bool is_stale(const Ready& ready, uint32_t generation, const TensorDescriptor& tensor) {
  return ready.generation != generation && track_of(tensor.kind) == Track::kLockable &&
         !RUEDA_MUTANT(kStaleReadyBitAccepted);
}

}  // namespace

Exchange::Exchange(const Layout& layout, NodeIndex self, const SubmissionTable& submissions,
                   const AgreementOptions& options, Features features)
    : layout_(layout), self_(self), submissions_(submissions), last_seen_(options.taken) {
  if (self == layout.coordinator()) {
    caller_ = std::make_unique<Caller>(layout, options);
    if (features.schedule) schedule_ = std::make_unique<Schedule>(options);
    cache_versions_.resize(static_cast<size_t>(layout.node_count()), UINT64_MAX);
    for (const NodeIndex member : layout.members()) {
      cache_versions_[static_cast<size_t>(member.value)] = 0;
    }
  }
  if (features.cache) cache_ = std::make_unique<TensorCache>(options.cache_capacity);
}

// --- Reports -------------------------------------------------------------------------------------

void Exchange::report(ReadyTensor tensor, TicksMs now) {
  if (!caller_) {
    unsent_.push_back(std::move(tensor));
    return;
  }
  const Status reported = report_from(self_, tensor, now);
  RUEDA_CHECK(reported.is_ok());  // the submission table lets no name in twice
}

Status Exchange::report_from(NodeIndex from, const ReadyTensor& tensor, TicksMs now) {
  if (schedule_ && track_of(tensor.descriptor->kind) == Track::kLockable) {
    schedule_->on_reported(tensor.descriptor->name, now);
  }
  return caller_->on_report(from, tensor);
}

Status Exchange::on_ready(NodeIndex from, const Ready& ready, uint32_t generation, TicksMs now) {
  if (!caller_) {
    return Status(Code::kInternal, "node " + layout_.node(from).node_id +
                                       " sent its ready tensors to node " +
                                       layout_.node(self_).node_id + ", which does not coordinate");
  }
  if (Status status = on_cached_bits(from, ready, generation, now); !status.is_ok()) return status;
  for (const ReadyTensor& tensor : ready.entries) {
    if (is_stale(ready, generation, *tensor.descriptor)) continue;
    if (Status status = report_from(from, tensor, now); !status.is_ok()) return status;
  }
  return Status::ok();
}

Status Exchange::on_cached_bits(NodeIndex from, const Ready& ready, uint32_t generation,
                                TicksMs now) {
  const Rank lowest = layout_.node(from).ranks.front();
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
      if (Status status = report_from(from, {tensor, lowest, {}}, now); !status.is_ok()) {
        return status;
      }
    }
  }
  uint64_t& known = cache_versions_[static_cast<size_t>(from.value)];
  if (cache_) known = std::max(known, std::min(ready.cache_version, cache_->version()));
  return Status::ok();
}

std::vector<Ready> Exchange::take_ready(uint32_t generation) {
  std::vector<Ready> messages;
  if (unsent_.empty()) return messages;
  Ready ready;
  ready.generation = generation;
  if (cache_) ready.cache_version = cache_->version();
  for (ReadyTensor& tensor : unsent_) {
    const auto slot = cache_ && tensor.mismatch.empty() ? cache_->find(*tensor.descriptor)
                                                        : std::optional<uint32_t>();
    if (slot) {
      set_bit(ready.cached, *slot);
      continue;
    }
    ready.entries.push_back(std::move(tensor));
    if (ready.entries.size() == kMaxEntriesPerReady) {
      messages.push_back(ready);
      ready.cached.clear();
      ready.entries.clear();
    }
  }
  unsent_.clear();
  if (!ready.cached.empty() || !ready.entries.empty()) messages.push_back(std::move(ready));
  return messages;
}

void Exchange::on_rank_left(Rank rank) {
  if (caller_) caller_->on_rank_left(rank);
}

void Exchange::on_operation_ended(Seq seq) {
  if (caller_) caller_->on_operation_ended(seq);
  if (schedule_) schedule_->on_ended(seq);
}

// --- Decrees -------------------------------------------------------------------------------------

bool Exchange::call(uint32_t generation, std::vector<OrderedOperation>& ordered, Decree& decree) {
  std::vector<CalledOperation> called;
  caller_->call(called);
  for (CalledOperation& next : called) {
    next.operation.generation = generation;
    const bool lockable = track_of(next.operation.seq) == Track::kLockable;
    if (schedule_ && lockable) {
      if (next.operation.error.is_ok()) {
        schedule_->on_decreed(next.operation.seq, next.batch, next.is_within_group);
      } else {
        schedule_->spoil();
      }
    }
    OrderedOperation said = next.operation;
    compress(next, said);
    decree.operations.push_back(std::move(said));
    ordered.push_back(std::move(next.operation));
  }
  return !called.empty();
}

void Exchange::compress(const CalledOperation& called, OrderedOperation& operation) {
  if (!cache_ || !operation.error.is_ok()) return;
  std::vector<uint32_t> slots;
  for (const DescriptorPtr& tensor : called.batch) {
    const auto slot = cache_->find(*tensor);
    if (!slot) break;
    slots.push_back(*slot);
  }
  if (slots.size() == called.batch.size()) {
    operation.cached = std::move(slots);
    operation.tensors.clear();
  }
  cache_->on_decreed(called.batch);
  // Our own node's bits are never encoded.
  cache_versions_[static_cast<size_t>(self_.value)] = cache_->version();
  uint64_t oldest = cache_->version();
  for (const NodeIndex node : layout_.members()) {
    oldest = std::min(oldest, cache_versions_[static_cast<size_t>(node.value)]);
  }
  cache_->forget_before(oldest);
}

Status Exchange::on_decree(NodeIndex from, const Decree& decree,
                           std::vector<OrderedOperation>& ordered) {
  if (from != layout_.coordinator() || caller_) {
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
    ordered.push_back(std::move(operation));
  }
  return Status::ok();
}

Status Exchange::resolve(NodeIndex from, OrderedOperation& operation) {
  if (!operation.error.is_ok()) return Status::ok();
  if (!cache_ && operation.cached.empty()) return Status::ok();
  for (const uint32_t slot : operation.cached) {
    const DescriptorPtr tensor = cache_ ? cache_->at(slot, cache_->version()) : nullptr;
    if (!tensor) {
      return Status(Code::kInternal, "the coordinator on node " + layout_.node(from).node_id +
                                         " decreed cache slot " + std::to_string(slot) +
                                         ", which is empty");
    }
    operation.tensors.push_back(tensor->name);
  }
  operation.cached.clear();
  std::vector<DescriptorPtr> batch;
  for (const std::string& name : operation.tensors) {
    const PendingTensor* tensor = submissions_.find(name);
    if (!tensor || !tensor->reported) return Status::ok();  // the launch will say so
    batch.push_back(tensor->by_local_rank.front()->descriptor);
  }
  cache_->on_decreed(batch);
  cache_->forget_before(cache_->version());  // decrees come in order: what was is not asked for
  return Status::ok();
}

Seq Exchange::last(Track track) const {
  return caller_ ? caller_->last(track) : last_seen_[index_of(track)];
}

void Exchange::suspend_lockable() {
  std::erase_if(unsent_, [](const ReadyTensor& tensor) {
    return track_of(tensor.descriptor->kind) == Track::kLockable;
  });
  if (caller_) caller_->suspend_lockable();
  if (schedule_) schedule_->on_locked();
}

void Exchange::resume_lockable(Seq first, std::set<std::string> cut_off) {
  if (RUEDA_MUTANT(kSeqUsedTwice) && first.value > 1) --first.value;
  last_seen_[index_of(Track::kLockable)] = Seq{first.value - 1};
  if (caller_) caller_->resume_lockable(first, std::move(cut_off));
}

}  // namespace rueda::core
