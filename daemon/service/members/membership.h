// The membership says which daemons exist. `static`: it is a list given to the daemon.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "daemon/base/status.h"

namespace rueda::service {

class Membership {
 public:
  virtual ~Membership() = default;
  // Returns the control address of a node, "host:port".
  virtual Result<std::string> address_of(const std::string& node_id) const = 0;
  // Returns all known nodes in ascending order.
  virtual std::vector<std::string> node_ids() const = 0;
};

class StaticMembership final : public Membership {
 public:
  // Parses entries "node_id=host:port"; an error names the bad entry.
  static Result<StaticMembership> parse(const std::vector<std::string>& entries);
  Result<std::string> address_of(const std::string& node_id) const override;
  std::vector<std::string> node_ids() const override;

 private:
  std::map<std::string, std::string> addresses_;
};

}  // namespace rueda::service
