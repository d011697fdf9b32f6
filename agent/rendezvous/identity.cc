#include "agent/rendezvous/identity.h"

#include "agent/base/network.h"
#include "agent/base/text.h"
#include "daemon/base/limits.h"

namespace rueda::agent {

Result<JobIdentity> make_identity(const std::string& master_addr) {
  const Result<std::string> name = random_bytes(6);
  const Result<std::string> token = random_bytes(limits::kTokenBytes);
  const Result<int> port = free_port();
  if (!name.is_ok()) return name.status();
  if (!token.is_ok()) return token.status();
  if (!port.is_ok()) return port.status();
  return JobIdentity{"job-" + to_hex(name.value()), token.value(), master_addr, port.value()};
}

}  // namespace rueda::agent
