// Finds the address of a node's data plane.
#pragma once

#include <string>

namespace rueda::engine {

// Returns the data address that a daemon has told. A daemon that listens everywhere tells only its
// port: the host is that of its control service.
inline std::string data_address_of(const std::string& control_address, const std::string& told) {
  if (!told.starts_with(':')) return told;
  return control_address.substr(0, control_address.rfind(':')) + told;
}

}  // namespace rueda::engine
