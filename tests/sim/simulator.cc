#include "tests/sim/simulator.h"

#include <algorithm>

#include "daemon/base/hash.h"

namespace rueda::sim {
namespace {

constexpr TicksMs kHorizon = 120'000;  // a run that has not ended by then hangs

uint64_t operation_key(Epoch epoch, Seq seq) { return (uint64_t{epoch.value} << 48) | seq.value; }

const char* event_name(const core::Event& event) {
  static constexpr const char* kNames[] = {"rank attached", "rank detached",  "rank lost",
                                           "submitted",     "message",        "node lost",
                                           "channel lost",  "operation done", "operation failed",
                                           "job closed",    "time passed",    "turn ended"};
  return kNames[event.index()];
}

}  // namespace

Simulator::Simulator(uint64_t seed, const Limits& limits)
    : seed_(seed), limits_(limits), random_(seed) {
  make_layout(limits);
  make_plan(limits);
}

// --- What a run consists of
// ------------------------------------------------------------------------

void Simulator::make_layout(const Limits& limits) {
  const int node_count = draw(1, limits.max_nodes);
  std::vector<core::LayoutNode> nodes;
  int32_t next_rank = 0;
  for (int i = 0; i < node_count; ++i) {
    core::LayoutNode node;
    node.node_id = "n" + std::to_string(i);
    const int local = draw(1, limits.max_ranks_per_node);
    for (int j = 0; j < local; ++j) node.ranks.push_back(Rank{next_rank++});
    nodes.push_back(std::move(node));
  }
  layout_ = core::Layout::make(std::move(nodes)).value();
  ranks_.resize(static_cast<size_t>(next_rank));
  nodes_.resize(static_cast<size_t>(node_count));
  core::JobOptions options;
  options.job = "sim";
  options.max_launched_operations = draw(1, 4);
  window_ = static_cast<uint64_t>(options.max_launched_operations);
  options.agreement.max_open_operations = draw(1, 4);
  options.agreement.fusion.threshold_bytes = chance(0.2) ? 0 : draw(16, 4096);
  options.agreement.fusion.look_ahead_units = static_cast<size_t>(draw(0, 8));
  for (int i = 0; i < node_count; ++i) {
    options.data_address = "data" + std::to_string(i);
    nodes_[static_cast<size_t>(i)].core =
        std::make_unique<core::JobCore>(*layout_, NodeIndex{i}, options);
  }
  result_.nodes = node_count;
  result_.ranks = next_rank;
}

void Simulator::make_plan(const Limits& limits) {
  steps_ = draw(1, limits.max_steps);
  const int count = draw(1, limits.max_tensors);
  const int group_size = draw(0, std::min(count, 4));
  for (int i = 0; i < count; ++i) {
    auto descriptor = std::make_shared<core::TensorDescriptor>();
    descriptor->name = "t" + std::to_string(i);
    const int kind = draw(0, 9);
    if (i < group_size) {
      descriptor->group = "g";
      descriptor->group_size = static_cast<uint32_t>(group_size);
    }
    if (kind == 8 && descriptor->group.empty()) {
      descriptor->kind = CollectiveKind::kBroadcast;
      descriptor->root = Rank{draw(0, layout_->world_size() - 1)};
    } else if (kind == 9 && descriptor->group.empty()) {
      descriptor->kind = CollectiveKind::kBarrier;
    }
    descriptor->dtype = chance(0.7) ? DType::kFloat32 : DType::kInt64;
    if (descriptor->kind != CollectiveKind::kBarrier) descriptor->shape = {draw(0, 64)};
    plan_.push_back({descriptor, false});
  }
  if (limits.mismatches && layout_->world_size() > 1 && chance(0.2)) {
    deviating_tensor_ = static_cast<size_t>(draw(0, count - 1));
    deviating_rank_ = draw(0, layout_->world_size() - 1);
    const std::string& group = plan_[deviating_tensor_].descriptor->group;
    for (Planned& planned : plan_) {
      if (&planned == &plan_[deviating_tensor_]) planned.wrong = true;
      // A group stands and falls together.
      if (!group.empty() && planned.descriptor->group == group) planned.wrong = true;
    }
  }
  if (limits.leavers && chance(0.2)) {
    result_.had_leaver = true;
    leaving_rank_ = draw(0, layout_->world_size() - 1);
  }
}

core::DescriptorPtr Simulator::descriptor_for(size_t tensor, Rank rank) const {
  const core::DescriptorPtr& usual = plan_[tensor].descriptor;
  if (rank.value != deviating_rank_ || !plan_[tensor].wrong) return usual;
  auto other = std::make_shared<core::TensorDescriptor>(*usual);
  if (deviating_tensor_ % 2 == 1) {
    // Under another name the group is whole too: each rank's own view of it makes sense.
    other->group = "other";
    other->group_size = std::max(usual->group_size, 1u);
  } else if (tensor == deviating_tensor_) {
    other->shape = {1000 + rank.value};
  }
  return other;
}

void Simulator::plan_faults() {
  if (!limits_.faults || !chance(0.5)) return;
  result_.had_fault = true;
  const Time when = draw(1, 400);
  switch (draw(0, 2)) {
    case 0: {
      Scheduled s{now_ + when, order_++, -1, core::TimePassed{}};
      s.rank_wakes = draw(0, layout_->world_size() - 1);
      s.dies = true;
      push(std::move(s));
      break;
    }
    case 1: {
      Scheduled s{now_ + when, order_++, draw(0, layout_->node_count() - 1), core::TimePassed{}};
      s.dies = true;
      push(std::move(s));
      break;
    }
    case 2: {
      const int node = draw(0, layout_->node_count() - 1);
      const NodeIndex peer = layout_->next(NodeIndex{node});
      schedule(when, node,
               core::DataChannelLost{peer, Status(Code::kNodeLost, "the channel broke")});
      break;
    }
  }
}

// --- The world
// ---------------------------------------------------------------------------------------

RunResult Simulator::run() {
  for (size_t r = 0; r < ranks_.size(); ++r) schedule_rank(draw(0, 50), static_cast<int>(r));
  for (size_t n = 0; n < nodes_.size(); ++n) {
    schedule(draw(1, 100), static_cast<int>(n), core::TimePassed{});
  }
  plan_faults();
  while (!queue_.empty() && result_.violation.empty() && now_ < kHorizon && !settled()) {
    Scheduled next = queue_.top();
    queue_.pop();
    if (!next.is_tick()) --waiting_events_;
    now_ = next.at;
    ++result_.events;
    if (next.rank_wakes >= 0) {
      next.dies ? kill_rank(next.rank_wakes) : rank_acts(next.rank_wakes);
    } else if (next.dies) {
      kill_node(next.node);
    } else {
      feed(next.node, std::move(next.event));
    }
  }
  if (result_.violation.empty()) check_end();
  return result_;
}

void Simulator::push(Scheduled scheduled) {
  if (!scheduled.is_tick()) ++waiting_events_;
  queue_.push(std::move(scheduled));
}

void Simulator::schedule(Time delay, int node, core::Event event) {
  push(Scheduled{now_ + delay, order_++, node, std::move(event)});
}

void Simulator::schedule_rank(Time delay, int rank) {
  Scheduled s{now_ + delay, order_++, -1, core::TimePassed{}};
  s.rank_wakes = rank;
  push(std::move(s));
}

void Simulator::feed(int node, core::Event event) {
  NodeModel& model = nodes_[static_cast<size_t>(node)];
  if (!model.alive) return;
  const bool is_tick = std::holds_alternative<core::TimePassed>(event);
  const bool is_turn = std::holds_alternative<core::TurnEnded>(event);
  if (is_turn) model.turn_pending = false;
  if (!is_tick) trace("n" + std::to_string(node) + " " + event_name(event));
  const core::OperationDone* done = std::get_if<core::OperationDone>(&event);
  if (done) {
    // The operation may have been dropped with its epoch.
    if (model.over || !model.launched.erase(done->seq.value)) return;
  }
  core::Output output;
  const bool sealed = model.core->state() == core::JobState::kSuspecting || model.over;
  model.core->step(now_, std::move(event), output);
  // A suspicion that turned out to be none breaks the seal; what was held meanwhile is delivered then.
  const bool lifted = model.core->state() == core::JobState::kRunning ||
                      model.core->state() == core::JobState::kForming;
  for (const core::Delivery& delivery : output.deliveries) {
    if (sealed && !lifted && delivery.status.is_ok()) violated("R3: delivered after seal");
  }
  carry_out(node, output);
  if (is_tick) {
    schedule(100, node, core::TimePassed{});
  } else if (!is_turn && !model.turn_pending) {
    model.turn_pending = true;
    schedule(draw(0, 3), node, core::TurnEnded{});
  }
}

void Simulator::carry_out(int node, core::Output& output) {
  NodeModel& model = nodes_[static_cast<size_t>(node)];
  if (output.started) {
    model.epoch = output.started->epoch.value;
    model.last_launched = 0;
    for (size_t r = 0; r < ranks_.size(); ++r) {
      if (is_local(node, Rank{static_cast<int32_t>(r)}) &&
          ranks_[r].phase == RankPhase::kAttached) {
        ranks_[r].phase = RankPhase::kWorking;
        schedule_rank(draw(0, 20), static_cast<int>(r));
      }
    }
  }
  for (auto& [to, message] : output.sends) send(node, to, std::move(message));
  for (const core::Launch& launch : output.launches) on_launch(node, launch);
  for (const core::Delivery& delivery : output.deliveries) on_delivery(node, delivery);
  if (output.finished) {
    if (!model.launched.empty()) violated("an epoch finished under operations");
    // It closes its data channels, and its neighbours may see that before they know why.
    for (const NodeIndex peer :
         {layout_->next(NodeIndex{node}), layout_->previous(NodeIndex{node})}) {
      if (peer.value == node) continue;
      schedule(draw(0, 40), peer.value,
               core::DataChannelLost{NodeIndex{node}, Status(Code::kNodeLost, "channel closed")});
    }
  }
  if (output.failed) {
    model.over = true;
    model.launched.clear();
    for (size_t r = 0; r < ranks_.size(); ++r) {
      if (is_local(node, Rank{static_cast<int32_t>(r)})) ranks_[r].saw_error = true;
    }
  }
}

void Simulator::send(int from, NodeIndex to, core::Message message) {
  if (!nodes_[static_cast<size_t>(to.value)].alive) return;
  // A stream keeps its order; streams overtake each other.
  Time& last = stream_time_[{from, to.value}];
  last = std::max(last, now_ + draw(1, 40));
  Scheduled s{last, order_++, to.value, core::MessageArrived{message}};
  push(std::move(s));
  if (chance(0.05)) {
    last += draw(0, 5);
    push(Scheduled{last, order_++, to.value, core::MessageArrived{std::move(message)}});
  }
}

void Simulator::on_launch(int node, const core::Launch& launch) {
  NodeModel& model = nodes_[static_cast<size_t>(node)];
  if (launch.epoch.value != model.epoch) violated("I5: an operation spans epochs");
  if (launch.seq.value <= model.last_launched) violated("I5: launched out of order, or twice");
  model.last_launched = launch.seq.value;
  if (!model.launched.empty() && launch.seq.value >= model.launched.begin()->first + window_) {
    violated("L5: launched before the operation W before it was complete");
  }
  const uint64_t key = operation_key(launch.epoch, launch.seq);
  OperationModel& operation = operations_[key];
  std::vector<std::string> tensors;
  for (const core::LaunchTensor& tensor : launch.tensors) {
    tensors.push_back(tensor.descriptor->name);
    if (&tensor != &launch.tensors.front() &&
        (launch.tensors.front().descriptor->dtype != tensor.descriptor->dtype ||
         tensor.descriptor->kind != CollectiveKind::kAllreduce)) {
      violated("unlike tensors share an operation");
    }
    if (plan_[static_cast<size_t>(std::stoi(tensor.descriptor->name.substr(1)))].wrong) {
      violated("a tensor that ranks disagree on was launched");
    }
  }
  if (operation.launched_on.empty()) {
    operation.plan_hash = launch.plan_hash;
    operation.tensors = tensors;
  } else if (operation.plan_hash != launch.plan_hash || operation.tensors != tensors) {
    violated("I5: two nodes carry out different operations under one number");
  }
  operation.launched_on.insert(node);
  model.launched.emplace(launch.seq.value, launch);
  complete_where_possible(key);
}

// The data plane: an operation completes, node by node, once every node has launched it.
void Simulator::complete_where_possible(uint64_t key) {
  OperationModel& operation = operations_[key];
  if (operation.launched_on.size() != nodes_.size()) return;
  ++result_.operations;
  for (const std::string& tensor : operation.tensors) ++delivered_ops_[tensor];
  for (int node : operation.launched_on) {
    schedule(draw(0, 60), node, core::OperationDone{Seq{key & ((uint64_t{1} << 48) - 1)}});
  }
}

void Simulator::on_delivery(int node, const core::Delivery& delivery) {
  const std::vector<Rank>& ranks = layout_->node(NodeIndex{node}).ranks;
  const Rank rank = ranks[static_cast<size_t>(delivery.rank.value)];
  RankModel& model = ranks_[static_cast<size_t>(rank.value)];
  if (model.open_tickets.erase(delivery.ticket.value) == 0) {
    violated("I5: a submission of rank " + std::to_string(rank.value) + " ended twice");
    return;
  }
  --model.in_flight;
  if (delivery.status.is_ok()) {
    ++result_.delivered_ok;
    const OperationModel& operation = operations_[operation_key(delivery.epoch, delivery.seq)];
    if (operation.launched_on.size() != nodes_.size()) {
      violated("delivered before every member has launched it");
    }
    for (const std::string& tensor : operation.tensors) {
      for (const uint64_t count : submitted_[tensor]) {
        if (count < delivered_ops_[tensor]) violated("delivered before every rank submitted it");
      }
    }
  } else {
    ++result_.delivered_error;
    if (delivery.status.message().empty()) violated("an error without a sentence");
    if (delivery.status.code() != Code::kMismatch) {
      model.saw_error = true;
      const bool left = result_.had_leaver && delivery.status.code() == Code::kShutDown;
      if (!result_.had_fault && !left)
        violated("an error without a fault: " + delivery.status.to_string());
    }
  }
  if (model.in_flight == 0 && model.phase == RankPhase::kWorking) {
    schedule_rank(draw(0, 20), rank.value);
  }
}

LocalRank Simulator::local_rank(Rank rank) const {
  const std::vector<Rank>& ranks = layout_->node(layout_->node_of(rank)).ranks;
  return LocalRank{
      static_cast<int32_t>(std::find(ranks.begin(), ranks.end(), rank) - ranks.begin())};
}

// --- The training processes
// --------------------------------------------------------------------------

void Simulator::rank_acts(int index) {
  RankModel& model = ranks_[static_cast<size_t>(index)];
  const Rank rank{index};
  const int node = layout_->node_of(rank).value;
  if (!nodes_[static_cast<size_t>(node)].alive) return;
  switch (model.phase) {
    case RankPhase::kAway:
      if (!nodes_[static_cast<size_t>(node)].core->may_attach(local_rank(rank)).is_ok()) return;
      model.phase = RankPhase::kAttached;
      feed(node, core::RankAttached{local_rank(rank)});
      return;
    case RankPhase::kWorking: break;
    default: return;
  }
  if (!model.to_submit.empty()) {
    const size_t tensor = model.to_submit.back();
    model.to_submit.pop_back();
    const core::DescriptorPtr descriptor = descriptor_for(tensor, rank);
    std::vector<uint64_t>& counts = submitted_[descriptor->name];
    counts.resize(ranks_.size());
    ++counts[static_cast<size_t>(index)];
    const Ticket ticket{model.next_ticket++};
    model.open_tickets.insert(ticket.value);
    ++model.in_flight;
    if (!model.to_submit.empty()) schedule_rank(draw(0, 10), index);
    feed(node, core::Submitted{{local_rank(rank), ticket, descriptor}});
    return;
  }
  if (model.in_flight > 0) return;
  const int steps = index == leaving_rank_ ? steps_ / 2 : steps_;
  if (model.step == steps || model.saw_error) {
    model.phase = RankPhase::kDetached;
    feed(node, core::RankDetached{local_rank(rank)});
    return;
  }
  ++model.step;
  for (size_t i = 0; i < plan_.size(); ++i) model.to_submit.push_back(i);
  std::shuffle(model.to_submit.begin(), model.to_submit.end(), random_);
  schedule_rank(0, index);
}

void Simulator::kill_rank(int index) {
  RankModel& model = ranks_[static_cast<size_t>(index)];
  if (model.phase == RankPhase::kAway || model.phase == RankPhase::kDetached) return;
  model.phase = RankPhase::kDead;
  model.to_submit.clear();
  const Rank rank{index};
  const int node = layout_->node_of(rank).value;
  trace("rank " + std::to_string(index) + " dies");
  schedule(draw(0, 10), node,
           core::RankLost{local_rank(rank),
                          Status(Code::kRankLost, "rank " + std::to_string(index) + " died")});
}

void Simulator::kill_node(int node) {
  trace("n" + std::to_string(node) + " dies");
  nodes_[static_cast<size_t>(node)].alive = false;
  for (size_t other = 0; other < nodes_.size(); ++other) {
    if (!nodes_[other].alive) continue;
    // Members and coordinator see the link break; the others learn it from the coordinator.
    const bool linked = node == 0 || other == 0;
    if (linked) {
      // What the node sent before it died still arrives, and first: it is the same stream.
      Time& last = stream_time_[{node, static_cast<int>(other)}];
      last = std::max(last, now_ + draw(1, 50));
      push(Scheduled{last, order_++, static_cast<int>(other),
                     core::NodeLost{NodeIndex{node}, Status(Code::kNodeLost, "node died")}});
    } else if (chance(0.5)) {
      schedule(draw(1, 50), static_cast<int>(other),
               core::DataChannelLost{NodeIndex{node}, Status(Code::kNodeLost, "channel broke")});
    }
  }
}

// --- The verdict
// ---------------------------------------------------------------------------------------

bool Simulator::settled() const {
  if (waiting_events_ > 0) return false;
  for (size_t r = 0; r < ranks_.size(); ++r) {
    const NodeModel& node =
        nodes_[static_cast<size_t>(layout_->node_of(Rank{static_cast<int32_t>(r)}).value)];
    if (!node.alive) continue;
    if (node.core->state() == core::JobState::kSuspecting) return false;
    if (!ranks_[r].open_tickets.empty()) return false;
    if (ranks_[r].phase == RankPhase::kAttached && !node.over) return false;
  }
  return true;
}

void Simulator::check_end() {
  bool any_over = false;
  for (const NodeModel& node : nodes_) any_over |= node.alive && node.over;
  for (size_t r = 0; r < ranks_.size(); ++r) {
    const RankModel& model = ranks_[r];
    const Rank rank{static_cast<int32_t>(r)};
    if (!nodes_[static_cast<size_t>(layout_->node_of(rank).value)].alive) continue;
    if (!model.open_tickets.empty()) {
      violated("liveness: rank " + std::to_string(r) + " waits for " +
               std::to_string(model.open_tickets.size()) + " submissions for ever");
      return;
    }
    const bool done =
        model.phase == RankPhase::kDetached && (model.step == steps_ || result_.had_leaver);
    if (!result_.had_fault && !done) {
      violated("liveness: rank " + std::to_string(r) + " did not finish");
      return;
    }
  }
  if (!result_.had_fault && any_over) violated("the job failed without a fault");
  if (!result_.had_fault) {
    for (const NodeModel& node : nodes_) {
      if (node.core->state() != core::JobState::kForming || node.core->epoch() != Epoch{2}) {
        violated("a job whose ranks have all left does not wait for the next epoch");
      }
    }
  }
}

void Simulator::violated(const std::string& what) {
  if (result_.violation.empty()) {
    result_.violation =
        what + " (seed " + std::to_string(seed_) + ", tick " + std::to_string(now_) + ")";
    trace("VIOLATION " + what);
  }
}

void Simulator::trace(const std::string& line) {
  Fnv1a h;
  h.add(result_.trace_hash).add(static_cast<uint64_t>(now_)).add(line);
  result_.trace_hash = h.value();
  if (limits_.keep_trace) result_.trace.push_back(std::to_string(now_) + "  " + line);
}

}  // namespace rueda::sim
