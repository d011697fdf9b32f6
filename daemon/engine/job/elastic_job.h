// An elastic job on this node: its ranks and nodes may die, be replaced, and become more or fewer,
// and the job goes on as the next generation. A JobRunner runs each generation; between two of them
// the processes that live attach again, by slot, and core::Generations says when and with which
// ranks the next one begins. It belongs to the control loop.
//
// What this node has promised in a vote is kept by its launcher before anything follows from it, so
// that a daemon which starts again under the same launcher is the same member of the job.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include <boost/asio/steady_timer.hpp>

#include "daemon/base/lifetime.h"
#include "daemon/core/generations/generations.h"
#include "daemon/engine/job/generation_links.h"
#include "daemon/engine/job/job_runner.h"
#include "daemon/engine/job/job_spec.h"
#include "daemon/session/session.h"

namespace rueda::engine {

class ElasticJob {
 public:
  // What it asks of the engine.
  struct Host {
    // Makes the runner of a generation, under the job's name. There is none when this is called.
    std::function<JobRunner&(JobSpec, JobListener)> start;
    // Closes the runner of the generation that is over; on_runner_gone() follows, from another
    // turn.
    std::function<void(const Status&)> end;
    // The session is the runner's from now on.
    std::function<void(session::Session&, JobRunner&)> hand_over;
  };

  // Returns an error that says why the job cannot be elastic.
  static Status check(const JobSpec& spec);
  // The spec must pass check(). The listener hears of each generation that starts, and of the job's
  // end; not of the end of a generation.
  ElasticJob(const EngineContext& context, JobSpec spec, JobListener listener, Host host);
  // Begins the first generation, with all slots; or asks to be taken into the job that runs; or
  // goes on where the daemon before stopped. Returns an error if what it has said cannot be read.
  Status start();

  const JobSpec& spec() const { return spec_; }

  // --- Sessions. The slot of a process is the local rank with which it asks.
  Status may_attach(const session::Attach& attach) const;
  void on_attached(session::Session& session);
  // The session is over, whoever had it; `has_died` is false if the process said goodbye.
  void on_session_gone(session::Session& session, bool has_died);

  // The launcher saw the process of the slot end; `failure` says how, or is empty if it ended well.
  void on_process_gone(core::Slot slot, const std::string& failure);
  // So many processes are wanted here. Those in slots beyond it are asked to leave with the
  // generation, and the launcher is told of each that has (on_unneeded).
  void want_slots(int slots);
  void on_runner_gone();

  // --- Links
  // Returns whether the runner is to hear the message; one of a generation that does not run here
  // yet is kept for it.
  bool takes(LinkId link, const Envelope& envelope);
  void on_packet(LinkId link, const GenerationPacket& packet);
  void on_link_lost(LinkId link, TicksMs quiet_ms);

  // Somebody has ended the job, and no generation follows. All nodes that this one knows are told,
  // again and again for as long as this object lives (up to 10 minutes), until they answer.
  void end(const Status& why);
  // The launcher is gone, or the daemon stops: `done` is called once no generation runs, and, if
  // somebody has ended the job, all nodes that can be reached have answered to that.
  void close(const Status& why, std::function<void()> done);
  // Returns why the job is over here, if not for its launcher's sake; ok if it is not.
  const Status& why_over() const { return generations_.why_over(); }
  bool was_ended() const { return generations_.was_ended(); }
  // Nothing is served any more, but other nodes are still told of the end.
  void retire() { metrics_.reset(); }
  // Returns how many nodes the job has, or had in the last generation that is known here.
  int node_count() const;
  bool has_sessions() const { return !slots_.empty(); }

  // Returns what there is to say while no generation runs.
  JobSnapshot snapshot() const;
  // Returns the last generations that have begun here, the newest last.
  std::vector<JobSnapshot::Generation> history() const {
    return {history_.begin(), history_.end()};
  }

 private:
  // What is to be done once the launcher has kept what it follows from.
  struct Held {
    uint64_t after = 0;  // The number of what has to be kept.
    core::GenerationsOutput output;
  };

