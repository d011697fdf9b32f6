// How launchers of a job show each other at the rendezvous that they belong together, and under
// which key the job's token goes from one to the other. Both ends have chosen the same way.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "agent/rendezvous/munge.h"
#include "agent/rendezvous/rendezvous_secret.h"
#include "daemon/base/status.h"

namespace rueda::agent {

class RendezvousAuth {
 public:
  // kNone lets in who comes first, and sends the token in clear.
  enum class Kind { kNone, kSecret, kMunge };

  RendezvousAuth() = default;
  // All launchers know the secret, and nobody else does.
  static RendezvousAuth with_secret(std::string secret);
  // All launchers have the same user, on machines whose munged has the same key.
  static RendezvousAuth with_munge(std::shared_ptr<const Munge> munge);

  Kind kind() const { return kind_; }
  bool is_none() const { return kind_ == Kind::kNone; }

  // Returns what is missing on this machine, so that a launcher can say so before it waits for
  // others. It asks munged for a credential that nobody gets.
  Status check() const;

  // What a meeting is protected by: the secret, or a key that one client has made up for it.
  struct MeetingKey {
    std::string bytes;       // for prove_secret(), seal() and unseal()
    std::string credential;  // tells node 0 the key, and nobody else; empty with a secret
  };
  // The client's side; not to be called for kNone.
  Result<MeetingKey> begin(const Nonces& nonces) const;
  // Node 0's side: returns the key of a client that has sent this credential. kPermission means
  // that it is of another meeting, or of somebody else; kUnavailable means that munged does not
  // answer.
  Result<std::string> key_of(const Nonces& nonces, const std::string& credential) const;

  // Returns what does not fit where node 0 has `other`, or OK.
  Status fits(Kind other) const;

 private:
  Kind kind_ = Kind::kNone;
  std::string secret_;
  std::shared_ptr<const Munge> munge_;
};

}  // namespace rueda::agent
