#include "daemon/base/os/own_file.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <random>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace rueda {
namespace {

constexpr int kWrite = O_WRONLY | O_CREAT | O_CLOEXEC | O_NOCTTY;
constexpr mode_t kMode = 0666;  // The umask is taken off.

Status cannot_write(int error) { return {Code::kInvalidArgument, std::strerror(error)}; }

bool write_all(int file, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(file, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    text.remove_prefix(static_cast<size_t>(written));
  }
  return true;
}

// Returns whether the path is a link of this user's or root's. Nobody else can take such a link
// away, or put another in its place, where they may not do so with the file itself.
bool is_own_link(const std::string& path) {
  struct stat link {};
  return ::lstat(path.c_str(), &link) == 0 && S_ISLNK(link.st_mode) &&
         (link.st_uid == ::geteuid() || link.st_uid == 0);
}

}  // namespace

Result<UniqueFd> open_own_file(const std::string& path) {
  UniqueFd file(::open(path.c_str(), kWrite | O_NOFOLLOW, kMode));
  if (!file.is_open() && errno == ELOOP) {
    if (!is_own_link(path)) {
      return Status(Code::kInvalidArgument,
                    "it is a symbolic link that somebody else has put there");
    }
    file = UniqueFd(::open(path.c_str(), kWrite, kMode));
  }
  if (!file.is_open()) return cannot_write(errno);
  struct stat what {};
  if (::fstat(file.get(), &what) == 0 && S_ISREG(what.st_mode) && ::ftruncate(file.get(), 0) != 0) {
    return cannot_write(errno);
  }
  return file;
}

Result<UniqueFd> open_new_file(const std::string& path) {
  UniqueFd file(::open(path.c_str(), kWrite | O_EXCL | O_NOFOLLOW, kMode));
  if (!file.is_open()) return cannot_write(errno);
  return file;
}

Status write_own_file(const std::string& path, std::string_view text) {
  const Result<UniqueFd> file = open_own_file(path);
  if (!file.is_ok()) return file.status();
  return write_all(file.value().get(), text) ? Status::ok() : cannot_write(errno);
}

Status replace_file(const std::string& path, std::string_view text) {
  std::random_device random;
  const std::string beside = path + '.' + std::to_string(random()) + ".tmp";
  const Result<UniqueFd> file = open_new_file(beside);
  if (!file.is_ok()) return file.status();
  if (write_all(file.value().get(), text) && std::rename(beside.c_str(), path.c_str()) == 0) {
    return Status::ok();
  }
  const int error = errno;
  ::unlink(beside.c_str());
  return cannot_write(error);
}

}  // namespace rueda
