// Models the training processes: each attaches, goes through its steps, strays where the setup says
// so, leaves, and comes again for the next epoch. A process knows only what its daemon tells it.
#pragma once

#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tests/sim/setup/random_choices.h"
#include "tests/sim/world/world.h"

namespace rueda::sim {

class Training {
 public:
  Training(const RunSetup& setup, EventQueue& queue, RandomChoices& choices, World& world);

  // Starts every process.
  void begin();
  // Makes the process do its next action, and returns what its daemon sees of it.
  std::optional<core::Event> act(int rank);
  void on_started(int node);
  void on_delivery(int node, const core::Delivery& delivery);
  // Hears that the node's daemon has told its clients that the job is over.
  void on_failed(int node);
  // Kills a process. Returns false if there is none to kill.
  bool kill(int rank);

  // Returns whether all processes of the node have left for good.
  bool have_left(int node) const;
  // Returns, after the end, what is wrong with how the processes ended if no fault can be blamed;
  // processes on the node `lost` are left out.
  std::string unfinished(std::optional<int> lost = {}) const;
  // Returns an error that nothing in the setup explains.
  const std::string& unexplained() const { return unexplained_; }
  uint64_t delivered_ok() const { return delivered_ok_; }
  uint64_t delivered_error() const { return delivered_error_; }

 private:
  enum class Phase { kAway, kAttached, kWorking, kDone, kDead };
  // Describes a submission or, if there is none, a wait for the name.
  struct Action {
    core::DescriptorPtr descriptor;
    bool waits = false;
    bool cancels = false;  // a transfer of that name is taken back
  };
  struct Process {
    Phase phase = Phase::kAway;
    int epochs = 0;  // the number of epochs that it has gone through
    int step = 0;
    std::deque<Action> actions;            // the actions of this step that are still to do
    std::map<std::string, uint64_t> open;  // tickets by name
    // Transfers that were taken back: those that end so are submitted once more.
    std::map<std::string, core::DescriptorPtr> cancelled;
    uint64_t waits_for = 0;  // a ticket; 0: none
    uint64_t last_ticket = 0;
    bool has_sets = false;
    bool has_joined = false;
    bool saw_error = false;
    bool had_errors = false;
    bool wakes = false;  // an action is on the queue
  };

  Process& at(int rank) { return processes_[static_cast<size_t>(rank)]; }
  void wake(int rank, int at_most);
  std::optional<core::Event> work(int rank);
  std::optional<core::Event> next_action(int rank);
  // Adds process sets before the first step; they are used in every step, and removed after the
  // last.
  void add_sets(int rank);
  // Declares the plan before the first step.
  void declare(int rank);
  void use_sets(int rank);
  // Sends to the next rank, and receives from the one before, in the set of all ranks and in the
  // others. Every message is needed: one that is lost is waited for without end.
  void add_transfers(int rank, int step);
  void add_exchange(int rank, const std::vector<int>& ranks, uint32_t set, int step);
  // Makes the process take the transfer back. Returns what the daemon sees of it, if it is open.
  std::optional<core::Event> cancel(int rank, const core::DescriptorPtr& transfer);
  // Returns whether the end is that of a transfer that was taken back, which comes once more.
  bool comes_again(int rank, const std::string& key, const core::Delivery& delivery);
  // Returns whether the process has no more data before it has done all steps.
  bool joins_now(int rank) const;
  void join(int rank);
  bool remove_sets(int rank);
  // Makes the process sleep until the submission has ended; processes that poll do not say so.
  std::optional<core::Event> sleep(int rank, uint64_t ticket);
  core::Event leave(int rank);
  // Lists the actions of the process's next step.
  void begin_step(int rank);
  void add_tensor(int rank, size_t tensor);
  core::DescriptorPtr descriptor(size_t tensor, int rank, int step) const;
  const StraySetup* stray(Stray what, int step, size_t tensor) const;
  bool in_fixed_order(int step) const;

  const RunSetup& setup_;
  EventQueue& queue_;
  RandomChoices& choices_;
  World& world_;
  std::vector<core::DescriptorPtr> usual_;  // the usual tensors
  std::vector<Process> processes_;
  std::string unexplained_;
  uint64_t delivered_ok_ = 0;
  uint64_t delivered_error_ = 0;
};

}  // namespace rueda::sim
