// The HTTP server's side of --tls-dir.
#pragma once

#include <memory>

#include "daemon/base/status.h"
#include "daemon/observe/http_server.h"
#include "daemon/security/certificates/tls_folder.h"

namespace rueda::service {

// Makes HTTPS of a folder's certificates, which are read again when they change. Who may read
// metrics is in the table (daemon/security/policy.h). Returns an error if OpenSSL does not take
// what is in the folder.
Result<observe::HttpTls> https_of(const std::shared_ptr<security::TlsFolder>& folder);

}  // namespace rueda::service
