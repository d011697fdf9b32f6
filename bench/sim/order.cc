#include "bench/sim/order.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <stdexcept>
#include <tuple>

#include "bench/sim/fabric.h"
#include "bench/sim/order_bytes.h"
#include "bench/sim/order_time.h"
#include "daemon/core/job/job.h"

namespace rueda::scale {
namespace {

constexpr Micros kLongestRun = 600'000'000;
constexpr Epoch kFirstEpoch{1};

// Stands for the training process of a node. There is one a node, because the node's other
// processes would cost no message.
struct Trainer {
  int step = 0;
  int submitted = 0;  // tensors of the step that were submitted
  int returned = 0;   // tensors of the step that have come back
  uint64_t last_ticket = 0;
  bool attached = false;
};

struct Node {
  std::unique_ptr<core::JobCore> core;
  std::vector<core::Event> inbox;
  bool has_turn = false;
  Micros free_at = 0;
  Micros unawaited = 0;  // the end of the time until free_at, for which nobody waits
  std::optional<TicksMs> tick_at;
  std::set<Seq> under_way;  // operations that are launched and not done
  Trainer trainer;
  bool alive = true;
};

core::Layout make_layout(int nodes) {
  std::vector<core::LayoutNode> list;
  for (int i = 0; i < nodes; ++i) list.push_back({"n" + std::to_string(i), "", {Rank{i}}});
  Result<core::Layout> layout = core::Layout::make(std::move(list));
  if (!layout.is_ok()) throw std::runtime_error(layout.status().message());
  return layout.value();
}

class OrderRun {
 public:
  explicit OrderRun(const OrderSpec& spec);
  OrderResult run();

 private:
  using OperationName = std::tuple<uint32_t, uint64_t, uint32_t>;  // epoch, seq, generation

  Node& at(int node) { return nodes_[static_cast<size_t>(node)]; }
  OrderStep& step_of(int node) {
    return result_.steps[static_cast<size_t>(std::min(at(node).trainer.step, spec_.steps - 1))];
  }
  // Returns when the effects of a node's turn can be seen.
  Micros acts_at(int node) { return at(node).free_at - at(node).unawaited; }
  int tensors_of(int step) const { return spec_.tensors + (step == spec_.deviates_at ? 1 : 0); }

  void tell(Micros when, int node, core::Event event);
  void take_turn(int node);
  void pay_for_message(int node);
  void carry_out(int node, core::Output& output);
  void send(int node, const core::Message& message, NodeIndex to);
  void on_launch(const core::Launch& launch, Micros when);
  void on_recovery(int node, const core::Output& output);
  void begin_step(int node);
  void submit(int node);
  void on_delivery(int node, const core::Delivery& delivery);
  void wake(int node);
  void kill();

