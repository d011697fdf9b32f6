// What must be the same on all nodes of a job, as it is written on the wire and compared there.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "daemon/base/ids.h"

namespace rueda::core {

struct Setting {
  std::string name;  // As users give it: "--algorithm", or "ruedad --transport".
  std::string value;

  bool operator==(const Setting&) const = default;
};
using Settings = std::vector<Setting>;

// The settings of a job on one of its nodes.
struct NodeSettings {
  const std::string& node_id;
  const Settings& settings;
};

// Returns a sentence with the first setting in which two nodes of a job differ, and both values;
// none if they agree.
std::optional<std::string> difference(const JobId& job, const NodeSettings& ours,
                                      const NodeSettings& theirs);

}  // namespace rueda::core
