// JobCore under policy `shrink`: an epoch that breaks goes on as the next one, with those who are
// left (docs/protocol.md, "Recovery"). What is decided, and by whom, is in recovery.h; here is what
// it means for the job.

#include <algorithm>
#include <utility>

#include "daemon/core/job/job.h"

namespace rueda::core {

std::optional<TicksMs> JobCore::recovery_wakes_at() const {
  return recovery_ ? recovery_->deadline() : std::nullopt;
}

void JobCore::on_recovery_message(const Message& message, Output& output) {
  if (!recovery_) {
    // Over for a reason that is not the recovery's to decide.
    if (state_ == JobState::kFailed) {
      router_.send_straight(message.from, Fail{failure_}, output);
    }
    return;
  }
  const auto& body = std::get<RecoveryBody>(message.body);
  if (message.epoch == epoch_ && std::holds_alternative<Heartbeat>(body)) {
    const Status all = router_.check_received(message.from, message.number);
    if (!all.is_ok()) return suspect(message.from, all, output);
  }
  RecoveryOutput said;
  recovery_->on_message(now_, {message.from, message.epoch, body}, said);
  carry_out(std::move(said), output);
}

void JobCore::suspect(NodeIndex node, const Status& status, Output& output) {
  if (!recovery_) {
    fail(status, output);
    return;
  }
  RecoveryOutput said;
  recovery_->on_suspicion(now_, node, status.message(), said);
  carry_out(std::move(said), output);
}

void JobCore::withdraw(const Status& status, Output& output) {
  if (!recovery_) {
    fail(status, output);
    return;
  }
  if (state_ == JobState::kFailed) return;
  end(status, output);
  RecoveryOutput said;
  recovery_->withdraw(now_, status.message(), said);
  carry_out(std::move(said), output);
}

void JobCore::carry_out(RecoveryOutput said, Output& output) {
  const bool is_over = state_ == JobState::kFailed;
  for (auto& [to, message] : said.sends) {
    // How many have gone before it in the epoch: what was lost while the link was down is missed,
    // even if nothing else is said.
    const bool tells_number =
        std::holds_alternative<Heartbeat>(message.body) && message.epoch == epoch_;
    const uint64_t number = tells_number ? router_.sent_to(to) : 0;
    output.sends.emplace_back(to, Message{self_, message.epoch, number, std::move(message.body)});
  }
  if (said.next && !is_over) adopt(std::move(*said.next), output);
  if (said.sealed) on_sealed(output);
  if (is_over) return;
  for (const CompletedOperation& completed : said.deliveries) {
    sets_.all_ranks().deliver(completed, output);
  }
  const auto append = [](auto& to, const auto& from) {
    to.insert(to.end(), from.begin(), from.end());
  };
  append(output.freed_partials, said.freed_partials);
  append(output.freed_finals, said.freed_finals);
  if (said.ended) {
    end(said.ended->status, output);
  } else if (!said.deliveries.empty() || !said.freed_finals.empty()) {
    launch_ordered(sets_.all_ranks(), output);
  }
}

void JobCore::on_sealed(Output& output) {
  if (state_ != JobState::kFailed) {
    state_ = JobState::kSealed;
    suspicion_.forget();
    output.sealed = epoch_;
    return;
  }
  // The data plane has been dropped already.
  on(DataStopped{recovery_->epoch(), {}}, output);
}

void JobCore::on(const DataStopped& event, Output& output) {
  if (!recovery_ || event.epoch != recovery_->epoch()) return;
  std::vector<Rank> left = ranks_.missing();  // they have said goodbye in this epoch
  left.insert(left.end(), goodbyes_.left().begin(), goodbyes_.left().end());
  RecoveryOutput said;
  recovery_->on_stopped(now_, event.held, std::move(left), said);
  carry_out(std::move(said), output);
}

void JobCore::adopt(NextEpoch next, Output& output) {
  std::string lost;
  for (const NodeIndex node : next.lost) {
    lost += (lost.empty() ? "" : ", ") + layout_.node(node).node_id;
  }
  output.notes.push_back("epoch " + std::to_string(next.epoch.value) +
                         (lost.empty() ? " goes on with all nodes" : " goes on without " + lost) +
                         (next.reason.empty() ? "" : ": " + next.reason));
  layout_.shrink_to(next.members);
  epoch_ = next.epoch;
  router_.begin(epoch_);
  state_ = JobState::kRunning;
  goodbyes_.forget();
  sets_.adopt(next, output);
  output.recovered = next;
  // Whose goodbye the decision does not know says it again.
  for (const Rank rank : ranks_.missing()) {
    if (std::find(next.left.begin(), next.left.end(), rank) != next.left.end()) continue;
    on_leave(self_, {rank, {}}, output);
  }
  if (goodbyes_.has_everybody_left()) {
    finish_epoch(output);
    return;
  }
  launch_ordered(sets_.all_ranks(), output);
  for (Message& message : std::exchange(early_, {})) on(MessageArrived{std::move(message)}, output);
}

}  // namespace rueda::core
