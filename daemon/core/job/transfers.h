// The sends and receives of one node's ranks: messages from one rank to another, of all process
// sets of a job. They are in no order of operations, so they neither wait for collectives nor keep
// a plan from being followed.
//
//   node of the source                 node of the destination
//     | TransferOpen ----------------> |   before the first one: the channels are opened
//     | TransferOffer ---------------> |   a rank has submitted a send; its data may come with it
//     |                                |   ... its receive is submitted, before or after
//     | <--------------- TransferTake  |   the memory is there (or TransferRefusal: they do not
//     fit) | ============== data =========> |   the data plane's; each end is done by itself
//
// The node of the destination matches: the first send that has come from a source goes to the
// first receive that names the source, or any, of the same process set, tag and destination.
// Offers from one node keep their order, so the sends of one rank to another meet their receives in
// the order in which they were submitted. Where both ranks are on one node, the offer and its
// answer are no messages. The data plane carries offers and answers
// (docs/decisions/0099-offers-go-with-the-data.md), so they do not wait for the job's links, and
// may come before what those tell: an offer in a process set that is not known yet waits for it.
// ProcessSets (process_sets.h) owns the object. The class is pure.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "daemon/core/job/job_events.h"
#include "daemon/core/messages/transfer_messages.h"
#include "daemon/core/model/layout.h"
#include "daemon/core/stall/stall.h"

namespace rueda::core {

class Transfers {
 public:
  // Returns the layout of a process set, or null if there is no such set.
  using FindLayout = std::function<const Layout*(uint32_t process_set)>;

  // The layout is the job's; it and the options outlive the object.
  Transfers(const Layout& layout, NodeIndex self, const StallOptions& stall,
            FindLayout find_layout);
  Transfers(const Transfers&) = delete;
  Transfers& operator=(const Transfers&) = delete;

  void begin(Epoch epoch) { epoch_ = epoch; }
  // The epoch is over, with nothing in flight.
  void end();
  void set_now(TicksMs now) { now_ = now; }

  // --- This node's ranks
  // Takes in a send or a receive. The caller has checked that the process set exists and has the
  // rank and its peer. A submission that is refused ends with an error in `output`.
  void submit(LocalSubmission submission, Output& output);
  // Takes back a transfer of a rank (TransferCancelled).
  void cancel(LocalRank rank, Ticket ticket, Output& output);
  size_t in_flight() const { return in_flight_; }
  // These count the transfers in flight of a rank, in all process sets or in one.
  size_t submissions_of(LocalRank rank) const;
  size_t submissions_of(LocalRank rank, uint32_t process_set) const;

  // --- The other nodes. An error ends the epoch
  Status on_message(NodeIndex from, uint32_t process_set, const TransferMessage& message,
                    Output& output);
  // The node asks for channels (TransferOpen).
  void on_open(NodeIndex from, Output& output);
  // A process set has been added. Their ids count up from 1.
  void on_set_added(uint32_t process_set, Output& output);
  // The rank has said goodbye: what waits for it fails.
  void on_rank_left(Rank rank, Output& output);
  // Messages between other nodes cannot pass any more, because the coordinator's node has stopped,
  // so no channel can be announced. Returns whether a transfer may wait for one.
  bool on_cut_off();
  // Returns the nodes that have to get a TransferOpen since the last call.
  std::vector<NodeIndex> take_opens() { return std::exchange(opens_, {}); }

  // --- The data plane
  // This node's part of the transfer is done. An error says that there is no such transfer.
  Status on_done(const TransferKey& key, Output& output);
  // The job has failed: ends everything with the cause.
  void fail(const Status& cause, Output& output);

  // --- Stalls: transfers whose other half has not been submitted for too long
  std::optional<TicksMs> wakes_at() const;
  void on_time(StallOutput& said);
  // Returns what is stalled on this node in one process set, the oldest first.
  StallNotice stalls(uint32_t process_set, TicksMs now) const;
  size_t stall_count() const { return stall_count_; }