  const OrderSpec spec_;
  const Fabric fabric_;
  const Micros latency_;
  const Micros message_us_;
  const Micros coordinator_message_us_;
  TimeLine time_;
  std::vector<Node> nodes_;
  std::vector<core::DescriptorPtr> tensors_;
  std::map<OperationName, int> launched_;
  std::vector<Micros> last_submission_;  // of each step
  std::vector<int> locked_on_;           // of each step, the number of nodes with a lock
  int alive_;
  int done_ = 0;
  int started_ = 0;
  int recovered_ = 0;
  std::vector<Micros> core_free_at_;  // of the shared cores
  std::optional<Micros> died_at_;
  OrderResult result_;
};

OrderRun::OrderRun(const OrderSpec& spec)
    : spec_(spec),
      fabric_(spec.parameters, spec.nodes),
      latency_(std::max<Micros>(1, to_micros(fabric_.latency_ms()))),
      message_us_(static_cast<Micros>(spec.parameters.message_us)),
      coordinator_message_us_(
          static_cast<Micros>(spec.coordinator_message_us.value_or(spec.parameters.message_us))),
      nodes_(static_cast<size_t>(spec.nodes)),
      last_submission_(static_cast<size_t>(spec.steps)),
      locked_on_(static_cast<size_t>(spec.steps)),
      alive_(spec.nodes),
      core_free_at_(static_cast<size_t>(spec.shared_cores)) {
  result_.steps.resize(static_cast<size_t>(spec.steps));
  core::JobOptions options;
  options.job = "scale";
  options.agreement.mode = spec.mode;
  options.recovery.policy = spec.policy;
  if (spec.policy == core::DeathPolicy::kFail) options.recovery.heartbeat_ms = 0;
  options.tree.fan_in = spec.parameters.tree_fan_in;
  options.tree.threshold = spec.parameters.tree_threshold;
  const core::Layout layout = make_layout(spec.nodes);
  for (int i = 0; i < spec.nodes; ++i) {
    at(i).core = std::make_unique<core::JobCore>(layout, NodeIndex{i}, options);
  }
  for (int i = 0; i <= spec.tensors; ++i) {
    core::TensorDescriptor descriptor;
    descriptor.name = "gradient." + std::to_string(i);
    descriptor.shape = {1};
    tensors_.push_back(std::make_shared<const core::TensorDescriptor>(std::move(descriptor)));
  }
}

OrderResult OrderRun::run() {
  for (int i = 0; i < spec_.nodes; ++i) tell(0, i, core::RankAttached{LocalRank{0}});
  while (done_ < alive_) {
    if (time_.empty() || time_.now() > kLongestRun) {
      throw std::runtime_error("the simulated job does not end: " + std::to_string(done_) + " of " +
                               std::to_string(alive_) + " ranks have done their steps");
    }
    const Moment moment = time_.take();
    switch (moment.kind) {
      case Moment::Kind::kTurn: take_turn(moment.node); break;
      case Moment::Kind::kSubmits: submit(moment.node); break;
      case Moment::Kind::kDies: kill(); break;
      case Moment::Kind::kEvent: tell(time_.now(), moment.node, time_.event_of(moment)); break;
    }
  }
  for (size_t step = 0; step < result_.steps.size(); ++step) {
    result_.steps[step].locked = locked_on_[step] == alive_;
  }
  return std::move(result_);
}

// An event that comes while a daemon is busy is handled in the daemon's next turn.
void OrderRun::tell(Micros when, int node, core::Event event) {
  if (when > time_.now()) {
    time_.at(when, node, std::move(event));
    return;
  }
  Node& it = at(node);
  if (!it.alive) return;
  it.inbox.push_back(std::move(event));
  if (std::exchange(it.has_turn, true)) return;
  const Micros wakes = when + static_cast<Micros>(spec_.parameters.wake_us);
  time_.at(std::max(wakes, it.free_at), node, Moment::Kind::kTurn);
}

void OrderRun::take_turn(int node) {
  Node& it = at(node);
  it.has_turn = false;
  if (!it.alive) return;
  const auto own_core = std::min_element(core_free_at_.begin(), core_free_at_.end());
  const bool shares = own_core != core_free_at_.end();
  it.free_at = std::max(time_.now(), shares ? *own_core : 0);
  it.unawaited = 0;
  core::Output output;
  const std::vector<core::Event> events = std::exchange(it.inbox, {});
  for (const core::Event& event : events) {
    if (std::holds_alternative<core::MessageArrived>(event)) pay_for_message(node);
    if (const auto* done = std::get_if<core::OperationDone>(&event)) it.under_way.erase(done->seq);
    it.core->step(time_.now_ms(), event, output);
    ++result_.events;
  }
  it.core->step(time_.now_ms(), core::TurnEnded{}, output);
  carry_out(node, output);
  if (shares) *own_core = it.free_at;
  wake(node);
}

void OrderRun::pay_for_message(int node) {
  const Micros cost = node == 0 ? coordinator_message_us_ : message_us_;
  at(node).free_at += cost;
  at(node).unawaited = std::llround(static_cast<double>(cost) * spec_.unawaited_share);
}

void OrderRun::carry_out(int node, core::Output& output) {
  if (output.failed && died_at_ && spec_.policy == core::DeathPolicy::kFail) {
    LossTimes& loss = *result_.loss;
    loss.decided_ms = std::max(loss.decided_ms, to_ms(at(node).free_at - *died_at_));
    ++done_;
    for (auto& [to, message] : output.sends) send(node, message, to);
    return;
  }
  if (output.failed) {
    throw std::runtime_error("the simulated job fails: " + output.failed->message());
  }
  for (auto& [to, message] : output.sends) send(node, message, to);
  if (output.started && ++started_ == spec_.nodes) result_.start_ms = to_ms(at(node).free_at);
  if (output.started) begin_step(node);
  on_recovery(node, output);
  for (const core::Cancel& cancel : output.cancels) {
    std::erase_if(launched_, [&](const auto& entry) {
      return std::get<1>(entry.first) >= cancel.first.value &&
             std::get<2>(entry.first) < cancel.generation;
    });
  }
  for (const core::Launch& launch : output.launches) {
    at(node).under_way.insert(launch.seq);
    on_launch(launch, acts_at(node));
  }
  for (const core::Delivery& delivery : output.deliveries) on_delivery(node, delivery);
}

void OrderRun::send(int node, const core::Message& message, NodeIndex to) {
  pay_for_message(node);
  if (started_ < spec_.nodes) ++result_.start_messages;
  const auto* about_order = std::get_if<core::AgreementMessage>(&message.body);
  if (about_order) {
    OrderStep& step = step_of(node);
    ++step.messages;
    if (node == 0 || to.value == 0) {
      ++step.coordinator_messages;
      step.coordinator_bytes += bytes_of(*about_order);
    }
  }
  if (result_.loss && (std::holds_alternative<core::RecoveryBody>(message.body) ||
                       std::holds_alternative<core::Fail>(message.body))) {
    ++result_.loss->messages;
  }
  if (to.value < spec_.nodes) {
    time_.at(acts_at(node) + latency_, to.value, core::MessageArrived{message});
  }
}

void OrderRun::on_launch(const core::Launch& launch, Micros when) {
  const OperationName name{launch.epoch.value, launch.seq.value, launch.generation};
  // An epoch that begins after the death has only the survivors.
  if (++launched_[name] < (launch.epoch == kFirstEpoch ? spec_.nodes : alive_)) return;
  launched_.erase(name);
  const Micros done = std::max(when, time_.now()) + to_micros(spec_.operation_ms);
  for (int i = 0; i < spec_.nodes; ++i) {
    if (at(i).alive) time_.at(done, i, core::OperationDone{launch.seq, launch.process_set});
  }
}

void OrderRun::on_recovery(int node, const core::Output& output) {
  if (output.sealed && died_at_) {
    const double after_ms = to_ms(at(node).free_at - *died_at_);
    LossTimes& loss = *result_.loss;
    if (loss.suspected_ms == 0) loss.suspected_ms = after_ms;
    loss.sealed_ms = std::max(loss.sealed_ms, after_ms);
    // The dead node has sent nothing, so no chunk of what is under way is final.
    core::DataStopped stopped{*output.sealed, {}};
    for (const Seq seq : std::exchange(at(node).under_way, {})) {
      stopped.held.push_back({seq, std::vector<bool>(static_cast<size_t>(spec_.nodes), false)});
    }
    time_.at(at(node).free_at, node, std::move(stopped));
  }
  if (output.recovered && died_at_) {
    result_.loss->decided_ms =
        std::max(result_.loss->decided_ms, to_ms(at(node).free_at - *died_at_));
    ++recovered_;
  }
}

void OrderRun::begin_step(int node) {
  Trainer& trainer = at(node).trainer;
  trainer.submitted = 0;
  trainer.returned = 0;
  const Micros begins = std::max(acts_at(node), time_.now());
  time_.at(begins + to_micros(spec_.compute_ms), node, Moment::Kind::kSubmits);
  if (spec_.node_dies && !died_at_ && node == 0 && trainer.step == spec_.steps - 2) {
    time_.at(begins + to_micros(spec_.compute_ms / 2), *spec_.node_dies, Moment::Kind::kDies);
  }
}

void OrderRun::submit(int node) {
  Node& it = at(node);
  if (!it.alive) return;
  Trainer& trainer = it.trainer;
  Micros& last = last_submission_[static_cast<size_t>(trainer.step)];
  last = std::max(last, time_.now());
  const int until = spec_.one_by_one ? trainer.submitted + 1 : tensors_of(trainer.step);
  while (trainer.submitted < until) {
    const core::DescriptorPtr& tensor = tensors_[static_cast<size_t>(trainer.submitted++)];
    core::LocalSubmission submission{LocalRank{0}, Ticket{++trainer.last_ticket}, tensor, 0, {}};
    tell(time_.now(), node, core::Submitted{std::move(submission)});
  }
}

void OrderRun::on_delivery(int node, const core::Delivery& delivery) {
  if (!delivery.status.is_ok()) {
    throw std::runtime_error("a simulated rank gets an error: " + delivery.status.message());
  }
  Node& it = at(node);
  Trainer& trainer = it.trainer;
  if (++trainer.returned < tensors_of(trainer.step)) {
    if (spec_.one_by_one) {
      time_.at(std::max(acts_at(node), time_.now()), node, Moment::Kind::kSubmits);
    }
    return;
  }
  const auto index = static_cast<size_t>(trainer.step);
  OrderStep& step = result_.steps[index];
  const double waited = to_ms(std::max(acts_at(node), time_.now()) - last_submission_[index]);
  step.coordination_ms = std::max(step.coordination_ms, waited - spec_.operation_ms);
  locked_on_[index] += it.core->is_locked() ? 1 : 0;
  if (++trainer.step == spec_.steps) {
    ++done_;
  } else {
    begin_step(node);
  }
}

void OrderRun::wake(int node) {
  Node& it = at(node);
  const std::optional<TicksMs> wakes_at = it.core->wakes_at();
  if (!wakes_at || (it.tick_at && *it.tick_at <= *wakes_at && *it.tick_at > time_.now_ms())) return;
  it.tick_at = std::max(*wakes_at, time_.now_ms() + 1);
  time_.at(*it.tick_at * 1000, node, core::TimePassed{});
}

void OrderRun::kill() {
  const int victim = *spec_.node_dies;
  at(victim).alive = false;
  --alive_;
  died_at_ = time_.now();
  result_.loss = LossTimes{};
  if (spec_.policy != core::DeathPolicy::kFail) return;
  for (const NodeIndex neighbour : at(victim).core->links().neighbours()) {
    const core::NodeLost lost{NodeIndex{victim}, Status(Code::kRankLost, "its links broke")};
    time_.at(time_.now() + latency_, neighbour.value, lost);
  }
}

}  // namespace

OrderResult run_order(const OrderSpec& spec) { return OrderRun(spec).run(); }

}  // namespace rueda::scale
