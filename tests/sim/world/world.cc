#include "tests/sim/world/world.h"

#include <algorithm>

namespace rueda::sim {

World::World(const RunSetup& setup, bool keep_trace)
    : layout_(setup.layout()),
      nodes_(static_cast<size_t>(setup.voter_count())),
      checkers_(setup),
      trace_(keep_trace) {
  for (int i = 0; i < node_count(); ++i) {
    node(i).core = std::make_unique<core::JobCore>(layout_, NodeIndex{i}, setup.job_options(i));
    const int local_size = static_cast<int>(layout_.node(NodeIndex{i}).ranks.size());
    for (int j = 0; j < local_size; ++j) local_ranks_.push_back(LocalRank{j});
  }
  if (!setup.has_witness) return;
  node(node_count()).witness = std::make_unique<core::Recovery>(
      layout_, NodeIndex{node_count()}, setup.job_options(0).recovery, Epoch{0});
}

core::Output World::step(TicksMs now, int index, const core::Event& event) {
  WorldNode& at = node(index);
  if (at.witness) return step_witness(now, at, event);
  core::Output output;
  // The checkers of collectives see nothing of transfers.
  const bool is_transfer = transfers_.before_step(layout_.node(NodeIndex{index}), event);
  if (is_transfer) {
    checkers_.before_step(NodeIndex{index}, *at.core, core::TimePassed{});
  } else {
    checkers_.before_step(NodeIndex{index}, *at.core, event);
  }
  at.core->step(now, event, output);
  const std::string wrong = transfers_.check_launches(layout_.node(NodeIndex{index}), output);
  if (!wrong.empty()) checkers_.violated(wrong);
  const std::vector<core::Delivery> theirs =
      transfers_.take_deliveries(layout_.node(NodeIndex{index}), output);
  checkers_.after_step(NodeIndex{index}, *at.core, output);
  output.deliveries.insert(output.deliveries.end(), theirs.begin(), theirs.end());
  trace_.on_step(now, layout_, NodeIndex{index}, event, output);
  if (output.recovered) at.epoch = output.recovered->epoch.value;
  if (output.started) at.epoch = output.started->epoch.value;
  if (output.failed) at.over = true;
  return output;
}

core::Output World::step_witness(TicksMs now, WorldNode& at, const core::Event& event) {
  core::Output output;
  const auto* arrived = std::get_if<core::MessageArrived>(&event);
  const auto* body = arrived ? std::get_if<core::RecoveryBody>(&arrived->message.body) : nullptr;
  if (!body) return output;  // only messages with a body matter here
  core::RecoveryOutput said;
  at.witness->on_message(now, {arrived->message.from, arrived->message.epoch, *body}, said);
  for (auto& [to, message] : said.sends) {
    output.sends.emplace_back(
        to, core::Message{message.from, message.epoch, 0, std::move(message.body)});
  }
  checkers_.on_witness(output);
  trace_.on_step(now, layout_, NodeIndex{node_count()}, event, output);
  return output;
}

void World::go(TicksMs now, int index) {
  node(index).alive = false;
  node(index).backlog.clear();
  trace_.note(now, "n" + std::to_string(index) + " goes");
}

void World::kill(TicksMs now, int index) {
  killed_while_all_ran_ = std::all_of(nodes_.begin(), nodes_.end(), [](const WorldNode& each) {
    return each.witness || each.core->state() == core::JobState::kRunning;
  });
  node(index).alive = false;
  node(index).backlog.clear();
  if (index < node_count()) {
    checkers_.on_node_died(NodeIndex{index});
    for (const Rank rank : layout_.node(NodeIndex{index}).ranks) transfers_.on_rank_died(rank);
  }
  trace_.note(now, "n" + std::to_string(index) + " dies");
}

}  // namespace rueda::sim
