// Tells what the system knows of this process: its children and its open descriptors.
#pragma once

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

// Returns the one child of this process that has not ended; -1, and a failure, unless there is just
// one.
inline pid_t only_child() {
  std::vector<pid_t> children;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const std::string name = entry.path().filename();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    std::ifstream file(entry.path() / "stat");
    std::string stat;
    std::getline(file, stat);
    const size_t behind_name = stat.rfind(')');
    if (behind_name == std::string::npos || stat.size() < behind_name + 5) continue;  // has gone
    const bool has_ended = stat[behind_name + 2] == 'Z';
    const pid_t parent = std::stoi(stat.substr(behind_name + 4));
    if (parent == ::getpid() && !has_ended) children.push_back(std::stoi(name));
  }
  EXPECT_EQ(children.size(), 1u);
  return children.size() == 1 ? children.front() : -1;
}

inline size_t open_descriptors() {
  const std::filesystem::directory_iterator all("/proc/self/fd");
  return static_cast<size_t>(std::distance(begin(all), end(all)));
}

}  // namespace rueda
