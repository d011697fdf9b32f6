#include "daemon/security/identity.h"

#include <algorithm>
#include <array>
#include <utility>

#include "daemon/base/limits.h"
#include "daemon/base/one_line.h"

namespace rueda::security {
namespace {

constexpr std::string_view kScheme = "spiffe://";
constexpr std::string_view kPath = "/rueda/";
constexpr size_t kMaxTrustDomain = 255;
constexpr size_t kMaxUri = 1024;
constexpr std::array<std::pair<Role, std::string_view>, 3> kRoles{
    {{Role::kNode, "node"}, {Role::kOperator, "operator"}, {Role::kMetrics, "metrics"}}};

bool is_lower_or_digit(char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'); }
bool is_mark(char c) { return c == '.' || c == '-' || c == '_'; }
bool is_of_domain(char c) { return is_lower_or_digit(c) || is_mark(c); }
bool is_of_name(char c) { return is_of_domain(c) || (c >= 'A' && c <= 'Z'); }

Status not_an_identity(std::string_view uri, const std::string& why) {
  return {Code::kInvalidArgument,
          "\"" + one_line(uri) +
              "\" is no identity of Rueda, spiffe://TRUST_DOMAIN/rueda/ROLE/NAME: " + why};
}

}  // namespace

std::string_view to_string(Role role) {
  const auto* const found = std::find_if(kRoles.begin(), kRoles.end(),
                                         [&](const auto& one) { return one.first == role; });
  return found->second;
}

Result<Role> parse_role(std::string_view text) {
  const auto* const found = std::find_if(kRoles.begin(), kRoles.end(),
                                         [&](const auto& one) { return one.second == text; });
  if (found != kRoles.end()) return found->first;
  return Status(Code::kInvalidArgument, "there is no role \"" + one_line(text) +
                                            "\"; roles are node, operator and metrics");
}

std::string to_uri(const Identity& identity) {
  return std::string(kScheme) + identity.trust_domain + std::string(kPath) +
         std::string(to_string(identity.role)) + '/' + identity.name;
}

Status check(const Identity& identity) {
  const std::string& domain = identity.trust_domain;
  const bool is_domain = !domain.empty() && domain.size() <= kMaxTrustDomain &&
                         std::all_of(domain.begin(), domain.end(), is_of_domain);
  if (!is_domain) {
    return {Code::kInvalidArgument,
            "a trust domain is 1 to 255 of a-z 0-9 . - _, and \"" + one_line(domain) + "\" is not"};
  }
  const std::string& name = identity.name;
  const bool is_name = !name.empty() && name.size() <= limits::kMaxNodeIdBytes && name != "." &&
                       name != ".." && std::all_of(name.begin(), name.end(), is_of_name);
  if (is_name) return Status::ok();
  return {Code::kInvalidArgument,
          "a name in a certificate is 1 to 63 of a-z A-Z 0-9 . - _, and \"" + one_line(name) +
              "\" is not"};
}

Result<Identity> parse_identity(std::string_view uri) {
  if (uri.size() > kMaxUri) return not_an_identity(uri, "it is too long");
  if (!uri.starts_with(kScheme)) return not_an_identity(uri, "it does not begin so");
  const std::string_view rest = uri.substr(kScheme.size());
  const size_t slash = rest.find('/');
  if (slash == std::string_view::npos || !rest.substr(slash).starts_with(kPath)) {
    return not_an_identity(uri, "no /rueda/ follows the trust domain");
  }
  const std::string_view path = rest.substr(slash + kPath.size());
  const size_t end = path.find('/');
  if (end == std::string_view::npos) return not_an_identity(uri, "it has no name");
  const Result<Role> role = parse_role(path.substr(0, end));
  if (!role.is_ok()) return not_an_identity(uri, role.status().message());
  Identity identity{std::string(rest.substr(0, slash)), role.value(),
                    std::string(path.substr(end + 1))};
  if (Status sound = check(identity); !sound.is_ok()) return not_an_identity(uri, sound.message());
  return identity;
}

}  // namespace rueda::security
