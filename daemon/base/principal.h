// Who pays for what a daemon holds, and owns the jobs that it serves.
#pragma once

#include <compare>
#include <string>
#include <string_view>
#include <utility>

#include <sys/types.h>

#include "daemon/base/status.h"

namespace rueda {

// A user of the machine, or the name of the unix socket that a process has connected to, whatever
// user the process runs as. The default is nobody.
class Principal {
 public:
  Principal() = default;
  static Principal user(uid_t uid) {
    Principal made;
    made.uid_ = uid;
    return made;
  }
  // The name must be one that parse_socket() takes.
  static Principal named(std::string name) {
    Principal made;
    made.name_ = std::move(name);
    return made;
  }

  bool is_named() const { return !name_.empty(); }
  // Returns whether the principal may do with what the owner has as the owner may: it is the owner,
  // or the user root. No process on a named socket is root, whatever its user.
  bool reaches(const Principal& owner) const {
    return *this == owner || (!is_named() && uid_ == 0);
  }
  // Returns "user 1000" or "principal team-a".
  std::string to_string() const { return is_named() ? "principal " + name_ : label(); }
  // Returns "user 1000" or "team-a", which cannot be mistaken for each other.
  std::string label() const { return is_named() ? name_ : "user " + std::to_string(uid_); }

  // Named principals come after all users.
  std::strong_ordering operator<=>(const Principal&) const = default;

 private:
  std::string name_;
  uid_t uid_ = static_cast<uid_t>(-1);  // Not used with a name.
};

// A unix socket that the daemon listens on.
struct SocketPlace {
  std::string path;       // "@name" is an abstract socket.
  std::string principal;  // Whose processes connect there; empty: each is its user's.

  bool operator==(const SocketPlace&) const = default;
};

// Returns the principal of a process that runs as this user and has connected to the socket.
Principal principal_at(const SocketPlace& socket, uid_t uid);

// Returns whether the name has 1 to 63 characters of a-z 0-9 . and -.
bool is_principal_name(std::string_view name);

// Takes "PATH" or "PATH=NAME". What follows the last '=' is a name unless it has a '/'; the error
// says what is wrong with one.
Result<SocketPlace> parse_socket(std::string_view text);

}  // namespace rueda
