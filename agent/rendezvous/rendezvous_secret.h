// Makes and checks the proofs by which launchers of a job show each other that they know the same
// secret, and protects the job's token between them. The functions are pure.
#pragma once

#include <cstddef>
#include <string>

#include "daemon/base/status.h"

namespace rueda::agent {

inline constexpr size_t kNonceBytes = 32;
// A shorter secret could be guessed by someone who has overheard a proof.
inline constexpr size_t kMinSecretBytes = 16;
inline constexpr size_t kMaxSecretBytes = 4096;

// Holds the random numbers of both ends, of kNonceBytes each.
struct Nonces {
  std::string server;
  std::string client;
};

// Returns the HMAC-SHA256 by which a client shows that it knows the secret. It is valid for this
// `request` alone.
std::string prove_secret(const std::string& secret, const Nonces& nonces,
                         const std::string& request);
// Compares proofs in constant time.
bool is_same_proof(const std::string& expected, const std::string& given);

// Encrypts by AES-256-GCM under a key that follows from the secret and both nonces; `beside` is not
// hidden, but cannot be changed either.
Result<std::string> seal(const std::string& secret, const Nonces& nonces, const std::string& text,
                         const std::string& beside);
// Decrypts. kPermission means that another secret was used, or that the text was changed on the
// way.
Result<std::string> unseal(const std::string& secret, const Nonces& nonces,
                           const std::string& sealed, const std::string& beside);

// Returns the contents of a file without blanks and line ends around them. An error names the file.
Result<std::string> read_secret(const std::string& path);
// Checks the length of a secret; `where` says in the message where it comes from.
Status check_secret(const std::string& secret, const std::string& where);

}  // namespace rueda::agent
