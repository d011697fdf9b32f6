// What is wrong with a daemon and its jobs, or could be better, and what to do about it: from what
// the daemon says of itself.
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "rueda/v1/admin.pb.h"

namespace rueda::ctl {

struct Finding {
  std::string what;
  std::string remedy;
};

std::vector<Finding> diagnose(const v1::GetStatusReply& status, const v1::ListJobsReply& jobs,
                              const v1::ListPeersReply& peers, const v1::ListStallsReply& stalls);

// Two lines for each, or one that says that there is none.
std::string findings_text(const std::vector<Finding>& findings);
// {"findings": [{"what", "remedy"}]}.
nlohmann::ordered_json findings_json(const std::vector<Finding>& findings);

}  // namespace rueda::ctl
