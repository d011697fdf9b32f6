#include "daemon/core/modes/cycle_modes.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <utility>

#include "daemon/core/modes/negotiation.h"
#include "daemon/core/modes/sleep_agreement.h"

namespace rueda::core {
namespace {

class CycleMode final : public Agreement {
 public:
  CycleMode(const Layout& layout, NodeIndex self, const SubmissionTable& submissions,
            const AgreementOptions& options)
      : layout_(layout),
        self_(self),
        options_(options),
        negotiation_(layout, self, submissions, options, {.cache = true}),
        sleep_(layout, self, options) {}

  Coordination mode() const override { return options_.mode; }

  void on_local_ready(ReadyTensor tensor) override {
    negotiation_.report(std::move(tensor), now_);
    wanted_ = true;
  }

  Status on_message(NodeIndex from, const AgreementMessage& message) override {
    if (const auto* ready = std::get_if<Ready>(&message)) {
      return ready->sleep_us ? on_sleep(from, *ready) : on_ready(from, *ready);
    }
    if (const auto* decree = std::get_if<Decree>(&message)) return on_decree(from, *decree);
    return unexpected_message(layout_, from, mode());
  }

  void on_rank_left(Rank rank) override {
    negotiation_.on_rank_left(rank);
    sleep_.on_rank_left();
    wanted_ = wanted_ || negotiation_.is_coordinator();
  }
  void on_node_gone(NodeIndex node) override {
    gone_.insert(node);
    sleep_.on_node_gone(node);
    // If it is the coordinator, what it had ordered is carried out before anybody asks whether more
    // was expected of it.
    ends_sleep_ = true;
  }
  void on_operation_ended(Seq seq) override {
    negotiation_.on_operation_ended(seq);
    // Tensors that had to wait for room may be decreed in the next round.
    wanted_ =
        wanted_ || (negotiation_.is_coordinator() && negotiation_.coordinator()->has_waiting());
  }

  void end_turn(AgreementOutput& output) override {
    wake_up(output);
    if (negotiation_.is_coordinator()) {
      finish_round_if_complete(output);
      agree_on_sleep_if_complete(output);
    }
    sleep_.say(output);
    if (!looks_later() || has_change_of_sets()) take_ordered(output);
    output.rounds += std::exchange(ended_rounds_, 0);
  }

  std::optional<TicksUs> wakes_at_us() const override {
    if (has_to_begin() || (looks_later() && !ordered_.empty())) return next_cycle_at_;
    return std::nullopt;
  }

 private:
  // Returns whether this node looks for the end of a round when it wakes up, and not when it comes.
  bool looks_later() const { return options_.mode == Coordination::kNonblocking; }
  // Returns whether a process set is added or removed by what was ordered. That is not put off: a
  // node that has looked already may send messages of the new set.
  bool has_change_of_sets() const {
    return std::any_of(ordered_.begin(), ordered_.end(), [](const OrderedOperation& operation) {
      return !operation.tensors.empty() && operation.tensors.front() == kProcessSetsName;
    });
  }
  // Returns whether the next cycle begins a round on this node.
  bool has_to_begin() const { return wanted_ && !reported_ && !sleep_.is_under_way(); }

  Status on_ready(NodeIndex from, const Ready& ready) {
    if (Status status = negotiation_.on_ready(from, ready, 0, now_); !status.is_ok()) return status;
    if (ready.round == round_) reports_.insert(from);
    wanted_ = true;
    return Status::ok();
  }

  Status on_sleep(NodeIndex from, const Ready& ready) {
    if (agrees_on_sleep()) return sleep_.on_sleep(from, ready);
    return unexpected_message(layout_, from, mode());
  }

  Status on_decree(NodeIndex from, const Decree& decree) {
    if (Status status = negotiation_.on_decree(from, decree, ordered_); !status.is_ok())
      return status;
    if (decree.sleep_us) return on_agreed_sleep(from, decree);
    if (decree.round == 0) {
      // Some node has something to report in a round, so this node's report is wanted, too.
      wanted_ = true;
    } else if (decree.round == round_) {
      end_round();
    }
    return Status::ok();
  }

  Status on_agreed_sleep(NodeIndex from, const Decree& decree) {
    const bool is_due = sleep_.is_under_way() && decree.round == sleep_.round();
    if (is_due && *decree.sleep_us >= 0 && *decree.sleep_us <= options_.cycle_time_us) {
      begin_sleep(*decree.sleep_us);
      return Status::ok();
    }
    return Status(Code::kInternal, "the coordinator on node " + layout_.node(from).node_id +
                                       " has all sleep " + std::to_string(*decree.sleep_us) +
                                       " us after round " + std::to_string(decree.round) +
                                       ", which was not asked for");
  }

