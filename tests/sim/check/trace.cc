#include "tests/sim/check/trace.h"

#include "daemon/base/hash.h"
#include "daemon/core/stall/stall_text.h"
#include "tests/sim/setup/random_choices.h"

namespace rueda::sim {
namespace {

std::string number(uint64_t value) { return std::to_string(value); }
std::string label_of(NodeIndex node) { return "n" + std::to_string(node.value); }

std::string label_of(Seq seq) {
  const bool is_decreed = core::track_of(seq) == core::Track::kDecreed;
  return (is_decreed ? "b" : "") + number(core::number_of(seq));
}

std::string join(const std::vector<std::string>& parts, const char* between) {
  std::string text;
  for (const std::string& part : parts) text += (text.empty() ? "" : between) + part;
  return text;
}

std::string describe_operation(const core::OrderedOperation& operation) {
  std::string text = label_of(operation.seq) + " = " + join_names(operation.tensors);
  for (const uint32_t slot : operation.cached) text += " slot " + number(slot);
  if (!operation.error.is_ok()) text += " fails: " + operation.error.to_string();
  if (operation.outcome) text += " gives " + number(*operation.outcome);
  return text;
}

struct TextOfTransfer {
  std::string operator()(const core::TransferOffer& offer) const {
    return "rank " + std::to_string(offer.source.value) + " sends to rank " +
           std::to_string(offer.destination.value);
  }
  std::string operator()(const core::TransferTake& take) const {
    return "takes " + number(take.number);
  }
  std::string operator()(const core::TransferWithdrawal& withdrawn) const {
    return "withdraws " + number(withdrawn.number);
  }
  std::string operator()(const core::TransferRefusal& refusal) const {
    return "refuses " + number(refusal.number) + ": " + refusal.status.to_string();
  }
};

struct MessageText {
  std::string operator()(const core::Handover& handover) const {
    static constexpr const char* kSteps[] = {"move to ",      "last one up", "attach",
                                             "last one down", "attached",    "gone"};
    const bool names_node = handover.step == core::Handover::Step::kMove;
    return std::string(kSteps[static_cast<size_t>(handover.step)]) +
           (names_node ? label_of(handover.node) : "");
  }
  std::string operator()(const core::Join& join) const {
    std::string text;
    for (Rank rank : join.attached) text += " " + std::to_string(rank.value);
    return "attached" + (text.empty() ? " nobody" : text);
  }
  std::string operator()(const core::Start&) const { return "all ranks are there"; }
  std::string operator()(const core::Ready& ready) const {
    std::vector<std::string> parts;
    for (const core::ReadyTensor& tensor : ready.entries) {
      parts.push_back(
          tensor.descriptor->name + (tensor.mismatch.empty() ? "" : " (mismatch)") +
          (tensor.absent.value < 0 ? "" : " without rank " + number(tensor.absent.value)));
    }
    for (size_t word = 0; word < ready.cached.size(); ++word) {
      for (uint32_t bit = 0; bit < 64; ++bit) {
        const bool is_set = (ready.cached[word] >> bit & 1) != 0;
        if (is_set) parts.push_back("slot " + number(word * 64 + bit));
      }
    }
    if (ready.round != 0) parts.push_back("round " + number(ready.round));
    return join(parts, ", ");
  }
  std::string operator()(const core::Decree& decree) const {
    std::vector<std::string> parts;
    if (decree.round != 0) parts.push_back("round " + number(decree.round) + " is over");
    for (const core::OrderedOperation& operation : decree.operations) {
      parts.push_back(describe_operation(operation));
    }
    return join(parts, "; ");
  }
  std::string operator()(const core::Lock& lock) const {
    std::vector<std::string> batches;
    for (size_t i = 0; i < lock.plan.batches.size(); ++i) {
      const core::PlanBatch& batch = lock.plan.batches[i];
      std::vector<std::string> names;
      for (const core::DescriptorPtr& tensor : batch.tensors) names.push_back(tensor->name);
      std::string text = join_names(names);
      const bool follows = batch.after == static_cast<core::PlanPlace>(i) - 1;
      if (!follows) text += " after " + std::to_string(batch.after);
      if (batch.ends) text += " end";
      batches.push_back(std::move(text));
    }
    return "generation " + number(lock.generation) + " from " + label_of(lock.first) + " on, at " +
           std::to_string(lock.at) +
           (lock.source == core::PlanSource::kDeclared   ? ", as declared: "
            : lock.source == core::PlanSource::kRecorded ? ", as recorded: "
                                                         : ": ") +
           join(batches, ", ");
  }
  std::string operator()(const core::UnlockRequest& request) const {
    return "generation " + number(request.generation) + ", " + request.reason;
  }
  std::string operator()(const core::Freeze& freeze) const {
    return "generation " + number(freeze.generation) + ", " + freeze.reason;
  }
  std::string operator()(const core::Frozen& frozen) const {
    return "generation " + number(frozen.generation) + ", launched up to " +
           label_of(frozen.launched);
  }
  std::string operator()(const core::Resume& resume) const {
    return "generation " + number(resume.generation) + " from " + label_of(resume.first) + " on";
  }
  std::string operator()(const core::Ended& ended) const {
    std::vector<std::string> names;
    for (const Seq seq : ended.operations) names.push_back(label_of(seq));
    return join(names, ", ");
  }
  std::string operator()(const core::AgreementMessage& agreed) const {
    return std::visit(*this, agreed);
  }
  std::string operator()(const core::Leave& leave) const {
    std::string text = "rank " + std::to_string(leave.rank.value);
    if (leave.frozen.generation != 0) text += ", frozen in " + (*this)(leave.frozen);
    return text;
  }
  std::string operator()(const core::Left& left) const {
    return "rank " + std::to_string(left.rank.value);
  }
  std::string operator()(const core::Fail& fail) const { return fail.status.to_string(); }
  std::string operator()(const core::StallReport& report) const {
    std::vector<std::string> names;
    for (const core::StallReport::Tensor& tensor : report.tensors) names.push_back(tensor.name);
    return names.empty() ? "nothing stalls here" : "stalled here: " + join(names, ", ");
  }
  std::string operator()(const core::StallQuery& query) const {
    return "round " + number(query.round) + ", who has " + join(query.names, ", ");
  }
  std::string operator()(const core::StallAnswer& answer) const {
    std::vector<std::string> parts;
    for (const core::StallAnswer::Tensor& tensor : answer.tensors) {
      parts.push_back("[" + core::describe_ranks(tensor.submitted) + "]");
    }
    return "round " + number(answer.round) + ", submitted by ranks " + join(parts, ", ");
  }
  std::string operator()(const core::StallNotice& notice) const {
    std::vector<std::string> names;
    for (const core::Stall& stall : notice.stalls) names.push_back(stall.tensor);
    return names.empty() ? "nothing stalls" : "stalled: " + join(names, ", ");
  }
  std::string operator()(const core::StallMessage& stall) const { return std::visit(*this, stall); }
  std::string operator()(const core::Heartbeat&) const { return "still there"; }
  std::string operator()(const core::Acknowledge&) const { return "complete here"; }
  std::string operator()(const core::Prepare& prepare) const { return ballot(prepare.ballot); }
  std::string operator()(const core::Promise& promise) const {
    return ballot(promise.ballot) + (promise.report.withdraws ? ", and withdraws" : "");
  }
  std::string operator()(const core::Accept& accept) const {
    return ballot(accept.ballot) + ", " + decision(*accept.decision);
  }
  std::string operator()(const core::Accepted& accepted) const { return ballot(accepted.ballot); }
  std::string operator()(const core::Refuse& refuse) const {
    return ballot(refuse.promised) + " is higher";
  }
  std::string operator()(const core::Learn& learn) const { return decision(*learn.decision); }
  std::string operator()(const core::Ask&) const { return "how did my epoch end?"; }
  std::string operator()(const core::RecoveryBody& body) const { return std::visit(*this, body); }
  std::string operator()(const core::TransferOpen&) const { return "let us open channels"; }

