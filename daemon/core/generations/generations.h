// Agrees, between the nodes of an elastic job, on which generation comes next: who takes part, and
// with which rank. One of these is on each node, for the life of the job there; JobCore (job.h)
// runs one generation and knows of no other. The class is pure, as JobCore is.
//
// Life on a node:  outside -> running -> forming -> running, one generation on
//                     ^-----------------------/        (left out: from outside once more)
//
// A generation is decided once, by a majority of the generation before (quorum.h, ballots.h), so
// that no split leaves two sides that both go on. Who may decide is fixed by the generation that is
// over: newcomers have no vote in whether they get in, and a daemon that has started again has
// none, unless it is told what it has promised (resume()). While a generation forms, the lowest of
// its members that can be heard collects who is there and proposes; all others tell it what they
// have. It waits for those who were in the generation and live, and for nobody else; who comes
// later is a newcomer, for whom the job goes on to one more generation when its ranks find it
// convenient.
//
// That somebody has ended the job is not voted on: it is true once it has been said, on whichever
// side of a cut, and every node that hears it tells all that it knows. No node that has heard it
// begins a generation, or votes for one.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "daemon/base/clock.h"
#include "daemon/base/status.h"
#include "daemon/core/generations/generation.h"
#include "daemon/core/generations/generation_messages.h"
#include "daemon/core/model/quorum.h"
#include "daemon/core/recovery/ballots.h"

namespace rueda::core {

// They must be the same on all nodes.
struct GenerationOptions {
  JobId job;
  int min_ranks = 1;
  int max_ranks = 1;
  TicksMs interval_ms = 300;  // The time between two messages that say the same.
  // Who has not been heard for so long is taken for lost.
  TicksMs silence_ms = 5'000;
  // The time for processes that live to attach again; who comes later is a newcomer. Newcomers
  // alone wait as long for nodes that are not heard, where such processes may be.
  TicksMs attach_ms = 60'000;
  // How long processes wait for a generation before the job is over on their node.
  TicksMs elastic_timeout_ms = 600'000;
  // What the nodes of the first generation have compared (Join). Nodes that come later are refused
  // if theirs differ.
  Settings settings;
};

// What has to be done, in this order.
struct GenerationsOutput {
  // To whom, by control address, and what. A message may be lost, come twice, or late.
  std::vector<std::pair<std::string, GenerationMessage>> sends;
  // The generation that runs is over for others, for this reason: it has to be ended here, too.
  std::optional<std::string> ended;
  // This generation begins, and the node is in it.
  GenerationPtr begun;
  // Others want to take part: a good moment to end the generation should be found.
  bool hosts_changed = false;
  // The job is finishing: processes that wait and are no survivors are not taken in any more.
  bool finished = false;
  std::optional<Status> over;  // The job is over on this node.
};

// What a member must not forget. Who keeps it for a daemon that dies makes the
// next one the same member. It has to be kept before anything is sent that follows from it.
struct GenerationVotes {
  uint32_t lives = 0;  // How many daemons have been this member before.
  GenerationPtr known;
  Ballot promised;
  Ballot accepted_in;
  GenerationPtr accepted;
  std::set<Slot> survivors;  // The processes of this node that are in `known`, and live.
  bool finished = false;

  bool operator==(const GenerationVotes&) const = default;
};

class Generations {
 public:
  enum class State : uint8_t {
    kOutside,  // The node is in no generation, or has been left out of one.
    kRunning,
    kForming,  // The generation that the node was in is over.
    kOver,
  };

  // `contacts` are control addresses of nodes that may know of the job.
  Generations(MemberId self, std::string control_address, std::vector<std::string> contacts,
              GenerationOptions options);

