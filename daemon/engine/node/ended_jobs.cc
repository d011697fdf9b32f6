#include "daemon/engine/node/ended_jobs.h"

#include <algorithm>
#include <utility>

#include "daemon/engine/ports/proof.h"

namespace rueda::engine {
namespace {

bool has_ranks_that_wait(const core::Join& join) {
  return !join.attached.empty() ||
         std::any_of(join.below.begin(), join.below.end(),
                     [](const core::Join::Below& node) { return !node.attached.empty(); });
}

}  // namespace

void EndedJobs::forget_old(TicksMs now) {
  while (!jobs_.empty() && jobs_.front().forgotten_at <= now) jobs_.pop_front();
}

void EndedJobs::add(TicksMs now, const JobId& job, const std::string& token, NodeIndex self,
                    Status why) {
  forget_old(now);
  if (jobs_.size() >= limits::kMaxJobs) jobs_.pop_front();
  jobs_.push_back({job, token, self, std::move(why), now + kKeptMs});
}

void EndedJobs::remove(const JobId& job, const std::string& token) {
  std::erase_if(jobs_, [&](const Ended& ended) {
    return ended.job == job && proof_matches(ended.token, token);
  });
}

Status EndedJobs::ended_by_request(TicksMs now, const JobId& job, const std::string& token) {
  forget_old(now);
  for (const Ended& ended : jobs_) {
    if (ended.job != job || !ended.why.origin().is_by_request) continue;
    if (proof_matches(ended.token, token)) return ended.why;
  }
  return Status::ok();
}

std::optional<EndedJobs::Answer> EndedJobs::answer(TicksMs now, const Envelope& envelope) {
  const core::Message& message = envelope.message;
  const auto* join = std::get_if<core::Join>(&message.body);
  if (!join || !has_ranks_that_wait(*join)) return std::nullopt;
  forget_old(now);
  for (Ended& ended : jobs_) {
    if (ended.job != envelope.job) continue;
    if (!holds(envelope.proof, make_proof_key(ended.token, ended.job))) continue;
    const core::Message fail{ended.self, message.epoch, 0, core::Fail{ended.why}};
    return Answer{{ended.job, fail, {}}, !std::exchange(ended.has_been_told, true)};
  }
  return std::nullopt;
}

}  // namespace rueda::engine
