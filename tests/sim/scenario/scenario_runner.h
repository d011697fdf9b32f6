// Runs a scenario: it holds the nodes, the messages on their way and what was said but not yet
// expected, and has one function for each phrase of the table in scenario.cc.
#pragma once

#include <deque>
#include <map>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "tests/sim/scenario/scenario_grammar.h"
#include "tests/sim/world/world.h"

namespace rueda::sim {

// Says why a line goes wrong. It does not leave this file.
struct Objection : std::runtime_error {
  using std::runtime_error::runtime_error;
};

class ScenarioRunner {
 public:
  // Ends a line: the turns that it opened end, and the rules must hold.
  void end_line();
  std::vector<std::string> trace() { return world_ ? world_->trace().lines() : Words{}; }

  // --- The cast
  void ranks(const std::vector<Words>& args);
  void racks(const std::vector<Words>& args);
  // Defines a set that ranks may add. Its number is what it gets if the sets are added in turn.
  void set(const std::vector<Words>& args);
  void tensor(const std::vector<Words>& args);
  void grouped_tensor(const std::vector<Words>& args);
  void dependent_tensor(const std::vector<Words>& args);
  void broadcast(const std::vector<Words>& args);
  void mode(const std::vector<Words>& args);
  void shrink(const std::vector<Words>&) { setup_.policy = core::DeathPolicy::kShrink; }
  void witness(const std::vector<Words>&) { setup_.has_witness = true; }
  void option(const std::vector<Words>& args);

  // --- Events
  void start(const std::vector<Words>& args);
  void rank_attaches(const std::vector<Words>& args);
  void rank_submits(const std::vector<Words>& args) { submit(all_ranks(args[0]), args[1], {}, 0); }
  void rank_submits_shape(const std::vector<Words>& args) {
    submit(all_ranks(args[0]), args[1], {{std::stoll(args[2][0])}}, 0);
  }
  void rank_submits_to_set(const std::vector<Words>& args) {
    submit(all_ranks(args[0]), args[1], {}, set_in(args, 2));
  }
  void rank_adds_set(const std::vector<Words>& args);
  void rank_declares(const std::vector<Words>& args);
  void rank_joins(const std::vector<Words>& args);
  void rank_waits(const std::vector<Words>& args);
  void rank_leaves(const std::vector<Words>& args);
  void rank_dies(const std::vector<Words>& args);
  void deliver(const std::vector<Words>& args);
  void deliver_again(const std::vector<Words>& args);
  void message_is_lost(const std::vector<Words>& args);
  void deliver_everything(const std::vector<Words>& args);
  void node_completes(const std::vector<Words>& args);
  void node_completes_everything(const std::vector<Words>& args);
  void steps(const std::vector<Words>& args);
  void node_dies(const std::vector<Words>& args);
  void node_is_closed(const std::vector<Words>& args);
  void node_freezes(const std::vector<Words>& args) { node(args[0]).frozen = true; }
  void node_thaws(const std::vector<Words>& args);
  void node_loses(const std::vector<Words>& args);
  void channel_breaks(const std::vector<Words>& args);
  void operation_diverges(const std::vector<Words>& args);
  void time_passes(const std::vector<Words>& args);
  // Reads "1.1" as final chunks 0 and 2, of an operation that is under way.
  void node_has_chunks(const std::vector<Words>& args);
  void time_passes_with_messages(const std::vector<Words>& args);

  // --- Expectations
  void expect_launch(const std::vector<Words>& args);
  void expect_launch_without(const std::vector<Words>& args);
  void expect_launch_in_generation(const std::vector<Words>& args);
  void expect_no_launch(const std::vector<Words>& args);
  void expect_ring(const std::vector<Words>& args);
  void expect_result(const std::vector<Words>& args);
  void expect_set(const std::vector<Words>& args);
  void expect_error(const std::vector<Words>& args);
  void expect_joined(const std::vector<Words>& args);
  void expect_contributors(const std::vector<Words>& args);
  void expect_no_result(const std::vector<Words>& args);
  void expect_message(const std::vector<Words>& args);
  void expect_no_message(const std::vector<Words>& args);
  void expect_no_message_between(const std::vector<Words>& args);
  void expect_state(const std::vector<Words>& args);
  void expect_epoch(const std::vector<Words>& args);
  void expect_failure(const std::vector<Words>& args);
  void expect_locked(const std::vector<Words>& args);
  void expect_not_locked(const std::vector<Words>& args);
  void expect_cancel(const std::vector<Words>& args);
  void expect_members(const std::vector<Words>& args);
  void expect_repeated(const std::vector<Words>& args);
  void expect_fetch(const std::vector<Words>& args);
  void expect_abandoned(const std::vector<Words>& args);

 private:
  struct Result {
    std::string tensor;
    core::Delivery delivery;
  };
  // Holds what a node said and no expectation has mentioned yet.
  struct Said {
    std::map<uint32_t, std::deque<core::Launch>> launches;  // by process set
    std::map<uint32_t, std::deque<core::Cancel>> cancels;
    int abandoned_plans = 0;
    std::optional<Status> failure;
    std::optional<core::NextEpoch> recovered;
  };
  struct Stream {
    std::deque<core::Message> messages;
    std::optional<core::Message> last;  // the last message that was delivered
  };

  World& world();
  WorldNode& node(const Words& name) { return world().node(one_node(name)); }
  std::vector<int> nodes(const Words& name);
  int one_node(const Words& name);
  std::vector<int> all_ranks(const Words& name);
  // Returns the process set that the phrase names at that place, or that of all ranks if it names
  // none there.
  static uint32_t set_in(const std::vector<Words>& args, size_t place);
  // Returns the ranks of the set that live.
  std::vector<int> ranks_of(uint32_t set);
  std::vector<int> nodes_of(uint32_t set);
  bool is_locked(int node, uint32_t set);
  const TensorSetup& find_tensor(const std::string& name) const;
  void submit(int rank, const core::DescriptorPtr& descriptor);
  void submit(const std::vector<int>& who, const Words& names,
              const std::optional<std::vector<int64_t>>& shape, uint32_t set);
  Stream& stream(const Words& from, const Words& to) {
    return streams_[{one_node(from), one_node(to)}];
  }
  core::Launch take_launch(int node, const Words& names, const Words& seq, uint32_t set = 0);
  const Result& take_result(int rank, const std::string& tensor);

  void enter(int node, const core::NextEpoch& next);
  void feed(int node, const core::Event& event);
  void step(int node, const core::Event& event);
  void end_turns();
  bool deliver_one();
  bool complete_one();

  RunSetup setup_;
  std::optional<World> world_;
  TicksMs now_ = 0;
  std::vector<bool> turn_open_;                         // by node
  using Place = std::pair<uint32_t, Seq>;               // the process set comes first
  std::vector<std::set<Place>> under_way_;              // by node
  std::vector<std::map<Seq, std::vector<bool>>> held_;  // by node: the final chunks, as told
  std::vector<Said> said_;                              // by node
  std::vector<std::deque<Result>> results_;             // by rank
  std::vector<std::map<uint64_t, std::string>> names_;  // by rank: the names of its tickets
  Result taken_;
  std::map<std::pair<int, int>, Stream> streams_;
};

}  // namespace rueda::sim
