#include "tests/sim/recovery/recovery_checks.h"

#include <algorithm>

namespace rueda::sim {
namespace {

std::string text(Seq seq) { return "operation " + std::to_string(seq.value); }
std::string text(int node) { return "node " + std::to_string(node); }

bool same(const core::Decision& a, const core::Decision& b) {
  Fnv1a hash_a, hash_b;
  core::hash_decision(a, hash_a);
  core::hash_decision(b, hash_b);
  return hash_a.value() == hash_b.value();
}

NodeMask mask_of_all(const std::vector<NodeIndex>& nodes) {
  NodeMask mask = 0;
  for (const NodeIndex node : nodes) mask |= mask_of(node);
  return mask;
}

}  // namespace

RecoveryChecks::RecoveryChecks(std::shared_ptr<const Plan> plan) : plan_(std::move(plan)) {
  std::vector<NodeIndex>& all = members_[Epoch{1}];
  for (int i = 0; i < plan_->node_count(); ++i) all.push_back(NodeIndex{i});
}

void RecoveryChecks::violated(const std::string& what) {
  if (violation_.empty()) violation_ = what;
}

bool RecoveryChecks::is_quorum(const std::set<int>& votes,
                               const std::vector<NodeIndex>& members) const {
  size_t count = 0;
  for (const NodeIndex member : members) count += votes.contains(member.value);
  size_t size = members.size();
  if (size % 2 == 0 && plan_->options.has_witness) {
    ++size;
    count += votes.contains(plan_->node_count());
  }
  return 2 * count > size || (2 * count == size && votes.contains(members.front().value));
}

const std::vector<NodeIndex>& RecoveryChecks::members_of(Epoch epoch) const {
  return members_.at(epoch);
}

const core::DecisionPtr* RecoveryChecks::chosen(Epoch epoch) const {
  const auto it = chosen_.find(epoch);
  return it == chosen_.end() ? nullptr : &it->second;
}

std::vector<NodeIndex> RecoveryChecks::survivors() const {
  if (!chosen_.empty() && chosen_.rbegin()->second->ends_job) return {};
  return members_.rbegin()->second;
}

// --- R4 ------------------------------------------------------------------------------------------

void RecoveryChecks::on_sent(int from, const core::RecoveryMessage& message,
                             const std::vector<NodeModel>& nodes) {
  if (const auto* accept = std::get_if<core::Accept>(&message.body)) {
    Proposal& proposal = proposals_[{message.epoch, accept->ballot}];
    if (proposal.decision && !same(*proposal.decision, *accept->decision)) {
      violated("R4 one decision: a ballot has two proposals");
    }
    proposal.decision = accept->decision;
    on_vote(message.epoch, accept->ballot, from, nodes);
  } else if (const auto* accepted = std::get_if<core::Accepted>(&message.body)) {
    on_vote(message.epoch, accepted->ballot, from, nodes);
  } else if (const auto* learn = std::get_if<core::Learn>(&message.body)) {
    const core::DecisionPtr* known = chosen(learn->decision->epoch);
    if (!known) {
      violated("R4 quorum: " + text(from) + " announces an epoch that no quorum has accepted");
    } else if (!same(**known, *learn->decision)) {
      violated("R4 one decision: two for epoch " + std::to_string(learn->decision->epoch.value));
    }
  }
}

void RecoveryChecks::on_vote(Epoch epoch, core::Ballot ballot, int voter,
                             const std::vector<NodeModel>& nodes) {
  Proposal& proposal = proposals_[{epoch, ballot}];
  if (!proposal.accepted_by.insert(voter).second || !proposal.decision) return;
  if (is_quorum(proposal.accepted_by, members_of(epoch))) {
    on_chosen(epoch, proposal.decision, nodes);
  }
}

void RecoveryChecks::on_chosen(Epoch before, const core::DecisionPtr& decision,
                               const std::vector<NodeModel>& nodes) {
  if (const core::DecisionPtr* known = chosen(decision->epoch)) {
    if (!same(**known, *decision)) {
      violated("R4 one decision: two for epoch " + std::to_string(decision->epoch.value));
    }
    return;
  }
  chosen_[decision->epoch] = decision;
  const std::vector<NodeIndex>& old = members_of(before);
  if (decision->epoch.value != before.value + 1 || decision->members.empty() ||
      !std::includes(old.begin(), old.end(), decision->members.begin(), decision->members.end())) {
    violated("R4 members: epoch " + std::to_string(decision->epoch.value) +
             " has members that the one before had not");
    return;
  }
  members_[decision->epoch] = decision->members;
  if (decision->irrecoverable != Seq{}) {
    violated("R1 P or F: " + text(decision->irrecoverable) + " is lost");
  }
  if (decision->ends_job) return;
  for (size_t i = 0; i < decision->tracks[0].operations.size(); ++i)
    check_verdict(*decision, i, nodes);
  for (size_t i = 0; i < plan_->operations.size(); ++i) {
    check_same_bits(static_cast<int>(i), nodes);
  }
}

// Checks that what the verdict promises is in the members' memories.
void RecoveryChecks::check_verdict(const core::Decision& decision, size_t index,
                                   const std::vector<NodeModel>& nodes) {
  const Seq seq{decision.tracks[0].first.value + index};
  const core::OperationVerdict& operation = decision.tracks[0].operations[index];
  const bool redo = operation.verdict == core::Verdict::kRedo;
  ++(redo ? redone_ : completed_);
  for (const NodeIndex member : decision.members) {
    const NodeModel& node = nodes[static_cast<size_t>(member.value)];
    const auto it = node.operations.find(seq.value);
    if (it == node.operations.end() || node.epoch.value + 1 != decision.epoch.value) {
      violated("R4 verdict: " + text(member.value) + " has not launched " + text(seq));
      return;
    }
    const Memory& memory = it->second;
    if (redo && memory.delivered) {
      violated("R4 verdict: " + text(seq) + " is repeated, and " + text(member.value) +
               " has delivered it");
    } else if (redo && !memory.partial) {
      violated("R4 verdict: " + text(seq) + " is repeated, and " + text(member.value) +
               " has no P of it");
    }
  }
  for (size_t chunk = 0; chunk < operation.servers.size(); ++chunk) {
    const NodeModel& server = nodes[static_cast<size_t>(operation.servers[chunk].value)];
    const Memory& memory = server.operations.at(seq.value);
    if (memory.freed || chunk >= memory.chunks.size() || memory.chunks[chunk].mask == 0) {
      violated("R4 verdict: " + text(seq) + " has a server without the chunk");
    }
  }
}

void RecoveryChecks::on_epoch(int node, const core::NextEpoch& next, const NodeModel& before) {
  const core::DecisionPtr* decision = chosen(next.epoch);
  if (!decision) {
    violated("R4 quorum: " + text(node) + " enters epoch " + std::to_string(next.epoch.value) +
             ", which no quorum has accepted");
  } else if (next.members != (*decision)->members ||
             next.returned[0] != (*decision)->tracks[0].returned()) {
    violated("R4 one decision: " + text(node) + " enters another epoch than was chosen");
  } else if (next.epoch.value != before.epoch.value + 1 && node != plan_->node_count()) {
    violated("R4 members: " + text(node) + " leaves out an epoch");
  }
}

// --- R1, R2 --------------------------------------------------------------------------------------

void RecoveryChecks::on_whole(int node, Epoch epoch, Seq seq) { whole_[{epoch, seq}].insert(node); }

void RecoveryChecks::on_partial_freed(int node, Seq seq, const std::vector<NodeModel>& nodes) {
  const Memory& memory = nodes[static_cast<size_t>(node)].operations.at(seq.value);
  if (!memory.whole()) {
    violated("R1 P until F: " + text(node) + " lets go of P of " + text(seq) +
             " before it holds all of F");
  }
}

void RecoveryChecks::on_final_freed(int node, Seq seq, const std::vector<NodeModel>& nodes) {
  const NodeModel& model = nodes[static_cast<size_t>(node)];
  if (!model.operations.at(seq.value).delivered) {
    violated("R1 F until stable: " + text(node) + " lets go of what it has not delivered");
  }
  if (plan_->options.policy == core::DeathPolicy::kFail) return;
  const std::set<int>& whole = whole_[{model.epoch, seq}];
  for (const NodeIndex member : model.members) {
    if (!whole.contains(member.value)) {
      violated("R1 F until stable: " + text(node) + " lets go of F of " + text(seq) + ", which " +
               text(member.value) + " does not hold");
    }
  }
}

void RecoveryChecks::on_added(const Frame& frame, int node, const Memory& memory) {
  if (!memory.partial) {
    violated("R1 P until F: " + text(node) + " has no P to add to " + text(frame.seq));
  }
  if (frame.value.operation != memory.operation) {
    violated("I5 order: " + text(node) + " adds one operation to another");
  }
  if ((frame.value.mask & mask_of(NodeIndex{node})) != 0) {
    violated("I5 order: " + text(node) + " counts twice in " + text(frame.seq));
  }
}

void RecoveryChecks::on_served(int node, const Memory* memory, size_t chunk) {
  if (!memory || memory->freed || chunk >= memory->chunks.size() ||
      memory->chunks[chunk].mask == 0) {
    violated("R1 F until stable: " + text(node) + " is asked for a chunk that it does not hold");
  }
}

void RecoveryChecks::on_launch(int node, Epoch epoch, Seq seq, int operation,
                               const NodeModel& model) {
  if (model.sealed || model.ended) violated("R3 seal: " + text(node) + " launches once sealed");
  const auto [it, is_new] = seqs_.emplace(std::pair(epoch, seq), operation);
  if (it->second != operation) violated("I5 one seq: " + text(seq) + " means two things");
  int64_t bytes = plan_->operations[static_cast<size_t>(operation)].bytes;
  size_t held = 1;
  for (const auto& [other, memory] : model.operations) {
    if (other == seq.value || memory.freed) continue;
    bytes += plan_->operations[static_cast<size_t>(memory.operation)].bytes;
    ++held;
  }
  const bool carried = model.operations.contains(seq.value);
  if (bytes > plan_->options.max_unstable_bytes && held > 1 && !carried) {
    violated("R2 bound: " + text(node) + " launches beyond it");
  }
}

// --- Deliveries: R3, R5, R6 ----------------------------------------------------------------------

void RecoveryChecks::on_delivery(int node, const core::CompletedOperation& completed,
                                 const std::vector<NodeModel>& nodes) {
  const NodeModel& model = nodes[static_cast<size_t>(node)];
  const Memory& memory = model.operations.at(completed.seq.value);
  if (model.sealed) violated("R3 seal: " + text(node) + " delivers once sealed");
  if (chosen(Epoch{model.epoch.value + 1})) {
    violated("R5 lease: " + text(node) + " delivers in an epoch that has been decided to end");
  }
  if (!memory.whole() || memory.delivered) {
    violated("I5 once: " + text(node) + " delivers what it does not hold, or again");
    return;
  }
  const auto contributed = members_.find(completed.epoch);
  if (contributed == members_.end()) {
    violated("R6 result: of an epoch that never was");
    return;
  }
  size_t ranks = 0;
  for (const NodeIndex member : contributed->second) {
    ranks += plan_->layout->node(member).ranks.size();
  }
  if (ranks != completed.contributors) violated("R6 result: wrong number of contributors");
  for (const ChunkValue& chunk : memory.chunks) {
    if (chunk != ChunkValue{memory.operation, mask_of_all(contributed->second)}) {
      violated("R6 result: " + text(node) + " delivers values of other nodes than it says");
    }
  }
  check_same_bits(memory.operation, nodes);
}

// I1: of the nodes that go on, all that have the operation have the same values.
void RecoveryChecks::check_same_bits(int operation, const std::vector<NodeModel>& nodes) {
  const OperationEnding* first = nullptr;
  for (const NodeIndex member : survivors()) {
    const OperationEnding& ending =
        nodes[static_cast<size_t>(member.value)].endings[static_cast<size_t>(operation)];
    if (ending.kind != OperationEnding::Kind::kDelivered) continue;
    if (!first) first = &ending;
    if (ending.value != first->value || ending.result != first->result) {
      violated("I1 divergence: survivors hold different results of operation " +
               std::to_string(operation) + " of the plan");
    }
  }
}

void RecoveryChecks::on_tensor_ended(int node, int tensor, int times) {
  if (times != 1) {
    violated("I5 once: the submission of tensor " + std::to_string(tensor) + " on " + text(node) +
             " ends " + std::to_string(times) + " times");
  }
}

// A node that was left out says so to the clients whose results the others have repeated.
void RecoveryChecks::on_ended(int node, const core::JobEnd& end, const NodeModel& model) {
  if (end.status.is_ok()) violated("I5 once: " + text(node) + " ends without a reason");
  diverged_ += end.diverged.size();
  const core::DecisionPtr* decision = chosen(Epoch{model.epoch.value + 1});
  if (!decision || (*decision)->ends_job) return;
  for (const auto& [seq, memory] : model.operations) {
    if (!memory.delivered || seq < (*decision)->tracks[0].first.value ||
        seq >= (*decision)->tracks[0].returned().value) {
      continue;
    }
    const bool redo =
        (*decision)->tracks[0].operations[seq - (*decision)->tracks[0].first.value].verdict ==
        core::Verdict::kRedo;
    const bool told =
        std::find(end.diverged.begin(), end.diverged.end(), Seq{seq}) != end.diverged.end();
    const bool left_out = !std::binary_search((*decision)->members.begin(),
                                              (*decision)->members.end(), NodeIndex{node});
    if (redo && !told && left_out && model.core->epoch() > model.epoch) {
      violated("R5 diverged: " + text(node) + " does not tell its clients");
    }
  }
}

void RecoveryChecks::hash(Fnv1a& hash) const {
  hash.add(chosen_.size());
  for (const auto& [epoch, decision] : chosen_) core::hash_decision(*decision, hash);
  for (const auto& [key, proposal] : proposals_) {
    hash.add(key.first.value).add(key.second.round);
    hash.add(static_cast<uint64_t>(key.second.node.value)).add(proposal.accepted_by.size());
    for (const int node : proposal.accepted_by) hash.add(static_cast<uint64_t>(node));
    if (proposal.decision) core::hash_decision(*proposal.decision, hash);
  }
  for (const auto& [key, nodes] : whole_) {
    hash.add(key.first.value).add(key.second.value);
    for (const int node : nodes) hash.add(static_cast<uint64_t>(node));
  }
}

}  // namespace rueda::sim
