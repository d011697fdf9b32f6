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
  // Returns whether jobs have these nodes alone, at these addresses, whatever anybody else says.
  virtual bool is_binding() const { return false; }
  // Returns why the daemon does not connect to an address that somebody has told; ok if it may.
  virtual Status check_dial(const std::string& address) const {
    (void)address;
    return Status::ok();
  }
  // Returns all known nodes in ascending order.
  virtual std::vector<std::string> node_ids() const = 0;
};

class StaticMembership final : public Membership {
 public:
  // Parses entries "node_id=host:port"; an error names the bad entry.
  static Result<StaticMembership> parse(const std::vector<std::string>& entries,
                                        bool is_binding = false);
  Result<std::string> address_of(const std::string& node_id) const override;
  bool is_binding() const override { return is_binding_; }
  Status check_dial(const std::string& address) const override;
  std::vector<std::string> node_ids() const override;

 private:
  std::map<std::string, std::string> addresses_;
  bool is_binding_ = false;
};

}  // namespace rueda::service
