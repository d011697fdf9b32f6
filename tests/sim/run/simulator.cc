#include "tests/sim/run/simulator.h"

namespace rueda::sim {
namespace {

// A wait of this length never ends; the longest wait that ends is that for all ranks to attach.
constexpr TicksMs kPatience = 20'000;
constexpr uint64_t kMaxEvents = 1'000'000;

}  // namespace

Simulator::Simulator(const RunSetup& setup, RandomChoices choices, const RunOptions& options)
    : setup_(setup),
      options_(options),
      choices_(std::move(choices)),
      world_(setup, options.keep_trace),
      network_(queue_, choices_, world_.voter_count()),
      data_plane_(setup, queue_, choices_, world_),
      transfers_(queue_, choices_, world_),
      training_(setup, queue_, choices_, world_),
      faults_(setup, queue_, choices_, world_, network_, data_plane_, training_) {
  if (options.record_choices) choices_.record();
}

RunResult Simulator::run() {
  training_.begin();
  faults_.plan();
  while (!queue_.empty() && world_.checkers().violation().empty()) {
    happen(queue_.take());
    ++events_;
    check_liveness();
  }
  if (world_.checkers().violation().empty()) check_end();
  RunResult result;
  result.violation = world_.checkers().violation();
  if (!result.violation.empty()) world_.trace().note(queue_.now(), "VIOLATION " + result.violation);
  result.trace_hash = world_.trace().hash();
  result.trace = world_.trace().lines();
  result.choices = choices_.taken();
  result.events = events_;
  result.operations = data_plane_.operations_completed();
  result.locked_launches = world_.checkers().locked_launches();
  result.messages_while_locked = world_.checkers().messages_while_locked();
  result.order_messages = world_.checkers().order_messages();
  result.cancels = world_.checkers().cancels();
  result.recovered = world_.checkers().recovered();
  result.completed_by_decision = world_.checkers().completed_by_decision();
  result.repeated = world_.checkers().repeated();
  result.transferred = transfers_.met();
  result.delivered_ok = training_.delivered_ok();
  result.delivered_error = training_.delivered_error();
  return result;
}

void Simulator::happen(SimEvent event) {
  const auto index = static_cast<size_t>(event.subject);
  switch (event.kind) {
    case SimEvent::Kind::kEvent: feed(event.subject, std::move(event)); break;
    case SimEvent::Kind::kRankActs: act(event.subject); break;
    case SimEvent::Kind::kFaultBegins: faults_.begin(setup_.faults[index]); break;
    case SimEvent::Kind::kLinkTimesOut: faults_.time_out(setup_.faults[index]); break;
    case SimEvent::Kind::kFaultEnds:
      faults_.end(setup_.faults[index]);
      thaw(setup_.faults[index].node);
      break;
  }
  if (event.kind != SimEvent::Kind::kEvent) last_progress_ = queue_.now();
}

// A rank's goodbye counts when other nodes have what its node has sent
// (docs/decisions/0005-goodbye-when-quiet.md), and the rank attaches again after that.
void Simulator::act(int rank) {
  if (const auto pending = detaches_at_.find(rank); pending != detaches_at_.end()) {
    if (queue_.now() <= pending->second) {
      return queue_.at(pending->second + 1, {SimEvent::Kind::kRankActs, rank});
    }
    detaches_at_.erase(pending);
  }
  auto action = training_.act(rank);
  if (!action) return;
  const int node = world_.layout().node_of(Rank{rank}).value;
  const TicksMs quiet_at = transfers_.quiet_at(node);
  if (std::holds_alternative<core::RankDetached>(*action) && quiet_at > queue_.now()) {
    detaches_at_[rank] = quiet_at;
    return queue_.at(quiet_at, node, std::move(*action));
  }
  feed(node, {SimEvent::Kind::kEvent, node, 0, std::move(*action)});
}

void Simulator::feed(int index, SimEvent event) {
  WorldNode& node = world_.node(index);
  if (!node.alive) return;
  if (const auto* arrived = std::get_if<core::MessageArrived>(&event.event)) {
    if (!network_.arrives(arrived->message.sender().value, index, event.incarnation)) return;
    // An event that has arrived is not lost with its link any more.
    event.incarnation = 0;
  }
  const auto* lost = std::get_if<core::NodeLost>(&event.event);
  if (lost && lost->node.value == world_.node_count()) return;  // nobody misses the witness
  if (node.frozen) {
    node.backlog.push_back(std::move(event));
    return;
  }
  const auto* record = std::get_if<core::TransferMessageArrived>(&event.event);
  if (record && record->epoch.value > node.epoch) {
    early_records_[index].push_back(std::move(event));
    return;
  }
  // An event of an epoch's data plane is forgotten with its epoch.
  if (event.epoch != 0 &&
      (node.over || event.epoch != node.epoch || node.core->state() == core::JobState::kForming)) {
    return;
  }
  if (!data_plane_.completes(index, event)) return;
  if (auto* stopped = std::get_if<core::DataStopped>(&event.event)) {
    *stopped = data_plane_.on_stop(index, stopped->epoch);
  }
  if (std::holds_alternative<core::TurnEnded>(event.event)) node.turn_pending = false;
  if (std::holds_alternative<core::TimePassed>(event.event)) {
    if (node.tick_at && *node.tick_at <= queue_.now()) node.tick_at.reset();
    step(index, event.event);
    event.event = core::TurnEnded{};  // a process that has slept looks round
  }
  step(index, event.event);
}

void Simulator::step(int index, const core::Event& event) {
  WorldNode& node = world_.node(index);
  carry_out(index, world_.step(queue_.now(), index, event));
  if (node.witness) return;  // the witness needs no time
  if (go_if_closed(index, event)) return;
  if (const auto found = early_records_.find(index); found != early_records_.end()) {
    std::vector<SimEvent> early = std::move(found->second);
    early_records_.erase(found);
    for (SimEvent& record : early) feed(index, std::move(record));
  }
  const bool told = !std::holds_alternative<core::TurnEnded>(event) &&
                    !std::holds_alternative<core::TimePassed>(event);
  if (told && !std::exchange(node.turn_pending, true)) {
    queue_.at(queue_.now() + choices_.draw(Decision::kTurn, index, 0, 0, 3), index,
              core::TurnEnded{});
  }
  const std::optional<TicksMs> wakes_at = node.core->wakes_at();
  if (!wakes_at || (node.tick_at && *node.tick_at <= *wakes_at)) return;
  node.tick_at = std::max(*wakes_at, queue_.now() + 1);
  queue_.at(*node.tick_at, index, core::TimePassed{});
}

bool Simulator::go_if_closed(int index, const core::Event& event) {
  WorldNode& node = world_.node(index);
  if (std::holds_alternative<core::RankDetached>(event) && setup_.goes &&
      training_.have_left(index)) {
    queue_.at(queue_.now() + choices_.draw(Decision::kGo, index, 0, 0, 200), index,
              core::JobClosed{Status(Code::kShutDown, "closed")});
  }
  node.closed = node.closed || std::holds_alternative<core::JobClosed>(event);
  if (!node.closed || !node.core->may_go()) return false;
  faults_.go(index);
  return true;
}

void Simulator::carry_out(int node, const core::Output& output) {
  if (output.started) training_.on_started(node);
  for (const auto& [to, message] : output.sends) {
    if (world_.node(to.value).alive) network_.send(node, to.value, message);
  }
  if (output.sealed) {
    const int delay = choices_.draw(Decision::kStop, node, 0, 0, 5);
    queue_.at(queue_.now() + delay, node, output.sealed->value,
              core::DataStopped{*output.sealed, {}});
  }
  if (output.recovered) data_plane_.on_recovered(node, *output.recovered);
  for (const core::Cancel& cancel : output.cancels) data_plane_.on_cancel(node, cancel);
  for (const core::Launch& launch : output.launches) data_plane_.on_launch(node, launch);
  transfers_.on_output(node, output);
  for (const core::Delivery& delivery : output.deliveries) training_.on_delivery(node, delivery);
  data_plane_.on_freed(node, output);
  if (output.failed) training_.on_failed(node);
  if (output.finished) data_plane_.on_epoch_over(node, output.finished->value);
  if (output.failed) data_plane_.on_epoch_over(node, world_.node(node).epoch);
  if (output.started || output.recovered || output.finished || output.failed ||
      !output.deliveries.empty()) {
    last_progress_ = queue_.now();
  }
  if (!transfers_.violation().empty()) world_.checkers().violated(transfers_.violation());
  if (!data_plane_.violation().empty()) world_.checkers().violated(data_plane_.violation());
  if (!training_.unexplained().empty()) {
    world_.checkers().violated("fault: an error without a fault: " + training_.unexplained());
  }
}

void Simulator::thaw(int index) {
  WorldNode& node = world_.node(index);
  while (node.alive && !node.frozen && !node.backlog.empty()) {
    SimEvent event = std::move(node.backlog.front());
    node.backlog.pop_front();
    if (auto* arrived = std::get_if<core::MessageArrived>(&event.event)) {
      step(index, *arrived);
    } else {
      feed(index, std::move(event));
    }
  }
}

void Simulator::check_liveness() {
  if (events_ > kMaxEvents) {
    world_.checkers().violated("liveness: it goes on and on");
    return;
  }
  if (queue_.now() - last_progress_ <= kPatience) return;
  if (world_.transfers().anything_open()) {
    world_.checkers().violated("liveness: a transfer does not end");
  } else if (world_.checkers().anything_open()) {
    world_.checkers().at_end();
  } else {
    world_.checkers().violated("liveness: nothing is waited for, and the clock still runs");
  }
}

void Simulator::check_end() {
  world_.checkers().at_end();
  const std::optional<int> lost = setup_.only_loss();
  if (lost && world_.killed_while_all_ran()) {
    const std::string unfinished = training_.unfinished(lost);
    if (!unfinished.empty())
      world_.checkers().violated("liveness: n" + std::to_string(*lost) + " is lost, and " +
                                 unfinished);
  }
  if (setup_.is_lethal()) return;
  const std::string unfinished = training_.unfinished();
  if (!unfinished.empty()) world_.checkers().violated("liveness: " + unfinished);
  for (int i = 0; i < world_.node_count(); ++i) {
    if (!world_.node(i).alive) continue;  // the node has gone
    const core::JobCore& core = *world_.node(i).core;
    if (core.state() != core::JobState::kForming ||
        core.epoch().value != static_cast<uint32_t>(setup_.epochs) + 1) {
      world_.checkers().violated("liveness: all ranks have left, and n" + std::to_string(i) +
                                 " does not wait for the next epoch");
    }
  }
}

RunResult run_seed(uint64_t seed, const Limits& limits, const RunOptions& options) {
  const RunSetup setup = draw_setup(seed, limits);
  return Simulator(setup, RandomChoices(seed), options).run();
}

}  // namespace rueda::sim
