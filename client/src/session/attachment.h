// What a process gets when it attaches to the daemon: the socket, the two rings with their
// doorbells, and its place in the job. attach_to_daemon() runs on the thread that starts the
// session, which then owns the attachment (daemon_link.h).
#pragma once

#include <cstdint>
#include <memory>

#include "client/abi/rueda_abi.h"
#include "client/src/start/config.h"
#include "client/src/wire/connection.h"
#include "client/src/wire/rings.h"
#include "daemon/base/fd.h"
#include "daemon/base/status.h"

namespace rueda::client {

struct Attachment {
  std::unique_ptr<Connection> connection;
  SubmissionRing submissions;
  CompletionRing completions;
  UniqueFd daemon_doorbell;
  UniqueFd client_doorbell;
  UniqueFd wakeup;  // an eventfd by which this process wakes its thread that sleeps on the others
  rueda_abi_started place{};

  // Returns the most operations that may be in flight. The daemon does not signal when it takes a
  // submission, so this process must never wait for room in the submission ring: there are never
  // more operations in flight than that ring holds.
  uint32_t capacity() const;
};

// Attaches, and waits until every rank has done so, or config.timeout_ms have passed.
Result<Attachment> attach_to_daemon(const Config& config);

}  // namespace rueda::client
