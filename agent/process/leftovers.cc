#include "agent/process/leftovers.h"

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <sstream>

#include <dirent.h>
#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "agent/base/text.h"
#include "daemon/base/clock.h"
#include "daemon/base/one_line.h"

namespace rueda::agent {
namespace {

constexpr int64_t kGiveUpMs = 5000;
constexpr int kLookAgainMs = 100;
constexpr size_t kMaxListed = 5;

struct Stat {
  std::string name;
  char state = '?';
  pid_t group = -1;
};

// Reads a line of /proc/PID/stat (proc(5)): the name, which may hold anything, in brackets, then
// the state, the parent and the group.
std::optional<Stat> stat_of(const std::string& folder) {
  const std::string line = contents_of(folder + "/stat");
  const size_t begin = line.find('(');
  const size_t end = line.rfind(')');
  if (begin == std::string::npos || end == std::string::npos || end < begin) return std::nullopt;
  Stat out;
  out.name = one_line(line.substr(begin + 1, end - begin - 1));
  pid_t parent = -1;
  std::istringstream fields(line.substr(end + 1));
  fields >> out.state >> parent >> out.group;
  return out;
}

bool has_variable(const std::string& folder, const std::string& entry) {
  const std::string environment = contents_of(folder + "/environ");
  for (size_t at = 0; at < environment.size();) {
    const size_t end = std::min(environment.find('\0', at), environment.size());
    if (environment.compare(at, end - at, entry) == 0) return true;
    at = end + 1;
  }
  return false;
}

}  // namespace

std::vector<Leftover> find_leftovers(const std::set<pid_t>& groups, const std::string& launch) {
  std::vector<Leftover> out;
  DIR* const proc = ::opendir("/proc");
  if (proc == nullptr) return out;
  const std::string entry = std::string(kLaunchVariable) + "=" + launch;
  while (const dirent* const item = ::readdir(proc)) {
    const pid_t pid = std::atoi(item->d_name);
    if (pid <= 1 || pid == ::getpid()) continue;
    // The pidfd is opened before the process is looked at: if the pid belongs to another process by
    // then, so does everything that is read below.
    UniqueFd pidfd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
    if (pidfd.get() < 0) continue;
    const std::string folder = std::string("/proc/") + item->d_name;
    std::optional<Stat> stat = stat_of(folder);
    if (!stat || stat->state == 'Z' || stat->state == 'X') continue;
    const bool is_meant =
        groups.count(stat->group) != 0 || (!launch.empty() && has_variable(folder, entry));
    if (is_meant) out.push_back({pid, std::move(stat->name), std::move(pidfd)});
  }
  ::closedir(proc);
  return out;
}

int kill_leftovers(const std::set<pid_t>& groups, const std::string& launch) {
  const int64_t give_up_ms = steady_now_ms() + kGiveUpMs;
  std::set<pid_t> killed;
  for (;;) {
    const std::vector<Leftover> found = find_leftovers(groups, launch);
    if (found.empty() || steady_now_ms() > give_up_ms) return static_cast<int>(killed.size());
    for (const Leftover& one : found) {
      ::syscall(SYS_pidfd_send_signal, one.pidfd.get(), SIGKILL, nullptr, 0);
      killed.insert(one.pid);
    }
    // A process that was forking meanwhile has a child that the next round finds.
    for (const Leftover& one : found) {
      pollfd ended{.fd = one.pidfd.get(), .events = POLLIN, .revents = 0};
      if (::poll(&ended, 1, kLookAgainMs) == 0) break;
    }
  }
}

std::string list_of(const std::vector<Leftover>& leftovers) {
  std::string out;
  for (size_t i = 0; i < std::min(leftovers.size(), kMaxListed); ++i) {
    out += (i == 0 ? "" : ", ") + std::to_string(leftovers[i].pid) + " (" + leftovers[i].name + ")";
  }
  if (leftovers.size() > kMaxListed) {
    out += " and " + std::to_string(leftovers.size() - kMaxListed) + " more";
  }
  return out;
}

}  // namespace rueda::agent
