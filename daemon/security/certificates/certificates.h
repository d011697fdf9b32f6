// X.509 certificates of daemons and operators: made, read, and revoked, as texts in PEM. All
// functions are pure but for the clock and the random numbers, and thread-safe. Keys are P-256.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/base/status.h"
#include "daemon/security/identity.h"

namespace rueda::security {

using WallTime = std::chrono::sys_seconds;
WallTime wall_now();

// A certificate and its private key.
struct KeyPair {
  std::string certificate;
  std::string key;
};

// Makes an authority of its own, which signs itself; the trust domain is in its name and in its
// URI, "spiffe://TRUST_DOMAIN".
Result<KeyPair> make_authority(const std::string& trust_domain, std::chrono::days life);
// Makes the authority that follows from a secret: all who know the secret make it with the same key
// and the same name, so that each takes what another one has issued. It does not end, and has begun
// long ago, whatever the clocks say (docs/decisions/0086-certificates-of-private-daemons.md). Who
// could guess the secret would have the key.
Result<KeyPair> derive_authority(const std::string& secret, const std::string& trust_domain);

// What a certificate is to say beside the identity: hosts are names or IP addresses by which
// clients that know nothing of identities (Prometheus, curl) find the server.
struct IssueOptions {
  std::vector<std::string> hosts;
  std::chrono::seconds life = std::chrono::days(90);
  bool lasts_as_authority = false;  // It is valid as long as its authority, whatever `life` is.
};
// Issues a certificate with a new key. It never outlives its authority. Errors: kInvalidArgument
// (no authority, another trust domain, a name or a host that no certificate can have).
Result<KeyPair> issue(const KeyPair& authority, const Identity& identity,
                      const IssueOptions& options);

struct CertificateFacts {
  Identity identity;
  std::string serial;  // In hexadecimal digits, without leading zeros.
  WallTime not_before;
  WallTime not_after;
  std::vector<std::string> hosts;
};
// Reads the first certificate of a text. Errors: kInvalidArgument (no certificate; it has no URI,
// or more than one, or one that is no identity of Rueda).
Result<CertificateFacts> read_certificate(std::string_view pem);
// Returns the trust domain of an authority's certificate.
Result<std::string> trust_domain_of(std::string_view authority_pem);

// Returns an error if the key is not the certificate's, none of the authorities vouches for the
// certificate, by itself or through what follows it in its text, its time has not come or has
// passed, or what it may be used for is not what its role needs. `authorities` may have several,
// for the time in which one replaces the other.
Status check_pair(const KeyPair& pair, const std::string& authorities);

// Certificates that count no more (RFC 5280, section 5), by serial.
class RevocationList {
 public:
  // Takes "" for a list of none. A text may have several lists: one for each authority. Those of
  // authorities that are not among these are left out. Errors: kInvalidArgument (no list, or one in
  // the name of an authority that has not signed it).
  static Result<RevocationList> read(const std::string& pem, const std::string& authorities);
  bool has(const std::string& serial) const;
  size_t size() const { return serials_.size(); }
  // Returns when the newest of the lists was made.
  WallTime made() const { return made_; }

 private:
  std::vector<std::string> serials_;  // In ascending order.
  WallTime made_;
};
// Returns the list with one serial more, in hexadecimal digits, signed anew. `pem` may be "".
Result<std::string> revoke(const KeyPair& authority, const std::string& pem,
                           const std::string& serial);

}  // namespace rueda::security
