// What a running daemon says of itself. Fixed once the daemon serves.
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
  std::string advertised_address;  // of the control service, as others reach it; may be empty
  std::string socket;
  std::string cpus;  // that its threads keep to; empty: where the system puts them
  std::string simd;
  std::string transport;
  std::vector<std::string> labels;  // key=value
  TicksMs started_ms = 0;
};

}  // namespace rueda::service
