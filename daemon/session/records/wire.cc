#include "daemon/session/records/wire.h"

#include <cerrno>
#include <string>
#include <utility>

#include <sys/socket.h>

namespace rueda::session {
namespace {

// The protocol needs one descriptor; the reader keeps a few more, so that an error can say how many
// came.
constexpr size_t kMaxDescriptorsPerRead = 4;
// The most descriptors that the kernel sends with one message. recvmsg would close those for which
// there is no room before it returns.
constexpr size_t kMaxSent = 253;
constexpr size_t kMaxDescriptorsPerMessage = 4;

}  // namespace

void MessageReader::take_descriptors(msghdr& message) {
  for (cmsghdr* part = CMSG_FIRSTHDR(&message); part != nullptr;
       part = CMSG_NXTHDR(&message, part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
    size_t count = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int fd;
      std::memcpy(&fd, CMSG_DATA(part) + i * sizeof(int), sizeof(int));
      ForeignFd owned(UniqueFd(fd), principal_);
      if (descriptors_.size() < kMaxDescriptorsPerRead) descriptors_.push_back(std::move(owned));
    }
  }
}

int client_body_bytes(uint16_t type) {
  switch (type) {
    case RUEDA_ABI_ATTACH: return sizeof(rueda_abi_attach);
    case RUEDA_ABI_ARENA_ADD:
    case RUEDA_ABI_ARENA_REMOVE: return sizeof(rueda_abi_arena);
    case RUEDA_ABI_INTERN: return sizeof(rueda_abi_intern);
    case RUEDA_ABI_PROCESS_SET: return sizeof(rueda_abi_process_set);
    case RUEDA_ABI_PLAN: return sizeof(rueda_abi_plan);
    case RUEDA_ABI_COUNTS: return sizeof(rueda_abi_counts);
    case RUEDA_ABI_FORGET: return sizeof(rueda_abi_forget);
    case RUEDA_ABI_TIMELINE: return sizeof(rueda_abi_timeline);
    case RUEDA_ABI_DEVICE_ADD: return sizeof(rueda_abi_device_memory);
    case RUEDA_ABI_DEVICE_REMOVE: return sizeof(rueda_abi_device_remove);
    case RUEDA_ABI_DEVICE_JOIN: return sizeof(rueda_abi_device_join);
    case RUEDA_ABI_ASK_NONFINITE:
    case RUEDA_ABI_RESET:
    case RUEDA_ABI_DETACH: return 0;
    default: return -1;
  }
}

std::optional<size_t> peek_without_descriptors(int socket, std::byte* to, size_t bytes,
                                               bool& has_descriptors) {
  iovec piece{to, bytes};
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  has_descriptors = false;
  ssize_t got = 0;
  do {
    got = ::recvmsg(socket, &message, MSG_DONTWAIT | MSG_PEEK);
  } while (got < 0 && errno == EINTR);
  if (got < 0) return std::nullopt;
  has_descriptors = (message.msg_flags & MSG_CTRUNC) != 0;
  return static_cast<size_t>(got);
}

MessageReader::Read MessageReader::read(int socket) { return go_on(socket, false); }

MessageReader::Read MessageReader::receive(int socket) { return go_on(socket, true); }

MessageReader::Read MessageReader::go_on(int socket, bool takes_descriptors) {
  if (!error_.is_ok()) return Read::kBroken;
  if (is_complete_) {
    is_complete_ = in_body_ = false;
    have_bytes_ = 0;
    descriptors_.clear();
  }
  if (!in_body_) {
    Read got =
        fill(socket, reinterpret_cast<std::byte*>(&header_), sizeof(header_), takes_descriptors);
    if (got != Read::kMessage) return got;
    error_ = check_header();
    if (!error_.is_ok()) return Read::kBroken;
    in_body_ = true;
    have_bytes_ = 0;
  }
  Read got = fill(socket, body_.data(), header_.body_bytes, takes_descriptors);
  is_complete_ = got == Read::kMessage;
  return got;
}

MessageReader::Read MessageReader::fill(int socket, std::byte* to, size_t wanted_bytes,
                                        bool takes_descriptors) {
  while (have_bytes_ < wanted_bytes) {
    size_t next_bytes = wanted_bytes - have_bytes_;
    if (!takes_descriptors) {
      bool has_descriptors = false;
      const auto seen =
          peek_without_descriptors(socket, to + have_bytes_, next_bytes, has_descriptors);
      if (!seen) return errno == EAGAIN ? Read::kWouldBlock : Read::kClosed;
      if (*seen == 0) return Read::kClosed;
      if (has_descriptors) return Read::kDescriptors;
      next_bytes = *seen;  // This reads only what has been looked at.
    }
    iovec piece{to + have_bytes_, next_bytes};
    alignas(cmsghdr) char control[CMSG_SPACE(kMaxSent * sizeof(int))];
    msghdr message{};
    message.msg_iov = &piece;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
    ssize_t got = ::recvmsg(socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return Read::kWouldBlock;
    if (got <= 0) return Read::kClosed;
    take_descriptors(message);
    have_bytes_ += static_cast<size_t>(got);
  }
  return Read::kMessage;
}

Status MessageReader::check_header() const {
  if (header_.magic != RUEDA_ABI_MAGIC) {
    return Status(Code::kInvalidArgument, "bytes that are no message of Rueda's");
  }
  if (header_.version != RUEDA_ABI_VERSION) {
    return Status(Code::kVersion, "the client library speaks version " +
                                      std::to_string(header_.version) +
                                      " of the local protocol and this daemon version " +
                                      std::to_string(RUEDA_ABI_VERSION) +
                                      ": install librueda and ruedad of the same release");
  }
  int wanted_bytes = client_body_bytes(header_.type);
  if (wanted_bytes < 0) {
    return Status(Code::kInvalidArgument,
                  "a message of unknown type " + std::to_string(header_.type));
  }
  if (header_.body_bytes != static_cast<uint32_t>(wanted_bytes) || header_.reserved != 0) {
    return Status(Code::kInvalidArgument,
                  "a message of type " + std::to_string(header_.type) + " with a body of " +
                      std::to_string(header_.body_bytes) + " bytes, not " +
                      std::to_string(wanted_bytes) + ", or with a reserved field that is not 0");
  }
  return Status::ok();
}

MessageWriter::Outgoing MessageWriter::make(uint16_t type, const void* body, size_t body_bytes,
                                            std::vector<UniqueFd> descriptors) {
  RUEDA_CHECK(descriptors.size() <= kMaxDescriptorsPerMessage);
  rueda_abi_header header{};
  header.magic = RUEDA_ABI_MAGIC;
  header.version = RUEDA_ABI_VERSION;
  header.type = type;
  header.body_bytes = static_cast<uint32_t>(body_bytes);
  Outgoing outgoing;
  outgoing.bytes.resize(sizeof(header) + body_bytes);
  std::memcpy(outgoing.bytes.data(), &header, sizeof(header));
  if (body_bytes > 0) std::memcpy(outgoing.bytes.data() + sizeof(header), body, body_bytes);
  outgoing.descriptors = std::move(descriptors);
  queued_bytes_ += outgoing.bytes.size();
  return outgoing;
}

void MessageWriter::add(uint16_t type, const void* body, size_t body_bytes,
                        std::vector<UniqueFd> descriptors) {
  queue_.push_back(make(type, body, body_bytes, std::move(descriptors)));
}

void MessageWriter::add_first(uint16_t type, const void* body, size_t body_bytes,
                              std::vector<UniqueFd> descriptors) {
  queue_.push_front(make(type, body, body_bytes, std::move(descriptors)));
}

MessageWriter::Flush MessageWriter::flush(int socket) {
  while (!queue_.empty()) {
    Outgoing& next = queue_.front();
    iovec piece{next.bytes.data() + next.sent_bytes, next.bytes.size() - next.sent_bytes};
    msghdr message{};
    message.msg_iov = &piece;
    message.msg_iovlen = 1;
    alignas(cmsghdr) char control[CMSG_SPACE(kMaxDescriptorsPerMessage * sizeof(int))] = {};
    if (!next.descriptors.empty()) {
      size_t payload_bytes = next.descriptors.size() * sizeof(int);
      message.msg_control = control;
      message.msg_controllen = CMSG_SPACE(payload_bytes);
      cmsghdr* part = CMSG_FIRSTHDR(&message);
      part->cmsg_level = SOL_SOCKET;
      part->cmsg_type = SCM_RIGHTS;
      part->cmsg_len = CMSG_LEN(payload_bytes);
      for (size_t i = 0; i < next.descriptors.size(); ++i) {
        int fd = next.descriptors[i].get();
        std::memcpy(CMSG_DATA(part) + i * sizeof(int), &fd, sizeof(int));
      }
    }
    ssize_t sent = ::sendmsg(socket, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return Flush::kWouldBlock;
    if (sent < 0) return Flush::kFailed;
    next.descriptors.clear();
    next.sent_bytes += static_cast<size_t>(sent);
    queued_bytes_ -= static_cast<size_t>(sent);
    if (next.sent_bytes == next.bytes.size()) queue_.pop_front();
  }
  return Flush::kDone;
}

}  // namespace rueda::session
