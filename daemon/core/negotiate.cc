// The `negotiate` mode: every step, each node sends the coordinator the list of tensors that all
// its ranks have submitted, and gets an ordered list of batches back (Sergeev and Del Balso 2018,
// with nodes in the place of ranks, and events in the place of a cycle).

#include <algorithm>
#include <deque>
#include <map>
#include <set>
#include <string>

#include "daemon/core/agreement.h"

namespace rueda::core {
namespace {

// Bounds a message: a node with more ready tensors sends several.
constexpr size_t kMaxEntriesPerReady = 2048;

// The coordinator's part: counts reports and calls the order.
class Caller {
 public:
  Caller(const Layout& layout, const AgreementOptions& options)
      : layout_(layout), options_(options) {}

  Status on_report(NodeIndex from, const ReadyTensor& tensor);
  void on_rank_left(Rank rank);
  void on_operation_ended() { --open_operations_; }
  // Appends the operations that are to be decreed now.
  void call(std::vector<OrderedOperation>& decreed);

 private:
  struct Entry {
    DescriptorPtr descriptor;  // of the lowest rank that has reported
    Rank rank;
    std::vector<bool> reported;  // by node
    int reports = 0;
    Code error_code = Code::kOk;
    std::string error;
  };
  // Complete members of a group that waits for the rest.
  struct Group {
    std::vector<DescriptorPtr> tensors;
    Status error;
  };

  bool can_complete(const Entry& entry) const;
  static void note_error(Entry& entry, Code code, std::string text);
  void check_root(Entry& entry) const;
  void finish(Entry entry);
  void enqueue(std::vector<DescriptorPtr> tensors, const Status& error);

