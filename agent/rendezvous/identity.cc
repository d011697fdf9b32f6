#include "agent/rendezvous/identity.h"

#include <chrono>

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

uint64_t new_incarnation() {
  const auto since = std::chrono::system_clock::now().time_since_epoch();
  return static_cast<uint64_t>(
      std::chrono::duration_cast<std::chrono::microseconds>(since).count());
}

}  // namespace rueda::agent
