// Checks policy `shrink`: what an epoch may make of the one before.

#include <algorithm>

#include "tests/sim/check/checkers.h"
#include "tests/sim/check/trace.h"
#include "tests/sim/setup/names.h"

namespace rueda::sim {

uint32_t Checkers::ranks_of(const std::vector<NodeIndex>& members) const {
  size_t ranks = 0;
  for (const NodeIndex member : members) ranks += layout_.node(member).ranks.size();
  return static_cast<uint32_t>(ranks);
}

bool Checkers::is_quorum(const std::set<int>& votes, const std::vector<NodeIndex>& members) const {
  const auto count =
      static_cast<size_t>(std::count_if(members.begin(), members.end(), [&](NodeIndex member) {
        return votes.contains(member.value);
      }));
  const bool can_tie = members.size() % 2 == 0;
  if (can_tie && has_witness_) {
    const size_t with_witness = count + (votes.contains(layout_.node_count()) ? 1 : 0);
    return 2 * with_witness > members.size() + 1;
  }
  return 2 * count > members.size() ||
         (can_tie && 2 * count == members.size() && votes.contains(members.front().value));
}

void Checkers::on_witness(const core::Output& output) {
  for (const auto& [to, message] : output.sends) on_vote(message.from, message);
}

// Counts a vote. A proposer votes for what it proposes.
void Checkers::on_vote(NodeIndex node, const core::Message& message) {
  const auto* recovery = std::get_if<core::RecoveryBody>(&message.body);
  if (!recovery) return;
  if (const auto* accept = std::get_if<core::Accept>(recovery)) {
    votes_[{message.epoch.value, accept->ballot}].insert(node.value);
  } else if (const auto* accepted = std::get_if<core::Accepted>(recovery)) {
    votes_[{message.epoch.value, accepted->ballot}].insert(node.value);
  }
}

void Checkers::on_recovered(NodeIndex node, const core::NextEpoch& next) {
  Node& model = at(node);
  check_epoch(node, next);
  const Epoch before{model.epoch};
  std::map<Seq, Launched> under_way;
  std::map<Seq, Name> completed;
  for (const core::CarriedOperation& operation : next.operations) {
    if (operation.verdict != core::Verdict::kComplete) continue;
    const auto launched = model.under_way.find(operation.was);
    if (launched != model.under_way.end()) {
      const bool is_whole =
          std::none_of(next.fetches.begin(), next.fetches.end(),
                       [&](const core::Fetch& fetch) { return fetch.seq == operation.seq; });
      if (is_whole) {
        completed[operation.seq] = Name{};
      } else {
        under_way[operation.seq] = {Name{}, std::move(launched->second.launch)};
      }
    } else if (model.completed.contains(operation.was)) {
      completed[operation.seq] = Name{};
    }
  }
  model.under_way = std::move(under_way);
  model.completed = std::move(completed);
  model.epoch = next.epoch.value;
  model.members = next.members;
  model.generation = 0;
  model.resumed_at = Seq{0};
  model.last[0] = core::before_first_of(core::Track::kLockable);
  model.last[1] = core::before_first_of(core::Track::kDecreed);
  if (decreed_epoch_ < next.epoch.value) {
    decreed_epoch_ = next.epoch.value;
    decreed_ = Seq{next.next_seq[0].value - 1};
    last_generation_ = 0;
  }
}

void Checkers::check_epoch(NodeIndex node, const core::NextEpoch& next) {
  const Node& model = at(node);
  const std::string what = "epoch " + std::to_string(next.epoch.value);
  if (next.epoch.value != model.epoch + 1) {
    violated("R4: " + name_of(node) + " enters " + what + " after " + std::to_string(model.epoch));
  }
  if (std::find(next.members.begin(), next.members.end(), node) == next.members.end()) {
    violated("R4: " + name_of(node) + " enters " + what + ", of which it is no member");
  }
  const auto [it, is_first] =
      epochs_.try_emplace(next.epoch.value, EntryOfEpoch{model.members, next});
  if (is_first) {
    const bool is_voted = std::any_of(votes_.begin(), votes_.end(), [&](const auto& votes) {
      return votes.first.first == model.epoch && is_quorum(votes.second, model.members);
    });
    if (!is_voted) violated("R4: " + what + " begins, and no quorum has voted for one");
    check_verdicts(model, next);
    return;
  }
  const core::NextEpoch& first = it->second.next;
  const auto same = [](const core::CarriedOperation& a, const core::CarriedOperation& b) {
    return a.was == b.was && a.seq == b.seq && a.verdict == b.verdict;
  };
  if (first.members != next.members || first.returned != next.returned ||
      first.next_seq != next.next_seq || first.left != next.left ||
      !std::equal(first.operations.begin(), first.operations.end(), next.operations.begin(),
                  next.operations.end(), same)) {
    violated("R4: " + name_of(node) + " enters another " + what +
             " than the first: " + describe(next) + "; and: " + describe(first));
  }
}

// Checks the verdicts on the first node that enters; they are the same on the others.
void Checkers::check_verdicts(const Node& model, const core::NextEpoch& next) {
  const auto delivered_by_member = [&](const Operation& operation) {
    return std::any_of(next.members.begin(), next.members.end(), [&](NodeIndex member) {
      return operation.delivered_on.contains(member.value);
    });
  };
  std::map<Key, Operation> carried;
  for (auto it = operations_.lower_bound(Key{model.epoch, Seq{0}, Name{}});
       it != operations_.end() && std::get<0>(it->first) == model.epoch; ++it) {
    const Seq was = std::get<1>(it->first);
    const Operation& operation = it->second;
    const auto verdict =
        std::find_if(next.operations.begin(), next.operations.end(),
                     [&](const core::CarriedOperation& each) { return each.was == was; });
    if (verdict == next.operations.end()) {
      const bool returned = was >= next.returned[core::index_of(core::track_of(was))];
      if (returned && delivered_by_member(operation)) {
        violated("R4: the tensors of operation " + std::to_string(core::number_of(was)) +
                 " return, and somebody who goes on has delivered it");
      }
      continue;
    }
    const bool is_complete = verdict->verdict == core::Verdict::kComplete;
    if (!is_complete && delivered_by_member(operation)) {
      violated("R4: operation " + std::to_string(core::number_of(was)) +
               " is repeated, and somebody who goes on has delivered it");
    }
    // If there are several operations under one number, the verdict is about the one that all nodes
    // have launched.
    const bool by_all =
        std::all_of(operation.members.begin(), operation.members.end(),
                    [&](NodeIndex member) { return operation.launched_on.contains(member.value); });
    if (!is_complete || (!by_all && !operation.failed) || operation.members.empty()) continue;
    Operation& next_one = carried[key(next.epoch, verdict->seq, {})] = operation;
    next_one.carried = true;
  }
  operations_.merge(carried);
  for (const core::CarriedOperation& operation : next.operations) {
    Operation& entry = operations_[key(next.epoch, operation.seq, {})];
    entry.carried = operation.verdict != core::Verdict::kRedo;
    completed_by_decision_ += operation.verdict == core::Verdict::kComplete;
    repeated_ += operation.verdict == core::Verdict::kRedo;
  }
}

void Checkers::check_fenced(NodeIndex node) {
  const auto next = epochs_.find(at(node).epoch + 1);
  if (next == epochs_.end()) return;
  const std::vector<NodeIndex>& members = next->second.next.members;
  if (std::find(members.begin(), members.end(), node) == members.end()) {
    violated("R5: " + name_of(node) + " delivers, and was left out of epoch " +
             std::to_string(next->first));
  }
}

}  // namespace rueda::sim