  // --- Events. Each appends what is to be done to `output`.
  // The job begins with this generation, as its launchers have agreed; the node is in it. Must be
  // called first, or not at all.
  void begin_first(GenerationPtr first);
  // This daemon follows one that has died, as the same member; its processes live. The generation
  // that it was in, if any, is over. In place of begin_first().
  void resume(TicksMs now, const GenerationVotes& votes, GenerationsOutput& output);
  // A process waits for the next generation: it was in the one that is over and is done with it, or
  // is new here.
  void attach(TicksMs now, Slot slot, GenerationsOutput& output);
  // The process is gone, whether or not it waited.
  void lose(TicksMs now, Slot slot, GenerationsOutput& output);
  // The process has ended well: if it was in a generation, the job is finishing. That is no reason
  // to end what runs.
  void finish(TicksMs now, Slot slot, GenerationsOutput& output);
  // The node leaves the job for good, and says so if the job is finishing.
  void leave(GenerationsOutput& output);
  // The generation that runs is over: somebody has died, or all ranks have left it.
  void end_running(TicksMs now, const std::string& reason, GenerationsOutput& output);
  // The node is lost: its link broke, or it is the reason why the generation ended.
  void lose_node(TicksMs now, const MemberId& node, GenerationsOutput& output);
  // Somebody has ended the job, for this reason. Does nothing if that is known.
  void end(TicksMs now, const Status& why, GenerationsOutput& output);
  void on_message(TicksMs now, const GenerationMessage& message, GenerationsOutput& output);
  void on_time(TicksMs now, GenerationsOutput& output);
  // Returns when on_time() has something to do; none if not before another event.
  std::optional<TicksMs> wakes_at() const;

  State state() const { return state_; }
  // Returns why the job is over on this node; ok if it is not.
  const Status& why_over() const { return why_over_; }
  // Returns whether somebody has ended it.
  bool was_ended() const { return ended_at_.has_value(); }
  // Returns the control addresses of nodes that have not answered to that yet.
  const std::set<std::string>& untold() const { return untold_; }
  const MemberId& self() const { return self_; }
  GenerationVotes votes() const {
    return {
        lives_,     known_,   acceptor_.promised(), acceptor_.accepted_in(), acceptor_.accepted(),
        survivors_, finished_};
  }
  // Returns the newest generation that the node knows; null if it knows none.
  const GenerationPtr& known() const { return known_; }
  // Returns which processes wait, ascending.
  const std::set<Slot>& waiting() const { return attached_; }
  // Returns whether the process was in the newest generation, as far as this node knows, and lives.
  bool survives(Slot slot) const { return survivors_.contains(slot); }
  // Returns, while a generation forms, which processes of this node are waited for, ascending: they
  // were in the one before, and live.
  std::vector<Slot> awaited_slots() const;
  // Returns, while nobody goes on, who or what is waited for, as far as this node knows.
  std::string describe_wait() const;

 private:
  struct HeardOf {
    TicksMs at = 0;
    Present said;
  };

  NodeIndex index_of_self() const { return known_ ? known_->find(self_) : NodeIndex{-1}; }
  Epoch next_epoch() const { return Epoch{known_ ? known_->epoch.value + 1 : 1}; }
  int size_of_known() const { return known_ ? static_cast<int>(known_->nodes.size()) : 0; }

  // --- Who is there
  NodeOffer offer() const;
  int awaited() const { return static_cast<int>(awaited_slots().size()); }
  // Returns whether a process waits here that is not in the generation that runs.
  bool has_newcomers() const;
  void note_newcomer(TicksMs now, const NodeOffer& offer, GenerationsOutput& output);
  // Returns why the node that says this cannot be taken in; empty if it can.
  std::string refusal_of(const Present& present) const;
  void on_refused(const std::string& why, GenerationsOutput& output);
  // On the node that leads the generation that runs: says once of each newcomer that it is there.
  void tell_of_newcomers(TicksMs now, GenerationsOutput& output);
  void form(TicksMs now, const std::string& reason, GenerationsOutput& output);
  // Says Present to whoever is to hear it.
  void present(TicksMs now, GenerationsOutput& output);
  void send_present(const std::string& to, GenerationsOutput& output);
  void send_present_to_all(GenerationsOutput& output);
  void tell_newcomers(GenerationsOutput& output);
  void note_finished(bool finished, GenerationsOutput& output);
  // Returns where Present goes; empty: nowhere.
  std::string listener() const;
  void note_contacts();
  std::string leader_address() const;
  // Chooses whom to tell next, after somebody has answered who named this leader.
  void follow(TicksMs now, const std::string& leader);
  // Returns the address of one after the other of those who may know more than this node.
  const std::string& next_contact() { return contacts_[contact_++ % contacts_.size()]; }
  void lead_or_follow(TicksMs now);
  // The node has been heard: it is followed if it is below the one that is followed now.
  void note_word(TicksMs now, NodeIndex from);
  bool leads() const { return state_ == State::kForming && leader_ == index_of_self(); }

