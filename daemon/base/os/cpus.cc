#include "daemon/base/os/cpus.h"

#include <cerrno>
#include <charconv>
#include <cstdint>
#include <cstring>
#include <set>

#include <sched.h>

namespace rueda {
namespace {

Status not_a_set(const std::string& text) {
  return Status(Code::kInvalidArgument,
                "\"" + text + "\" is not a set of CPUs: write \"0-3,8\", with CPUs below " +
                    std::to_string(CPU_SETSIZE));
}

}  // namespace

Result<std::vector<int>> parse_cpus(const std::string& text) {
  std::set<int> cpus;
  const char* at = text.data();
  const char* const end = at + text.size();
  const auto number = [&](int& into) {
    const auto [behind, error] = std::from_chars(at, end, into);
    at = behind;
    return error == std::errc() && into >= 0 && into < CPU_SETSIZE;
  };
  while (true) {
    int first = 0;
    if (!number(first)) return not_a_set(text);
    int last = first;
    if (at != end && *at == '-') {
      ++at;
      if (!number(last) || last < first) return not_a_set(text);
    }
    for (int cpu = first; cpu <= last; ++cpu) cpus.insert(cpu);
    if (at == end) return std::vector<int>(cpus.begin(), cpus.end());
    if (*at++ != ',') return not_a_set(text);
  }
}

std::string to_string(const std::vector<int>& cpus) {
  std::string text;
  for (const int cpu : cpus) text += (text.empty() ? "" : ",") + std::to_string(cpu);
  return text;
}

std::vector<int> share_of(const std::vector<int>& cpus, int index, int count) {
  const auto number = static_cast<int64_t>(cpus.size());
  if (number < count) return {};
  return {cpus.begin() + number * index / count, cpus.begin() + number * (index + 1) / count};
}

std::vector<int> allowed_cpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<int> cpus;
  if (::sched_getaffinity(0, sizeof(set), &set) != 0) return cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &set)) cpus.push_back(cpu);
  }
  return cpus;
}

cpu_set_t set_of(const std::vector<int>& cpus) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int cpu : cpus) CPU_SET(cpu, &set);
  return set;
}

Status keep_to_cpus(const std::vector<int>& cpus) {
  const cpu_set_t set = set_of(cpus);
  if (::sched_setaffinity(0, sizeof(set), &set) == 0) return Status::ok();
  return Status(Code::kInvalidArgument, "CPUs " + to_string(cpus) +
                                            " cannot be had: " + std::strerror(errno) +
                                            "; it may run on " + to_string(allowed_cpus()));
}

}  // namespace rueda
