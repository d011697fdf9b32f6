// The description that a running daemon gives of itself. It is fixed once the daemon serves.
#pragma once

#include <string>
#include <vector>

#include "daemon/base/clock.h"

namespace rueda::service {

struct DaemonInfo {
  std::string node_id;
  std::string control_address;  // The bound address, "host:port".
  std::string data_address;
  std::string http_address;
  // The address of the control service as other nodes reach it; may be empty.
  std::string advertised_address;
  std::string socket;
  std::string cpus;  // The CPUs that its threads keep to; empty: the system chooses.
  std::string simd;
  std::string transport;
  std::string
      rdma_trouble;  // Why an RDMA device of this machine is not used; empty if nothing is amiss.
  std::string data_protection;       // Between nodes: "none", "authenticate" or "encrypt".
  std::string protection;            // Of its ports: "tls", "loopback" or "nothing".
  std::vector<std::string> sandbox;  // The parts of it in force: "seccomp", "landlock".
  std::string sandbox_trouble;       // Why a part that was asked for is not; empty: all of it is.
  std::vector<std::string> labels;   // They have the form key=value.
  TicksMs started_ms = 0;
};

}  // namespace rueda::service