  // --- The end
  void give_up(Status why, GenerationsOutput& output);
  // Notes that somebody has ended the job, and who is to be told.
  void note_end(TicksMs now, const Status& why, GenerationsOutput& output);
  void tell_end(TicksMs now, GenerationsOutput& output);

  // --- The next generation
  bool is_heard(TicksMs now, NodeIndex voter) const;
  // Returns whether nothing more is to be expected of the voter.
  bool is_settled(TicksMs now, NodeIndex voter) const;
  std::vector<NodeOffer> offers(TicksMs now) const;
  // Returns whether no process that was in a generation is there, and one may be where nothing is
  // heard of.
  bool awaits_state(TicksMs now, const std::vector<NodeOffer>& offered) const;
  // Returns what this node would propose; null if it has to wait.
  GenerationPtr proposal(TicksMs now) const;
  Quorum quorum() const;
  // Goes on with the ballot as far as the votes allow.
  void drive(TicksMs now, GenerationsOutput& output);
  void send_ballot(GenerationsOutput& output) const;
  void adopt(TicksMs now, GenerationPtr next, GenerationsOutput& output);

  void on(TicksMs now, const GenerationMessage& message, const Present& present,
          GenerationsOutput& output);
  void on(TicksMs now, const GenerationMessage& message, const EndGenerations& ended,
          GenerationsOutput& output);
  // These take a message of the ballot, from a voter.
  void on(TicksMs now, NodeIndex from, const PrepareGeneration& prepare, GenerationsOutput& output);
  void on(TicksMs now, NodeIndex from, const PromiseGeneration& promise, GenerationsOutput& output);
  void on(TicksMs now, NodeIndex from, const AcceptGeneration& accept, GenerationsOutput& output);
  void on(TicksMs now, NodeIndex from, const AcceptedGeneration& vote, GenerationsOutput& output);
  void on(TicksMs now, NodeIndex from, const RefuseGeneration& refuse, GenerationsOutput& output);

  template <class Body>
  void send(const std::string& address, Body body, GenerationsOutput& output) const {
    output.sends.emplace_back(
        address, GenerationMessage{self_, control_address_, next_epoch(), std::move(body)});
  }
  template <class Body>
  void send(NodeIndex to, Body body, GenerationsOutput& output) const {
    send(known_->node(to).control_address, std::move(body), output);
  }
  void look_at_deadlines(TicksMs now, GenerationsOutput& output);

  const MemberId self_;
  const std::string control_address_;
  const GenerationOptions options_;
  State state_ = State::kOutside;
  const std::vector<std::string> first_contacts_;
  std::vector<std::string> contacts_;
  size_t contact_ = 0;  // The one who is asked now.
  TicksMs contact_since_ = 0;
  std::string hint_;  // Who is asked in place of the contact, because somebody has named it.

  GenerationPtr known_;
  std::set<Slot> attached_;             // They wait for the next generation.
  std::set<Slot> survivors_;            // They are, or were, in the generation `known_`, and live.
  bool finished_ = false;               // Some process of the job has ended well.
  std::optional<TicksMs> waits_since_;  // Since when somebody waits here.
  Status why_over_;
  std::optional<TicksMs> ended_at_;  // When it was heard that somebody has ended the job.
  std::set<std::string> untold_;     // Who has not answered to that, by control address.

  // While a generation forms, or newcomers wait for one.
  std::string reason_;
  TicksMs forming_since_ = 0;
  TicksMs next_present_ = 0;
  // The node that this one takes for the one who proposes, and since when it has heard nothing of
  // it.
  NodeIndex leader_{0};
  TicksMs leader_heard_ = 0;
  TicksMs leads_since_ = 0;
  std::map<NodeIndex, HeardOf> heard_;        // The voters, as far as they have told this node.
  std::set<NodeIndex> gone_;                  // Voters that are lost, unless they are heard again.
  std::map<std::string, HeardOf> newcomers_;  // By node id: who is in no generation, or has more.
  uint32_t lives_ = 0;
  uint32_t presents_ = 0;                                              // What this daemon has said.
  std::map<std::string, std::pair<uint64_t, uint64_t>> last_present_;  // Incarnation, number.
  std::set<std::pair<MemberId, Slot>> told_;  // The newcomers of which hosts_changed has told.

  // The vote about the generation after `known_`.
  BallotAcceptor<GenerationPtr> acceptor_;
  BallotProposer<GenerationPtr, NoReport> proposer_;
  TicksMs next_ballot_ = 0;
};

}  // namespace rueda::core
