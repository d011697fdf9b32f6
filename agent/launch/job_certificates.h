// Certificates for the private daemons of one job. They need nobody who hands them out: each
// launcher makes the job's authority out of the job's token, and issues what its own daemon needs
// (docs/decisions/0086-certificates-of-private-daemons.md).
#pragma once

#include <string>

#include "agent/base/layout.h"
#include "daemon/base/status.h"
#include "daemon/security/certificates/certificates.h"

namespace rueda::agent {

// Makes the authority, which is the same for all launchers of the job. The trust domain is the
// job's id. Errors: kInvalidArgument (the id can be no trust domain).
Result<security::KeyPair> job_authority(const JobLayout& job);

// Returns the line that a daemon takes from its --tls-fd: a new certificate for the node, its key,
// and the authority's certificate. Errors: kInvalidArgument (the node's id can be in none).
Result<std::string> certificate_line(const security::KeyPair& authority, const JobId& job,
                                     const std::string& node_id);
// The line that says that there is no certificate.
inline constexpr char kNoCertificateLine[] = "{}\n";

}  // namespace rueda::agent
