// The ways to agree on an order of operations (daemon/core/order/agreement.h): which of them a job
// has, and what they share.
#include "daemon/core/modes/cycle_modes.h"
#include "daemon/core/modes/locked.h"
#include "daemon/core/modes/negotiate_mode.h"
#include "daemon/core/order/agreement.h"

namespace rueda::core {

std::string describe_left(const std::string& tensor, Rank rank) {
  return "tensor \"" + tensor + "\" cannot complete: rank " + std::to_string(rank.value) +
         " has left the job (its rueda_shutdown ran)";
}

Status unexpected_message(const Layout& layout, NodeIndex from, Coordination mode) {
  return Status(Code::kInternal, "node " + layout.node(from).node_id +
                                     " sent a message that mode " + to_string(mode) +
                                     " has no use for");
}

void send_to_members(const Layout& layout, NodeIndex self, const AgreementOptions& options,
                     const AgreementMessage& message, AgreementOutput& output) {
  if (options.tree_fan_in > 0) {
    output.sends.emplace_back(kEverybodyBelow, message);
    return;
  }
  for (const NodeIndex node : layout.members()) {
    if (node != self) output.sends.emplace_back(node, message);
  }
}

std::unique_ptr<Agreement> make_agreement(const Layout& layout, NodeIndex self,
                                          const SubmissionTable& submissions,
                                          const AgreementOptions& options) {
  switch (options.mode) {
    case Coordination::kNegotiate:
    case Coordination::kEventDriven:
      return make_negotiate_agreement(layout, self, submissions, options);
    case Coordination::kCached:
    case Coordination::kGlobalSleep:
    case Coordination::kNonblocking:
      return make_cycle_agreement(layout, self, submissions, options);
    case Coordination::kLocked: break;
  }
  return make_locked_agreement(layout, self, submissions, options);
}

}  // namespace rueda::core
