// Presets: sets of a job's flags that stand for the systems of the literature. docs/lineage.md says
// which system each is, and how it differs from that system.
#pragma once

#include <string>
#include <vector>

#include "daemon/base/status.h"

namespace rueda::agent {

// Returns the preset's flags, each in the form "--flag=value". The error names all presets.
Result<std::vector<std::string>> preset_flags(const std::string& name);

// Adds the flags of the preset that `words` name, if they name one, in front of them, but for those
// that they set themselves.
Status add_preset(std::vector<std::string>& words);

}  // namespace rueda::agent
