#include "client/src/session/attachment.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include <sys/eventfd.h>

#include "client/src/wire/errors.h"

namespace rueda::client {
namespace {

constexpr size_t kAttachDescriptors = 4;
// In an elastic job: how long a daemon may take that follows one that has died, and how often it is
// looked for.
constexpr TicksMs kDaemonPatienceMs = 60'000;
constexpr int64_t kAttachAgainMs = 20;
constexpr TicksMs kShortAttemptMs = 1'000;  // In a longer one the daemon was there.

template <class Body>
bool copy_body(const Message& message, Body& body) {
  if (message.body.size() != sizeof(Body)) return false;
  std::memcpy(&body, message.body.data(), sizeof(Body));
  return true;
}

template <size_t kBytes>
std::string text_of(const char (&field)[kBytes]) {
  return std::string(field, ::strnlen(field, kBytes));
}

Status bad_message(const char* what) {
  return {Code::kInternal, std::string("the daemon sent a ") + what +
                               " that this librueda (" RUEDA_VERSION
                               ") cannot read; install the same release of both"};
}

Status take_rings(const Message& message, Attachment& attachment) {
  rueda_abi_attach_reply reply;
  if (message.type != RUEDA_ABI_ATTACH_REPLY || !copy_body(message, reply)) {
    return bad_message("reply to the attach");
  }
  if (reply.code != 0) return {code_from_wire(reply.code), text_of(reply.text)};
  std::vector<UniqueFd> descriptors = attachment.connection->take_descriptors();
  if (descriptors.size() != kAttachDescriptors) return bad_message("reply without descriptors");
  auto submissions = SubmissionRing::map(descriptors[0], reply.submission_capacity);
  if (!submissions.is_ok()) return submissions.status();
  auto completions = CompletionRing::map(descriptors[1], reply.completion_capacity);
  if (!completions.is_ok()) return completions.status();
  attachment.submissions = std::move(submissions).value();
  attachment.completions = std::move(completions).value();
  attachment.daemon_doorbell = std::move(descriptors[2]);
  attachment.client_doorbell = std::move(descriptors[3]);
  return Status::ok();
}

Result<rueda_abi_started> wait_started(Connection& connection, const Config& config,
                                       TicksMs deadline_ms) {
  for (;;) {
    Result<Message> message = connection.wait_message(deadline_ms);
    if (!message.is_ok() && message.status().code() == Code::kTimeout) {
      return Status{Code::kTimeout, "not every rank of job \"" + config.job_id +
                                        "\" attached within " + std::to_string(config.timeout_ms) +
                                        " ms; check that all of them run, or raise "
                                        "RUEDA_START_TIMEOUT_MS"};
    }
    if (!message.is_ok()) {
      return Status{message.status().code(),
                    "while rank " + std::to_string(config.rank) + " waited for the other ranks: " +
                        message.status().message() + "; see the daemon's log"};
    }
    if (message.value().type == RUEDA_ABI_STARTED) {
      rueda_abi_started started;
      if (!copy_body(message.value(), started)) return bad_message("start message");
      return started;
    }
    if (message.value().type == RUEDA_ABI_FAILED) {
      rueda_abi_status failed;
      if (!copy_body(message.value(), failed)) return bad_message("failure message");
      // The daemon must not take this process for dead, which may attach again.
      (void)connection.send(RUEDA_ABI_DETACH, nullptr, 0);
      return Status{code_from_wire(failed.code), text_of(failed.text)};
    }
  }
}

// Returns whether another attempt may go otherwise: the daemon may be followed by another, or
// somebody has died before the generation has begun that this process was to be in.
bool may_pass(const Status& status) {
  switch (status.code()) {
    case Code::kRankLost:
    case Code::kNodeLost:
    case Code::kDaemonLost:
    case Code::kNotFound:  // Nobody has the socket, or the daemon does not have the job yet.
    case Code::kUnavailable: return true;
    default: return false;
  }
}

Result<Attachment> attach_once(const Config& config) {
  TicksMs deadline_ms = steady_now_ms() + config.timeout_ms;
  auto connection = Connection::connect(config.socket_path, config.timeout_ms);
  if (!connection.is_ok()) return connection.status();
  Attachment attachment;
  attachment.connection = std::move(connection).value();

  rueda_abi_attach attach{};
  std::memcpy(attach.job_id, config.job_id.data(), config.job_id.size());
  std::memcpy(attach.token, config.token.data(), sizeof(attach.token));
  attach.rank = config.rank;
  attach.local_rank = config.local_rank;
  // A daemon that refuses may close before it has read everything: its answer matters, not the
  // error of the send.
  Status sent = attachment.connection->send(RUEDA_ABI_ATTACH, &attach, sizeof(attach));
  Result<Message> reply = attachment.connection->wait_message(deadline_ms);
  if (!reply.is_ok()) {
    Status reason = sent.is_ok() ? reply.status() : sent;
    return Status{reason.code(), "could not attach to the daemon at \"" + config.socket_path +
                                     "\": " + reason.message() + "; see the daemon's log"};
  }
  if (Status status = take_rings(reply.value(), attachment); !status.is_ok()) return status;
  attachment.wakeup = UniqueFd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!attachment.wakeup.is_open()) {
    return Status{Code::kResourceExhausted, errno_text("cannot make an eventfd", errno)};
  }

  Result<rueda_abi_started> started = wait_started(*attachment.connection, config, deadline_ms);
  if (!started.is_ok()) return started.status();
  attachment.place = started.value();
  attachment.place.node_id[RUEDA_ABI_NODE_ID_BYTES - 1] = '\0';
  return attachment;
}

}  // namespace

uint32_t Attachment::capacity() const {
  return std::min(submissions.capacity(), completions.capacity());
}

Result<Attachment> attach_to_daemon(const Config& config) {
  TicksMs since_ms = steady_now_ms();  // Since when no daemon has had this process for a while.
  for (;;) {
    const TicksMs begun_ms = steady_now_ms();
    Result<Attachment> attached = attach_once(config);
    if (attached.is_ok() || !config.is_elastic || !may_pass(attached.status())) return attached;
    const TicksMs now_ms = steady_now_ms();
    if (now_ms - begun_ms > kShortAttemptMs) since_ms = now_ms;
    if (now_ms - since_ms >= std::min(config.timeout_ms, kDaemonPatienceMs)) return attached;
    std::this_thread::sleep_for(std::chrono::milliseconds(kAttachAgainMs));
  }
}

}  // namespace rueda::client
