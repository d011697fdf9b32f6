#include "tests/sim/scenario/scenario_runner.h"

#include <algorithm>

#include "tests/sim/setup/declared_plan_faults.h"
#include "tests/sim/setup/names.h"

namespace rueda::sim {
namespace {

// Reads "7", or "b7" for the track of operations that are always decreed.
Seq seq_of(const std::string& word) {
  const bool is_decreed = word[0] == 'b';
  const uint64_t number = std::stoull(word.substr(is_decreed ? 1 : 0));
  return Seq{number + (is_decreed ? core::kDecreedBit : 0)};
}

}  // namespace

void ScenarioRunner::end_line() {
  end_turns();
  if (!world_) return;
  const std::string& violation = world_->checkers().violation();
  if (!violation.empty()) throw Objection("breaks " + violation);
  ++now_;
}

// --- The cast

World& ScenarioRunner::world() {
  if (!world_) throw Objection("the story has not begun: say start first");
  return *world_;
}

void ScenarioRunner::ranks(const std::vector<Words>& args) {
  if (world_) throw Objection("the story has begun");
  setup_.ranks.clear();
  for (const std::string& count : args[0]) setup_.ranks.push_back(std::stoi(count));
}

void ScenarioRunner::racks(const std::vector<Words>& args) {
  if (world_) throw Objection("the story has begun");
  if (args[0].size() != setup_.ranks.size()) throw Objection("each node has a rack");
  setup_.racks = args[0];
}

void ScenarioRunner::set(const std::vector<Words>& args) {
  if (world_) throw Objection("the story has begun");
  std::vector<int>& ranks = setup_.sets.emplace_back();
  for (const std::string& rank : args[1]) ranks.push_back(std::stoi(rank));
  if (std::stoul(args[0][0]) != setup_.sets.size()) {
    throw Objection("the next set is " + std::to_string(setup_.sets.size()));
  }
}

void ScenarioRunner::tensor(const std::vector<Words>& args) {
  TensorSetup tensor;
  tensor.descriptor.name = args[0][0];
  for (int i = 0; i < kDTypeCount; ++i) {
    if (args[1][0] == to_string(static_cast<DType>(i))) {
      tensor.descriptor.dtype = static_cast<DType>(i);
      tensor.descriptor.shape = {std::stoll(args[2][0])};
    }
  }
  if (tensor.descriptor.shape.empty()) throw Objection("no dtype is called " + args[1][0]);
  setup_.tensors.push_back(std::move(tensor));
}

void ScenarioRunner::grouped_tensor(const std::vector<Words>& args) {
  tensor(args);
  uint32_t size = 1;
  for (const TensorSetup& other : setup_.tensors) size += other.descriptor.group == args[3][0];
  setup_.tensors.back().descriptor.group = args[3][0];
  for (TensorSetup& other : setup_.tensors) {
    if (other.descriptor.group == args[3][0]) other.descriptor.group_size = size;
  }
}

void ScenarioRunner::dependent_tensor(const std::vector<Words>& args) {
  tensor(args);
  setup_.tensors.back().after = args[3];
}

void ScenarioRunner::broadcast(const std::vector<Words>& args) {
  tensor(args);
  setup_.tensors.back().descriptor.kind = CollectiveKind::kBroadcast;
  setup_.tensors.back().descriptor.root = Rank{std::stoi(args[3][1])};
}

void ScenarioRunner::mode(const std::vector<Words>& args) {
  const auto mode = core::parse_coordination(args[0][0]);
  if (!mode.is_ok()) throw Objection(mode.status().message());
  setup_.mode = mode.value();
}

void ScenarioRunner::option(const std::vector<Words>& args) {
  const std::string& name = args[0][0];
  const int value = std::stoi(args[1][0]);
  if (name == "window") {
    setup_.window = value;
  } else if (name == "open-operations") {
    setup_.open_operations = value;
  } else if (name == "fusion-threshold") {
    setup_.fusion_threshold_bytes = value;
  } else if (name == "lock-after-steps") {
    setup_.lock_after_steps = value;
  } else if (name == "unstable-bytes") {
    setup_.max_unstable_bytes = value;
  } else if (name == "patience") {
    setup_.patience_ms = value;
  } else if (name == "tree-threshold") {
    setup_.tree.threshold = value;
  } else if (name == "tree-fan-in") {
    setup_.tree.fan_in = value;
  } else {
    throw Objection("no option is called " + name);
  }
}

std::vector<int> ScenarioRunner::nodes(const Words& name) {
  std::vector<int> indices;
  if (name[0] == "every") {
    for (int i = 0; i < world().node_count(); ++i) {
      if (world().node(i).alive) indices.push_back(i);
    }
    return indices;
  }
  const int index = std::stoi(name[0].substr(1));
  if (index >= world().voter_count()) throw Objection("there is no " + name[0]);
  return {index};
}

int ScenarioRunner::one_node(const Words& name) { return nodes(name).front(); }

std::vector<int> ScenarioRunner::all_ranks(const Words& name) {
  std::vector<int> ranks;
  const int world_size = world().layout().world_size();
  if (name[0] == "every") {
    for (int rank = 0; rank < world_size; ++rank) {
      if (world().node_of(rank).alive) ranks.push_back(rank);
    }
    return ranks;
  }
  const int rank = std::stoi(name[1]);
  if (rank >= world_size) throw Objection("there is no rank " + name[1]);
  return {rank};
}

uint32_t ScenarioRunner::set_in(const std::vector<Words>& args, size_t place) {
  return place < args.size() ? static_cast<uint32_t>(std::stoul(args[place][0])) : 0;
}

std::vector<int> ScenarioRunner::ranks_of(uint32_t set) {
  std::vector<int> ranks = all_ranks({"every", "rank"});
  if (set == 0) return ranks;
  if (set > setup_.sets.size()) throw Objection("there is no set " + std::to_string(set));
  const std::vector<int>& members = setup_.sets[set - 1];
  std::erase_if(ranks, [&](int rank) {
    return std::find(members.begin(), members.end(), rank) == members.end();
  });
  return ranks;
}

std::vector<int> ScenarioRunner::nodes_of(uint32_t set) {
  std::set<int> indices;
  for (int rank : ranks_of(set)) indices.insert(world().layout().node_of(Rank{rank}).value);
  return {indices.begin(), indices.end()};
}

// --- Events

void ScenarioRunner::feed(int index, const core::Event& event) {
  WorldNode& at = world().node(index);
  if (!at.alive) throw Objection(name_of(index) + " is dead");
  if (at.frozen) {
    at.backlog.push_back({SimEvent::Kind::kEvent, index, 0, event});
  } else {
    step(index, event);
  }
}

void ScenarioRunner::step(int index, const core::Event& event) {
  core::Output output = world().step(now_, index, event);
  Said& args = said_[static_cast<size_t>(index)];
  for (auto& [to, message] : output.sends) {
    streams_[{index, to.value}].messages.push_back(std::move(message));
  }
  args.abandoned_plans += static_cast<int>(output.abandoned_plans.size());
  std::set<Place>& under_way = under_way_[static_cast<size_t>(index)];
  if (output.recovered) enter(index, *output.recovered);
  for (const core::Cancel& cancel : output.cancels) {
    const uint32_t set = cancel.process_set;
    args.cancels[set].push_back(cancel);
    under_way.erase(under_way.lower_bound({set, cancel.first}),
                    under_way.lower_bound({set, core::first_of(core::Track::kDecreed)}));
  }
  for (core::Launch& launch : output.launches) {
    under_way.insert({launch.process_set, launch.seq});
    args.launches[launch.process_set].push_back(std::move(launch));
  }
  for (core::Delivery& delivery : output.deliveries) {
    const Rank rank =
        world().layout().node(NodeIndex{index}).ranks[static_cast<size_t>(delivery.rank.value)];
    const size_t r = static_cast<size_t>(rank.value);
    results_[r].push_back({names_[r][delivery.ticket.value], std::move(delivery)});
  }
  if (output.failed) {
    args.failure = output.failed;
    under_way.clear();
  }
  turn_open_[static_cast<size_t>(index)] = !std::holds_alternative<core::TurnEnded>(event);
  if (!output.sealed) return;
  core::DataStopped stopped{*output.sealed, {}};
  for (const auto& [seq, chunks] : held_[static_cast<size_t>(index)]) {
    if (under_way.contains({0, seq})) stopped.held.push_back({seq, chunks});
  }
  under_way.clear();
  step(index, stopped);
}

void ScenarioRunner::enter(int index, const core::NextEpoch& next) {
  const auto i = static_cast<size_t>(index);
  said_[i].recovered = next;
  held_[i].clear();
  for (const core::Fetch& fetch : next.fetches) under_way_[i].insert({0, fetch.seq});
}

void ScenarioRunner::end_turns() {
  for (size_t i = 0; i < turn_open_.size(); ++i) {
    if (turn_open_[i]) step(static_cast<int>(i), core::TurnEnded{});
  }
}

void ScenarioRunner::start(const std::vector<Words>&) {
  if (world_) throw Objection("the story has begun");
  if (setup_.ranks.empty() || setup_.tensors.empty())
    throw Objection("ranks and tensors come first");
  world_.emplace(setup_, true);
  const auto world_size = static_cast<size_t>(setup_.world_size());
  const auto voters = static_cast<size_t>(setup_.voter_count());
  turn_open_.resize(voters);
  said_.resize(voters);
  under_way_.resize(voters);
  held_.resize(voters);
  results_.resize(world_size);
  names_.resize(world_size);
  rank_attaches({{"every", "rank"}});
  deliver_everything({});
}

void ScenarioRunner::rank_attaches(const std::vector<Words>& args) {
  for (int rank : all_ranks(args[0])) {
    const int index = world().layout().node_of(Rank{rank}).value;
    const Status status = world().node(index).core->may_attach(world().local_rank(rank));
    if (!status.is_ok())
      throw Objection("rank " + std::to_string(rank) + " may not: " + status.to_string());
    feed(index, core::RankAttached{world().local_rank(rank)});
  }
}

const TensorSetup& ScenarioRunner::find_tensor(const std::string& name) const {
  const auto tensor =
      std::find_if(setup_.tensors.begin(), setup_.tensors.end(),
                   [&](const TensorSetup& other) { return other.descriptor.name == name; });
  if (tensor == setup_.tensors.end()) throw Objection("there is no tensor " + name);
  return *tensor;
}

void ScenarioRunner::submit(int rank, const core::DescriptorPtr& descriptor) {
  auto& tickets = names_[static_cast<size_t>(rank)];
  const Ticket ticket{tickets.size() + 1};
  tickets.emplace(ticket.value, descriptor->name);
  feed(world().layout().node_of(Rank{rank}).value,
       core::Submitted{{world().local_rank(rank), ticket, descriptor}});
}

void ScenarioRunner::submit(const std::vector<int>& who, const Words& names,
                            const std::optional<std::vector<int64_t>>& shape, uint32_t set) {
  for (int rank : who) {
    for (const std::string& name : names) {
      auto descriptor = std::make_shared<core::TensorDescriptor>(find_tensor(name).descriptor);
      if (shape) descriptor->shape = *shape;
      descriptor->process_set = set;
      submit(rank, descriptor);
    }
  }
}

void ScenarioRunner::rank_adds_set(const std::vector<Words>& args) {
  const uint32_t set = set_in(args, 1);
  if (set == 0 || set > setup_.sets.size()) throw Objection("there is no set " + args[1][0]);
  const std::vector<int>& ranks = setup_.sets[set - 1];
  auto descriptor = std::make_shared<core::TensorDescriptor>();
  descriptor->name = core::kProcessSetsName;
  descriptor->kind = CollectiveKind::kAddProcessSet;
  descriptor->shape.assign(ranks.begin(), ranks.end());
  for (int rank : all_ranks(args[0])) submit(rank, descriptor);
}

void ScenarioRunner::rank_declares(const std::vector<Words>& args) {
  std::vector<TensorSetup> tensors;
  for (const std::string& name : args[1]) tensors.push_back(find_tensor(name));
  for (int rank : all_ranks(args[0])) submit(rank, plan_of(tensors));
}

void ScenarioRunner::rank_joins(const std::vector<Words>& args) {
  auto join = std::make_shared<core::TensorDescriptor>();
  join->name = core::kJoinName;
  join->kind = CollectiveKind::kJoin;
  for (int rank : all_ranks(args[0])) submit(rank, join);
}

void ScenarioRunner::rank_waits(const std::vector<Words>& args) {
  for (int rank : all_ranks(args[0])) {
    std::optional<Ticket> ticket;
    for (const auto& [number, name] : names_[static_cast<size_t>(rank)]) {
      if (name == args[1][0]) ticket = Ticket{number};
    }
    if (!ticket) throw Objection("it has not submitted " + args[1][0]);
    feed(world().layout().node_of(Rank{rank}).value,
         core::RankWaits{world().local_rank(rank), ticket});
  }
}

void ScenarioRunner::rank_leaves(const std::vector<Words>& args) {
  for (int rank : all_ranks(args[0])) {
    feed(world().layout().node_of(Rank{rank}).value, core::RankDetached{world().local_rank(rank)});
  }
}

void ScenarioRunner::rank_dies(const std::vector<Words>& args) {
  for (int rank : all_ranks(args[0])) {
    world().checkers().on_rank_died(Rank{rank});
    feed(world().layout().node_of(Rank{rank}).value,
         core::RankLost{world().local_rank(rank),
                        Status(Code::kRankLost, "rank " + std::to_string(rank) + " died")});
  }
}

void ScenarioRunner::deliver(const std::vector<Words>& args) {
  expect_message(args);
  Stream& on = stream(args[1], args[2]);
  on.last = std::move(on.messages.front());
  on.messages.pop_front();
  feed(one_node(args[2]), core::MessageArrived{*on.last});
}

void ScenarioRunner::message_is_lost(const std::vector<Words>& args) {
  expect_message(args);
  stream(args[1], args[2]).messages.pop_front();
}

void ScenarioRunner::deliver_again(const std::vector<Words>& args) {
  const Stream& on = stream(args[1], args[2]);
  if (!on.last || args[0][0] != kind_of(*on.last)) {
    throw Objection("the last message from " + args[1][0] + " to " + args[2][0] + " was " +
                    (on.last ? std::string("a ") + kind_of(*on.last) : "none"));
  }
  feed(one_node(args[2]), core::MessageArrived{*on.last});
}

bool ScenarioRunner::deliver_one() {
  for (auto& [ends, on] : streams_) {
    const WorldNode& to = world().node(ends.second);
    if (!to.alive || to.frozen || on.messages.empty()) continue;
    on.last = std::move(on.messages.front());
    on.messages.pop_front();
    feed(ends.second, core::MessageArrived{*on.last});
    return true;
  }
  return false;
}

void ScenarioRunner::deliver_everything(const std::vector<Words>&) {
  end_turns();
  while (deliver_one()) end_turns();
}

void ScenarioRunner::node_completes(const std::vector<Words>& args) {
  const Seq seq = seq_of(args[1][0]);
  const uint32_t set = set_in(args, 2);
  for (int index : nodes(args[0])) {
    if (under_way_[static_cast<size_t>(index)].erase({set, seq}) == 0) {
      throw Objection(args[1][0] + " is not under way on " + name_of(index));
    }
    feed(index, core::OperationDone{seq, set});
  }
}

// Completes an operation that every node of its set has launched. Returns false if there is none.
bool ScenarioRunner::complete_one() {
  for (uint32_t set = 0; set <= setup_.sets.size(); ++set) {
    const std::vector<int> all = nodes_of(set);
    if (all.empty()) continue;
    const std::set<Place> of_first = under_way_[static_cast<size_t>(all.front())];
    for (auto it = of_first.lower_bound({set, Seq{0}}); it != of_first.end(); ++it) {
      const Place place = *it;
      if (place.first != set) break;
      const bool everywhere = std::all_of(all.begin(), all.end(), [&](int index) {
        return under_way_[static_cast<size_t>(index)].contains(place);
      });
      if (!everywhere) continue;
      for (int index : all) {
        under_way_[static_cast<size_t>(index)].erase(place);
        feed(index, core::OperationDone{place.second, set});
      }
      return true;
    }
  }
  return false;
}

void ScenarioRunner::node_completes_everything(const std::vector<Words>&) {
  deliver_everything({});
  while (complete_one()) deliver_everything({});
}

void ScenarioRunner::steps(const std::vector<Words>& args) {
  for (int left = std::stoi(args[0][0]); left > 0; --left) {
    submit(ranks_of(set_in(args, 2)), args[1], {}, set_in(args, 2));
    node_completes_everything({});
    now_ += 100;
  }
  for (Said& forgotten : said_) forgotten.launches.clear();
  for (auto& forgotten : results_) forgotten.clear();
}

void ScenarioRunner::node_dies(const std::vector<Words>& args) {
  world().kill(now_, one_node(args[0]));
}

void ScenarioRunner::node_is_closed(const std::vector<Words>& args) {
  feed(one_node(args[0]), core::JobClosed{Status(Code::kShutDown, "closed")});
}

void ScenarioRunner::node_thaws(const std::vector<Words>& args) {
  WorldNode& at = node(args[0]);
  at.frozen = false;
  for (const SimEvent& next : std::exchange(at.backlog, {})) {
    step(one_node(args[0]), next.event);
  }
}

void ScenarioRunner::node_loses(const std::vector<Words>& args) {
  feed(one_node(args[0]), core::NodeLost{NodeIndex{one_node(args[1])},
                                         Status(Code::kNodeLost, args[1][0] + " is lost")});
}

void ScenarioRunner::channel_breaks(const std::vector<Words>& args) {
  feed(one_node(args[0]),
       core::DataChannelLost{NodeIndex{one_node(args[1])},
                             Status(Code::kNodeLost, "the channel to " + args[1][0] + " broke")});
}

void ScenarioRunner::operation_diverges(const std::vector<Words>& args) {
  feed(one_node(args[0]), core::OperationDiverged{Seq{std::stoull(args[2][0])},
                                                  static_cast<uint32_t>(std::stoul(args[3][0])),
                                                  NodeIndex{one_node(args[1])}});
}

void ScenarioRunner::node_has_chunks(const std::vector<Words>& args) {
  std::vector<bool> chunks;
  for (const char chunk : args[1][0]) chunks.push_back(chunk == '1');
  held_[static_cast<size_t>(one_node(args[0]))][seq_of(args[2][0])] = std::move(chunks);
}

void ScenarioRunner::time_passes_with_messages(const std::vector<Words>& args) {
  for (TicksMs left = std::stoll(args[0][0]); left > 0; left -= 100) {
    time_passes({{std::to_string(std::min<TicksMs>(left, 100))}});
    deliver_everything({});
  }
}

void ScenarioRunner::time_passes(const std::vector<Words>& args) {
  constexpr TicksMs kTick = 100;
  for (TicksMs left = std::stoll(args[0][0]); left > 0; left -= kTick) {
    now_ += std::min(left, kTick);
    for (int index : nodes({"every", "node"})) {
      if (!world().node(index).frozen) step(index, core::TimePassed{});
    }
  }
}

}  // namespace rueda::sim
