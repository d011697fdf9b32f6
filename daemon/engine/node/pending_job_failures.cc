#include "daemon/engine/node/pending_job_failures.h"

#include <algorithm>
#include <utility>

#include "daemon/engine/ports/proof.h"

namespace rueda::engine {

void PendingJobFailures::forget_old(TicksMs now) {
  while (!fails_.empty() && fails_.front().forgotten_at <= now) fails_.pop_front();
}

void PendingJobFailures::add(TicksMs now, Envelope envelope) {
  const auto* fail = std::get_if<core::Fail>(&envelope.message.body);
  if (!fail || fail->status.message().size() > kMaxTextBytes) return;
  forget_old(now);
  if (fails_.size() >= kMost) fails_.pop_front();
  fails_.push_back({std::move(envelope), now + kKeptMs});
}

std::optional<Envelope> PendingJobFailures::take(TicksMs now, const JobId& job,
                                                 const std::string& token) {
  forget_old(now);
  std::optional<Envelope> taken;
  const std::string key = make_proof_key(token, job);
  for (Early& early : fails_) {
    if (taken || early.envelope.job != job) continue;
    if (holds(early.envelope.proof, key)) taken = early.envelope;
  }
  std::erase_if(fails_, [&](const Early& early) { return early.envelope.job == job; });
  return taken;
}

}  // namespace rueda::engine
