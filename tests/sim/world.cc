#include "tests/sim/world.h"

#include <algorithm>

namespace rueda::sim {

World::World(const RunSetup& setup, bool keep_trace)
    : layout_(setup.layout()), nodes_(setup.ranks.size()), checkers_(setup), trace_(keep_trace) {
  core::JobOptions options = setup.job_options();
  for (int i = 0; i < node_count(); ++i) {
    options.data_address = "data" + std::to_string(i);
    node(i).core = std::make_unique<core::JobCore>(layout_, NodeIndex{i}, options);
    const int local_size = static_cast<int>(layout_.node(NodeIndex{i}).ranks.size());
    for (int j = 0; j < local_size; ++j) local_ranks_.push_back(LocalRank{j});
  }
}

core::Output World::step(TicksMs now, int index, const core::Event& event) {
  WorldNode& at = node(index);
  core::Output output;
  checkers_.before_step(NodeIndex{index}, *at.core, event);
  at.core->step(now, event, output);
  checkers_.after_step(NodeIndex{index}, *at.core, output);
  trace_.on_step(now, layout_, NodeIndex{index}, event, output);
  if (output.recovered) at.epoch = output.recovered->epoch.value;
  if (output.started) at.epoch = output.started->epoch.value;
  if (output.failed) at.over = true;
  return output;
}

void World::kill(TicksMs now, int index) {
  killed_while_all_ran_ = std::all_of(nodes_.begin(), nodes_.end(), [](const WorldNode& each) {
    return each.core->state() == core::JobState::kRunning;
  });
  node(index).alive = false;
  node(index).backlog.clear();
  checkers_.on_node_died(NodeIndex{index});
  trace_.note(now, "n" + std::to_string(index) + " dies");
}

}  // namespace rueda::sim
