#include "daemon/core/modes/coordinator.h"

#include <algorithm>
#include <utility>

#include "daemon/base/check.h"
#include "daemon/core/model/mutants.h"
#include "daemon/core/stall/stall_text.h"

namespace rueda::core {

void Coordinator::note_error(Entry& entry, Code code, std::string text) {
  if (entry.error_code != Code::kOk) return;
  entry.error_code = code;
  entry.error = std::move(text);
}

Status Coordinator::on_report(const std::vector<NodeIndex>& from, const ReadyTensor& tensor) {
  const std::string& name = tensor.descriptor->name;
  if (tensor.descriptor->kind == CollectiveKind::kJoin) {
    for (const NodeIndex node : from) on_node_joined(node, tensor.rank);
  }
  const auto [it, is_new] = table_.try_emplace(name);
  Entry& entry = it->second;
  if (is_new) {
    entry.descriptor = tensor.descriptor;
    entry.rank = tensor.rank;
    entry.reported.resize(static_cast<size_t>(layout_.node_count()));
  }
  for (const NodeIndex node : from) {
    const auto index = static_cast<size_t>(node.value);
    if (entry.reported[index]) {
      return Status(Code::kInternal, "node " + layout_.node(node).node_id + " reported tensor \"" +
                                         name + "\" twice");
    }
    entry.reported[index] = true;
    ++entry.reports;
  }
  if (tensor.absent.value >= 0) {
    entry.absent = tensor.absent;
    is_anybody_absent_ = true;
  }
  if (!tensor.mismatch.empty()) note_error(entry, Code::kMismatch, tensor.mismatch);
  if (!is_new && entry.descriptor != tensor.descriptor && *entry.descriptor != *tensor.descriptor) {
    note_error(entry, Code::kMismatch,
               describe_mismatch(*entry.descriptor, entry.rank, *tensor.descriptor, tensor.rank));
  }
  // The descriptor that is kept is the lowest rank's, because one rank's groups are whole, while a
  // mixture of several ranks' groups might wait for ever.
  if (tensor.rank < entry.rank) {
    entry.descriptor = tensor.descriptor;
    entry.rank = tensor.rank;
  }
  if (is_complete(entry) || !can_complete(entry)) {
    Entry done = std::move(entry);
    table_.erase(it);
    finish(std::move(done));
  }
  return Status::ok();
}

// Whatever the node's ranks had submitted before their join has been reported (L11), so tensors
// that lack the node alone are complete now.
void Coordinator::on_node_joined(NodeIndex node, Rank last) {
  joined_.insert(node);
  last_joined_ = last;
  for (auto it = table_.begin(); it != table_.end();) {
    if (!is_complete(it->second)) {
      ++it;
      continue;
    }
    Entry done = std::move(it->second);
    it = table_.erase(it);
    finish(std::move(done));
  }
}

bool Coordinator::is_complete(const Entry& entry) const {
  const size_t members = layout_.members().size();
  const auto reports = static_cast<size_t>(entry.reports);
  if (joined_.empty() || entry.descriptor->kind == CollectiveKind::kJoin) return reports == members;
  const auto absent = std::count_if(joined_.begin(), joined_.end(), [&](NodeIndex node) {
    return !entry.reported[static_cast<size_t>(node.value)];
  });
  return reports + static_cast<size_t>(absent) == members;
}

bool Coordinator::can_complete(const Entry& entry) const {
  return std::all_of(left_.begin(), left_.end(), [&](Rank rank) {
    return entry.reported[static_cast<size_t>(layout_.node_of(rank).value)];
  });
}

void Coordinator::on_rank_left(Rank rank) {
  left_.insert(rank);
  for (auto it = table_.begin(); it != table_.end();) {
    if (can_complete(it->second)) {
      ++it;
      continue;
    }
    Entry done = std::move(it->second);
    it = table_.erase(it);
    finish(std::move(done));
  }
  // Groups that wait are not waited for any more, because the nodes refuse their other tensors.
  for (auto& [name, group] : std::exchange(groups_, {})) {
    enqueue(std::move(group.tensors), group.error);
  }
}

void Coordinator::on_operation_ended(Seq seq) { of(track_of(seq)).open.erase(seq); }

void Coordinator::check_root(Entry& entry) const {
  const TensorDescriptor& descriptor = *entry.descriptor;
  if (!has_root(descriptor.kind) || layout_.has_rank(descriptor.root)) return;
  const std::string what = std::string("the ") + to_string(descriptor.kind) + " of tensor \"" +
                           descriptor.name + "\" has root rank " +
                           std::to_string(descriptor.root.value);
  if (descriptor.process_set == 0 && descriptor.root.value >= 0 &&
      descriptor.root.value < layout_.world_size()) {
    note_error(entry, Code::kRankLost, what + ", which the job has lost");
    return;
  }
  const std::string whose = descriptor.process_set == 0
                                ? "the job"
                                : "process set " + std::to_string(descriptor.process_set);
  note_error(entry, Code::kInvalidArgument,
             what + ", and " + whose + " has ranks " + describe_ranks(layout_.ranks()));
}

// A rank that has joined contributes zeros. They change no sum, but everything else needs what the
// rank does not give, and becomes an error.
void Coordinator::check_absent(Entry& entry) const {
  const TensorDescriptor& descriptor = *entry.descriptor;
  if (descriptor.kind == CollectiveKind::kJoin) return;
  for (const NodeIndex node : joined_) {
    if (entry.reported[static_cast<size_t>(node.value)]) continue;
    entry.absent = layout_.node(node).ranks.front();
    break;
  }
  if (entry.absent.value < 0 || takes_zeros(descriptor)) return;
  if (descriptor.memory == MemorySpace::kDeviceNccl) {
    return note_error(entry, Code::kInvalidArgument,
                      "\"" + descriptor.name + "\" cannot be carried out: rank " +
                          std::to_string(entry.absent.value) +
                          " has joined, and NCCL needs something of every rank; start jobs that "
                          "join with --inter-node rueda");
  }
  const bool is_reduced = descriptor.kind == CollectiveKind::kAllreduce;
  note_error(entry, Code::kInvalidArgument,
             "\"" + descriptor.name + "\" cannot be carried out (" +
                 (is_reduced ? std::string("allreduce, op ") + to_string(descriptor.op)
                             : std::string(to_string(descriptor.kind))) +
                 "): rank " + std::to_string(entry.absent.value) +
                 " has joined, and contributes zeros to sums, averages and Adasum alone; do it "
                 "before any rank joins, or after all have");
}

// All ranks have joined, so the other tensors of groups that wait will not come.
void Coordinator::fail_groups() {
  for (auto& [name, group] : std::exchange(groups_, {})) {
    const size_t size = group.tensors.front()->group_size;
    const Status error(Code::kInvalidArgument,
                       "of group \"" + name + "\" " + std::to_string(group.tensors.size()) +
                           " tensors of " + std::to_string(size) +
                           " were submitted when all ranks had joined; submit a group at once");
    enqueue(std::move(group.tensors), group.error.is_ok() ? error : group.error);
  }
}

void Coordinator::finish(Entry entry) {
  if (!can_complete(entry)) {
    note_error(entry, Code::kShutDown, describe_left(entry.descriptor->name, *left_.begin()));
  }
  check_absent(entry);
  check_root(entry);
  if (entry.descriptor->kind == CollectiveKind::kJoin) fail_groups();
  const Status error =
      entry.error_code == Code::kOk ? Status::ok() : Status(entry.error_code, entry.error);
  const std::string& group_name = entry.descriptor->group;
  const bool is_cut_off = begun_.lack(*entry.descriptor);
  if (is_cut_off) begun_.note(*entry.descriptor);
  if (group_name.empty() || is_cut_off) {
    enqueue({entry.descriptor}, error, is_cut_off);
    return;
  }
  Group& group = groups_[group_name];
  group.tensors.push_back(entry.descriptor);
  if (group.error.is_ok()) group.error = error;
  // Once a rank has left, nodes refuse the rest of the group themselves.
  if (left_.empty() && group.tensors.size() < entry.descriptor->group_size) return;
  Group done = std::move(group);
  groups_.erase(group_name);
  enqueue(std::move(done.tensors), done.error);
}

void Coordinator::enqueue(std::vector<DescriptorPtr> tensors, const Status& error,
                          bool is_cut_off) {
  if (!error.is_ok()) {
    OrderedOperation operation;
    for (const DescriptorPtr& tensor : tensors) operation.tensors.push_back(tensor->name);
    operation.error = error;
    of(track_of(*tensors.front())).errors.push_back(std::move(operation));
    return;
  }
  // A group of several dtypes becomes ready as one and is carried out as one operation a dtype. No
  // session makes a group of several tracks, but a peer may speak of one.
  while (!tensors.empty()) {
    FusionUnit unit;
    const DescriptorPtr first = tensors.front();
    const auto rest = std::stable_partition(
        tensors.begin(), tensors.end(),
        [&](const DescriptorPtr& tensor) { return tensor == first || can_fuse(*first, *tensor); });
    unit.tensors.assign(tensors.begin(), rest);
    tensors.erase(tensors.begin(), rest);
    if (!first->group.empty()) {
      Parts& parts = parts_[{track_of(*first), first->group}];
      parts.waiting += unit.tensors.size();
      parts.has_begun = parts.has_begun || is_cut_off;
    }
    of(track_of(*first)).queue.push_back(std::move(unit));
  }
}

void Coordinator::call(std::vector<DecreedOperation>& called) {
  const auto number = [&](Order& order, DecreedOperation next) {
    next.operation.seq = Seq{++order.last.value};
    order.open.insert(next.operation.seq);
    called.push_back(std::move(next));
  };
  // Errors go before a join, which is the last in its queue: ranks that have come back from the
  // join may use the names again.
  for (Order& order : orders_) {
    for (OrderedOperation& operation : order.errors) number(order, {std::move(operation), {}});
    order.errors.clear();
  }
  for (Order& order : orders_) {
    while (!order.queue.empty() &&
           order.open.size() < static_cast<size_t>(options_.max_open_operations)) {
      DecreedOperation next;
      next.batch = take_batch(order.queue, options_.fusion);
      next.operation.plan_hash = plan_hash(next.batch);
      for (const DescriptorPtr& tensor : next.batch) {
        next.operation.tensors.push_back(tensor->name);
      }
      note_decreed(next.batch);
      next.is_within_group = is_within_group();
      next.while_joined = has_anybody_joined();
      if (next.batch.front()->kind == CollectiveKind::kJoin) {
        next.operation.outcome = static_cast<uint32_t>(last_joined_.value);
        joined_.clear();
        is_anybody_absent_ = false;
      }
      number(order, std::move(next));
    }
  }
}

void Coordinator::note_decreed(const std::vector<DescriptorPtr>& batch) {
  for (const DescriptorPtr& tensor : batch) {
    if (tensor->group.empty()) continue;
    const auto it = parts_.find({track_of(*tensor), tensor->group});
    RUEDA_CHECK(it != parts_.end());
    it->second.has_begun = true;
    if (--it->second.waiting == 0) parts_.erase(it);
  }
}

bool Coordinator::has_waiting() const {
  return std::any_of(orders_.begin(), orders_.end(), [](const Order& order) {
    return !order.queue.empty() || !order.errors.empty();
  });
}

bool Coordinator::has_unfinished_mismatch() const {
  return std::any_of(table_.begin(), table_.end(),
                     [](const auto& entry) { return entry.second.error_code != Code::kOk; });
}

void Coordinator::suspend_lockable() {
  std::erase_if(table_, [](const auto& entry) {
    return track_of(*entry.second.descriptor) == Track::kLockable;
  });
  joined_.clear();
  std::erase_if(groups_, [](const auto& entry) {
    return track_of(*entry.second.tensors.front()) == Track::kLockable;
  });
  std::erase_if(parts_, [](const auto& entry) { return entry.first.first == Track::kLockable; });
  of(Track::kLockable).queue.clear();
  of(Track::kLockable).errors.clear();
}

bool Coordinator::is_within_group() const {
  return !begun_.empty() || std::any_of(parts_.begin(), parts_.end(),
                                        [](const auto& of) { return of.second.has_begun; });
}

void Coordinator::resume_lockable(Seq first, BegunGroups begun) {
  if (!RUEDA_MUTANT(kStaleReadyBitAccepted)) suspend_lockable();
  begun_ = std::move(begun);
  Order& order = of(Track::kLockable);
  order.last = Seq{first.value - 1};
  order.open.erase(order.open.lower_bound(first), order.open.end());
}

}  // namespace rueda::core
