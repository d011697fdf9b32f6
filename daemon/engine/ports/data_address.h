// Where a node's data plane is.
#pragma once

#include <string>

namespace rueda::engine {

// A daemon that listens everywhere tells only its port: it is where its control service is.
inline std::string data_address_of(const std::string& control_address, const std::string& told) {
  if (!told.starts_with(':')) return told;
  return control_address.substr(0, control_address.rfind(':')) + told;
}

}  // namespace rueda::engine
