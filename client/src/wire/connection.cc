#include "client/src/wire/connection.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <optional>

#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "client/src/wire/errors.h"

namespace rueda::client {
namespace {

constexpr int kMaxDescriptors = 8;

constexpr const char* kHowToStart =
    "; start the program with ruedarun, or start ruedad (systemctl start ruedad), or set "
    "RUEDA_SOCKET to the daemon's socket";

timeval to_timeval(int64_t ms) {
  ms = std::max<int64_t>(ms, 1);
  return {.tv_sec = ms / 1000, .tv_usec = (ms % 1000) * 1000};
}

Status connect_failed(const std::string& path, int error) {
  std::string where = "\"" + path + "\"";
  switch (error) {
    case ENOENT: return {Code::kNotFound, "there is no daemon socket at " + where + kHowToStart};
    case ECONNREFUSED:
      return {Code::kUnavailable, "no daemon listens on the socket " + where + kHowToStart};
    case EACCES:
    case EPERM:
      return {Code::kPermission, "this user may not connect to the daemon's socket " + where +
                                     "; ask for access to it, or set RUEDA_SOCKET to a daemon of "
                                     "your own (ruedarun starts one)"};
    case EAGAIN:
      return {Code::kTimeout, "the daemon at " + where +
                                  " did not accept the connection in time; see its log for what it "
                                  "is busy with"};
    default:
      return {Code::kUnavailable,
              errno_text("cannot connect to the daemon's socket " + where, error) + kHowToStart};
  }
}

// Returns the owner of the folder that the socket is in, if nobody else may put another socket
// there.
std::optional<uid_t> owner_of_folder(const std::string& path) {
  if (path[0] == '@') return std::nullopt;
  const size_t slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  struct stat info {};
  const bool is_safe = ::stat(folder.c_str(), &info) == 0 &&
                       ((info.st_mode & (S_IWGRP | S_IWOTH)) == 0 || (info.st_mode & S_ISVTX) != 0);
  return is_safe ? std::optional(info.st_uid) : std::nullopt;
}

// Checks the server's user, because the job's token and all gradients go to it.
Status check_server(int socket, const std::string& path) {
  ucred server{};
  socklen_t bytes = sizeof(server);
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &server, &bytes) != 0) {
    return {Code::kUnavailable, errno_text("cannot tell who serves \"" + path + '"', errno)};
  }
  const char* const wanted = std::getenv("RUEDA_DAEMON_UID");
  const bool is_wanted = wanted != nullptr && std::to_string(server.uid) == wanted;
  if (server.uid == 0 || server.uid == ::geteuid() || is_wanted ||
      owner_of_folder(path) == server.uid) {
    return Status::ok();
  }
  return {Code::kPermission,
          "the daemon at \"" + path + "\" runs as user " + std::to_string(server.uid) +
              ", who is neither root, nor this user, nor the owner of its folder; if that is "
              "right, set RUEDA_DAEMON_UID=" +
              std::to_string(server.uid)};
}

}  // namespace

Result<std::unique_ptr<Connection>> Connection::connect(const std::string& path,
                                                        int64_t timeout_ms) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof(address.sun_path)) {
    return Status{Code::kInvalidArgument, "the socket path \"" + path +
                                              "\" is empty or longer than 107 bytes; set "
                                              "RUEDA_SOCKET to a shorter one"};
  }
  std::memcpy(address.sun_path, path.data(), path.size());
  socklen_t address_bytes = sizeof(address);
  if (path[0] == '@') {
    address.sun_path[0] = '\0';
    address_bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + path.size());
  }

  UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!socket.is_open()) {
    return Status{Code::kResourceExhausted, errno_text("cannot make a unix socket", errno)};
  }
  // This limits connect (to a daemon whose backlog is full) and every later send (to a daemon that
  // stopped reading).
  timeval timeout = to_timeval(timeout_ms);
  ::setsockopt(socket.get(), SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof(timeout));
  int rc = 0;
  do {
    rc = ::connect(socket.get(), reinterpret_cast<sockaddr*>(&address), address_bytes);
  } while (rc != 0 && errno == EINTR);
  if (rc != 0) return connect_failed(path, errno);
  if (Status status = check_server(socket.get(), path); !status.is_ok()) return status;
  return std::unique_ptr<Connection>(new Connection(std::move(socket)));
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
