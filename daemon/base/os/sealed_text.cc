#include "daemon/base/os/sealed_text.h"

#include <cerrno>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

namespace rueda {
namespace {

constexpr int kSeals = F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE;

}  // namespace

Result<UniqueFd> make_sealed_text(const char* name, std::string_view text) {
  UniqueFd fd(::memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  const auto bytes = static_cast<ssize_t>(text.size());
  if (!fd.is_open() || ::pwrite(fd.get(), text.data(), text.size(), 0) != bytes ||
      ::fcntl(fd.get(), F_ADD_SEALS, kSeals) != 0) {
    return Status(Code::kResourceExhausted, errno_text("cannot make a memfd", errno));
  }
  return fd;
}

Result<std::string> read_sealed_text(int fd, size_t bytes) {
  const Status none(Code::kNotFound, "descriptor " + std::to_string(fd) + " has no sealed text");
  struct stat found {};
  // There may be others: a system that forbids to execute memfds seals that, too.
  const int seals = ::fcntl(fd, F_GET_SEALS);
  if (seals < 0 || (seals & kSeals) != kSeals || ::fstat(fd, &found) != 0 ||
      found.st_size != static_cast<off_t>(bytes)) {
    return none;
  }
  std::string text(bytes, '\0');
  if (::pread(fd, text.data(), bytes, 0) != static_cast<ssize_t>(bytes)) return none;
  return text;
}

}  // namespace rueda
