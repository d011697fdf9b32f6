// Groups of users, as the system knows them.
#pragma once

#include <string>
#include <vector>

#include <sys/types.h>

#include "daemon/base/status.h"

namespace rueda {

// Returns the number of a group, which is given by its name or number. kNotFound if there is none
// of that name.
Result<gid_t> find_group(const std::string& name);

// Returns the groups of the process that has made the unix connection, beside its first one, as
// they were then.
std::vector<gid_t> groups_behind(int connection);

}  // namespace rueda
