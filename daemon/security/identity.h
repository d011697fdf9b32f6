// Who a certificate is for. It says so with one URI, "spiffe://TRUST_DOMAIN/rueda/ROLE/NAME"
// (SPIFFE-ID, https://spiffe.io); its other names count for nothing.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "daemon/base/status.h"

namespace rueda::security {

enum class Role : uint8_t {
  kNode,      // A daemon; its name is the node's id.
  kOperator,  // A person or a program that looks after daemons.
  kMetrics,   // Whoever scrapes metrics, and does nothing else.
};
std::string_view to_string(Role role);
// Errors: kInvalidArgument, with the roles that there are.
Result<Role> parse_role(std::string_view text);

struct Identity {
  std::string trust_domain;  // All daemons and operators of an installation have the same one.
  Role role = Role::kNode;
  std::string name;
  bool operator==(const Identity&) const = default;
};
std::string to_uri(const Identity& identity);
// Errors: kInvalidArgument, with the URI, made printable, and what is wrong with it.
Result<Identity> parse_identity(std::string_view uri);
// Returns an error that says which part of an identity no certificate can have: a trust domain is 1
// to 255 of a-z 0-9 . - _, and a name 1 to 63 of a-z A-Z 0-9 . - _ (SPIFFE-ID, sections 2.1 and
// 2.2), and not "." or "..".
Status check(const Identity& identity);

}  // namespace rueda::security
