#include "daemon/core/modes/negotiate_mode.h"

#include <utility>

#include "daemon/core/modes/negotiation.h"

namespace rueda::core {
namespace {

class NegotiateMode final : public Agreement {
 public:
  NegotiateMode(const Layout& layout, NodeIndex self, const SubmissionTable& submissions,
                const AgreementOptions& options)
      : layout_(layout),
        self_(self),
        options_(options),
        negotiation_(layout, self, submissions, options,
                     {.cache = options.mode == Coordination::kEventDriven, .combines = true}) {}

  Coordination mode() const override { return options_.mode; }

  void on_local_ready(ReadyTensor tensor) override { negotiation_.report(std::move(tensor), now_); }

  Status on_message(NodeIndex from, const AgreementMessage& message) override {
    if (const auto* ready = std::get_if<Ready>(&message)) {
      return negotiation_.on_ready(from, *ready, 0, now_);
    }
    if (const auto* decree = std::get_if<Decree>(&message)) {
      return negotiation_.on_decree(from, *decree, ordered_);
    }
    return unexpected_message(layout_, from, mode());
  }

  void on_rank_left(Rank rank) override { negotiation_.on_rank_left(rank); }
  void on_operation_ended(Seq seq) override { negotiation_.on_operation_ended(seq); }

  void end_turn(AgreementOutput& output) override {
    if (negotiation_.is_coordinator()) {
      Decree decree;
      if (negotiation_.call(0, ordered_, decree)) {
        send_to_members(layout_, self_, options_, decree, output);
      }
    } else {
      for (Ready& ready : negotiation_.take_ready(0)) {
        output.sends.emplace_back(negotiation_.reports_to(), std::move(ready));
      }
    }
    std::move(ordered_.begin(), ordered_.end(), std::back_inserter(output.ordered));
    ordered_.clear();
  }

 private:
  const Layout& layout_;
  const NodeIndex self_;
  const AgreementOptions options_;
  Negotiation negotiation_;
  std::vector<OrderedOperation> ordered_;
};

}  // namespace

std::unique_ptr<Agreement> make_negotiate_agreement(const Layout& layout, NodeIndex self,
                                                    const SubmissionTable& submissions,
                                                    const AgreementOptions& options) {
  return std::make_unique<NegotiateMode>(layout, self, submissions, options);
}

}  // namespace rueda::core
