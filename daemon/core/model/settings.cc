#include "daemon/core/model/settings.h"

#include <algorithm>

namespace rueda::core {
namespace {

const std::string* find(const Settings& settings, const std::string& name) {
  const auto it = std::find_if(settings.begin(), settings.end(),
                               [&](const Setting& setting) { return setting.name == name; });
  return it == settings.end() ? nullptr : &it->value;
}

std::string describe(const std::string* value) { return value == nullptr ? "no value" : *value; }

std::string sentence(const JobId& job, const std::string& name, const NodeSettings& ours,
                     const NodeSettings& theirs) {
  return "job " + job + " has for " + name + " " + describe(find(ours.settings, name)) +
         " on node " + ours.node_id + " and " + describe(find(theirs.settings, name)) +
         " on node " + theirs.node_id + "; give it the same value on all nodes";
}

}  // namespace

std::optional<std::string> difference(const JobId& job, const NodeSettings& ours,
                                      const NodeSettings& theirs) {
  for (const NodeSettings* const side : {&ours, &theirs}) {
    const NodeSettings& other = side == &ours ? theirs : ours;
    for (const Setting& setting : side->settings) {
      const std::string* const value = find(other.settings, setting.name);
      if (value == nullptr || *value != setting.value) {
        return sentence(job, setting.name, ours, theirs);
      }
    }
  }
  return std::nullopt;
}

}  // namespace rueda::core
