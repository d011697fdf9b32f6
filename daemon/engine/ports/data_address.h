// Finds the address of a node's data plane.
#pragma once

#include <string>

namespace rueda::engine {

// Returns the data address that a daemon has told. A daemon that listens everywhere tells only its
// port: the host is that of its control service. With `keeps_host` it is so whatever is told.
inline std::string data_address_of(const std::string& control_address, const std::string& told,
                                   bool keeps_host = false) {
  const size_t port = told.rfind(':');
  if (port == std::string::npos || (port != 0 && !keeps_host)) return told;
  return control_address.substr(0, control_address.rfind(':')) + told.substr(port);
}

}  // namespace rueda::engine
