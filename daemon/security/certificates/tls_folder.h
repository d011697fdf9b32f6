// The folder of --tls-dir: tls.crt, tls.key, ca.crt, and crl.pem if certificates have been revoked.
// These are the names of a Kubernetes secret of type kubernetes.io/tls. The files may be replaced
// at any time, all at once behind a link (as Kubernetes and `ruedactl certs install` do it), or one
// by one.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "daemon/base/fd.h"
#include "daemon/base/mutex.h"
#include "daemon/base/status.h"
#include "daemon/security/certificates/certificates.h"
#include "daemon/security/identity.h"

namespace rueda::security {

inline constexpr char kCertificateFile[] = "tls.crt";
inline constexpr char kKeyFile[] = "tls.key";
inline constexpr char kAuthorityFile[] = "ca.crt";
inline constexpr char kRevokedFile[] = "crl.pem";

// What a folder holds. It has been checked: the key is the certificate's, an authority vouches for
// it, and its identity can be read.
struct TlsFiles {
  KeyPair pair;
  std::string authorities;
  std::string revoked_pem;
  CertificateFacts own;
  RevocationList revoked;
  uint64_t version = 0;  // It differs whenever the files do.
};

// Reads a folder. Errors name the file and what to do: kNotFound, kPermission (the key may be read
// by everybody, or written by a group), kInvalidArgument.
Result<std::shared_ptr<const TlsFiles>> read_tls_folder(const std::string& folder);

// Reads the file, of at most 1 MiB. An error names it.
Result<std::string> read_pem_file(const std::string& path);

// A folder whose files are read again when they have changed. Thread-safe.
class TlsFolder {
 public:
  // Reads the folder. The errors are those of read_tls_folder().
  static Result<std::shared_ptr<TlsFolder>> open(const std::string& path);
  // Takes what would be in a folder, and never changes; path() is empty then. Errors:
  // kInvalidArgument, kResourceExhausted.
  static Result<std::shared_ptr<TlsFolder>> of(KeyPair pair, std::string authorities);

  const std::string& path() const { return path_; }
  // Returns the files as they are now; those of before, while what is there is not sound, is for
  // somebody else, or lacks the list of revoked certificates that was there. It asks the file
  // system once a second at most.
  std::shared_ptr<const TlsFiles> files();
  // Where a library that wants paths can read the key, the certificate and the authorities of
  // files(). They are paths of memory of this process, each of which changes at once, and only to
  // what is sound. They are good for as long as this object lives.
  struct Paths {
    std::string key;
    std::string certificate;
    std::string authorities;
  };
  Paths sound_paths() const;
  // Says what is wrong with the files that are there now; "" if nothing is.
  std::string trouble();

  // Returns who has this certificate, which the handshake has found to be issued by an authority of
  // this folder. Errors: kPermission (another trust domain, revoked, ended, no identity).
  Result<Identity> recognise(const std::string& peer_pem);

 private:
  explicit TlsFolder(std::string path) : path_(std::move(path)) {}
  void look() RUEDA_REQUIRES(mutex_);
  // Returns why files that are sound must not take the place of those that are there; "" if they
  // may.
  std::string doubt(const TlsFiles& files) const RUEDA_REQUIRES(mutex_);
  // Reads the list of revoked certificates alone; nothing if there is none that is sound.
  std::optional<RevocationList> read_revoked() const RUEDA_REQUIRES(mutex_);
  // Returns kResourceExhausted if no descriptor is left; the files before it stay then.
  Status replace(TlsFiles files) RUEDA_REQUIRES(mutex_);

  const std::string path_;
  // The memory behind sound_paths(). The numbers of the descriptors stay once they are there.
  std::array<UniqueFd, 3> sound_;
  Mutex mutex_;
  std::shared_ptr<const TlsFiles> files_ RUEDA_GUARDED_BY(mutex_);
  std::string trouble_ RUEDA_GUARDED_BY(mutex_);
  std::string stamp_ RUEDA_GUARDED_BY(mutex_);  // Of the files that were read last.
  std::chrono::steady_clock::time_point next_look_ RUEDA_GUARDED_BY(mutex_);
};

}  // namespace rueda::security
