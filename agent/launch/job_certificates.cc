#include "agent/launch/job_certificates.h"

#include <nlohmann/json.hpp>

namespace rueda::agent {

Result<security::KeyPair> job_authority(const JobLayout& job) {
  return security::derive_authority(job.token, job.job_id);
}

Result<std::string> certificate_line(const security::KeyPair& authority, const JobId& job,
                                     const std::string& node_id) {
  security::IssueOptions options;
  options.lasts_as_authority = true;
  const Result<security::KeyPair> issued =
      security::issue(authority, {job, security::Role::kNode, node_id}, options);
  if (!issued.is_ok()) return issued.status();
  const nlohmann::json line = {{"certificate", issued.value().certificate},
                               {"key", issued.value().key},
                               {"authority", authority.certificate}};
  return line.dump() + '\n';
}

}  // namespace rueda::agent