  static std::string ballot(core::Ballot ballot) {
    return "ballot " + number(ballot.round) + "." + std::to_string(ballot.node.value);
  }
  static std::string decision(const core::Decision& decision) {
    std::vector<std::string> members;
    for (const NodeIndex node : decision.members) members.push_back(label_of(node));
    return "epoch " + number(decision.epoch.value) +
           (decision.ends_job ? " is none" : " = " + join(members, ", "));
  }
};

struct EventText {
  const core::Layout& layout;
  NodeIndex node;

  std::string rank(LocalRank local) const {
    return "rank " +
           std::to_string(layout.node(node).ranks[static_cast<size_t>(local.value)].value);
  }
  std::string operator()(const core::RankAttached& e) const { return rank(e.rank) + " attaches"; }
  std::string operator()(const core::RankDetached& e) const { return rank(e.rank) + " leaves"; }
  std::string operator()(const core::RankLost& e) const {
    return rank(e.rank) + " is lost: " + e.status.message();
  }
  std::string operator()(const core::Submitted& e) const {
    return rank(e.submission.rank) + " submits " + e.submission.descriptor->name + " " +
           core::shape_to_string(e.submission.descriptor->shape) + " as ticket " +
           number(e.submission.ticket.value);
  }
  std::string operator()(const core::MessageArrived& e) const {
    return std::string(kind_of(e.message)) + " #" + number(e.message.number) + " from " +
           label_of(e.message.from) + ": " + sim::describe(e.message);
  }
  std::string operator()(const core::NodeLost& e) const {
    return label_of(e.node) + " is lost: " + e.status.message();
  }
  std::string operator()(const core::DataChannelLost& e) const {
    return "the data channel of " + label_of(e.node) + " is lost: " + e.status.message();
  }
  std::string operator()(const core::OperationDone& e) const {
    return "operation " + label_of(e.seq) + " is complete";
  }
  std::string operator()(const core::OperationFailed& e) const {
    return "operation " + label_of(e.seq) + " has failed: " + e.status.to_string();
  }
  std::string operator()(const core::OperationDiverged& e) const {
    return "operation " + label_of(e.seq) + " is another batch on " + label_of(e.peer);
  }
  std::string operator()(const core::TransferCancelled& e) const {
    return rank(e.rank) + " takes back ticket " + number(e.ticket.value);
  }
  std::string operator()(const core::TransferMessageArrived& e) const {
    return label_of(e.from) + " tells of a transfer: " + std::visit(TextOfTransfer(), e.message);
  }
  std::string operator()(const core::TransferDone& e) const {
    return "transfer " + number(e.key.number) + " from " + label_of(e.key.from) + " is done";
  }
  std::string operator()(const core::DataStopped& e) const {
    std::string text = "the data plane stands still";
    for (const core::HeldChunks& operation : e.held) {
      text += ", " + label_of(operation.seq) + ": ";
      for (const bool held : operation.chunks) text += held ? '1' : '.';
    }
    return text;
  }
  std::string operator()(const core::JobEnded& e) const { return "ended: " + e.status.message(); }
  std::string operator()(const core::JobClosed& e) const {
    return "the job is closed: " + e.status.message();
  }
  std::string operator()(const core::TimePassed&) const { return "time passes"; }
  std::string operator()(const core::RankWaits& e) const {
    return rank(e.rank) +
           (e.ticket ? " waits for ticket " + number(e.ticket->value) : " waits no longer");
  }
  std::string operator()(const core::TurnEnded&) const { return "the turn ends"; }
};

}  // namespace

std::string join_names(const std::vector<std::string>& names) { return join(names, "+"); }

const char* kind_of(const core::Message& message) {
  static constexpr const char* kNames[] = {"Join", "Start", "", "Leave",    "Left",
                                           "Fail", "",      "", "Handover", "TransferOpen"};
  static constexpr const char* kAgreed[] = {"Ready",  "Decree", "Lock",   "UnlockRequest",
                                            "Freeze", "Frozen", "Resume", "Ended"};
  static constexpr const char* kStalls[] = {"StallReport", "StallQuery", "StallAnswer",
                                            "StallNotice"};
  static constexpr const char* kRecovery[] = {"Heartbeat", "Acknowledge", "Prepare",
                                              "Promise",   "Accept",      "Accepted",
                                              "Refuse",    "Learn",       "Ask"};
  static_assert(std::size(kRecovery) == std::variant_size_v<core::RecoveryBody>);
  static_assert(std::size(kNames) == std::variant_size_v<decltype(message.body)>);
  static_assert(std::size(kAgreed) == std::variant_size_v<core::AgreementMessage>);
  static_assert(std::size(kStalls) == std::variant_size_v<core::StallMessage>);
  if (const auto* stall = std::get_if<core::StallMessage>(&message.body)) {
    return kStalls[stall->index()];
  }
  if (const auto* recovery = std::get_if<core::RecoveryBody>(&message.body)) {
    return kRecovery[recovery->index()];
  }
  const auto* agreed = std::get_if<core::AgreementMessage>(&message.body);
  return agreed ? kAgreed[agreed->index()] : kNames[message.body.index()];
}

std::string describe(const core::Message& message) {
  return std::visit(MessageText{}, message.body);
}

std::string describe(const core::Layout& layout, NodeIndex node, const core::Event& event) {
  return std::visit(EventText{layout, node}, event);
}

std::string in_set(uint32_t id) { return id == 0 ? "" : " in process set " + number(id); }

std::string describe(const core::NextEpoch& next) {
  static constexpr const char* kVerdicts[] = {" COMPLETE", " REDO", " void"};
  std::vector<std::string> members;
  for (const NodeIndex member : next.members) members.push_back(label_of(member));
  std::string text = "goes on in epoch " + number(next.epoch.value) + " = " + join(members, ", ");
  for (const core::CarriedOperation& operation : next.operations) {
    text += ", " + label_of(operation.was) + " is " + label_of(operation.seq) +
            kVerdicts[static_cast<size_t>(operation.verdict)];
  }
  for (const core::Fetch& fetch : next.fetches) {
    text += ", fetches chunk " + number(fetch.chunk) + " of " + label_of(fetch.seq) + " from " +
            label_of(fetch.from);
  }
  return text;
}

std::vector<std::string> describe(const core::Layout& layout, NodeIndex node,
                                  const core::Output& output) {
  std::vector<std::string> parts;
  if (output.started) parts.push_back("starts epoch " + number(output.started->epoch.value));
  for (const auto& [to, message] : output.sends) {
    parts.push_back("sends " + std::string(kind_of(message)) + " #" + number(message.number) +
                    " to " + label_of(to) + in_set(message.process_set) + ": " + describe(message));
  }
  if (output.sealed) parts.push_back("seals epoch " + number(output.sealed->value));
  if (output.recovered) parts.push_back(describe(*output.recovered));
  for (const core::Cancel& cancel : output.cancels) {
    parts.push_back("cancels from " + label_of(cancel.first) + " on for generation " +
                    number(cancel.generation) + in_set(cancel.process_set));
  }
  for (const core::Launch& launch : output.launches) {
    std::vector<std::string> names;
    for (const core::LaunchTensor& tensor : *launch.tensors)
      names.push_back(tensor.descriptor->name);
    parts.push_back("launches " + label_of(launch.seq) + " = " + join_names(names) +
                    (launch.generation == 0 ? "" : " in generation " + number(launch.generation)) +
                    in_set(launch.process_set));
  }
  for (const core::Delivery& delivery : output.deliveries) {
    const Rank rank = layout.node(node).ranks[static_cast<size_t>(delivery.rank.value)];
    parts.push_back("gives rank " + std::to_string(rank.value) + " ticket " +
                    number(delivery.ticket.value) + " back" +
                    (delivery.status.is_ok() ? "" : " with " + delivery.status.to_string()));
  }
  if (output.finished) parts.push_back("finishes epoch " + number(output.finished->value));
  if (output.failed) parts.push_back("fails: " + output.failed->to_string());
  return parts;
}

void Trace::add(uint64_t number) { hash_ = mix(hash_ ^ number); }

void Trace::on_step(TicksMs now, const core::Layout& layout, NodeIndex node,
                    const core::Event& event, const core::Output& output) {
  add(static_cast<uint64_t>(now));
  add((static_cast<uint64_t>(node.value) << 8) | event.index());
  if (const auto* arrived = std::get_if<core::MessageArrived>(&event)) {
    add((arrived->message.number << 8) | arrived->message.body.index());
  }
  for (const auto& [to, message] : output.sends) {
    add((message.number << 16) | (static_cast<uint64_t>(to.value) << 8) | message.body.index());
  }
  if (output.sealed) add(output.sealed->value);
  if (output.recovered) add(Fnv1a().add(describe(*output.recovered)).value());
  for (const core::Cancel& cancel : output.cancels) add(cancel.first.value ^ cancel.generation);
  for (const core::Launch& launch : output.launches) {
    add(launch.seq.value);
    add(launch.generation);
    add(launch.plan_hash);
    add(launch.process_set);
  }
  for (const core::Delivery& delivery : output.deliveries) {
    add((delivery.ticket.value << 16) | (static_cast<uint64_t>(delivery.rank.value) << 8) |
        static_cast<uint64_t>(delivery.status.code()));
  }
  if (!keep_text_) return;
  std::string line = std::to_string(now);
  line.insert(0, line.size() < 6 ? 6 - line.size() : 0, ' ');
  line += "  " + label_of(node) + "  " + describe(layout, node, event);
  const std::vector<std::string> parts = describe(layout, node, output);
  // These events happen all the time.
  const bool is_silent = std::holds_alternative<core::TimePassed>(event) ||
                         std::holds_alternative<core::TurnEnded>(event);
  if (parts.empty() && is_silent) return;
  if (!parts.empty()) line += "  ->  " + join(parts, "; ");
  lines_.push_back(std::move(line));
}

void Trace::note(TicksMs now, const std::string& what) {
  add(static_cast<uint64_t>(now));
  add(Fnv1a().add(what).value());
  if (!keep_text_) return;
  std::string line = std::to_string(now);
  line.insert(0, line.size() < 6 ? 6 - line.size() : 0, ' ');
  lines_.push_back(line + "  --  " + what);
}

}  // namespace rueda::sim