  const Layout& layout_;
  const AgreementOptions options_;
  std::map<std::string, Entry> table_;  // ordered: what happens must not depend on hashing
  std::map<std::string, Group> groups_;
  std::deque<FusionUnit> queue_;
  std::vector<OrderedOperation> errors_;
  std::set<Rank> left_;
  Seq last_{0};
  int open_operations_ = 0;
};

void Caller::note_error(Entry& entry, Code code, std::string text) {
  if (entry.error_code != Code::kOk) return;
  entry.error_code = code;
  entry.error = std::move(text);
}

Status Caller::on_report(NodeIndex from, const ReadyTensor& tensor) {
  const std::string& name = tensor.descriptor->name;
  const auto [it, is_new] = table_.try_emplace(name);
  Entry& entry = it->second;
  if (is_new) {
    entry.descriptor = tensor.descriptor;
    entry.rank = tensor.rank;
    entry.reported.resize(static_cast<size_t>(layout_.node_count()));
  }
  const auto node = static_cast<size_t>(from.value);
  if (entry.reported[node]) {
    return Status(Code::kInternal,
                  "node " + layout_.node(from).node_id + " reported tensor \"" + name + "\" twice");
  }
  entry.reported[node] = true;
  ++entry.reports;
  if (!tensor.mismatch.empty()) note_error(entry, Code::kMismatch, tensor.mismatch);
  if (!is_new && *entry.descriptor != *tensor.descriptor) {
    note_error(entry, Code::kMismatch,
               describe_mismatch(*entry.descriptor, entry.rank, *tensor.descriptor, tensor.rank));
  }
  // One rank's groups are whole; a mixture of several ranks' groups might wait for ever.
  if (tensor.rank < entry.rank) {
    entry.descriptor = tensor.descriptor;
    entry.rank = tensor.rank;
  }
  if (entry.reports == layout_.node_count() || !can_complete(entry)) {
    Entry done = std::move(entry);
    table_.erase(it);
    finish(std::move(done));
  }
  return Status::ok();
}

bool Caller::can_complete(const Entry& entry) const {
  return std::all_of(left_.begin(), left_.end(), [&](Rank rank) {
    return entry.reported[static_cast<size_t>(layout_.node_of(rank).value)];
  });
}

void Caller::on_rank_left(Rank rank) {
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
}

void Caller::check_root(Entry& entry) const {
  const TensorDescriptor& descriptor = *entry.descriptor;
  if (descriptor.kind != CollectiveKind::kBroadcast || layout_.has_rank(descriptor.root)) return;
  note_error(entry, Code::kInvalidArgument,
             "tensor \"" + descriptor.name + "\" is to be broadcast from rank " +
                 std::to_string(descriptor.root.value) + ", and the job has ranks 0 to " +
                 std::to_string(layout_.world_size() - 1));
}

void Caller::finish(Entry entry) {
  if (!can_complete(entry)) {
    note_error(entry, Code::kShutDown, describe_left(entry.descriptor->name, *left_.begin()));
  }
  check_root(entry);
  const Status error =
      entry.error_code == Code::kOk ? Status::ok() : Status(entry.error_code, entry.error);
  const std::string& group_name = entry.descriptor->group;
  if (group_name.empty()) {
    enqueue({entry.descriptor}, error);
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

void Caller::enqueue(std::vector<DescriptorPtr> tensors, const Status& error) {
  if (!error.is_ok()) {
    OrderedOperation operation;
    for (const DescriptorPtr& tensor : tensors) operation.tensors.push_back(tensor->name);
    operation.error = error;
    errors_.push_back(std::move(operation));
    return;
  }
  // A group of several dtypes becomes ready as one and is carried out as one operation a dtype.
  while (!tensors.empty()) {
    FusionUnit unit;
    const DescriptorPtr first = tensors.front();
    const auto rest = std::stable_partition(
        tensors.begin(), tensors.end(),
        [&](const DescriptorPtr& tensor) { return tensor == first || can_fuse(*first, *tensor); });
    unit.tensors.assign(tensors.begin(), rest);
    tensors.erase(tensors.begin(), rest);
    queue_.push_back(std::move(unit));
  }
}

void Caller::call(std::vector<OrderedOperation>& decreed) {
  const auto number = [&](OrderedOperation operation) {
    operation.seq = Seq{++last_.value};
    ++open_operations_;
    decreed.push_back(std::move(operation));
  };
  for (OrderedOperation& operation : errors_) number(std::move(operation));
  errors_.clear();
  while (!queue_.empty() && open_operations_ < options_.max_open_operations) {
    const std::vector<DescriptorPtr> batch = take_batch(queue_, options_.fusion);
    OrderedOperation operation;
    operation.plan_hash = plan_hash(batch);
    for (const DescriptorPtr& tensor : batch) operation.tensors.push_back(tensor->name);
    number(std::move(operation));
  }
}

class Negotiate final : public Agreement {
 public:
  Negotiate(const Layout& layout, NodeIndex self, const AgreementOptions& options)
      : layout_(layout), self_(self) {
    if (self == layout.coordinator()) caller_ = std::make_unique<Caller>(layout, options);
  }

  const char* mode() const override { return "negotiate"; }

  void on_local_ready(ReadyTensor tensor) override {
    if (caller_) {
      const Status reported = caller_->on_report(self_, tensor);
      RUEDA_CHECK(reported.is_ok());  // the submission table lets no name in twice
    } else {
      unsent_.entries.push_back(std::move(tensor));
    }
  }

  Status on_ready(NodeIndex from, const Ready& ready) override {
    if (!caller_) return misdirected(from, "a ready list");
    for (const ReadyTensor& tensor : ready.entries) {
      if (Status status = caller_->on_report(from, tensor); !status.is_ok()) return status;
    }
    return Status::ok();
  }

  Status on_decree(NodeIndex from, const Decree& decree) override {
    if (from != layout_.coordinator() || caller_) return misdirected(from, "a decree");
    for (const OrderedOperation& operation : decree.operations) {
      if (operation.seq.value != last_seen_.value + 1) {
        return Status(Code::kInternal, "the coordinator on node " + layout_.node(from).node_id +
                                           " sent operation " +
                                           std::to_string(operation.seq.value) + " after " +
                                           std::to_string(last_seen_.value));
      }
      last_seen_ = operation.seq;
      ordered_.push_back(operation);
    }
    return Status::ok();
  }

  void on_rank_left(Rank rank) override {
    if (caller_) caller_->on_rank_left(rank);
  }

  void on_operation_ended(Seq) override {
    if (caller_) caller_->on_operation_ended();
  }

  void end_turn(AgreementOutput& output) override {
    if (caller_) {
      call_order(output);
    } else {
      send_ready(output);
    }
    std::move(ordered_.begin(), ordered_.end(), std::back_inserter(output.ordered));
    ordered_.clear();
  }

 private:
  Status misdirected(NodeIndex from, const char* what) const {
    return Status(Code::kInternal, "node " + layout_.node(from).node_id + " sent " + what +
                                       " to node " + layout_.node(self_).node_id +
                                       ", which has no use for it");
  }

  void call_order(AgreementOutput& output) {
    caller_->call(ordered_);
    if (ordered_.empty()) return;
    for (int node = 0; node < layout_.node_count(); ++node) {
      if (NodeIndex{node} != self_) output.sends.emplace_back(NodeIndex{node}, Decree{ordered_});
    }
  }

  void send_ready(AgreementOutput& output) {
    for (size_t begin = 0; begin < unsent_.entries.size(); begin += kMaxEntriesPerReady) {
      const size_t end = std::min(begin + kMaxEntriesPerReady, unsent_.entries.size());
      Ready part;
      part.entries.assign(unsent_.entries.begin() + static_cast<std::ptrdiff_t>(begin),
                          unsent_.entries.begin() + static_cast<std::ptrdiff_t>(end));
      output.sends.emplace_back(layout_.coordinator(), std::move(part));
    }
    unsent_.entries.clear();
  }

  const Layout& layout_;
  const NodeIndex self_;
  std::unique_ptr<Caller> caller_;  // on the coordinator's node
  Ready unsent_;
  std::vector<OrderedOperation> ordered_;
  Seq last_seen_{0};
};

}  // namespace

std::string describe_left(const std::string& tensor, Rank rank) {
  return "tensor \"" + tensor + "\" cannot complete: rank " + std::to_string(rank.value) +
         " has left the job (its rueda_shutdown ran)";
}

std::unique_ptr<Agreement> make_negotiate_agreement(const Layout& layout, NodeIndex self,
                                                    const AgreementOptions& options) {
  return std::make_unique<Negotiate>(layout, self, options);
}

}  // namespace rueda::core
