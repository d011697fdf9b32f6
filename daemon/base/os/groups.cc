#include "daemon/base/os/groups.h"

#include <array>
#include <charconv>

#include <grp.h>
#include <sys/socket.h>

namespace rueda {

Result<gid_t> find_group(const std::string& name) {
  gid_t number = 0;
  const char* const end = name.data() + name.size();
  const auto read = std::from_chars(name.data(), end, number);
  if (read.ec == std::errc() && read.ptr == end) return number;
  std::array<char, 16384> text{};
  group entry{};
  group* found = nullptr;
  if (::getgrnam_r(name.c_str(), &entry, text.data(), text.size(), &found) == 0 &&
      found != nullptr) {
    return found->gr_gid;
  }
  return Status(Code::kNotFound, "there is no group \"" + name + "\" on this machine (groupadd " +
                                     name + " makes one)");
}

std::vector<gid_t> groups_behind(int connection) {
  std::vector<gid_t> groups(64);
  for (;;) {
    auto bytes = static_cast<socklen_t>(groups.size() * sizeof(gid_t));
    const bool is_told =
        ::getsockopt(connection, SOL_SOCKET, SO_PEERGROUPS, groups.data(), &bytes) == 0;
    const size_t count = bytes / sizeof(gid_t);
    if (!is_told && count <= groups.size()) return {};
    groups.resize(count);
    if (is_told) return groups;
  }
}

}  // namespace rueda
