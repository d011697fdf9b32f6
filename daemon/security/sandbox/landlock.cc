#include "daemon/security/sandbox/landlock.h"

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>

#include <fcntl.h>
#include <linux/landlock.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "daemon/base/fd.h"

// These came with later versions of the interface than the headers of Debian 12 have.
#ifndef LANDLOCK_ACCESS_FS_TRUNCATE
#define LANDLOCK_ACCESS_FS_TRUNCATE (1ULL << 14)
#endif
#ifndef LANDLOCK_ACCESS_FS_IOCTL_DEV
#define LANDLOCK_ACCESS_FS_IOCTL_DEV (1ULL << 15)
#endif

namespace rueda::security {
namespace {

// The rights that a rule for something else than a folder may have.
constexpr uint64_t kOfFiles = LANDLOCK_ACCESS_FS_EXECUTE | LANDLOCK_ACCESS_FS_WRITE_FILE |
                              LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_TRUNCATE |
                              LANDLOCK_ACCESS_FS_IOCTL_DEV;

// glibc has no functions for these.
int create_ruleset(const landlock_ruleset_attr* attributes, size_t bytes, uint32_t flags) {
  return static_cast<int>(::syscall(SYS_landlock_create_ruleset, attributes, bytes, flags));
}

// Returns all rights that a kernel with this version of the interface knows.
uint64_t known_rights(int version) {
  uint64_t rights = (LANDLOCK_ACCESS_FS_MAKE_SYM << 1) - 1;
  if (version >= 2) rights |= LANDLOCK_ACCESS_FS_REFER;
  if (version >= 3) rights |= LANDLOCK_ACCESS_FS_TRUNCATE;
  if (version >= 5) rights |= LANDLOCK_ACCESS_FS_IOCTL_DEV;
  return rights;
}

uint64_t rights_of(FileRule::Access access) {
  switch (access) {
    case FileRule::Access::kRead: return LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR;
    case FileRule::Access::kDevice:
      return LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR |
             LANDLOCK_ACCESS_FS_WRITE_FILE | LANDLOCK_ACCESS_FS_IOCTL_DEV;
    case FileRule::Access::kSocket:
      return LANDLOCK_ACCESS_FS_MAKE_SOCK | LANDLOCK_ACCESS_FS_REMOVE_FILE;
  }
  return 0;
}

Status unavailable(int error) {
  std::string why = std::string("Landlock cannot be used: ") + std::strerror(error);
  if (error == ENOSYS) why = "the kernel has no Landlock, which came with Linux 5.13";
  if (error == EOPNOTSUPP) why = "the kernel has Landlock, and was started without it";
  if (error == EPERM) why = "Landlock is refused, as by the seccomp profile of a container";
  return {Code::kUnavailable, why};
}

Status add_rule(int ruleset, const FileRule& rule, uint64_t handled) {
  const UniqueFd path(::open(rule.path.c_str(), O_PATH | O_CLOEXEC));
  struct stat found {};
  // What is not there, or cannot be reached, could not be used in any case.
  if (!path.is_open() || ::fstat(path.get(), &found) != 0) return Status::ok();
  landlock_path_beneath_attr beneath{};
  beneath.allowed_access = rights_of(rule.access) & handled;
  if (!S_ISDIR(found.st_mode)) beneath.allowed_access &= kOfFiles;
  beneath.parent_fd = path.get();
  if (beneath.allowed_access == 0 ||
      ::syscall(SYS_landlock_add_rule, ruleset, LANDLOCK_RULE_PATH_BENEATH, &beneath, 0) == 0) {
    return Status::ok();
  }
  return {Code::kUnavailable,
          "Landlock takes no rule for " + rule.path + ": " + std::strerror(errno)};
}

}  // namespace

Status enter_landlock(std::span<const FileRule> rules) {
  const int version = create_ruleset(nullptr, 0, LANDLOCK_CREATE_RULESET_VERSION);
  if (version < 0) return unavailable(errno);
  landlock_ruleset_attr attributes{};
  attributes.handled_access_fs = known_rights(version);
  const UniqueFd ruleset(create_ruleset(&attributes, sizeof attributes, 0));
  if (!ruleset.is_open()) return unavailable(errno);
  for (const FileRule& rule : rules) {
    if (Status added = add_rule(ruleset.get(), rule, attributes.handled_access_fs);
        !added.is_ok()) {
      return added;
    }
  }
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
      ::syscall(SYS_landlock_restrict_self, ruleset.get(), 0) != 0) {
    return unavailable(errno);
  }
  return Status::ok();
}

}  // namespace rueda::security
