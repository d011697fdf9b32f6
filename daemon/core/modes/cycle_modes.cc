#include "daemon/core/modes/cycle_modes.h"

#include <algorithm>
#include <set>
#include <utility>

#include "daemon/core/modes/negotiation.h"

namespace rueda::core {
namespace {

class CachedMode final : public Agreement {
 public:
  CachedMode(const Layout& layout, NodeIndex self, const SubmissionTable& submissions,
             const AgreementOptions& options)
      : layout_(layout),
        self_(self),
        options_(options),
        negotiation_(layout, self, submissions, options, {.cache = true}),
        sleep_ms_(options.cycle_ms) {}

  Coordination mode() const override { return options_.mode; }

  void on_local_ready(ReadyTensor tensor) override {
    negotiation_.report(std::move(tensor), now_);
    wanted_ = true;
  }

  Status on_message(NodeIndex from, const AgreementMessage& message) override {
    if (const auto* ready = std::get_if<Ready>(&message)) return on_ready(from, *ready);
    if (const auto* decree = std::get_if<Decree>(&message)) return on_decree(from, *decree);
    return unexpected_message(layout_, from, mode());
  }

  void on_rank_left(Rank rank) override {
    negotiation_.on_rank_left(rank);
    wanted_ = wanted_ || negotiation_.is_coordinator();
  }
  void on_node_gone(NodeIndex node) override { gone_.insert(node); }
  void on_operation_ended(Seq seq) override {
    negotiation_.on_operation_ended(seq);
    // Tensors that had to wait for room may be decreed in the next round.
    wanted_ =
        wanted_ || (negotiation_.is_coordinator() && negotiation_.coordinator()->has_waiting());
  }

  void end_turn(AgreementOutput& output) override {
    if (wanted_ && !reported_ && now_ >= next_round_at_) report(output);
    if (negotiation_.is_coordinator()) finish_round_if_complete(output);
    std::move(ordered_.begin(), ordered_.end(), std::back_inserter(output.ordered));
    ordered_.clear();
  }

  std::optional<TicksMs> wakes_at() const override {
    if (!wanted_ || reported_) return std::nullopt;
    return next_round_at_;
  }

 private:
  Status on_ready(NodeIndex from, const Ready& ready) {
    if (Status status = negotiation_.on_ready(from, ready, 0, now_); !status.is_ok()) return status;
    if (ready.round == round_) reports_.insert(from);
    wanted_ = true;
    return Status::ok();
  }

  Status on_decree(NodeIndex from, const Decree& decree) {
    if (Status status = negotiation_.on_decree(from, decree, ordered_); !status.is_ok())
      return status;
    if (decree.round == 0) {
      wanted_ = true;  // Some node has something to report, so this node's report is wanted, too.
    } else if (decree.round == round_) {
      begin_round(decree.sleep_ms);
    }
    return Status::ok();
  }

  void begin_round(TicksMs sleep_ms) {
    ++round_;
    reported_ = false;
    reports_.clear();
    next_round_at_ = now_ + std::max<TicksMs>(sleep_ms, 0);
    // Tensors that became ready after this node's report go with the next one.
    wanted_ = negotiation_.is_coordinator() ? negotiation_.coordinator()->has_waiting()
                                            : negotiation_.has_unsent();
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
    const bool useful = negotiation_.call(0, ordered_, decree);
    decree.round = round_;
    decree.sleep_ms = agree_on_sleep(useful);
    send_to_members(layout_, self_, options_, decree, output);
    begin_round(decree.sleep_ms);
  }

  // Returns how long everybody sleeps before the next round. In `global-sleep` the sleep becomes
  // twice as long if most rounds brought nothing, and half as long if most did.
  TicksMs agree_on_sleep(bool useful) {
    if (options_.mode != Coordination::kGlobalSleep) return options_.cycle_ms;
    useful_ += useful ? 1 : 0;
    if (++cycles_ < options_.cycles_between_agreements) return sleep_ms_;
    sleep_ms_ = useful_ * 2 < cycles_ ? sleep_ms_ * 2 : sleep_ms_ / 2;
    sleep_ms_ = std::clamp(sleep_ms_, options_.cycle_ms, options_.longest_cycle_ms);
    cycles_ = useful_ = 0;
    return sleep_ms_;
  }

  const Layout& layout_;
  const NodeIndex self_;
  const AgreementOptions options_;
  Negotiation negotiation_;
  std::vector<OrderedOperation> ordered_;

  uint64_t round_ = 1;
  bool wanted_ = false;    // There is a reason for this round to take place.
  bool reported_ = false;  // This node has reported in this round.
  TicksMs next_round_at_ = 0;
  // These are the coordinator's.
  std::set<NodeIndex> reports_;
  std::set<NodeIndex> gone_;
  TicksMs sleep_ms_;
  int cycles_ = 0;
  int useful_ = 0;
};

}  // namespace

std::unique_ptr<Agreement> make_cached_agreement(const Layout& layout, NodeIndex self,
                                                 const SubmissionTable& submissions,
                                                 const AgreementOptions& options) {
  return std::make_unique<CachedMode>(layout, self, submissions, options);
}

}  // namespace rueda::core
