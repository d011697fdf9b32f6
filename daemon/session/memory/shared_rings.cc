#include "daemon/session/memory/shared_rings.h"

#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/uio.h>

namespace rueda::session {
namespace {

Status make_error(const char* what, int error) {
  return Status(Code::kResourceExhausted, std::string("the daemon cannot make ") + what + " (" +
                                              std::strerror(error) +
                                              "): raise its limits of open files and memory");
}

Result<UniqueFd> make_memfd(const char* name, size_t bytes) {
  UniqueFd fd(::memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd.is_open() || ::ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0 ||
      ::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    return make_error("the memory of a ring", errno);
  }
  return fd;
}

}  // namespace

SharedRings::SharedRings(uint32_t capacity, Mapping submission_memory, Mapping completion_memory)
    : submission_memory_(std::move(submission_memory)),
      completion_memory_(std::move(completion_memory)),
      submissions_(submission_memory_.data(), capacity),
      completions_(completion_memory_.data(), capacity) {}

Result<SharedRings> SharedRings::make(uint32_t capacity) {
  Result<UniqueFd> submission_fd = make_memfd("rueda-submissions", submission_ring_bytes(capacity));
  if (!submission_fd.is_ok()) return submission_fd.status();
  Result<UniqueFd> completion_fd = make_memfd("rueda-completions", completion_ring_bytes(capacity));
  if (!completion_fd.is_ok()) return completion_fd.status();
  Result<Mapping> submission_memory = Mapping::map(
      submission_fd.value().get(), submission_ring_bytes(capacity), "a submission ring");
  if (!submission_memory.is_ok()) return submission_memory.status();
  Result<Mapping> completion_memory = Mapping::map(
      completion_fd.value().get(), completion_ring_bytes(capacity), "a completion ring");
  if (!completion_memory.is_ok()) return completion_memory.status();

  UniqueFd event(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  UniqueFd event_copy(event.is_open() ? ::fcntl(event.get(), F_DUPFD_CLOEXEC, 0) : -1);
  // The client's doorbell is not an eventfd: O_NONBLOCK belongs to the open file, which client and
  // daemon would share, so a client could clear it, fill the counter, and hang the daemon in its
  // write.
  int pair[2];
  if (!event_copy.is_open() ||
      ::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair) != 0) {
    return make_error("a doorbell", errno);
  }
  // The daemon reads nothing there, and descriptors that a client sends would let whoever closes
  // them sleep.
  ::shutdown(pair[0], SHUT_RD);

  SharedRings rings(capacity, std::move(submission_memory).value(),
                    std::move(completion_memory).value());
  rings.daemon_doorbell_ = std::move(event);
  rings.client_doorbell_ = UniqueFd(pair[0]);
  rings.client_descriptors_.push_back(std::move(submission_fd).value());
  rings.client_descriptors_.push_back(std::move(completion_fd).value());
  rings.client_descriptors_.push_back(std::move(event_copy));
  rings.client_descriptors_.emplace_back(pair[1]);
  return rings;
}

void SharedRings::silence(int daemon_doorbell) {
  uint64_t rings = 0;
  iovec piece{&rings, sizeof(rings)};
  // The result needs no handling: an empty doorbell is what is wanted.
  [[maybe_unused]] ssize_t got = ::preadv2(daemon_doorbell, &piece, 1, -1, RWF_NOWAIT);
}

void SharedRings::ring_client() const {
  uint64_t one = 1;
  // If the socket is full, unread rings wait in it already; if it is closed, the client is leaving.
  [[maybe_unused]] ssize_t sent =
      ::send(client_doorbell_.get(), &one, sizeof(one), MSG_DONTWAIT | MSG_NOSIGNAL);
}

}  // namespace rueda::session
