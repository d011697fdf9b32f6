// Checks rule L11: who is absent, and who was the last to join.

#include "tests/sim/check/checkers.h"
#include "tests/sim/setup/names.h"

namespace rueda::sim {

void Checkers::check_absent(NodeIndex node, const core::Launch& launch,
                            const core::TensorDescriptor& descriptor, size_t local) {
  const Rank rank = layout_.node(node).ranks[local];
  const std::string without = "L11: " + name_of(launch.seq) + " is launched without " +
                              descriptor.name + " of " + name_of(rank);
  if (dead_[static_cast<size_t>(rank.value)]) return;
  if (!joined_[static_cast<size_t>(rank.value)]) violated(without + ", which has not joined");
  operations_[key(launch.epoch, launch.seq, name_in(launch))].without.insert(rank);
  for (const auto& [ticket, submitted] : open(rank)) {
    const bool is_it = submitted->name == descriptor.name &&
                       !ending_.contains({rank.value, ticket}) &&
                       !is_in_another(node, launch.seq, local, Ticket{ticket});
    if (is_it) violated(without + ", which has submitted it");
  }
  if (launch.locked) violated(without + ", by a plan");
  const bool takes_zeros =
      descriptor.kind == CollectiveKind::kBarrier ||
      (descriptor.kind == CollectiveKind::kAllreduce &&
       (descriptor.op == ReduceOp::kSum || descriptor.op == ReduceOp::kAverage));
  if (!takes_zeros) violated(without + ", whose zeros would spoil it");
}

void Checkers::note_absent(Rank rank, const Operation& of) {
  const auto index = static_cast<size_t>(rank.value);
  if (!joined_[index]) gone_on_without_[index].insert(of.without.begin(), of.without.end());
}

void Checkers::on_join_ended(Rank rank, const core::Delivery& delivery) {
  joined_[static_cast<size_t>(rank.value)] = false;
  if (!delivery.status.is_ok()) return;
  if (!open(rank).empty()) {
    violated("L11: the join of " + name_of(rank) + " ended before " +
             open(rank).begin()->second->name + ", which it submitted earlier");
  }
  const Rank last{static_cast<int32_t>(delivery.value)};
  for (int32_t other = 0; other < layout_.world_size(); ++other) {
    if (!gone_on_without_[static_cast<size_t>(other)].contains(last)) continue;
    violated("L11: " + name_of(last) + " is said to be the last to join, and " +
             name_of(Rank{other}) + " went on without it");
  }
  gone_on_without_[static_cast<size_t>(rank.value)].clear();
}

}  // namespace rueda::sim
