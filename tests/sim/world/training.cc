#include "tests/sim/world/training.h"

#include <algorithm>

#include "tests/sim/setup/declared_plan_faults.h"

namespace rueda::sim {
namespace {

// Returns the key of a tensor in flight: the same name may be in several process sets.
std::string key_of(const core::TensorDescriptor& tensor) {
  const bool is_change = !moves_data(tensor.kind);
  return tensor.name + (is_change ? "" : "@" + std::to_string(tensor.process_set));
}

core::DescriptorPtr change_of(CollectiveKind kind, uint32_t id, const std::vector<int>& ranks) {
  auto change = std::make_shared<core::TensorDescriptor>();
  change->name = core::kProcessSetsName;
  change->kind = kind;
  change->process_set = id;
  change->shape.assign(ranks.begin(), ranks.end());
  return change;
}

}  // namespace

Training::Training(const RunSetup& setup, EventQueue& queue, RandomChoices& choices, World& world)
    : setup_(setup),
      queue_(queue),
      choices_(choices),
      world_(world),
      processes_(static_cast<size_t>(setup.world_size())) {
  for (const TensorSetup& tensor : setup.tensors) {
    usual_.push_back(std::make_shared<core::TensorDescriptor>(tensor.descriptor));
  }
}

void Training::begin() {
  for (int rank = 0; rank < setup_.world_size(); ++rank) wake(rank, 50);
}

void Training::wake(int rank, int at_most) {
  if (std::exchange(at(rank).wakes, true)) return;
  const int delay = choices_.draw(Decision::kThink, rank, 0, 0, at_most);
  queue_.at(queue_.now() + delay, {SimEvent::Kind::kRankActs, rank});
}

std::optional<core::Event> Training::act(int rank) {
  Process& process = at(rank);
  process.wakes = false;
  WorldNode& node = world_.node_of(rank);
  if (!node.alive) return std::nullopt;
  if (process.phase == Phase::kWorking) return work(rank);
  if (process.phase != Phase::kAway) return std::nullopt;
  if (!node.frozen && !node.core->may_attach(world_.local_rank(rank)).is_ok()) return std::nullopt;
  process.phase = Phase::kAttached;
  return core::RankAttached{world_.local_rank(rank)};
}

std::optional<core::Event> Training::work(int rank) {
  Process& process = at(rank);
  if (process.waits_for != 0) return std::nullopt;
  const int steps = rank == setup_.leaver ? setup_.steps / 2 : setup_.steps;
  while (process.actions.empty() && !process.saw_error &&
         (process.step < steps || joins_now(rank))) {
    if (!setup_.eager && !process.open.empty()) return sleep(rank, process.open.begin()->second);
    joins_now(rank) ? join(rank) : begin_step(rank);
  }
  if (!process.actions.empty()) return next_action(rank);
  if (!process.open.empty()) return sleep(rank, process.open.begin()->second);
  if (remove_sets(rank)) return next_action(rank);
  return leave(rank);
}

std::optional<core::Event> Training::next_action(int rank) {
  Process& process = at(rank);
  const Action action = process.actions.front();
  if (action.cancels) {
    process.actions.pop_front();
    return cancel(rank, action.descriptor);
  }
  const auto earlier = process.open.find(key_of(*action.descriptor));
  // A buffer cannot be reduced twice at a time, so the process waits for the first.
  const bool blocks = earlier != process.open.end();
  if (action.waits || !blocks) process.actions.pop_front();
  if (blocks) return sleep(rank, earlier->second);
  wake(rank, 10);
  if (action.waits) return std::nullopt;
  const Ticket ticket{++process.last_ticket};
  process.open.emplace(key_of(*action.descriptor), ticket.value);
  return core::Submitted{{world_.local_rank(rank), ticket, action.descriptor}};
}

std::optional<core::Event> Training::sleep(int rank, uint64_t ticket) {
  at(rank).waits_for = ticket;
  if (setup_.polls) return std::nullopt;
  return core::RankWaits{world_.local_rank(rank), Ticket{ticket}};
}

core::Event Training::leave(int rank) {
  Process& process = at(rank);
  const bool comes_again = ++process.epochs < setup_.epochs;
  process.phase = comes_again ? Phase::kAway : Phase::kDone;
  process.step = 0;
  process.has_sets = process.has_joined = false;
  process.saw_error = false;
  if (comes_again) wake(rank, 60);
  return core::RankDetached{world_.local_rank(rank)};
}

bool Training::in_fixed_order(int step) const {
  // A wait within a step is only right where all ranks keep one order; otherwise each might wait
  // for what the other submits later.
  return !setup_.reordered || setup_.has_order() ||
         std::any_of(setup_.strays.begin(), setup_.strays.end(), [&](const StraySetup& stray) {
           return stray.step == step && (stray.what == Stray::kTwice || stray.what == Stray::kWait);
         });
}

const StraySetup* Training::stray(Stray what, int step, size_t tensor) const {
  for (const StraySetup& stray : setup_.strays) {
    if (stray.what == what && stray.step == step && stray.tensor == tensor) return &stray;
  }
  return nullptr;
}

void Training::begin_step(int rank) {
  Process& process = at(rank);
  if (process.step == 0) add_sets(rank);
  if (process.step == 0) declare(rank);
  const int step = process.step++;
  std::vector<size_t> order;
  for (size_t tensor = 0; tensor < setup_.tensors.size(); ++tensor) {
    if ((setup_.tensors[tensor].kinds >> setup_.kind_of(step) & 1) != 0) order.push_back(tensor);
  }
  if (!in_fixed_order(step)) {
    for (size_t i = 0; i + 1 < order.size(); ++i) {
      const int ahead =
          choices_.draw(Decision::kOrder, rank, 0, 0, static_cast<int>(order.size() - 1 - i));
      std::swap(order[i], order[i + static_cast<size_t>(ahead)]);
    }
  }
  // Waits within a step are in the set of all ranks alone; the tensors of other sets come after
  // them.
  for (size_t tensor : order) add_tensor(rank, tensor);
  use_sets(rank);
  if (setup_.transfers) add_transfers(rank, step);
}

void Training::add_transfers(int rank, int step) {
  std::vector<int> all;
  for (int other = 0; other < setup_.world_size(); ++other) all.push_back(other);
  add_exchange(rank, all, 0, step);
  for (size_t i = 0; i < setup_.sets.size(); ++i) {
    add_exchange(rank, setup_.sets[i], static_cast<uint32_t>(i + 1), step);
  }
}

// Each message has a size of its own, so what meets a wrong one ends with a mismatch.
void Training::add_exchange(int rank, const std::vector<int>& ranks, uint32_t set, int step) {
  const auto at = std::lower_bound(ranks.begin(), ranks.end(), rank);
  if (at == ranks.end() || *at != rank) return;
  const auto place = static_cast<size_t>(at - ranks.begin());
  const int next = ranks[(place + 1) % ranks.size()];
  const int before = ranks[(place + ranks.size() - 1) % ranks.size()];
  int number = 0;
  const auto transfer = [&](CollectiveKind kind, int peer, int lane) {
    auto made = std::make_shared<core::TensorDescriptor>();
    made->name = std::string(to_string(kind)) + std::to_string(step) + "." + std::to_string(lane) +
                 "." + std::to_string(number);
    made->kind = kind;
    made->process_set = set;
    made->peer = Rank{peer};
    made->tag = step * 8 + lane;
    made->shape = {1 + step * 16 + number};
    return core::DescriptorPtr(std::move(made));
  };
  // The lanes: an ordinary one, one whose receive is taken back, one whose send is, and one with
  // two messages, of which the first is received from any rank.
  std::vector<Action> sends;
  std::vector<Action> receives;
  for (int lane = 0; lane < 4; ++lane) {
    for (int i = 0; i < (lane == 3 ? 2 : 1); ++i, ++number) {
      const bool is_any = lane == 3 && i == 0;
      sends.push_back({transfer(CollectiveKind::kSend, next, lane)});
      receives.push_back(
          {transfer(CollectiveKind::kReceive, is_any ? core::kAnySource.value : before, lane)});
      if (lane == 2) sends.push_back({sends.back().descriptor, false, true});
      if (lane == 1) receives.push_back({receives.back().descriptor, false, true});
    }
  }
  std::deque<Action>& actions = this->at(rank).actions;
  const bool receives_first = choices_.draw(Decision::kReceive, rank, 0, 0, 1) == 1;
  if (receives_first) std::swap(sends, receives);
  actions.insert(actions.end(), sends.begin(), sends.end());
  actions.insert(actions.end(), receives.begin(), receives.end());
}

std::optional<core::Event> Training::cancel(int rank, const core::DescriptorPtr& transfer) {
  Process& process = at(rank);
  wake(rank, 10);
  const std::string key = key_of(*transfer);
  const auto open = process.open.find(key);
  if (open == process.open.end()) return std::nullopt;
  process.cancelled.emplace(key, transfer);
  return core::TransferCancelled{world_.local_rank(rank), Ticket{open->second}};
}

bool Training::comes_again(int rank, const std::string& key, const core::Delivery& delivery) {
  Process& process = at(rank);
  const auto cancelled = process.cancelled.extract(key);
  if (cancelled.empty() || delivery.status.code() != Code::kUnavailable) return false;
  if (!process.saw_error) process.actions.push_front({cancelled.mapped()});
  return true;
}

void Training::add_sets(int rank) {
  Process& process = at(rank);
  for (const std::vector<int>& ranks : setup_.sets) {
    const core::DescriptorPtr add = change_of(CollectiveKind::kAddProcessSet, 0, ranks);
    process.actions.push_back({add});
    process.actions.push_back({add, true});
    process.has_sets = true;
  }
}

void Training::declare(int rank) {
  const core::DescriptorPtr plan = declared_by(setup_, rank);
  if (!plan) return;
  at(rank).actions.push_back({plan});
  at(rank).actions.push_back({plan, true});
}

void Training::use_sets(int rank) {
  for (size_t i = 0; i < setup_.sets.size(); ++i) {
    const std::vector<int>& ranks = setup_.sets[i];
    if (!std::binary_search(ranks.begin(), ranks.end(), rank)) continue;
    for (const char* name : {"t0", "s"}) {
      auto tensor = std::make_shared<core::TensorDescriptor>();
      tensor->name = name;
      tensor->process_set = static_cast<uint32_t>(i + 1);
      tensor->shape = {static_cast<int64_t>(i) + 1};
      at(rank).actions.push_back({std::move(tensor)});
    }
  }
}

bool Training::joins_now(int rank) const {
  const Process& process = processes_[static_cast<size_t>(rank)];
  return !setup_.joins.empty() && !process.has_joined &&
         process.step == setup_.joins[static_cast<size_t>(rank)];
}

void Training::join(int rank) {
  Process& process = at(rank);
  auto join = std::make_shared<core::TensorDescriptor>();
  join->name = core::kJoinName;
  join->kind = CollectiveKind::kJoin;
  process.has_joined = true;
  process.step = setup_.step_after_joins();
  process.actions.push_back({join});
  process.actions.push_back({std::move(join), true});
}

bool Training::remove_sets(int rank) {
  Process& process = at(rank);
  if (process.saw_error || setup_.leaver >= 0 || !std::exchange(process.has_sets, false)) {
    return false;
  }
  for (uint32_t id = 1; id <= setup_.sets.size(); ++id) {
    const core::DescriptorPtr remove = change_of(CollectiveKind::kRemoveProcessSet, id, {});
    process.actions.push_back({remove});
    process.actions.push_back({remove, true});
  }
  return true;
}

void Training::add_tensor(int rank, size_t tensor) {
  Process& process = at(rank);
  const int step = process.step - 1;
  const bool grouped = setup_.is_grouped(tensor);  // the whole group is added, or nothing
  if (!grouped && stray(Stray::kSkip, step, tensor)) return;
  const core::DescriptorPtr usual = descriptor(tensor, rank, step);
  for (const std::string& before : setup_.tensors[tensor].after) {
    for (const core::DescriptorPtr& other : usual_) {
      if (other->name == before) process.actions.push_back({other, true});
    }
  }
  process.actions.push_back({usual});
  if (grouped) return;
  if (stray(Stray::kTwice, step, tensor)) {
    process.actions.push_back({usual, true});
    process.actions.push_back({usual});
  }
  const StraySetup* wait = stray(Stray::kWait, step, tensor);
  if (wait && wait->rank == rank) process.actions.push_back({usual, true});
  if (stray(Stray::kNew, step, tensor)) {
    auto other = std::make_shared<core::TensorDescriptor>(*usual);
    other->name = "new" + std::to_string(tensor);
    process.actions.push_back({std::move(other)});
  }
}

core::DescriptorPtr Training::descriptor(size_t tensor, int rank, int step) const {
  const core::DescriptorPtr& usual = usual_[tensor];
  auto other = std::make_shared<core::TensorDescriptor>(*usual);
  const bool has_shape = usual->kind != CollectiveKind::kBarrier;
  for (const StraySetup& stray : setup_.strays) {
    const bool mine = stray.rank == rank && stray.step == step;
    if (stray.what == Stray::kOtherGroup && mine) {
      // The whole group gets the other name, so that the rank's own view of it makes sense.
      const std::string& group = usual_[stray.tensor]->group;
      if (stray.tensor != tensor && (group.empty() || group != usual->group)) continue;
      other->group = "other";
      other->group_size = std::max(usual->group_size, 1u);
    } else if (stray.tensor != tensor || !has_shape) {
      continue;
    } else if (stray.what == Stray::kOtherShape && mine) {
      other->shape = {1000 + rank};
    } else if (stray.what == Stray::kNewShape && stray.step <= step) {
      other->shape = {usual->shape.front() + 1};
    }
  }
  return *other == *usual ? usual : core::DescriptorPtr(std::move(other));
}

void Training::on_started(int node) {
  for (Rank rank : world_.layout().node(NodeIndex{node}).ranks) {
    Process& process = at(rank.value);
    if (process.phase != Phase::kAttached) continue;
    process.phase = Phase::kWorking;
    wake(rank.value, 20);
  }
}

void Training::on_delivery(int node, const core::Delivery& delivery) {
  const Rank rank =
      world_.layout().node(NodeIndex{node}).ranks[static_cast<size_t>(delivery.rank.value)];
  Process& process = at(rank.value);
  const uint64_t ticket = delivery.ticket.value;
  const auto it = std::find_if(process.open.begin(), process.open.end(),
                               [&](const auto& entry) { return entry.second == ticket; });
  if (it == process.open.end()) return;  // the checkers judge that
  const std::string key = it->first;
  process.open.erase(it);
  if (process.waits_for == ticket) process.waits_for = 0;
  if (comes_again(rank.value, key, delivery)) {
    if (process.phase == Phase::kWorking && process.waits_for == 0) wake(rank.value, 20);
    return;
  }
  const Code code = delivery.status.code();
  if (code == Code::kOk) {
    ++delivered_ok_;
  } else {
    ++delivered_error_;
    const bool is_mismatch = code == Code::kMismatch;
    const bool is_refused = code == Code::kInvalidArgument && !setup_.joins.empty() &&
                            delivery.status.message().find("has joined") != std::string::npos;
    const bool explained =
        setup_.is_lethal() || is_refused || (code == Code::kShutDown && setup_.leaver >= 0) ||
        (is_mismatch && (setup_.has(Stray::kOtherShape) || setup_.has(Stray::kOtherGroup) ||
                         setup_.declares == Declares::kNotTheSame));
    if (!explained) unexplained_ = delivery.status.to_string();
    // A job goes on after a mismatch, after a broadcast that has lost its root, and after an
    // operation that is refused while some ranks have joined. After anything else a process gives
    // up.
    const bool goes_on =
        is_mismatch || is_refused || (code == Code::kRankLost && !world_.node(node).over);
    if (!goes_on) {
      process.saw_error = true;
      process.had_errors = true;
      process.actions.clear();
    }
  }
  if (process.phase == Phase::kWorking && process.waits_for == 0) wake(rank.value, 20);
}

void Training::on_failed(int node) {
  for (Rank rank : world_.layout().node(NodeIndex{node}).ranks) {
    Process& process = at(rank.value);
    process.saw_error = true;
    process.actions.clear();
    if (process.phase == Phase::kWorking) wake(rank.value, 20);
  }
}

bool Training::kill(int rank) {
  Process& process = at(rank);
  if (process.phase == Phase::kAway || process.phase == Phase::kDone ||
      process.phase == Phase::kDead) {
    return false;
  }
  process.phase = Phase::kDead;
  process.actions.clear();
  process.open.clear();
  process.cancelled.clear();
  return true;
}

bool Training::have_left(int node) const {
  const std::vector<Rank>& ranks = world_.layout().node(NodeIndex{node}).ranks;
  return std::all_of(ranks.begin(), ranks.end(), [&](Rank rank) {
    return processes_[static_cast<size_t>(rank.value)].phase == Phase::kDone;
  });
}

std::string Training::unfinished(std::optional<int> lost) const {
  for (size_t rank = 0; rank < processes_.size(); ++rank) {
    if (lost && world_.layout().node_of(Rank{static_cast<int32_t>(rank)}).value == *lost) continue;
    const Process& process = processes_[rank];
    // other errors are explained where they come
    const bool lost_heart = process.had_errors && lost;
    if (process.phase != Phase::kDone || process.epochs != setup_.epochs || lost_heart) {
      return "rank " + std::to_string(rank) + " did not finish";
    }
  }
  return {};
}

}  // namespace rueda::sim