  // The thread of the paper wakes up: it looks at the round that it did not wait for, and begins
  // the next one, if any is wanted.
  void wake_up(AgreementOutput& output) {
    if (now_us_ < next_cycle_at_ && !ends_sleep_) return;
    const bool has_to_look = looks_later() && !ordered_.empty();
    if (std::exchange(ends_sleep_, false) && now_us_ < next_cycle_at_) {
      return take_ordered(output);
    }
    if (!has_to_begin() && !has_to_look) return;
    take_ordered(output);
    cycle_began_at_ = now_us_;
    if (has_to_begin()) report(output);
    // Nothing is waited for, so the work of the cycle takes no time that the clock would show.
    if (looks_later()) begin_sleep(options_.cycle_time_us);
  }

  void take_ordered(AgreementOutput& output) {
    std::move(ordered_.begin(), ordered_.end(), std::back_inserter(output.ordered));
    ordered_.clear();
  }

  // The round is over on this node.
  void end_round() {
    const uint64_t ended = round_++;
    ++ended_rounds_;
    reported_ = false;
    reports_.clear();
    // Tensors that became ready after this node's report go with the next one.
    wanted_ = negotiation_.is_coordinator() ? negotiation_.coordinator()->has_waiting()
                                            : negotiation_.has_unsent();
    if (looks_later()) return sleep_on();
    const TicksUs own_us = own_sleep();
    const auto every = static_cast<uint64_t>(options_.sleep_agreed_every);
    if (agrees_on_sleep() && ended % every == 0) {
      sleep_.begin(ended, own_us);
    } else {
      begin_sleep(own_us);
    }
  }

  bool agrees_on_sleep() const { return options_.mode == Coordination::kGlobalSleep; }

  // Returns the cycle time less what the cycle has taken: HOROVOD_CYCLE_TIME - T_previous, and 0 if
  // it has taken longer. A node that others have waited for has taken least, and sleeps longest.
  TicksUs own_sleep() const {
    const TicksUs taken_us = now_us_ - cycle_began_at_;
    return std::clamp<TicksUs>(options_.cycle_time_us - taken_us, 0, options_.cycle_time_us);
  }

  void begin_sleep(TicksUs sleep_us) {
    sleep_.end();
    next_cycle_at_ = now_us_ + sleep_us;
  }

  // The end of the round has come while the thread sleeps, in this cycle or, if it woke up since in
  // vain, in a later one. Nobody wakes up for what is not there, so those cycles are counted here.
  void sleep_on() {
    const TicksUs late_us = now_us_ - next_cycle_at_;
    if (late_us <= 0) return;
    const TicksUs cycle_us = options_.cycle_time_us;
    next_cycle_at_ += (late_us + cycle_us - 1) / cycle_us * cycle_us;
  }

  // Reports what is ready on this node in this round. The coordinator asks the others for their
  // reports.
  void report(AgreementOutput& output) {
    reported_ = true;
    if (negotiation_.is_coordinator()) {
      if (layout_.is_member(self_)) reports_.insert(self_);
      send_to_members(layout_, self_, options_, Decree{}, output);
      return;
    }
    std::vector<Ready> messages = negotiation_.take_ready(0);
    if (messages.empty()) messages.emplace_back();
    messages.back().round = round_;  // The last message ends the report.
    for (Ready& message : messages) {
      output.sends.emplace_back(layout_.coordinator(), std::move(message));
    }
  }

  void finish_round_if_complete(AgreementOutput& output) {
    for (const NodeIndex node : gone_) reports_.insert(node);
    if (!reported_ || reports_.size() != layout_.members().size()) return;
    Decree decree;
    negotiation_.call(0, ordered_, decree);
    decree.round = round_;
    send_to_members(layout_, self_, options_, decree, output);
    end_round();
  }

  void agree_on_sleep_if_complete(AgreementOutput& output) {
    const std::optional<TicksUs> agreed_us = sleep_.agreed();
    if (!agreed_us) return;
    Decree decree;
    decree.round = sleep_.round();
    decree.sleep_us = agreed_us;
    send_to_members(layout_, self_, options_, decree, output);
    begin_sleep(*agreed_us);
  }

  const Layout& layout_;
  const NodeIndex self_;
  const AgreementOptions options_;
  Negotiation negotiation_;
  SleepAgreement sleep_;  // Used by `global-sleep` alone.
  std::vector<OrderedOperation> ordered_;

  uint64_t round_ = 1;
  uint32_t ended_rounds_ = 0;   // Since the last turn.
  bool wanted_ = false;         // There is a reason for this round to take place.
  bool reported_ = false;       // This node has reported in this round, which is not over.
  bool ends_sleep_ = false;     // What was ordered is looked at now, whatever the cycle says.
  TicksUs cycle_began_at_ = 0;  // When this node woke up last.
  TicksUs next_cycle_at_ = 0;   // When its sleep ends.
  // These are the coordinator's.
  std::set<NodeIndex> reports_;
  std::set<NodeIndex> gone_;
};

}  // namespace

std::unique_ptr<Agreement> make_cycle_agreement(const Layout& layout, NodeIndex self,
                                                const SubmissionTable& submissions,
                                                const AgreementOptions& options) {
  return std::make_unique<CycleMode>(layout, self, submissions, options);
}

}  // namespace rueda::core
