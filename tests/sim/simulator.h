// A whole job in one thread: the shipped core on every node, a network, training processes and a
// data plane made of random numbers. One seed gives one run, event by event, for ever.
//
// What goes wrong is drawn from the seed too: delays, reordering between streams, repeated
// messages, dying ranks, dying nodes, broken data channels, ranks that disagree. After every event
// the checkers of invariant I5 (docs/architecture.md) look at all nodes; the first violation ends
// the run and is its result.
#pragma once

#include <cstdint>
#include <map>
#include <queue>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "daemon/core/job.h"

namespace rueda::sim {

// What a run may contain; the rest is drawn from the seed.
struct Limits {
  int max_nodes = 6;
  int max_ranks_per_node = 3;
  int max_tensors = 12;
  int max_steps = 6;
  bool faults = true;      // deaths and broken channels
  bool mismatches = true;  // ranks that disagree on a descriptor
  bool leavers = true;     // ranks that say goodbye before the others have finished
  bool keep_trace = false;
};

struct RunResult {
  std::string violation;  // empty: all checkers held
  uint64_t trace_hash = 0;
  std::vector<std::string> trace;  // with keep_trace
  int nodes = 0;
  int ranks = 0;
  uint64_t events = 0;
  uint64_t operations = 0;  // completed, counted once
  uint64_t delivered_ok = 0;
  uint64_t delivered_error = 0;
  bool had_fault = false;
  bool had_leaver = false;
};

class Simulator {
 public:
  Simulator(uint64_t seed, const Limits& limits);
  RunResult run();

 private:
  using Time = TicksMs;

  // One tensor of the training step, as one rank submits it.
  struct Planned {
    core::DescriptorPtr descriptor;
    bool wrong = false;  // some rank deviates: must end as an error everywhere
  };
  enum class RankPhase { kAway, kAttached, kWorking, kDetached, kDead };
  struct RankModel {
    RankPhase phase = RankPhase::kAway;
    int step = 0;
    std::vector<size_t> to_submit;  // indices into plan_, last first
    size_t in_flight = 0;
    uint64_t next_ticket = 1;
    std::set<uint64_t> open_tickets;
    bool saw_error = false;
  };
  struct NodeModel {
    std::unique_ptr<core::JobCore> core;
    bool alive = true;
    bool turn_pending = false;
    std::map<uint64_t, core::Launch> launched;  // by seq, of the current epoch
    uint64_t last_launched = 0;
    uint32_t epoch = 0;
    bool over = false;  // its core reported failure
  };
  // What is known of one operation over all nodes.
  struct OperationModel {
    uint64_t plan_hash = 0;
    std::vector<std::string> tensors;
    std::set<int> launched_on;
    std::set<int> completed_on;
  };
  struct Scheduled {
    Time at;
    uint64_t order;  // ties are broken by insertion
    int node;
    core::Event event;
    int rank_wakes = -1;  // instead of an event: this rank acts
    bool dies = false;    // that rank, or else the node
    bool is_tick() const {
      return rank_wakes < 0 && !dies && std::holds_alternative<core::TimePassed>(event);
    }
    bool operator>(const Scheduled& o) const {
      return std::tie(at, order) > std::tie(o.at, o.order);
    }
  };

  int draw(int low, int high) { return std::uniform_int_distribution<int>(low, high)(random_); }
  bool chance(double p) { return std::bernoulli_distribution(p)(random_); }

  void make_layout(const Limits& limits);
  void make_plan(const Limits& limits);
  void plan_faults();
  core::DescriptorPtr descriptor_for(size_t tensor, Rank rank) const;

  void push(Scheduled scheduled);
  void schedule(Time delay, int node, core::Event event);
  void schedule_rank(Time delay, int rank);
  void feed(int node, core::Event event);
  void carry_out(int node, core::Output& output);
  void send(int from, NodeIndex to, core::Message message);
  void on_launch(int node, const core::Launch& launch);
  void complete_where_possible(uint64_t epoch_seq_key);
  void on_delivery(int node, const core::Delivery& delivery);
  void rank_acts(int rank);
  void kill_rank(int rank);
  void kill_node(int node);

  // Nothing is on its way and nobody waits: more time would change nothing.
  bool settled() const;
  void check_end();
  void violated(const std::string& what);
  void trace(const std::string& line);
  bool is_local(int node, Rank rank) const { return layout_->node_of(rank).value == node; }
  LocalRank local_rank(Rank rank) const;

  const uint64_t seed_;
  const Limits limits_;
  std::mt19937_64 random_;
  std::optional<core::Layout> layout_;
  std::vector<Planned> plan_;
  size_t deviating_tensor_ = SIZE_MAX;
  int deviating_rank_ = -1;
  int leaving_rank_ = -1;
  uint64_t window_ = 1;
  int steps_ = 1;

  std::vector<NodeModel> nodes_;
  std::vector<RankModel> ranks_;
  std::map<uint64_t, OperationModel> operations_;    // by epoch and seq
  std::map<std::pair<int, int>, Time> stream_time_;  // by (from, to): of the last delivery
  std::priority_queue<Scheduled, std::vector<Scheduled>, std::greater<>> queue_;
  Time now_ = 0;
  uint64_t order_ = 0;
  uint64_t waiting_events_ = 0;  // in the queue, ticks aside
  // How often each rank submitted each tensor, to check that nothing is delivered early.
  std::map<std::string, std::vector<uint64_t>> submitted_;  // by tensor: count by rank
  std::map<std::string, uint64_t> delivered_ops_;           // by tensor: completed operations
  RunResult result_;
};

}  // namespace rueda::sim
