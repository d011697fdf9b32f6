#include "client/src/wire/connection.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <poll.h>
#include <sys/socket.h>

#include "daemon/base/os/daemon_socket.h"

namespace rueda::client {
namespace {

constexpr int kMaxDescriptors = 8;

constexpr const char* kHowToStart =
    "; start the program with ruedarun, or start ruedad (systemctl start ruedad), or set "
    "RUEDA_SOCKET to the daemon's socket";

}  // namespace

Result<std::unique_ptr<Connection>> Connection::connect(const std::string& path,
                                                        int64_t timeout_ms) {
  Result<UniqueFd> socket = connect_to_daemon(path, timeout_ms);
  if (const Status status = socket.status(); !status.is_ok()) {
    const bool is_missing = status.code() == Code::kNotFound || status.code() == Code::kUnavailable;
    return Status{status.code(), status.message() + (is_missing ? kHowToStart : "")};
  }
  return std::unique_ptr<Connection>(new Connection(std::move(socket).value()));
}

Status Connection::send(uint16_t type, const void* body, size_t body_bytes, int descriptor) {
  rueda_abi_header header{.magic = RUEDA_ABI_MAGIC,
                          .version = RUEDA_ABI_VERSION,
                          .type = type,
                          .body_bytes = static_cast<uint32_t>(body_bytes),
                          .reserved = 0};
  std::string bytes(reinterpret_cast<const char*>(&header), sizeof(header));
  if (body_bytes > 0) bytes.append(static_cast<const char*>(body), body_bytes);

  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  size_t sent = 0;
  while (sent < bytes.size()) {
    iovec io{.iov_base = bytes.data() + sent, .iov_len = bytes.size() - sent};
    msghdr message{};
    message.msg_iov = &io;
    message.msg_iovlen = 1;
    if (descriptor >= 0 && sent == 0) {
      message.msg_control = control;
      message.msg_controllen = sizeof(control);
      cmsghdr* rights = CMSG_FIRSTHDR(&message);
      rights->cmsg_level = SOL_SOCKET;
      rights->cmsg_type = SCM_RIGHTS;
      rights->cmsg_len = CMSG_LEN(sizeof(int));
      std::memcpy(CMSG_DATA(rights), &descriptor, sizeof(int));
    }
    ssize_t n = ::sendmsg(socket_.get(), &message, MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return {Code::kDaemonLost, errno_text("cannot send to the daemon", errno)};
    sent += static_cast<size_t>(n);
  }
  return Status::ok();
}

Status Connection::receive() {
  for (;;) {
    char bytes[8192];
    alignas(cmsghdr) char control[CMSG_SPACE(kMaxDescriptors * sizeof(int))];
    iovec io{.iov_base = bytes, .iov_len = sizeof(bytes)};
    msghdr message{};
    message.msg_iov = &io;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
    ssize_t n = ::recvmsg(socket_.get(), &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return Status::ok();
    if (n < 0) return {Code::kDaemonLost, errno_text("the connection broke", errno)};
    for (cmsghdr* c = CMSG_FIRSTHDR(&message); c != nullptr; c = CMSG_NXTHDR(&message, c)) {
      if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
      size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
      for (size_t i = 0; i < count; ++i) {
        int fd = -1;
        std::memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof(int));
        descriptors_.emplace_back(fd);
      }
    }
    if (n == 0) return {Code::kDaemonLost, "the daemon closed the connection"};
    inbox_.append(bytes, static_cast<size_t>(n));
    if (Status status = parse(); !status.is_ok()) return status;
  }
}

Status Connection::parse() {
  size_t at = 0;
  while (inbox_.size() - at >= sizeof(rueda_abi_header)) {
    rueda_abi_header header;
    std::memcpy(&header, inbox_.data() + at, sizeof(header));
    if (header.magic != RUEDA_ABI_MAGIC) {
      return {Code::kVersion,
              "what listens on the socket is not a Rueda daemon; set RUEDA_SOCKET to the daemon's"};
    }
    if (header.version != RUEDA_ABI_VERSION) {
      return {Code::kVersion,
              "the daemon speaks version " + std::to_string(header.version) +
                  " of the local protocol and this librueda (" RUEDA_VERSION ") version " +
                  std::to_string(RUEDA_ABI_VERSION) + "; install the same release of both"};
    }
    if (header.body_bytes > RUEDA_ABI_MAX_BODY_BYTES) {
      return {Code::kInternal, "the daemon sent a message of " + std::to_string(header.body_bytes) +
                                   " bytes, more than the protocol allows"};
    }
    if (inbox_.size() - at - sizeof(header) < header.body_bytes) break;
    messages_.push_back({header.type, inbox_.substr(at + sizeof(header), header.body_bytes)});
    at += sizeof(header) + header.body_bytes;
  }
  inbox_.erase(0, at);
  return Status::ok();
}

Result<Message> Connection::wait_message(TicksMs deadline_ms) {
  for (;;) {
    Status status = messages_.empty() ? receive() : Status::ok();
    if (!messages_.empty()) {
      Message message = std::move(messages_.front());
      messages_.pop_front();
      return message;
    }
    if (!status.is_ok()) return status;
    TicksMs left_ms = deadline_ms - steady_now_ms();
    if (left_ms <= 0) return Status{Code::kTimeout, "the daemon did not answer in time"};
    pollfd wait{.fd = socket_.get(), .events = POLLIN, .revents = 0};
    ::poll(&wait, 1, static_cast<int>(std::min<TicksMs>(left_ms, 1 << 30)));
  }
}

void Connection::shut_down() { ::shutdown(socket_.get(), SHUT_RDWR); }

}  // namespace rueda::client
