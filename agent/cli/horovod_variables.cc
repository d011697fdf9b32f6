#include "agent/cli/horovod_variables.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <string_view>

namespace rueda::agent {
namespace {

constexpr std::string_view kPrefix = "HOROVOD_";
constexpr const char* kCycleTime = "HOROVOD_CYCLE_TIME";  // In milliseconds, as ours.

struct Counterpart {
  const char* horovod;
  const char* rueda;
};
constexpr std::array kCounterparts{
    Counterpart{"HOROVOD_FUSION_THRESHOLD", "RUEDA_FUSION_THRESHOLD"},
    Counterpart{"HOROVOD_CACHE_CAPACITY", "RUEDA_CACHE_CAPACITY"},
    Counterpart{kCycleTime, "RUEDA_CYCLE_TIME"},
    Counterpart{"HOROVOD_STALL_CHECK_TIME_SECONDS", "RUEDA_STALL_CHECK_TIME_SECONDS"},
    Counterpart{"HOROVOD_STALL_CHECK_DISABLE", "RUEDA_STALL_CHECK_TIME_SECONDS"},
    Counterpart{"HOROVOD_STALL_SHUTDOWN_TIME_SECONDS", "RUEDA_STALL_SHUTDOWN_TIME_SECONDS"},
    Counterpart{"HOROVOD_AUTOTUNE", "RUEDA_AUTOTUNE"},
    Counterpart{"HOROVOD_AUTOTUNE_LOG", "RUEDA_AUTOTUNE_LOG"},
    Counterpart{"HOROVOD_TIMELINE", "RUEDA_TIMELINE"},
    Counterpart{"HOROVOD_LOG_LEVEL", "RUEDA_LOG_LEVEL"},
};

// Explains why a variable of Horovod's, or a flag of `horovodrun`, has no counterpart in Rueda.
struct Reason {
  const char* horovod;
  const char* why;
};
constexpr std::array kReasons{
    Reason{kCycleTime, "there is no cycle: what is ready goes at once"},
    Reason{"HOROVOD_DYNAMIC_PROCESS_SETS", "process sets may always be added and removed"},
    Reason{"HOROVOD_AUTOTUNE", "the search finds its own lengths"},
    Reason{"HOROVOD_TIMELINE_MARK_CYCLES", "there is no cycle: what is ready goes at once"},
    Reason{"HOROVOD_ELASTIC_RESET_LIMIT", "rueda.torch.elastic reads it itself"},
};

// Returns Rueda's word for the value of a variable of Horovod's, or "" if the value means nothing
// to Rueda.
std::string translated(std::string_view variable, const std::string& value) {
  if (variable == "HOROVOD_STALL_CHECK_DISABLE") return value == "1" ? "0" : "";
  // With 0 Horovod's thread never sleeps.
  if (variable == kCycleTime) return std::strtod(value.c_str(), nullptr) == 0 ? "" : value;
  if (variable == "HOROVOD_CACHE_CAPACITY") return value == "0" ? "" : value;
  if (variable != "HOROVOD_LOG_LEVEL") return value;
  if (value == "warning") return "warn";
  return value == "fatal" ? "error" : value;
}

}  // namespace

bool has_cycle(const std::string& coordination) {
  return coordination == "cached" || coordination == "global-sleep" ||
         coordination == "nonblocking";
}

std::vector<std::string> translate_horovod_variables(
    std::map<std::string, std::string>& environment, const std::string& coordination) {
  std::map<std::string, std::string> added;
  std::vector<std::string> notes;
  for (const auto& [name, value] : environment) {
    if (!name.starts_with(kPrefix) || value.empty()) continue;
    const auto pair =
        std::find_if(kCounterparts.begin(), kCounterparts.end(),
                     [&name = name](const Counterpart& item) { return name == item.horovod; });
    const bool is_without_use = name == kCycleTime && !has_cycle(coordination);
    if (pair != kCounterparts.end() && !is_without_use) {
      const std::string word = translated(name, value);
      const auto own = environment.find(pair->rueda);
      const bool is_set = own != environment.end() && !own->second.empty();
      if (is_set || added.contains(pair->rueda)) {
        notes.push_back(name + " is not used: " + pair->rueda + " is set");
      } else if (word.empty()) {
        notes.push_back(name + "=" + value + " is not used");
      } else {
        added[pair->rueda] = word;
        notes.push_back(name + "=" + value + " is taken as " + pair->rueda + "=" + word);
      }
      continue;
    }
    const auto reason =
        std::find_if(kReasons.begin(), kReasons.end(),
                     [&name = name](const Reason& item) { return name.starts_with(item.horovod); });
    const std::string why = reason != kReasons.end() ? ": " + std::string(reason->why) : "";
    notes.push_back(name + " is not used" + why);
  }
  for (const auto& [name, value] : added) environment[name] = value;
  return notes;
}

}  // namespace rueda::agent
