#include "tests/sim/scenario.h"

#include <algorithm>
#include <fstream>
#include <map>
#include <sstream>
#include <stdexcept>

#include "tests/sim/phrases.h"
#include "tests/sim/world.h"

namespace rueda::sim {
namespace {

// What makes a line go wrong. It does not leave this file.
struct Objection : std::runtime_error {
  using std::runtime_error::runtime_error;
};

std::string name_of(int node) { return "n" + std::to_string(node); }

class Teller {
 public:
  // Does what the line says. Throws an Objection if it makes no sense, or was not fulfilled.
  void tell(const Words& line);
  std::vector<std::string> trace() { return world_ ? world_->trace().lines() : Words{}; }

  // --- The cast
  void ranks(const std::vector<Words>& said);
  void tensor(const std::vector<Words>& said);
  void grouped_tensor(const std::vector<Words>& said);
  void broadcast(const std::vector<Words>& said);
  void option(const std::vector<Words>& said);

  // --- What happens
  void start(const std::vector<Words>& said);
  void rank_attaches(const std::vector<Words>& said);
  void rank_submits(const std::vector<Words>& said) { submit(said[0], said[1], {}); }
  void rank_submits_shape(const std::vector<Words>& said) {
    submit(said[0], said[1], {{std::stoll(said[2][0])}});
  }
  void rank_leaves(const std::vector<Words>& said);
  void rank_dies(const std::vector<Words>& said);
  void deliver(const std::vector<Words>& said);
  void deliver_again(const std::vector<Words>& said);
  void deliver_everything(const std::vector<Words>& said);
  void node_completes(const std::vector<Words>& said);
  void node_dies(const std::vector<Words>& said);
  void node_freezes(const std::vector<Words>& said) { node(said[0]).frozen = true; }
  void node_thaws(const std::vector<Words>& said);
  void node_loses(const std::vector<Words>& said);
  void channel_breaks(const std::vector<Words>& said);
  void time_passes(const std::vector<Words>& said);

  // --- What must follow
  void expect_launch(const std::vector<Words>& said);
  void expect_no_launch(const std::vector<Words>& said);
  void expect_result(const std::vector<Words>& said);
  void expect_error(const std::vector<Words>& said);
  void expect_no_result(const std::vector<Words>& said);
  void expect_message(const std::vector<Words>& said);
  void expect_no_message(const std::vector<Words>& said);
  void expect_state(const std::vector<Words>& said);
  void expect_epoch(const std::vector<Words>& said);
  void expect_failure(const std::vector<Words>& said);

 private:
  struct Result {
    std::string tensor;
    core::Delivery delivery;
  };
  // What a node said that no expectation has spoken of yet.
  struct Said {
    std::deque<core::Launch> launches;
    std::optional<Status> failure;
  };
  struct Stream {
    std::deque<core::Message> messages;
    std::optional<core::Message> last;  // that was delivered
  };

  World& world();
  WorldNode& node(const Words& name) { return world().node(one_node(name)); }
  std::vector<int> nodes(const Words& name);
  int one_node(const Words& name);
  std::vector<int> all_ranks(const Words& name);
  void submit(const Words& who, const Words& names,
              const std::optional<std::vector<int64_t>>& shape);
  Stream& stream(const Words& from, const Words& to) {
    return streams_[{one_node(from), one_node(to)}];
  }
  const Result& take_result(int rank, const std::string& tensor);

  void feed(int node, const core::Event& event);
  void step(int node, const core::Event& event);
  void end_turns();
  bool deliver_one();

