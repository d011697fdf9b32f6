// Links that no job needs: how much they may say, and how long they stay.
#include <algorithm>
#include <utility>

#include <spdlog/spdlog.h>

#include "daemon/service/links/acceptor.h"
#include "daemon/service/links/control_plane.h"

namespace rueda::service {
namespace {

// The rate at which a stranger may send messages and bytes, and how much it may send at once.
constexpr TicksMs kStrangersMessageMs = 20;
constexpr TicksMs kStrangersBurstMs = 1'000;
constexpr size_t kStrangersBytesPerMs = 256;
constexpr size_t kMostOfAConnection = 2;
constexpr size_t kMostFailBytes = 16 << 10;  // of a job that this daemon does not know yet

}  // namespace

void GrpcControlPlane::become_stranger(engine::LinkId id, Link& link) {
  link.unneeded_since_ms = steady_now_ms();
  link.stream->set_window(kStrangersWindow);
  const std::string connection = link.address;
  strangers_.add(id, machine_of(connection));
  strangers_of_connection_.add(id, connection);
  // A daemon needs one link; a peer that opens many displaces its own.
  while (strangers_of_connection_.size_of(connection) > kMostOfAConnection) {
    send_away(*strangers_of_connection_.oldest_of(connection), "another link has taken its place");
  }
  while (strangers_.size() > options_.most_strangers) {
    send_away(*strangers_.next_to_go(), "too many strangers have come");
  }
  arm_watch();
}

void GrpcControlPlane::send_away(engine::LinkId id, const std::string& why) {
  metrics_.daemon().strangers_sent_away.Increment();
  lose(id, Status(Code::kNodeLost, why));
}

void GrpcControlPlane::keep(Link& link, bool needed) {
  int& links = needed_connections_[link.address];
  links += needed ? 1 : -1;
  if (keeper_ && links == (needed ? 1 : 0)) keeper_(link.address, needed);
  if (links == 0) needed_connections_.erase(link.address);
}

void GrpcControlPlane::bind(engine::LinkId id, const JobId& job) {
  const auto it = links_.find(id);
  if (it == links_.end() || it->second.dialled) return;
  Link& link = it->second;
  const bool was_needed = link.is_needed();
  link.jobs.insert(job);
  if (was_needed) return;
  strangers_.remove(id);
  strangers_of_connection_.remove(id);
  link.stream->set_window(kPeersWindow);
  keep(link, true);
  spdlog::info("control connection with node {} ({}) is up", link.peer->node_id, link.address);
}

void GrpcControlPlane::unbind(engine::LinkId id, const JobId& job) {
  const auto it = links_.find(id);
  if (it == links_.end() || it->second.jobs.erase(job) == 0 || it->second.is_needed()) return;
  keep(it->second, false);
  become_stranger(id, it->second);
}

bool GrpcControlPlane::is_wanted(const Link& link, const v1::LinkMessage& message) const {
  if (link.dialled) return true;
  switch (message.body_case()) {
    case v1::LinkMessage::kTimeline: return link.jobs.contains(message.timeline().job_id());
    case v1::LinkMessage::kNonfinite: return link.jobs.contains(message.nonfinite().job_id());
    case v1::LinkMessage::kCommunicator: return link.jobs.contains(message.communicator().job_id());
    default: break;
  }
  const v1::JobMessage& said = message.job();
  if (link.jobs.contains(said.job_id())) return true;
  switch (said.body_case()) {
    case v1::JobMessage::kJoin:
    case v1::JobMessage::kHandover: return events_->knows(said.job_id());
    case v1::JobMessage::kFail: return said.ByteSizeLong() <= kMostFailBytes;
    // whoever reads the message says what is wrong with it
    case v1::JobMessage::BODY_NOT_SET: return true;
    default: return false;
  }
}

TicksMs GrpcControlPlane::pause_of(Link& link, size_t bytes) {
  const TicksMs now = steady_now_ms();
  const auto pay = [now](TicksMs& paid_ms, TicksMs price_ms) {
    paid_ms = std::max(paid_ms, now) + price_ms;
    return paid_ms - now - kStrangersBurstMs;
  };
  const auto bytes_ms = static_cast<TicksMs>(bytes / kStrangersBytesPerMs);
  return std::max({pay(link.messages_paid_ms, kStrangersMessageMs),
                   pay(link.bytes_paid_ms, bytes_ms), TicksMs{0}});
}

}  // namespace rueda::service
