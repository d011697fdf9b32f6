#include "daemon/gpu/worker/wire.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <sys/socket.h>

namespace rueda::gpu {
namespace {

constexpr size_t kMaxTextBytes = 1024;

UniqueFd take_fd(msghdr& message) {
  UniqueFd found;
  for (cmsghdr* part = CMSG_FIRSTHDR(&message); part != nullptr;
       part = CMSG_NXTHDR(&message, part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
    int fd = -1;
    std::memcpy(&fd, CMSG_DATA(part), sizeof fd);
    found = UniqueFd(fd);
  }
  return found;
}

}  // namespace

Packet::Packet(WorkerMessage type) { add(type); }

Packet& Packet::add_bytes(const void* data, size_t bytes) {
  const size_t at = bytes_.size();
  RUEDA_CHECK(at + bytes <= kMaxMessageBytes);
  bytes_.resize(at + bytes);
  std::memcpy(bytes_.data() + at, data, bytes);
  return *this;
}

WorkerMessage Packet::type() const {
  WorkerMessage type{};
  RUEDA_CHECK(bytes_.size() >= sizeof type);
  std::memcpy(&type, bytes_.data(), sizeof type);
  return type;
}

bool Packet::take_bytes(void* data, size_t bytes) {
  if (bytes > bytes_.size() - at_) return false;
  std::memcpy(data, bytes_.data() + at_, bytes);
  at_ += bytes;
  return true;
}

void add_outcome(Packet& packet, uint64_t about, const Status& status) {
  const std::string text = status.message().substr(0, kMaxTextBytes);
  packet.add(OutcomeBody{.about = about,
                         .code = static_cast<int32_t>(status.code()),
                         .text_bytes = static_cast<uint32_t>(text.size())});
  packet.add_bytes(text.data(), text.size());
}

Packet make_outcome(WorkerMessage type, uint64_t about, const Status& status) {
  Packet packet(type);
  add_outcome(packet, about, status);
  return packet;
}

std::optional<Outcome> take_outcome(Packet& packet) {
  OutcomeBody body;
  if (!packet.take(body) || body.text_bytes > kMaxTextBytes || body.code < 0 ||
      body.code > static_cast<int32_t>(Code::kInternal)) {
    return std::nullopt;
  }
  std::string text(body.text_bytes, '\0');
  if (!packet.take_bytes(text.data(), text.size()) || !packet.is_taken()) return std::nullopt;
  return Outcome{body.about, Status(static_cast<Code>(body.code), std::move(text))};
}

PacketSocket::Io PacketSocket::send(const Packet& packet) {
  iovec piece{const_cast<std::byte*>(packet.bytes_.data()), packet.bytes_.size()};
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  if (packet.fd.is_open()) {
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    cmsghdr* part = CMSG_FIRSTHDR(&message);
    part->cmsg_level = SOL_SOCKET;
    part->cmsg_type = SCM_RIGHTS;
    part->cmsg_len = CMSG_LEN(sizeof(int));
    const int fd = packet.fd.get();
    std::memcpy(CMSG_DATA(part), &fd, sizeof fd);
  }
  while (true) {
    if (::sendmsg(fd_.get(), &message, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0) return Io::kDone;
    if (errno == EINTR) continue;
    return errno == EAGAIN || errno == EWOULDBLOCK ? Io::kWouldBlock : Io::kClosed;
  }
}

PacketSocket::Io PacketSocket::receive(Packet& packet) {
  packet = Packet();
  iovec piece{buffer_.data(), buffer_.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))];
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  ssize_t got = -1;
  do {
    got = ::recvmsg(fd_.get(), &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  } while (got < 0 && errno == EINTR);
  if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return Io::kWouldBlock;
  if (got < 0) return Io::kClosed;
  packet.fd = take_fd(message);
  packet.bytes_.assign(buffer_.begin(), buffer_.begin() + got);
  const bool is_whole = (message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) == 0;
  const bool has_type = packet.bytes_.size() >= sizeof(WorkerMessage);
  return is_whole && has_type ? Io::kDone : Io::kClosed;
}

Result<std::pair<UniqueFd, UniqueFd>> make_packet_sockets() {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) {
    return Status(Code::kResourceExhausted,
                  std::string("no pair of sockets for a GPU worker: ") + std::strerror(errno));
  }
  return std::pair(UniqueFd(ends[0]), UniqueFd(ends[1]));
}

}  // namespace rueda::gpu
