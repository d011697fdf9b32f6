#include "daemon/base/os/daemon_socket.h"

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <utility>

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>

namespace rueda {
namespace {

timeval to_timeval(int64_t ms) {
  ms = std::max<int64_t>(ms, 1);
  return {.tv_sec = ms / 1000, .tv_usec = (ms % 1000) * 1000};
}

Status connect_failed(const std::string& path, int error) {
  std::string where = "\"" + path + "\"";
  switch (error) {
    case ENOENT: return {Code::kNotFound, "there is no daemon socket at " + where};
    case ECONNREFUSED: return {Code::kUnavailable, "no daemon listens on the socket " + where};
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
              errno_text("cannot connect to the daemon's socket " + where, error)};
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

Result<UniqueFd> connect_to_daemon(const std::string& path, int64_t timeout_ms) {
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
  return socket;
}

}  // namespace rueda
