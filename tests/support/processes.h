// Tells what the system knows of this process: its children and its open descriptors.
#pragma once

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <sys/types.h>
#include <unistd.h>

namespace rueda {

// A process of the system.
struct FoundProcess {
  pid_t pid = -1;
  pid_t parent = -1;
  std::string name;
  bool has_ended = false;
};

inline std::vector<FoundProcess> all_processes() {
  std::vector<FoundProcess> found;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const std::string number = entry.path().filename();
    if (number.find_first_not_of("0123456789") != std::string::npos) continue;
    std::ifstream file(entry.path() / "stat");
    std::string stat;
    std::getline(file, stat);
    const size_t name = stat.find('(');
    const size_t behind_name = stat.rfind(')');
    if (behind_name == std::string::npos || stat.size() < behind_name + 5) continue;  // has gone
    found.push_back({std::stoi(number), std::stoi(stat.substr(behind_name + 4)),
                     stat.substr(name + 1, behind_name - name - 1), stat[behind_name + 2] == 'Z'});
  }
  return found;
}

// Returns the one process that this one, or a fork server of its (daemon/gpu/worker/fork_server.h),
// has started and that has not ended; -1, and a failure, unless there is just one.
inline pid_t only_child() {
  const std::vector<FoundProcess> all = all_processes();
  std::vector<pid_t> parents{::getpid()};
  for (const FoundProcess& one : all) {
    if (one.parent == ::getpid() && one.name == "ruedad-fork") parents.push_back(one.pid);
  }
  std::vector<pid_t> children;
  for (const FoundProcess& one : all) {
    const auto is_one = [&](pid_t pid) {
      return std::find(parents.begin(), parents.end(), pid) != parents.end();
    };
    if (is_one(one.parent) && !is_one(one.pid) && !one.has_ended) children.push_back(one.pid);
  }
  EXPECT_EQ(children.size(), 1u);
  return children.size() == 1 ? children.front() : -1;
}

inline size_t open_descriptors() {
  const std::filesystem::directory_iterator all("/proc/self/fd");
  return static_cast<size_t>(std::distance(begin(all), end(all)));
}

}  // namespace rueda
