// JobCore's process sets: how they come and go, and which of them a submission is for.

#include <algorithm>
#include <utility>

#include "daemon/base/limits.h"
#include "daemon/core/job/job.h"
#include "daemon/core/plan/declared_plan.h"
#include "daemon/core/stall/stall_text.h"

namespace rueda::core {
namespace {

std::string name_of(uint32_t id) { return "process set " + std::to_string(id); }

Status invalid(const std::string& what) { return Status(Code::kInvalidArgument, what); }

}  // namespace

Collectives* JobCore::find_set(uint32_t id) {
  if (id == 0) return &collectives_;
  const auto it = sets_.find(id);
  return it == sets_.end() ? nullptr : &it->second->collectives;
}

std::vector<Collectives*> JobCore::all_sets() {
  std::vector<Collectives*> all{&collectives_};
  for (const auto& [id, set] : sets_) all.push_back(&set->collectives);
  return all;
}

std::vector<const Collectives*> JobCore::process_sets() const {
  std::vector<const Collectives*> all{&collectives_};
  for (const auto& [id, set] : sets_) all.push_back(&set->collectives);
  return all;
}

bool JobCore::any_set_locked() const {
  return is_locked() || std::any_of(sets_.begin(), sets_.end(), [](const auto& entry) {
           return entry.second->collectives.is_locked();
         });
}

size_t JobCore::submissions_in_flight() const {
  size_t count = 0;
  for (const Collectives* set : process_sets()) count += set->in_flight();
  return count;
}

size_t JobCore::submissions_of(LocalRank rank) const {
  size_t count = 0;
  for (const Collectives* set : process_sets()) count += set->submissions_of(rank);
  return count;
}

Status JobCore::unknown_set(uint32_t id) const {
  return Status(Code::kNotFound,
                name_of(id) + (id <= last_set_ ? " has been removed"
                                               : " does not exist: add it on every rank first"));
}

// Not one that has been removed, or that all of this node's ranks have asked to remove: another
// node may have closed its channels already.
bool JobCore::is_wanted(uint32_t id) {
  if (!find_set(id)) return false;
  for (size_t i = 0; id != 0 && i < layout_.node(self_).ranks.size(); ++i) {
    if (being_removed_by(LocalRank{static_cast<int32_t>(i)}) != id) return true;
  }
  return id == 0;
}

std::optional<TicksMs> JobCore::sets_wake_at() const {
  std::optional<TicksMs> earliest;
  for (const Collectives* set : process_sets()) {
    const std::optional<TicksMs> wanted = set->wakes_at();
    if (wanted && (!earliest || *wanted < *earliest)) earliest = wanted;
  }
  return earliest;
}

// --- Submissions -------------------------------------------------------------------------------

// The set that the rank has asked to remove, and still is in the order of the job; 0: none.
uint32_t JobCore::being_removed_by(LocalRank rank) const {
  const PendingTensor* change = collectives_.submissions().find(kProcessSetsName);
  if (!change) return 0;
  const auto& submission = change->by_local_rank[static_cast<size_t>(rank.value)];
  if (!submission || submission->descriptor->kind != CollectiveKind::kRemoveProcessSet) return 0;
  return submission->descriptor->process_set;
}

void JobCore::hand_to_set(LocalSubmission submission, Output& output) {
  const TensorDescriptor& descriptor = *submission.descriptor;
  const auto rank = [&] { return "rank " + std::to_string(global_rank(submission.rank).value); };
  if (Status refusal = check_joins(submission); !refusal.is_ok()) {
    return collectives_.refuse(submission, refusal, output);
  }
  if (descriptor.kind == CollectiveKind::kJoin) return join(submission, output);
  // What was to be repeated among fewer ranks would have other parts.
  const bool needs_all = has_parts(descriptor.kind) || descriptor.kind == CollectiveKind::kReduce;
  if (recovers() && needs_all) {
    const Status refusal = invalid(
        "the " + std::string(to_string(descriptor.kind)) + " of tensor \"" + descriptor.name +
        "\": a job with policy shrink has allreduces, broadcasts and barriers alone; start it with "
        "policy fail to have others");
    return collectives_.refuse(submission, refusal, output);
  }
  if (descriptor.kind == CollectiveKind::kRemoveProcessSet && descriptor.process_set != 0) {
    const Collectives* set = find_set(descriptor.process_set);
    const size_t in_flight = set ? set->submissions_of(submission.rank) : 0;
    if (in_flight > 0) {
      submission.objection = name_of(descriptor.process_set) + " cannot be removed: " + rank() +
                             " has " + std::to_string(in_flight) +
                             " operations in flight in it; wait for them first";
    }
  }
  if (descriptor.kind == CollectiveKind::kDeclarePlan) {
    const std::string flaw =
        recovers() ? "a job with policy shrink declares none yet" : find_flaw(descriptor.plan);
    if (!flaw.empty()) {
      submission.objection = "the plan that " + rank() + " declares cannot be: " + flaw;
      auto without = std::make_shared<TensorDescriptor>(descriptor);
      without->plan.clear();  // nobody is to read it
      submission.descriptor = std::move(without);
    }
    return collectives_.submit(std::move(submission), output);
  }
  if (descriptor.process_set == 0 || !moves_data(descriptor.kind)) {
    collectives_.submit(std::move(submission), output);
    return;
  }
  Collectives* set = find_set(descriptor.process_set);
  const std::string what = "tensor \"" + descriptor.name + "\": ";
  Status refusal;
  if (!set) {
    const Status unknown = unknown_set(descriptor.process_set);
    refusal = Status(unknown.code(), what + unknown.message());
  } else if (!set->has(submission.rank)) {
    refusal = invalid(what + rank() + " is not in " + name_of(set->id()) + ", which has ranks " +
                      describe_ranks(set->layout().ranks()));
  } else if (being_removed_by(submission.rank) == set->id()) {
    refusal = invalid(what + rank() + " has asked to remove " + name_of(set->id()));
  }
  if (refusal.is_ok()) {
    set->submit(std::move(submission), output);
  } else {
    collectives_.refuse(submission, refusal, output);
  }
}

Status JobCore::check_joins(const LocalSubmission& submission) const {
  const TensorDescriptor& descriptor = *submission.descriptor;
  const auto rank = [&] { return "rank " + std::to_string(global_rank(submission.rank).value); };
  const bool joins = descriptor.kind == CollectiveKind::kJoin;
  for (const Collectives* set : process_sets()) {
    if (!set->has_joined(submission.rank)) continue;
    return invalid((joins ? "a second join" : "tensor \"" + descriptor.name + '"') + ": " + rank() +
                   " has joined, and submits nothing until its join has ended on all ranks");
  }
  if (!joins && descriptor.name == kJoinName) {
    return invalid("tensor \"" + descriptor.name + "\" has the name of joins; use another");
  }
  if (!joins) return Status::ok();
  if (recovers()) {
    return invalid(rank() +
                   " cannot join: a job with policy shrink has no joins; start it with "
                   "policy fail to have them");
  }
  if (collectives_.submissions().has(submission.rank, kProcessSetsName)) {
    return invalid(rank() +
                   " cannot join while its change of process sets is in flight; wait for it");
  }
  return Status::ok();
}

// Every set of the rank goes on without it, each in an order of its own.
void JobCore::join(const LocalSubmission& submission, Output& output) {
  collectives_.submit(submission, output);
  if (!collectives_.has_joined(submission.rank)) return;
  for (const auto& [id, set] : sets_) {
    if (set->collectives.has(submission.rank)) set->collectives.submit(submission, output);
  }
}

// --- Changes -----------------------------------------------------------------------------------

// At its place in the order of the set of all ranks, which is the same on all nodes: so all come to
// the same result, and give a set the same id.
void JobCore::carry_out_changes(std::vector<OrderedOperation>& ordered, Output& output) {
  for (OrderedOperation& operation : ordered) {
    const DescriptorPtr change = collectives_.change_of(operation);
    if (!change) continue;
    if (change->kind == CollectiveKind::kDeclarePlan) {
      operation.outcome = 0;  // the agreement has seen it
      if (options_.agreement.mode != Coordination::kLocked) {
        output.notes.push_back(std::string("a plan was declared, and mode ") +
                               to_string(options_.agreement.mode) + " has no use for it");
      }
      continue;
    }
    const Result<uint32_t> result = change->kind == CollectiveKind::kAddProcessSet
                                        ? add_set(*change, output)
                                        : remove_set(change->process_set, output);
    operation.error = result.status();
    if (result.is_ok()) operation.outcome = result.value();
  }
}

Status JobCore::check_new_set(const std::vector<Rank>& ranks) const {
  const std::string text = "process set {" + describe_ranks(ranks) + "} ";
  for (size_t i = 0; i < ranks.size(); ++i) {
    if (!layout_.has_rank(ranks[i])) {
      return invalid(text + "has rank " + std::to_string(ranks[i].value) +
                     ", and the job has ranks 0 to " + std::to_string(layout_.world_size() - 1));
    }
    if (i > 0 && ranks[i - 1] == ranks[i]) {
      return invalid(text + "lists rank " + std::to_string(ranks[i].value) + " twice");
    }
  }
  for (const Collectives* set : process_sets()) {
    if (set->layout().ranks() != ranks) continue;
    return invalid(text + "exists already: it is " + name_of(set->id()));
  }
  if (sets_.size() < limits::kMaxProcessSets) return Status::ok();
  return Status(Code::kResourceExhausted, "a job has at most " +
                                              std::to_string(limits::kMaxProcessSets) +
                                              " process sets; remove one first");
}

Result<uint32_t> JobCore::add_set(const TensorDescriptor& descriptor, Output& output) {
  std::vector<Rank> ranks;
  for (const int64_t rank : descriptor.shape) ranks.push_back(Rank{static_cast<int32_t>(rank)});
  std::sort(ranks.begin(), ranks.end());
  if (recovers()) {
    // Recovery knows one order. What one survivor has of another, and one has not, would part them.
    return invalid("process set {" + describe_ranks(ranks) +
                   "} cannot be added: a job with policy shrink has the set of all ranks alone; "
                   "start it with policy fail to have others");
  }
  if (Status good = check_new_set(ranks); !good.is_ok()) return good;
  const uint32_t id = ++last_set_;
  const std::vector<Rank>& here = layout_.node(self_).ranks;
  std::vector<LocalRank> locals;
  for (size_t i = 0; i < here.size(); ++i) {
    if (std::binary_search(ranks.begin(), ranks.end(), here[i])) {
      locals.push_back(LocalRank{static_cast<int32_t>(i)});
    }
  }
  auto set = std::make_unique<AddedSet>(id, layout_.subset(ranks), std::move(locals), self_,
                                        options_, activity_);
  set->collectives.begin(epoch_, now_, nullptr);
  sets_.emplace(id, std::move(set));
  output.notes.push_back(name_of(id) + " added: ranks " + describe_ranks(ranks));
  output.sets_added.push_back({id, std::move(ranks)});
  return id;
}

// Nothing of it is in flight: no rank asks for it otherwise, nor submits to it from then on; unless
// the coordinator decrees what a rank has objected to.
Result<uint32_t> JobCore::remove_set(uint32_t id, Output& output) {
  if (id == 0) return invalid("process set 0, of all ranks, cannot be removed");
  const auto it = sets_.find(id);
  if (it == sets_.end()) return unknown_set(id);
  if (it->second->collectives.in_flight() > 0) {
    return Status(Code::kInternal, name_of(id) + " was removed with operations in flight");
  }
  sets_.erase(it);
  output.notes.push_back(name_of(id) + " removed");
  output.sets_removed.push_back(id);
  return id;
}

}  // namespace rueda::core
