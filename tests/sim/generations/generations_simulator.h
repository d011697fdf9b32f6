// Runs the forming of generations (daemon/core/generations) in a run made of random numbers: one
// seed always gives the same job of 1 to 6 nodes, with the same delays and faults, event by event.
// Drawn from the seed are processes that die and are replaced, daemons that die and start again,
// daemons that freeze and thaw, an end that somebody asks for, nodes that come late, cuts between
// nodes, one way or both, that heal, and messages that are lost, repeated and reordered.
//
// The generation that runs is a model: it makes a step when all of its members are in it, live and
// hear each other, and it ends, as in a JobCore, when one of them is missed.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <queue>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "daemon/base/hash.h"
#include "daemon/core/generations/generations.h"

namespace rueda::sim {

struct GenerationsLimits {
  int max_nodes = 6;
  int max_faults = 5;
  bool keep_trace = false;
};

struct GenerationsResult {
  std::string violation;           // Empty if all checkers held.
  std::vector<std::string> trace;  // Is filled with keep_trace.
  uint64_t trace_hash = 0;
  uint64_t events = 0;
  uint32_t generations = 0;       // The newest that was decided.
  uint64_t steps = 0;             // Of all generations together.
  uint64_t grown = 0;             // Generations with more ranks than the one before.
  uint64_t replaced_leaders = 0;  // Generations whose lowest node is another one.
  uint64_t resumed = 0;           // Daemons that started again as the same member.
  bool was_ended = false;         // Somebody has ended the job, and a node knows it at the end.
  bool quorum_lost = false;
  bool too_few = false;  // Fewer processes than the least were left.
};

class GenerationsSimulator {
 public:
  GenerationsSimulator(uint64_t seed, const GenerationsLimits& limits);
  GenerationsResult run();

 private:
  struct Process {
    bool lives = true;
    bool waits = false;  // It has attached, and waits for a generation.
    bool is_in = false;  // It is in the generation that runs on its node.
    uint64_t life = 0;   // Counts the processes of this slot.
  };
  // A node: a daemon, which may die and start again, and processes.
  struct Node {
    bool lives = false;
    TicksMs frozen_since = 0;
    TicksMs frozen_until = 0;
    uint64_t incarnation = 0;
    std::unique_ptr<core::Generations> core;
    std::vector<Process> slots;
    TicksMs began = 0;  // When the generation began that runs here.
    TicksMs tick_at = -1;
    // Of a daemon that is dead and will be followed by one that is the same member: what it must
    // not forget, and the slots whose processes have died since.
    std::optional<core::GenerationVotes> kept;
    std::set<int> died_since;
    bool is_over = false;  // Its launcher has heard that somebody has ended the job.
  };
  struct Event {
    enum class Kind : uint8_t {
      kMessage,
      kTick,
      kLook,
      kAttach,
      kKillProcess,
      kKillDaemon,
      kStartDaemon,
      kFreeze,
      kEndRunning,
      kLoseNode,
      kEnd,
    };
    Kind kind = Kind::kLook;
    TicksMs at = 0;
    uint64_t order = 0;
    int node = 0;
    int slot = 0;       // kAttach, kKillProcess
    uint64_t life = 0;  // of the process, or of the daemon
    TicksMs until =
        0;        // kFreeze: the end; kKillProcess, kKillDaemon: when it starts again; 0: never
    Epoch epoch;  // kEndRunning
    std::string reason;        // kEndRunning
    core::MemberId other;      // kLoseNode
    size_t parcel = 0;         // kMessage
    bool is_followed = false;  // kKillDaemon: by one that is the same member.
  };
  struct Later {
    bool operator()(const Event& a, const Event& b) const {
      return std::tie(a.at, a.order) > std::tie(b.at, b.order);
    }
  };
  struct Cut {
    int from = 0, to = 0;
    TicksMs begin = 0, end = 0;
  };

  int draw(int low, int high) {
    return low + static_cast<int>(random_() % static_cast<uint64_t>(high - low + 1));
  }
  bool chance(int percent) { return draw(0, 99) < percent; }
  Node& node(int index) { return nodes_[static_cast<size_t>(index)]; }
  static std::string name(int node) { return "n" + std::to_string(node); }
  int node_of(const std::string& address) const;
  bool is_cut(int from, int to) const;
  bool is_frozen(int index) { return now_ < node(index).frozen_until; }

  void set_up();
  void draw_fault();
  void draw_end();
  void start_daemon(int index, uint64_t incarnation);
  // The daemon starts again as the same member.
  void resume(int index);
  void push(Event event);
  void handle(const Event& event);
  void deliver(const Event& event, core::GenerationsOutput& output);
  void kill_process(const Event& event);
  void kill_daemon(const Event& event);
  void attach_later(int index, int slot, TicksMs at);
  void carry_out(int index, core::GenerationsOutput output);
  void begin(int index, const core::GenerationPtr& generation);
  void leave(int index, const std::string& reason);
  // Somebody has ended the job, as the node knows: all processes there are told, and go.
  void end(int index);
  void dispatch(int from, const std::string& address, core::GenerationMessage message);
  void push_tick(int index);

  // --- The generation that runs
  // Looks, now and then, at what each node would notice of the generation that it is in.
  void look();
  std::optional<std::string> missed(int index, const core::Generation& generation, int* whom);
  bool makes_step(const core::Generation& generation);
  // Returns whether the process is in the generation, on the node that has it.
  bool is_in(int index, const core::GenerationNode& member, Epoch epoch);

  // --- Checkers
  void violated(const std::string& what);
  void check_decided(int index, const core::Generation& generation);
  void check_dealt(const core::Generation& before, const core::Generation& next);
  void check_end();
  // Returns whether somebody has ended the job, and a node that lives knows it.
  bool check_ended();
  void trace(const Event& event);

  const uint64_t seed_;
  const GenerationsLimits limits_;
  std::mt19937_64 random_;
  core::GenerationOptions options_;
  std::vector<Node> nodes_;
  std::vector<Cut> cuts_;
  std::priority_queue<Event, std::vector<Event>, Later> queue_;
  std::vector<core::GenerationMessage> parcels_;
  std::vector<size_t> free_parcels_;
  TicksMs now_ = 0;
  TicksMs calm_at_ = 0;
  int slowest_ = 4;
  uint64_t order_ = 0;
  std::map<uint32_t, core::Generation> decided_;  // By epoch, as the first node has learned it.
  std::map<uint32_t, TicksMs> decided_at_;        // By epoch.
  // What a process was, and when, the last time that it attached, or that it was in a generation.
  struct Seen {
    uint64_t order = 0;
    uint64_t life = 0;
    uint32_t epoch = 0;
  };
  using Place = std::pair<core::MemberId, core::Slot>;
  std::map<Place, Seen> attached_;
  std::map<Place, Seen> begun_;
  uint32_t last_step_ = 0;  // The epoch of the last step.
  TicksMs last_step_at_ = 0;
  int loss_percent_ = 0;
  // The proposer of the n-th Accept that arrives dies or freezes right then: a generation may have
  // been chosen of which nobody knows. 0: none.
  int fatal_accept_ = 0;
  TicksMs accepts_lost_until_ = 0;
  bool is_gentle_ = true;  // No node and no message is lost, so no process can be taken for lost.
  Fnv1a hash_;
  GenerationsResult result_;
};

}  // namespace rueda::sim
