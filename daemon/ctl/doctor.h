// Finds, from the daemon's own replies, what is wrong with a daemon and its jobs, or could be
// better, and the remedies.
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

// Returns two lines for each finding, or one line that says that there is none.
std::string findings_text(const std::vector<Finding>& findings);
// Returns {"findings": [{"what", "remedy"}]}.
nlohmann::ordered_json findings_json(const std::vector<Finding>& findings);

}  // namespace rueda::ctl
