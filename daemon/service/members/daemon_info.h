// The description that a running daemon gives of itself. It is fixed once the daemon serves.
#pragma once

#include <string>
#include <vector>

#include "daemon/base/clock.h"

namespace rueda::service {

struct DaemonInfo {
  std::string node_id;
  std::string control_address;  // as bound, "host:port"
  std::string data_address;
  std::string http_address;
  // address of the control service as other nodes reach it; may be empty
  std::string advertised_address;
  std::string socket;
  std::string cpus;  // CPUs that its threads keep to; empty: the system chooses
  std::string simd;
  std::string transport;
  std::string
      rdma_trouble;  // why an RDMA device of this machine is not used; empty: nothing is amiss
  std::vector<std::string> labels;  // key=value
  TicksMs started_ms = 0;
};

}  // namespace rueda::service
