#include "daemon/base/principal.h"

#include <algorithm>

#include "daemon/base/limits.h"
#include "daemon/base/one_line.h"

namespace rueda {

bool is_principal_name(std::string_view name) {
  const auto is_plain = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '.' || c == '-';
  };
  return !name.empty() && name.size() <= limits::kMaxPrincipalBytes &&
         std::all_of(name.begin(), name.end(), is_plain);
}

Principal principal_at(const SocketPlace& socket, uid_t uid) {
  return socket.principal.empty() ? Principal::user(uid) : Principal::named(socket.principal);
}

Result<SocketPlace> parse_socket(std::string_view text) {
  const size_t equals = text.rfind('=');
  const bool has_name =
      equals != std::string_view::npos && text.find('/', equals) == std::string_view::npos;
  if (!has_name) return SocketPlace{std::string(text), ""};
  const std::string name(text.substr(equals + 1));
  // A name that is wrong is not taken for a part of the path: whoever connected to such a socket
  // would be a user of the machine, and root an operator.
  if (!is_principal_name(name)) {
    return Status(Code::kInvalidArgument,
                  "\"" + one_line(name) +
                      "\" cannot be the name of a socket's principal: use 1 to " +
                      std::to_string(limits::kMaxPrincipalBytes) +
                      " characters of a-z 0-9 . and -, and no '=' in the name of a socket's file");
  }
  return SocketPlace{std::string(text.substr(0, equals)), name};
}

}  // namespace rueda