 private:
  // A submission of one of this node's ranks.
  struct Half {
    LocalSubmission submission;
    bool is_taken = false;      // Of a send: its receive is there, and the data is on its way.
    bool is_withdrawn = false;  // Its rank has taken it back, as far as that is possible.
  };
  struct Offer {
    NodeIndex from;
    TransferOffer what;
    uint64_t turn = 0;  // Offers and receives count up as they come.
  };
  struct Arriving {
    LocalSubmission receive;
    Rank source;
  };
  // What one rank of this node is sent, and waits for, with one tag in one process set. An offer
  // and a receive that match are never both in it.
  struct Box {
    std::map<Rank, std::map<uint64_t, Offer>> offers;  // By source and number.
    // By source, kAnySource among them, and turn.
    std::map<Rank, std::map<uint64_t, LocalSubmission>> receives;
    bool is_empty() const { return offers.empty() && receives.empty(); }
  };
  struct BoxKey {
    uint32_t process_set = 0;
    int64_t tag = 0;
    Rank destination;
    auto operator<=>(const BoxKey&) const = default;
  };
  // A send by its destination's node and number, or a receive under way by its source's.
  using Place = std::pair<NodeIndex, uint64_t>;
  // Where a receive was put that met no send when it was submitted.
  struct Spot {
    BoxKey box;
    Rank source;
    uint64_t turn = 0;
  };

  void submit_send(LocalSubmission submission, Output& output);
  void submit_receive(LocalSubmission submission, Output& output);
  Status on_offer(NodeIndex from, uint32_t process_set, const TransferOffer& offer, Output& output);
  // Returns why the offer in a set that is known, or has been removed, cannot be taken in, or ok.
  Status refusal_of(uint32_t process_set, const TransferOffer& offer) const;
  // Takes the offer in, or refuses it.
  void admit(NodeIndex from, uint32_t process_set, const TransferOffer& offer, Output& output);
  Status on_take(NodeIndex from, const TransferTake& take, Output& output);
  Status on_refusal(NodeIndex from, const TransferRefusal& refusal, Output& output);
  void on_withdrawal(NodeIndex from, uint32_t process_set, const TransferWithdrawal& withdrawn,
                     Output& output);
  void cancel_send(Half& half, const Place& place, Output& output);
  void cancel_receive(const Spot& spot, Output& output);
  Status check_offer(NodeIndex from, uint32_t process_set, const TransferOffer& offer) const;
  void take_offer(NodeIndex from, uint32_t process_set, const TransferOffer& offer, Output& output);
  // The two match: they go to the data plane, or end with an error.
  void meet(const Offer& offer, LocalSubmission receive, Output& output);
  void answer(NodeIndex to, uint32_t process_set, TransferMessage message, Output& output);
  // Ends a submission. `peer` is the rank at the other end, as far as it is known.
  void finish(const LocalSubmission& submission, const Status& status, Rank peer, Output& output);
  void refuse(const LocalSubmission& submission, const Status& status, Output& output) {
    finish(submission, status, submission.descriptor->peer, output);
  }
  Rank global(LocalRank rank) const {
    return layout_.node(self_).ranks[static_cast<size_t>(rank.value)];
  }
  LocalRank local(Rank rank) const;
  // Returns whether all other ranks of the process set have left.
  bool have_others_left(uint32_t process_set, Rank rank) const;
  Status left(const LocalSubmission& submission, Rank rank) const;
  // Calls visit(submission) for each half that waits for its other half.
  template <class Visit>
  void for_each_waiting(Visit visit) const;
  std::string describe_stall(const LocalSubmission& oldest, size_t others) const;

  const Layout& layout_;
  const NodeIndex self_;
  const StallOptions& stall_;
  const FindLayout find_layout_;
  Epoch epoch_;
  TicksMs now_ = 0;
  std::map<Place, Half> sends_of_ranks_;  // Until they have ended.
  std::map<Place, Arriving> arriving_;    // Receives that have met their send.
  std::map<BoxKey, Box> boxes_;
  std::map<NodeIndex, uint64_t> offered_;  // The number of the last offer to a node.
  std::map<NodeIndex, uint64_t> heard_;    // The number of the last offer from a node.
  std::map<NodeIndex, size_t> held_;       // How many offers of a node wait for their receives.
  std::map<std::pair<LocalRank, uint32_t>, size_t> counts_;  // In flight, by rank and process set.
  size_t in_flight_ = 0;
  uint64_t turns_ = 0;
  std::set<Rank> left_;
  bool is_cut_off_ = false;
  std::set<NodeIndex> opened_;    // The nodes to and from which there are channels.
  std::vector<NodeIndex> opens_;  // What take_opens() returns.
  uint32_t last_set_ = 0;         // The process set that was added last.
  // Offers in sets that are not known yet, by node and number.
  std::map<uint32_t, std::map<Place, Offer>> early_;
  // Where the transfers of ranks are that met no other half when they were submitted, until they
  // end: a send's place, or a receive's spot.
  std::map<std::pair<LocalRank, Ticket>, std::variant<Place, Spot>> spots_;
  // Stalls.
  TicksMs next_look_ms_ = 0;
  TicksMs next_news_ms_ = 0;  // The age at which the oldest stall is news again.
  size_t stall_count_ = 0;
};

}  // namespace rueda::core