  RunSetup setup_;
  std::optional<World> world_;
  TicksMs now_ = 0;
  std::vector<bool> turn_open_;                         // by node
  std::vector<Said> said_;                              // by node
  std::vector<std::deque<Result>> results_;             // by rank
  std::vector<std::map<uint64_t, std::string>> names_;  // by rank: of its tickets
  Result taken_;
  std::map<std::pair<int, int>, Stream> streams_;
};

struct Phrase {
  const char* words;
  void (Teller::*carry_out)(const std::vector<Words>& said);
};

constexpr Phrase kPhrases[] = {
    {"ranks NAMES", &Teller::ranks},
    {"tensor WORD WORD NUMBER", &Teller::tensor},
    {"tensor WORD WORD NUMBER in group WORD", &Teller::grouped_tensor},
    {"broadcast WORD WORD NUMBER from RANKS", &Teller::broadcast},
    {"option WORD NUMBER", &Teller::option},

    {"start", &Teller::start},
    {"RANKS attaches", &Teller::rank_attaches},
    {"RANKS submits NAMES with NUMBER elements", &Teller::rank_submits_shape},
    {"RANKS submits NAMES", &Teller::rank_submits},
    {"RANKS leaves", &Teller::rank_leaves},
    {"RANKS dies", &Teller::rank_dies},
    {"deliver WORD from NODE to NODE", &Teller::deliver},
    {"deliver WORD from NODE to NODE again", &Teller::deliver_again},
    {"deliver everything", &Teller::deliver_everything},
    {"NODES completes NUMBER", &Teller::node_completes},
    {"NODE dies", &Teller::node_dies},
    {"NODE freezes", &Teller::node_freezes},
    {"NODE thaws", &Teller::node_thaws},
    {"NODE loses NODE", &Teller::node_loses},
    {"NODE sees its channel to NODE break", &Teller::channel_breaks},
    {"NUMBER ms pass", &Teller::time_passes},

    {"expect NODES launches nothing", &Teller::expect_no_launch},
    {"expect NODES launches WORD as NUMBER", &Teller::expect_launch},
    {"expect RANKS gets nothing", &Teller::expect_no_result},
    {"expect RANKS gets WORD", &Teller::expect_result},
    {"expect RANKS gets WORD with WORD WORD", &Teller::expect_error},
    {"expect WORD from NODE to NODE", &Teller::expect_message},
    {"expect no message", &Teller::expect_no_message},
    {"expect NODES is WORD", &Teller::expect_state},
    {"expect NODES in epoch NUMBER", &Teller::expect_epoch},
    {"expect NODES fails with WORD WORD", &Teller::expect_failure},
};

void Teller::tell(const Words& line) {
  for (const Phrase& phrase : kPhrases) {
    const auto said = match(phrase.words, line);
    if (!said) continue;
    (this->*phrase.carry_out)(*said);
    end_turns();
    if (!world_) return;
    const std::string& violation = world_->checkers().violation();
    if (!violation.empty()) throw Objection("breaks " + violation);
    ++now_;
    return;
  }
  throw Objection("there is no such phrase");
}

// --- The cast

World& Teller::world() {
  if (!world_) throw Objection("the story has not begun: say start first");
  return *world_;
}

void Teller::ranks(const std::vector<Words>& said) {
  if (world_) throw Objection("the story has begun");
  setup_.ranks.clear();
  for (const std::string& count : said[0]) setup_.ranks.push_back(std::stoi(count));
}

void Teller::tensor(const std::vector<Words>& said) {
  TensorSetup tensor;
  tensor.descriptor.name = said[0][0];
  for (int i = 0; i < kDTypeCount; ++i) {
    if (said[1][0] == to_string(static_cast<DType>(i))) {
      tensor.descriptor.dtype = static_cast<DType>(i);
      tensor.descriptor.shape = {std::stoll(said[2][0])};
    }
  }
  if (tensor.descriptor.shape.empty()) throw Objection("no dtype is called " + said[1][0]);
  setup_.tensors.push_back(std::move(tensor));
}

void Teller::grouped_tensor(const std::vector<Words>& said) {
  tensor(said);
  uint32_t size = 1;
  for (const TensorSetup& other : setup_.tensors) size += other.descriptor.group == said[3][0];
  setup_.tensors.back().descriptor.group = said[3][0];
  for (TensorSetup& other : setup_.tensors) {
    if (other.descriptor.group == said[3][0]) other.descriptor.group_size = size;
  }
}

void Teller::broadcast(const std::vector<Words>& said) {
  tensor(said);
  setup_.tensors.back().descriptor.kind = CollectiveKind::kBroadcast;
  setup_.tensors.back().descriptor.root = Rank{std::stoi(said[3][1])};
}

void Teller::option(const std::vector<Words>& said) {
  const std::string& name = said[0][0];
  const int value = std::stoi(said[1][0]);
  if (name == "window") {
    setup_.window = value;
  } else if (name == "open-operations") {
    setup_.open_operations = value;
  } else if (name == "fusion-threshold") {
    setup_.fusion_threshold_bytes = value;
  } else {
    throw Objection("no option is called " + name);
  }
}

std::vector<int> Teller::nodes(const Words& name) {
  std::vector<int> indices;
  if (name[0] == "every") {
    for (int i = 0; i < world().node_count(); ++i) {
      if (world().node(i).alive) indices.push_back(i);
    }
    return indices;
  }
  const int index = std::stoi(name[0].substr(1));
  if (index >= world().node_count()) throw Objection("there is no " + name[0]);
  return {index};
}

int Teller::one_node(const Words& name) { return nodes(name).front(); }

std::vector<int> Teller::all_ranks(const Words& name) {
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

// --- What happens

void Teller::feed(int index, const core::Event& event) {
  WorldNode& at = world().node(index);
  if (!at.alive) throw Objection(name_of(index) + " is dead");
  if (at.frozen) {
    at.backlog.push_back({Happening::Kind::kEvent, index, 0, event});
  } else {
    step(index, event);
  }
}

void Teller::step(int index, const core::Event& event) {
  core::Output output = world().step(now_, index, event);
  Said& said = said_[static_cast<size_t>(index)];
  for (auto& [to, message] : output.sends) {
    streams_[{index, to.value}].messages.push_back(std::move(message));
  }
  for (core::Launch& launch : output.launches) said.launches.push_back(std::move(launch));
  for (core::Delivery& delivery : output.deliveries) {
    const Rank rank =
        world().layout().node(NodeIndex{index}).ranks[static_cast<size_t>(delivery.rank.value)];
    const size_t r = static_cast<size_t>(rank.value);
    results_[r].push_back({names_[r][delivery.ticket.value], std::move(delivery)});
  }
  if (output.failed) said.failure = output.failed;
  turn_open_[static_cast<size_t>(index)] = !std::holds_alternative<core::TurnEnded>(event);
}

void Teller::end_turns() {
  for (size_t i = 0; i < turn_open_.size(); ++i) {
    if (turn_open_[i]) step(static_cast<int>(i), core::TurnEnded{});
  }
}

void Teller::start(const std::vector<Words>&) {
  if (world_) throw Objection("the story has begun");
  if (setup_.ranks.empty() || setup_.tensors.empty())
    throw Objection("ranks and tensors come first");
  world_.emplace(setup_, true);
  const auto world_size = static_cast<size_t>(setup_.world_size());
  turn_open_.resize(setup_.ranks.size());
  said_.resize(setup_.ranks.size());
  results_.resize(world_size);
  names_.resize(world_size);
  rank_attaches({{"every", "rank"}});
  deliver_everything({});
}

void Teller::rank_attaches(const std::vector<Words>& said) {
  for (int rank : all_ranks(said[0])) {
    const int index = world().layout().node_of(Rank{rank}).value;
    const Status status = world().node(index).core->may_attach(world().local_rank(rank));
    if (!status.is_ok())
      throw Objection("rank " + std::to_string(rank) + " may not: " + status.to_string());
    feed(index, core::RankAttached{world().local_rank(rank)});
  }
}

void Teller::submit(const Words& who, const Words& names,
                    const std::optional<std::vector<int64_t>>& shape) {
  for (int rank : all_ranks(who)) {
    for (const std::string& name : names) {
      const auto tensor =
          std::find_if(setup_.tensors.begin(), setup_.tensors.end(),
                       [&](const TensorSetup& other) { return other.descriptor.name == name; });
      if (tensor == setup_.tensors.end()) throw Objection("there is no tensor " + name);
      auto descriptor = std::make_shared<core::TensorDescriptor>(tensor->descriptor);
      if (shape) descriptor->shape = *shape;
      auto& tickets = names_[static_cast<size_t>(rank)];
      const Ticket ticket{tickets.size() + 1};
      tickets.emplace(ticket.value, name);
      feed(world().layout().node_of(Rank{rank}).value,
           core::Submitted{{world().local_rank(rank), ticket, descriptor}});
    }
  }
}

void Teller::rank_leaves(const std::vector<Words>& said) {
  for (int rank : all_ranks(said[0])) {
    feed(world().layout().node_of(Rank{rank}).value, core::RankDetached{world().local_rank(rank)});
  }
}

void Teller::rank_dies(const std::vector<Words>& said) {
  for (int rank : all_ranks(said[0])) {
    world().checkers().on_rank_died(Rank{rank});
    feed(world().layout().node_of(Rank{rank}).value,
         core::RankLost{world().local_rank(rank),
                        Status(Code::kRankLost, "rank " + std::to_string(rank) + " died")});
  }
}

void Teller::deliver(const std::vector<Words>& said) {
  expect_message(said);
  Stream& on = stream(said[1], said[2]);
  on.last = std::move(on.messages.front());
  on.messages.pop_front();
  feed(one_node(said[2]), core::MessageArrived{*on.last});
}

void Teller::deliver_again(const std::vector<Words>& said) {
  const Stream& on = stream(said[1], said[2]);
  if (!on.last || said[0][0] != kind_of(*on.last)) {
    throw Objection("the last message from " + said[1][0] + " to " + said[2][0] + " was " +
                    (on.last ? std::string("a ") + kind_of(*on.last) : "none"));
  }
  feed(one_node(said[2]), core::MessageArrived{*on.last});
}

bool Teller::deliver_one() {
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

void Teller::deliver_everything(const std::vector<Words>&) {
  end_turns();
  while (deliver_one()) end_turns();
}

void Teller::node_completes(const std::vector<Words>& said) {
  for (int index : nodes(said[0])) feed(index, core::OperationDone{Seq{std::stoull(said[1][0])}});
}

void Teller::node_dies(const std::vector<Words>& said) { world().kill(now_, one_node(said[0])); }

void Teller::node_thaws(const std::vector<Words>& said) {
  WorldNode& at = node(said[0]);
  at.frozen = false;
  for (const Happening& happening : std::exchange(at.backlog, {})) {
    step(one_node(said[0]), happening.event);
  }
}

void Teller::node_loses(const std::vector<Words>& said) {
  feed(one_node(said[0]), core::NodeLost{NodeIndex{one_node(said[1])},
                                         Status(Code::kNodeLost, said[1][0] + " is lost")});
}

void Teller::channel_breaks(const std::vector<Words>& said) {
  feed(one_node(said[0]),
       core::DataChannelLost{NodeIndex{one_node(said[1])},
                             Status(Code::kNodeLost, "the channel to " + said[1][0] + " broke")});
}

void Teller::time_passes(const std::vector<Words>& said) {
  constexpr TicksMs kTick = 100;
  for (TicksMs left = std::stoll(said[0][0]); left > 0; left -= kTick) {
    now_ += std::min(left, kTick);
    for (int index : nodes({"every", "node"})) {
      if (!world().node(index).frozen) step(index, core::TimePassed{});
    }
  }
}

// --- What must follow

void Teller::expect_launch(const std::vector<Words>& said) {
  for (int index : nodes(said[0])) {
    std::deque<core::Launch>& launches = said_[static_cast<size_t>(index)].launches;
    if (launches.empty()) throw Objection(name_of(index) + " launches nothing");
    core::Output first;
    first.launches = {launches.front()};
    const std::string is = describe(world().layout(), NodeIndex{index}, first).front();
    const std::string wanted = "launches " + said[2][0] + " = " + said[1][0];
    if (is != wanted)
      throw Objection(name_of(index) + " " + is + ", instead of " + said[2][0] + " = " +
                      said[1][0]);
    launches.pop_front();
  }
}

void Teller::expect_no_launch(const std::vector<Words>& said) {
  for (int index : nodes(said[0])) {
    core::Output all;
    const auto& launches = said_[static_cast<size_t>(index)].launches;
    all.launches.assign(launches.begin(), launches.end());
    if (launches.empty()) continue;
    throw Objection(name_of(index) + " " +
                    describe(world().layout(), NodeIndex{index}, all).front());
  }
}

const Teller::Result& Teller::take_result(int rank, const std::string& tensor) {
  std::deque<Result>& results = results_[static_cast<size_t>(rank)];
  const std::string who = "rank " + std::to_string(rank);
  if (results.empty()) throw Objection(who + " gets nothing");
  if (results.front().tensor != tensor) {
    throw Objection(who + " gets " + results.front().tensor + " first");
  }
  taken_ = std::move(results.front());
  results.pop_front();
  return taken_;
}

void Teller::expect_result(const std::vector<Words>& said) {
  for (int rank : all_ranks(said[0])) {
    const Status& status = take_result(rank, said[1][0]).delivery.status;
    if (status.is_ok()) continue;
    throw Objection("rank " + std::to_string(rank) + " gets it with " + status.to_string());
  }
}

void Teller::expect_error(const std::vector<Words>& said) {
  for (int rank : all_ranks(said[0])) {
    const Status& status = take_result(rank, said[1][0]).delivery.status;
    if (to_string(status.code()) == said[2][0] &&
        status.message().find(said[3][0]) != std::string::npos) {
      continue;
    }
    throw Objection("rank " + std::to_string(rank) + " gets it with " + status.to_string());
  }
}

void Teller::expect_no_result(const std::vector<Words>& said) {
  for (int rank : all_ranks(said[0])) {
    const auto& results = results_[static_cast<size_t>(rank)];
    if (results.empty()) continue;
    throw Objection("rank " + std::to_string(rank) + " gets " + results.front().tensor + " with " +
                    results.front().delivery.status.to_string());
  }
}

void Teller::expect_message(const std::vector<Words>& said) {
  const std::deque<core::Message>& messages = stream(said[1], said[2]).messages;
  const std::string way = " from " + said[1][0] + " to " + said[2][0];
  if (messages.empty()) throw Objection("no message is on its way" + way);
  if (said[0][0] == kind_of(messages.front())) return;
  throw Objection(std::string("the next message") + way + " is " + kind_of(messages.front()) +
                  ": " + describe(messages.front()));
}

void Teller::expect_no_message(const std::vector<Words>&) {
  for (const auto& [ends, on] : streams_) {
    if (on.messages.empty()) continue;
    throw Objection("on its way from " + name_of(ends.first) + " to " + name_of(ends.second) +
                    ": " + kind_of(on.messages.front()));
  }
}

void Teller::expect_state(const std::vector<Words>& said) {
  for (int index : nodes(said[0])) {
    const char* is = to_string(world().node(index).core->state());
    if (said[1][0] != is) throw Objection(name_of(index) + " is " + is);
  }
}

void Teller::expect_epoch(const std::vector<Words>& said) {
  for (int index : nodes(said[0])) {
    const uint32_t is = world().node(index).core->epoch().value;
    if (std::stoul(said[1][0]) != is)
      throw Objection(name_of(index) + " is in epoch " + std::to_string(is));
  }
}

void Teller::expect_failure(const std::vector<Words>& said) {
  for (int index : nodes(said[0])) {
    const std::optional<Status>& failure = said_[static_cast<size_t>(index)].failure;
    if (!failure) throw Objection(name_of(index) + " has not failed");
    if (to_string(failure->code()) == said[1][0] &&
        failure->message().find(said[2][0]) != std::string::npos) {
      continue;
    }
    throw Objection(name_of(index) + " fails with " + failure->to_string());
  }
}

}  // namespace

ScenarioResult run_scenario(const std::string& name, const std::string& text) {
  ScenarioResult result;
  Teller teller;
  std::istringstream lines(text);
  int number = 0;
  for (std::string line; result.error.empty() && std::getline(lines, line);) {
    ++number;
    const Words words = split_words(line);
    if (words.empty()) continue;
    try {
      teller.tell(words);
    } catch (const std::exception& objection) {
      result.error = name + ":" + std::to_string(number) + ": " + line + ": " + objection.what();
    }
  }
  result.trace = teller.trace();
  return result;
}

ScenarioResult run_scenario_file(const std::string& path) {
  std::ifstream file(path);
  if (!file) return {path + ": cannot be read", {}};
  std::ostringstream text;
  text << file.rdbuf();
  return run_scenario(path, text.str());
}

std::vector<std::string> scenario_phrases() {
  std::vector<std::string> phrases;
  for (const Phrase& phrase : kPhrases) phrases.push_back(phrase.words);
  return phrases;
}

}  // namespace rueda::sim
