#include "daemon/core/job/process_sets.h"

#include <algorithm>
#include <utility>

#include "daemon/base/limits.h"
#include "daemon/core/plan/declared_plan.h"
#include "daemon/core/stall/stall_text.h"

namespace rueda::core {
namespace {

std::vector<LocalRank> all_locals(const Layout& layout, NodeIndex self) {
  std::vector<LocalRank> locals;
  for (size_t i = 0; i < layout.node(self).ranks.size(); ++i) {
    locals.push_back(LocalRank{static_cast<int32_t>(i)});
  }
  return locals;
}

std::string name_of(uint32_t id) { return "process set " + std::to_string(id); }

Status invalid_request(const std::string& what) { return Status(Code::kInvalidArgument, what); }

}  // namespace

ProcessSets::ProcessSets(const Layout& layout, NodeIndex self, const JobOptions& options)
    : layout_(layout),
      self_(self),
      options_(options),
      transfers_(layout, self, options.stall,
                 [this](uint32_t id) {
                   const Collectives* set = std::as_const(*this).find(id);
                   return set ? &set->layout() : nullptr;
                 }),
      all_ranks_(0, layout, all_locals(layout, self), self, options, activity_) {}

void ProcessSets::set_now(TicksUs now) {
  now_ = now;
  transfers_.set_now(now);
  all_ranks_.set_now(now);
  for (const auto& [id, set] : added_) set->collectives.set_now(now);
}

void ProcessSets::begin(Epoch epoch, Recovery* recovery) {
  epoch_ = epoch;
  transfers_.begin(epoch);
  all_ranks_.begin(epoch, now_, recovery);
}

void ProcessSets::adopt(const NextEpoch& next, Output& output) {
  epoch_ = next.epoch;
  activity_.forget();
  all_ranks_.adopt(next, now_, output);
}

void ProcessSets::end() {
  transfers_.end();
  all_ranks_.end();
  added_.clear();
  last_id_ = 0;
  activity_.forget();
}

void ProcessSets::fail(const Status& cause, Output& output) {
  transfers_.fail(cause, output);
  all_ranks_.fail(cause, output);
  for (const auto& [id, set] : added_) set->collectives.fail(cause, output);
}

// --- Which sets there are ------------------------------------------------------------------------

Collectives* ProcessSets::find(uint32_t id) {
  if (id == 0) return &all_ranks_;
  const auto it = added_.find(id);
  return it == added_.end() ? nullptr : &it->second->collectives;
}

const Collectives* ProcessSets::find(uint32_t id) const {
  if (id == 0) return &all_ranks_;
  const auto it = added_.find(id);
  return it == added_.end() ? nullptr : &it->second->collectives;
}

std::vector<Collectives*> ProcessSets::every() {
  std::vector<Collectives*> sets{&all_ranks_};
  for (const auto& [id, set] : added_) sets.push_back(&set->collectives);
  return sets;
}

std::vector<const Collectives*> ProcessSets::every() const {
  std::vector<const Collectives*> sets{&all_ranks_};
  for (const auto& [id, set] : added_) sets.push_back(&set->collectives);
  return sets;
}

std::vector<Collectives*> ProcessSets::added() {
  std::vector<Collectives*> sets;
  for (const auto& [id, set] : added_) sets.push_back(&set->collectives);
  return sets;
}

std::vector<uint32_t> ProcessSets::ids() const {
  std::vector<uint32_t> ids{0};
  for (const auto& [id, set] : added_) ids.push_back(id);
  return ids;
}

Status ProcessSets::unknown(uint32_t id) const {
  return Status(Code::kNotFound,
                name_of(id) + (id <= last_id_ ? " has been removed"
                                              : " does not exist: add it on every rank first"));
}

bool ProcessSets::is_wanted(uint32_t id) {
  if (!find(id)) return false;
  for (size_t i = 0; id != 0 && i < layout_.node(self_).ranks.size(); ++i) {
    if (being_removed_by(LocalRank{static_cast<int32_t>(i)}) != id) return true;
  }
  return id == 0;
}

std::string ProcessSets::name(LocalRank rank) const {
  const Rank global = layout_.node(self_).ranks[static_cast<size_t>(rank.value)];
  return "rank " + std::to_string(global.value);
}

// --- Submissions -------------------------------------------------------------------------------

uint32_t ProcessSets::being_removed_by(LocalRank rank) const {
  const PendingTensor* change = all_ranks_.submissions().find(kProcessSetsName);
  if (!change) return 0;
  const auto& submission = change->by_local_rank[static_cast<size_t>(rank.value)];
  if (!submission || submission->descriptor->kind != CollectiveKind::kRemoveProcessSet) return 0;
  return submission->descriptor->process_set;
}

void ProcessSets::submit(LocalSubmission submission, Output& output) {
  const TensorDescriptor& descriptor = *submission.descriptor;
  if (Status refusal = check_joins(submission); !refusal.is_ok()) {
    return all_ranks_.refuse(submission, refusal, output);
  }
  if (descriptor.kind == CollectiveKind::kJoin) return join(submission, output);
  if (is_transfer(descriptor.kind)) {
    const Status refusal = check_transfer(submission);
    if (!refusal.is_ok()) return all_ranks_.refuse(submission, refusal, output);
    return transfers_.submit(std::move(submission), output);
  }
  // A collective of this kind that is repeated among fewer ranks would have other parts.
  const bool needs_all = has_parts(descriptor.kind) || descriptor.kind == CollectiveKind::kReduce;
  if (recovers() && needs_all) {
    const Status refusal = invalid_request(
        "the " + std::string(to_string(descriptor.kind)) + " of tensor \"" + descriptor.name +
        "\": a job with policy shrink has allreduces, broadcasts and barriers alone; start it with "
        "policy fail to have others");
    return all_ranks_.refuse(submission, refusal, output);
  }
  if (descriptor.kind == CollectiveKind::kRemoveProcessSet && descriptor.process_set != 0) {
    const Collectives* set = find(descriptor.process_set);
    const size_t in_flight =
        set ? set->submissions_of(submission.rank) +
                  transfers_.submissions_of(submission.rank, descriptor.process_set)
            : 0;
    if (in_flight > 0) {
      submission.objection =
          name_of(descriptor.process_set) + " cannot be removed: " + name(submission.rank) +
          " has " + std::to_string(in_flight) + " operations in flight in it; wait for them first";
    }
  }
  if (descriptor.kind == CollectiveKind::kDeclarePlan) {
    const std::string flaw =
        recovers() ? "a job with policy shrink declares none yet" : find_flaw(descriptor.plan);
    if (!flaw.empty()) {
      submission.objection =
          "the plan that " + name(submission.rank) + " declares cannot be: " + flaw;
      auto without = std::make_shared<TensorDescriptor>(descriptor);
      without->plan.clear();  // Nobody has to read a plan with a flaw.
      submission.descriptor = std::move(without);
    }
    return all_ranks_.submit(std::move(submission), output);
  }
  if (descriptor.process_set == 0 || !moves_data(descriptor.kind)) {
    all_ranks_.submit(std::move(submission), output);
    return;
  }
  if (Status refusal = check_set(submission); !refusal.is_ok()) {
    return all_ranks_.refuse(submission, refusal, output);
  }
  find(descriptor.process_set)->submit(std::move(submission), output);
}

Status ProcessSets::check_set(const LocalSubmission& submission) const {
  const TensorDescriptor& descriptor = *submission.descriptor;
  const Collectives* set = find(descriptor.process_set);
  const std::string what = "tensor \"" + descriptor.name + "\": ";
  if (!set) {
    const Status missing = unknown(descriptor.process_set);
    return {missing.code(), what + missing.message()};
  }
  if (!set->has(submission.rank)) {
    return invalid_request(what + name(submission.rank) + " is not in " + name_of(set->id()) +
                           ", which has ranks " + describe_ranks(set->layout().ranks()));
  }
  if (set->id() != 0 && being_removed_by(submission.rank) == set->id()) {
    return invalid_request(what + name(submission.rank) + " has asked to remove " +
                           name_of(set->id()));
  }
  return Status::ok();
}

Status ProcessSets::check_transfer(const LocalSubmission& submission) const {
  const TensorDescriptor& descriptor = *submission.descriptor;
  if (recovers()) {
    return invalid_request("the " + descriptor.name +
                           ": a job with policy shrink has no transfers between ranks; start it "
                           "with policy fail to have them");
  }
  if (Status refusal = check_set(submission); !refusal.is_ok()) return refusal;
  const Layout& layout = find(descriptor.process_set)->layout();
  const bool is_from_any =
      descriptor.kind == CollectiveKind::kReceive && descriptor.peer == kAnySource;
  if (is_from_any || layout.has_rank(descriptor.peer)) return Status::ok();
  return invalid_request("the " + descriptor.name + ": " + name_of(descriptor.process_set) +
                         " has ranks " + describe_ranks(layout.ranks()) + ", and not rank " +
                         std::to_string(descriptor.peer.value));
}

Status ProcessSets::check_joins(const LocalSubmission& submission) const {
  const TensorDescriptor& descriptor = *submission.descriptor;
  const bool joins = descriptor.kind == CollectiveKind::kJoin;
  for (const Collectives* set : every()) {
    if (!set->has_joined(submission.rank)) continue;
    return invalid_request(
        (joins ? "a second join" : "tensor \"" + descriptor.name + '"') + ": " +
        name(submission.rank) +
        " has joined, and submits nothing until its join has ended on all ranks");
  }
  if (!joins && descriptor.name == kJoinName) {
    return invalid_request("tensor \"" + descriptor.name + "\" has the name of joins; use another");
  }
  if (!joins) return Status::ok();
  if (recovers()) {
    return invalid_request(name(submission.rank) +
                           " cannot join: a job with policy shrink has no joins; start it with "
                           "policy fail to have them");
  }
  if (all_ranks_.submissions().has(submission.rank, kProcessSetsName)) {
    return invalid_request(
        name(submission.rank) +
        " cannot join while its change of process sets is in flight; wait for it");
  }
  return Status::ok();
}

// Every set of the rank goes on without the rank, each in an order of its own.
void ProcessSets::join(const LocalSubmission& submission, Output& output) {
  all_ranks_.submit(submission, output);
  if (!all_ranks_.has_joined(submission.rank)) return;
  for (const auto& [id, set] : added_) {
    if (set->collectives.has(submission.rank)) set->collectives.submit(submission, output);
  }
}

size_t ProcessSets::in_flight() const {
  size_t count = transfers_.in_flight();
  for (const Collectives* set : every()) count += set->in_flight();
  return count;
}

size_t ProcessSets::submissions_of(LocalRank rank) const {
  size_t count = transfers_.submissions_of(rank);
  for (const Collectives* set : every()) count += set->submissions_of(rank);
  return count;
}

void ProcessSets::set_waited(LocalRank rank, std::optional<Ticket> ticket) {
  all_ranks_.set_waited(rank, ticket);
  for (const auto& [id, set] : added_) set->collectives.set_waited(rank, ticket);
}

// --- The order -----------------------------------------------------------------------------------

bool ProcessSets::is_any_locked() const {
  return all_ranks_.is_locked() || std::any_of(added_.begin(), added_.end(), [](const auto& entry) {
           return entry.second->collectives.is_locked();
         });
}

Status ProcessSets::launch_ordered(Collectives& set, Output& output) {
  const bool holds = std::any_of(added_.begin(), added_.end(), [](const auto& entry) {
    return entry.second->collectives.has_anybody_joined();
  });
  all_ranks_.hold_join(holds);
  const bool had_joined = set.has_anybody_joined();
  if (Status status = set.launch_ordered(output); !status.is_ok()) return status;
  // The join of all ranks may have waited for this set's join.
  if (set.id() != 0 && had_joined) return launch_ordered(all_ranks_, output);
  return Status::ok();
}

std::optional<TicksUs> ProcessSets::wakes_at_us() const {
  std::optional<TicksUs> earliest;
  if (const std::optional<TicksMs> look = transfers_.wakes_at()) earliest = to_us(*look);
  for (const Collectives* set : every()) {
    const std::optional<TicksUs> wanted = set->wakes_at_us();
    if (wanted && (!earliest || *wanted < *earliest)) earliest = wanted;
  }
  return earliest;
}

void ProcessSets::carry_out_changes(std::vector<OrderedOperation>& ordered, Output& output) {
  for (OrderedOperation& operation : ordered) {
    const DescriptorPtr change = all_ranks_.change_of(operation);
    if (!change) continue;
    if (change->kind == CollectiveKind::kDeclarePlan) {
      operation.outcome = 0;  // The agreement has seen the plan.
      if (options_.agreement.mode != Coordination::kLocked) {
        output.notes.push_back(std::string("a plan was declared, and mode ") +
                               to_string(options_.agreement.mode) + " has no use for it");
      }
      continue;
    }
    const Result<uint32_t> result = change->kind == CollectiveKind::kAddProcessSet
                                        ? add(*change, output)
                                        : remove(change->process_set, output);
    operation.error = result.status();
    if (result.is_ok()) operation.outcome = result.value();
  }
}

Status ProcessSets::check_new(const std::vector<Rank>& ranks) const {
  const std::string text = "process set {" + describe_ranks(ranks) + "} ";
  for (size_t i = 0; i < ranks.size(); ++i) {
    if (!layout_.has_rank(ranks[i])) {
      return invalid_request(text + "has rank " + std::to_string(ranks[i].value) +
                             ", and the job has ranks 0 to " +
                             std::to_string(layout_.world_size() - 1));
    }
    if (i > 0 && ranks[i - 1] == ranks[i]) {
      return invalid_request(text + "lists rank " + std::to_string(ranks[i].value) + " twice");
    }
  }
  for (const Collectives* set : every()) {
    if (set->layout().ranks() != ranks) continue;
    return invalid_request(text + "exists already: it is " + name_of(set->id()));
  }
  if (added_.size() < limits::kMaxProcessSets) return Status::ok();
  return Status(Code::kResourceExhausted, "a job has at most " +
                                              std::to_string(limits::kMaxProcessSets) +
                                              " process sets; remove one first");
}

Result<uint32_t> ProcessSets::add(const TensorDescriptor& descriptor, Output& output) {
  std::vector<Rank> ranks;
  for (const int64_t rank : descriptor.shape) ranks.push_back(Rank{static_cast<int32_t>(rank)});
  std::sort(ranks.begin(), ranks.end());
  if (recovers()) {
    // Recovery knows one order. With several orders, one survivor could have something of another
    // order that another survivor lacks, and they would diverge.
    return invalid_request(
        "process set {" + describe_ranks(ranks) +
        "} cannot be added: a job with policy shrink has the set of all ranks alone; "
        "start it with policy fail to have others");
  }
  if (Status good = check_new(ranks); !good.is_ok()) return good;
  const uint32_t id = ++last_id_;
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
  added_.emplace(id, std::move(set));
  output.notes.push_back(name_of(id) + " added: ranks " + describe_ranks(ranks));
  output.sets_added.push_back({id, std::move(ranks)});
  transfers_.on_set_added(id, output);
  return id;
}

// Nothing of the set is in flight, because no rank asks for the removal otherwise, nor submits to
// the set from then on. That fails only if the coordinator decrees what a rank has objected to.
Result<uint32_t> ProcessSets::remove(uint32_t id, Output& output) {
  if (id == 0) return invalid_request("process set 0, of all ranks, cannot be removed");
  const auto it = added_.find(id);
  if (it == added_.end()) return unknown(id);
  if (it->second->collectives.in_flight() > 0) {
    return Status(Code::kInternal, name_of(id) + " was removed with operations in flight");
  }
  added_.erase(it);
  output.notes.push_back(name_of(id) + " removed");
  output.sets_removed.push_back(id);
  return id;
}

}  // namespace rueda::core