  JobListener listener_of_generation();
  JobSpec spec_of(const core::Generation& generation) const;
  // Has the output performed, once what it follows from is kept.
  void carry_out(core::GenerationsOutput output);
  // Asks the launcher to keep the votes, if they are not those that are kept.
  void keep_votes();
  void ask_to_keep();
  static const char* name_of(const core::GenerationMessage& message);
  // Tests may have the daemon die here (daemon/faults.h).
  void at_step(const char* step) const { context_.options.at_step(step); }
  void perform_held();
  void perform(core::GenerationsOutput output);
  // Whoever was to begin a generation that is over waits for the next one.
  void wait_again();
  void tell_hosts_changed();
  void begin(const core::GenerationPtr& generation);
  // The runner of the generation has failed, or has finished.
  void end_generation(const Status& why);
  // The runner is closed; what was to begin meanwhile begins then.
  void end_runner(const Status& why);
  Status cause_of_end(const std::string& told) const;
  void tell_lost();
  void note_lost(const Status& why);
  void count_end(const Status& why);
  void note_begun();
  void lose_address(const std::string& address, core::GenerationsOutput& output);
  void give_up(const Status& why);
  void finish_close();
  // Returns whether a node that can be reached has not answered to the end yet; it has a failure
  // timeout for that.
  bool awaits_answers() const;
  void arm_timer();
  // Tells the launcher, later, of processes that have not come back by then.
  void watch_silence();
  // The same, soon, of the rank whose standing still has ended the generation.
  void watch_stalled(Rank rank);
  TicksMs now() const { return steady_now_ms(); }
  // Returns the process's rank in the generation that runs, or none.
  std::optional<core::GenerationSlot> place_of(core::Slot slot, LocalRank* local_rank) const;
  session::Session* session_of(core::Slot slot) const;
  bool is_wanted(core::Slot slot) const { return slot.value < slots_wanted_; }

  const EngineContext& context_;
  const JobSpec spec_;
  const JobListener listener_;
  const Host host_;
  // They outlive generations, but not the job.
  std::shared_ptr<observe::JobMetrics> metrics_;
  core::Generations generations_;
  GenerationLinks links_;
  int slots_wanted_;
  int slots_known_;                     // The most that have ever been wanted.
  core::GenerationVotes newest_votes_;  // The launcher keeps them, or is going to be asked to.
  uint64_t to_keep_ = 0;                // Counts them.
  uint64_t has_kept_ = 0;
  bool is_asking_ = false;
  std::deque<Held> held_;
  bool is_performing_ = false;
  JobRunner* runner_ = nullptr;
  bool is_ending_ = false;         // The runner is being closed.
  bool all_left_ = false;          // It ends in good order.
  bool has_started_ = false;       // The generation that runs has all its ranks.
  bool hosts_changed_ = false;     // Others wait for the end of the one that runs, or is to begin.
  core::GenerationPtr begun_;      // It begins once the runner of the one before is gone.
  core::GenerationPtr running_;    // Null while none runs.
  std::set<core::MemberId> lost_;  // The nodes of it whose links have broken.
  // The links of the generation that has ended, and who is behind them: of several nodes that fall
  // silent together, one is found first, and is the end of the generation.
  std::map<LinkId, core::MemberId> links_before_;
  std::set<core::Slot> attached_;  // Who has attached to the generation that runs.
  // Who has left the last generation in good order, and has not come back.
  std::set<core::Slot> left_well_;
  std::map<session::Session*, core::Slot> slots_;  // All sessions of the job.
  std::set<session::Session*> waiting_;            // Those that no runner has.
  // Joins that came before the generation that they are for has begun here, by sender.
  std::map<NodeIndex, std::pair<LinkId, Envelope>> early_;
  std::deque<JobSnapshot::Generation> history_;
  std::optional<double> ended_s_;  // When the generation before has ended, until the next runs.
  TicksMs answers_until_ = 0;      // When nodes have had their time to answer to the end.
  std::optional<Status> closing_;
  std::function<void()> on_closed_;
  boost::asio::steady_timer timer_;
  boost::asio::steady_timer silence_timer_;
  boost::asio::steady_timer stalled_timer_;
  Lifetime lifetime_;
};

}  // namespace rueda::engine
