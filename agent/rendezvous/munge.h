// MUNGE, the service of clusters that says on one machine which user has written something on
// another one. libmunge is looked for at run time, so that nobody needs it who does not use it.
#pragma once

#include <memory>
#include <string>

#include "daemon/base/status.h"

namespace rueda::agent {

// The object is thread-safe. encode() and decode() wait for munged, which is on the same machine.
class Munge {
 public:
  // kNotFound means that there is no libmunge here.
  static Result<std::shared_ptr<const Munge>> load(const std::string& library = "libmunge.so.2");

  // Returns a credential with the payload, encrypted, that only a process of this user can decode,
  // once, and on a machine with the same key.
  Result<std::string> encode(const std::string& payload) const;
  // Returns the payload of a credential that a process of this user has made a short time ago.
  // kUnavailable means that munged does not answer here, kPermission that the credential is worth
  // nothing.
  Result<std::string> decode(const std::string& credential) const;

 private:
  // The functions of munge.h (libmunge 0.5) that are used, with the signatures that it gives them;
  // its enums are int.
  using Context = struct munge_ctx*;
  struct Functions {
    Context (*ctx_create)() = nullptr;
    void (*ctx_destroy)(Context) = nullptr;
    int (*ctx_set)(Context, int option, ...) = nullptr;
    const char* (*ctx_strerror)(Context) = nullptr;
    int (*encode)(char** credential, Context, const void* payload, int bytes) = nullptr;
    int (*decode)(const char* credential, Context, void** payload, int* bytes, unsigned* uid,
                  unsigned* gid) = nullptr;
    const char* (*strerror)(int error) = nullptr;
  };

  explicit Munge(const Functions& functions) : functions_(functions) {}
  Status failure(const std::string& what, int error, Context context) const;

  const Functions functions_;
};

}  // namespace rueda::agent
