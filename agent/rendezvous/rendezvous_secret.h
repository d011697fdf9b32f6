// What the launchers of a job that have been given the same secret prove to each other, and how the
// job's token travels between them. Pure functions.
#pragma once

#include <cstddef>
#include <string>

#include "daemon/base/status.h"

namespace rueda::agent {

inline constexpr size_t kNonceBytes = 32;
// Shorter ones could be guessed by who has heard a proof.
inline constexpr size_t kMinSecretBytes = 16;
inline constexpr size_t kMaxSecretBytes = 4096;

// Both ends' random numbers, of kNonceBytes each.
struct Nonces {
  std::string server;
  std::string client;
};

// HMAC-SHA256, by which a client shows that it knows the secret; of this `request` alone.
std::string prove_secret(const std::string& secret, const Nonces& nonces,
                         const std::string& request);
// In constant time.
bool is_same_proof(const std::string& expected, const std::string& given);

// AES-256-GCM under a key that follows from the secret and both nonces; `beside` is not hidden, but
// cannot be changed either.
Result<std::string> seal(const std::string& secret, const Nonces& nonces, const std::string& text,
                         const std::string& beside);
// kPermission: it was sealed with another secret, or changed on the way.
Result<std::string> unseal(const std::string& secret, const Nonces& nonces,
                           const std::string& sealed, const std::string& beside);

// What is in a file, without blanks and line ends around it. The error names the file.
Result<std::string> read_secret(const std::string& path);
// Its length is right; `where` it comes from is for the message.
Status check_secret(const std::string& secret, const std::string& where);

}  // namespace rueda::agent
