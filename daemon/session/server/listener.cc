#include "daemon/session/server/listener.h"

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <optional>
#include <utility>

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

namespace rueda::session {
namespace {

// Whoever waits here behind others waits for all of them.
constexpr int kBacklog = 1024;

#ifndef SO_PASSRIGHTS
#define SO_PASSRIGHTS 83
#endif

struct Address {
  sockaddr_un name{};
  socklen_t bytes = 0;
};

Result<Address> make_address(const std::string& path) {
  Address address;
  address.name.sun_family = AF_UNIX;
  bool is_abstract = !path.empty() && path[0] == '@';
  // The path of a file needs a NUL at its end; an abstract name does not.
  size_t room = sizeof(address.name.sun_path) - (is_abstract ? 0 : 1);
  if (path.empty() || path == "@" || path.size() > room) {
    return Status(Code::kInvalidArgument, "'" + path + "' cannot be a socket's path: use 1 to " +
                                              std::to_string(room) + " bytes");
  }
  std::memcpy(address.name.sun_path, path.data(), path.size());
  if (is_abstract) address.name.sun_path[0] = '\0';
  address.bytes =
      static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + path.size() + (is_abstract ? 0 : 1));
  return address;
}

UniqueFd make_socket() {
  return UniqueFd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
}

Status another_daemon(const std::string& path) {
  return Status(Code::kUnavailable, "another daemon listens on " + path +
                                        ": stop it, or give this one another socket path");
}

Status remove_stale_file(const std::string& path, const Address& address) {
  struct stat info {};
  if (::lstat(path.c_str(), &info) != 0) return Status::ok();
  if (!S_ISSOCK(info.st_mode)) {
    return Status(Code::kInvalidArgument,
                  path + " exists and is not a socket: remove it, or use another socket path");
  }
  UniqueFd probe = make_socket();
  const auto* name = reinterpret_cast<const sockaddr*>(&address.name);
  // EAGAIN means that somebody listens and is busy.
  if (::connect(probe.get(), name, address.bytes) == 0 || errno == EAGAIN) {
    return another_daemon(path);
  }
  if (errno != ECONNREFUSED || ::unlink(path.c_str()) != 0) {
    return Status(Code::kPermission, "cannot replace the old socket " + path + " (" +
                                         std::strerror(errno) +
                                         "): remove it, or use another socket path");
  }
  return Status::ok();
}

Status bind_error(const std::string& path, int error) {
  if (error == EADDRINUSE) return another_daemon(path);
  if (error == ENOENT) {
    std::string directory = path.substr(0, path.rfind('/'));
    return Status(Code::kNotFound, "cannot listen on " + path + ": the directory " + directory +
                                       " does not exist; make it with mkdir -p " + directory);
  }
  return Status(error == EACCES ? Code::kPermission : Code::kUnavailable,
                "cannot listen on " + path + " (" + std::strerror(error) +
                    "): use a socket path that this user may write to");
}

}  // namespace

ListeningSocket::ListeningSocket(ListeningSocket&& other) noexcept
    : fd_(std::move(other.fd_)),
      file_path_(std::exchange(other.file_path_, {})),
      device_(other.device_),
      inode_(other.inode_) {}

ListeningSocket::~ListeningSocket() {
  struct stat info {};
  if (file_path_.empty() || ::lstat(file_path_.c_str(), &info) != 0) return;
  if (info.st_dev == device_ && info.st_ino == inode_) ::unlink(file_path_.c_str());
}

void set_passes_descriptors(int socket, bool passes) {
  const int value = passes ? 1 : 0;
  ::setsockopt(socket, SOL_SOCKET, SO_PASSRIGHTS, &value, sizeof(value));
}

Result<ListeningSocket> ListeningSocket::open(const std::string& path, bool refuses_descriptors) {
  Result<Address> made = make_address(path);
  if (!made.is_ok()) return made.status();
  const Address& address = made.value();
  bool is_file = path[0] != '@';
  if (is_file) {
    if (Status status = remove_stale_file(path, address); !status.is_ok()) return status;
  }
  ListeningSocket socket;
  socket.fd_ = make_socket();
  const auto* name = reinterpret_cast<const sockaddr*>(&address.name);
  // Everybody may connect. It is not chmod() that sees to it, because the daemon's sandbox refuses
  // that.
  const mode_t mask = ::umask(0111);
  const int error = ::bind(socket.fd_.get(), name, address.bytes) == 0 ? 0 : errno;
  ::umask(mask);
  if (error != 0) return bind_error(path, error);
  if (is_file) {
    struct stat info {};
    ::lstat(path.c_str(), &info);
    socket.file_path_ = path;
    socket.device_ = info.st_dev;
    socket.inode_ = info.st_ino;
  }
  // Accepted sockets inherit this, so that clients that have not attached cannot send descriptors.
  // Before Linux 6.16 the kernel lets descriptors through, and they are closed at a door (doors.h).
  if (refuses_descriptors) set_passes_descriptors(socket.fd_.get(), false);
  if (::listen(socket.fd_.get(), kBacklog) != 0) return bind_error(path, errno);
  return socket;
}

}  // namespace rueda::session
