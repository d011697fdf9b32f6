#include "daemon/security/certificates/tls_folder.h"

#include <array>
#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/base/fd.h"
#include "daemon/base/os/sealed_text.h"

namespace rueda::security {
namespace {

constexpr size_t kMaxFileBytes = size_t{1} << 20;
constexpr auto kLookEvery = std::chrono::seconds(1);

Status at(const std::string& path, Code code, const std::string& what) {
  return {code, path + ": " + what};
}

// Names the state of the files: it differs after any of them has been replaced or written.
std::string stamp_of(const std::string& folder) {
  std::string stamp;
  for (const char* name : {kCertificateFile, kKeyFile, kAuthorityFile, kRevokedFile}) {
    struct stat found {};
    if (::stat((folder + '/' + name).c_str(), &found) != 0) {
      stamp += "-;";
      continue;
    }
    for (const auto part :
         {static_cast<int64_t>(found.st_dev), static_cast<int64_t>(found.st_ino),
          static_cast<int64_t>(found.st_size), static_cast<int64_t>(found.st_mtim.tv_sec),
          static_cast<int64_t>(found.st_mtim.tv_nsec)}) {
      stamp += std::to_string(part) + ',';
    }
    stamp += ';';
  }
  return stamp;
}

Status check_key_file(const std::string& path) {
  struct stat found {};
  if (::stat(path.c_str(), &found) != 0) return Status::ok();  // Reading it says why.
  if ((found.st_mode & (S_IRWXO | S_IWGRP)) == 0) return Status::ok();
  return at(path, Code::kPermission,
            "others than its owner and its group may use the key, or its group may change it: "
            "chmod 0600, or 0640 (defaultMode: 0400 of a Kubernetes volume)");
}

}  // namespace

Result<std::string> read_pem_file(const std::string& path) {
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat found {};
  if (!file.is_open() || ::fstat(file.get(), &found) != 0) {
    const Code code = errno == ENOENT ? Code::kNotFound : Code::kPermission;
    return at(path, code, std::strerror(errno));
  }
  if (!S_ISREG(found.st_mode)) return at(path, Code::kInvalidArgument, "it is no file");
  std::string text;
  std::array<char, 16384> part{};
  for (;;) {
    const ssize_t bytes = ::read(file.get(), part.data(), part.size());
    if (bytes < 0 && errno == EINTR) continue;
    if (bytes < 0) return at(path, Code::kUnavailable, std::strerror(errno));
    if (bytes == 0) return text;
    text.append(part.data(), static_cast<size_t>(bytes));
    if (text.size() > kMaxFileBytes) {
      return at(path, Code::kInvalidArgument, "it has more than 1 MiB");
    }
  }
}

Result<std::shared_ptr<const TlsFiles>> read_tls_folder(const std::string& folder) {
  const std::string certificate_path = folder + '/' + kCertificateFile;
  const std::string key_path = folder + '/' + kKeyFile;
  auto files = std::make_shared<TlsFiles>();
  if (Status safe = check_key_file(key_path); !safe.is_ok()) return safe;
  for (auto [name, text] :
       {std::pair(kCertificateFile, &files->pair.certificate),
        std::pair(kKeyFile, &files->pair.key), std::pair(kAuthorityFile, &files->authorities)}) {
    Result<std::string> read = read_pem_file(folder + '/' + name);
    if (!read.is_ok()) return read.status();
    *text = std::move(read).value();
  }
  const std::string list_path = folder + '/' + kRevokedFile;
  Result<std::string> revoked = read_pem_file(list_path);
  if (revoked.is_ok() && revoked.value().empty()) {
    return at(list_path, Code::kInvalidArgument,
              "it is empty: take it away if nothing has been revoked");
  }
  if (!revoked.is_ok() && revoked.status().code() != Code::kNotFound) return revoked.status();
  if (revoked.is_ok()) files->revoked_pem = std::move(revoked).value();

  Result<CertificateFacts> own = read_certificate(files->pair.certificate);
  if (!own.is_ok()) return at(certificate_path, own.status().code(), own.status().message());
  files->own = std::move(own).value();
  if (Status sound = check_pair(files->pair, files->authorities); !sound.is_ok()) {
    return at(certificate_path, sound.code(), sound.message());
  }
  Result<RevocationList> list = RevocationList::read(files->revoked_pem, files->authorities);
  if (!list.is_ok()) {
    return at(list_path, list.status().code(), list.status().message());
  }
  files->revoked = std::move(list).value();
  return std::shared_ptr<const TlsFiles>(std::move(files));
}

Result<std::shared_ptr<TlsFolder>> TlsFolder::open(const std::string& path) {
  std::shared_ptr<TlsFolder> folder(new TlsFolder(path));
  const MutexLock lock(folder->mutex_);
  folder->look();
  if (folder->files_) return folder;
  const Result<std::shared_ptr<const TlsFiles>> read = read_tls_folder(path);
  if (!read.is_ok()) return read.status();
  return Status(Code::kUnavailable, folder->trouble_.empty()
                                        ? path + ": its files change all the time"
                                        : folder->trouble_);
}

Result<std::shared_ptr<TlsFolder>> TlsFolder::of(KeyPair pair, std::string authorities) {
  TlsFiles files;
  files.pair = std::move(pair);
  files.authorities = std::move(authorities);
  Result<CertificateFacts> own = read_certificate(files.pair.certificate);
  if (!own.is_ok()) return own.status();
  files.own = std::move(own).value();
  if (Status sound = check_pair(files.pair, files.authorities); !sound.is_ok()) return sound;
  std::shared_ptr<TlsFolder> folder(new TlsFolder(""));
  const MutexLock lock(folder->mutex_);
  if (Status held = folder->replace(std::move(files)); !held.is_ok()) return held;
  return folder;
}

void TlsFolder::look() {
  if (path_.empty()) return;
  const auto now = std::chrono::steady_clock::now();
  if (now < next_look_) return;
  next_look_ = now + kLookEvery;
  std::string stamp = stamp_of(path_);
  if (stamp == stamp_) return;
  Result<std::shared_ptr<const TlsFiles>> read = read_tls_folder(path_);
  // What has been revoked counts also where something else is not sound.
  std::optional<RevocationList> revoked = read.is_ok() ? std::nullopt : read_revoked();
  // Files that are replaced one by one do not fit each other for a moment.
  if (stamp_of(path_) != stamp) return;
  stamp_ = std::move(stamp);
  trouble_ = read.is_ok() ? doubt(*read.value()) : read.status().message();
  Status replaced;
  if (trouble_.empty()) {
    replaced = replace(*read.value());
  } else if (files_ && revoked) {
    TlsFiles files = *files_;
    files.revoked = *std::move(revoked);
    replaced = replace(std::move(files));
  }
  if (replaced.is_ok()) return;
  trouble_ = path_ + ": " + replaced.message();
  stamp_.clear();  // The next look tries again.
}

std::string TlsFolder::doubt(const TlsFiles& files) const {
  if (!files_) return "";
  if (files.own.identity != files_->own.identity) {
    return path_ + '/' + kCertificateFile + ": it is for " + to_uri(files.own.identity) +
           ", and the one before was for " + to_uri(files_->own.identity);
  }
  if (files.revoked_pem.empty() && !files_->revoked_pem.empty()) {
    return path_ + '/' + kRevokedFile + ": it has gone, and certificates had been revoked";
  }
  return "";
}

std::optional<RevocationList> TlsFolder::read_revoked() const {
  const Result<std::string> pem = read_pem_file(path_ + '/' + kRevokedFile);
  if (!files_ || !pem.is_ok() || pem.value().empty()) return std::nullopt;
  Result<RevocationList> list = RevocationList::read(pem.value(), files_->authorities);
  if (!list.is_ok()) return std::nullopt;
  return std::move(list).value();
}

Status TlsFolder::replace(TlsFiles files) {
  std::array<UniqueFd, 3> fresh;
  const std::array<const std::string*, 3> texts{&files.pair.key, &files.pair.certificate,
                                                &files.authorities};
  for (size_t i = 0; i < fresh.size(); ++i) {
    Result<UniqueFd> made = make_sealed_text("rueda-tls", *texts.at(i));
    if (!made.is_ok()) return made.status();
    fresh.at(i) = std::move(made).value();
  }
  for (size_t i = 0; i < fresh.size(); ++i) {
    if (!sound_.at(i).is_open()) {
      sound_.at(i) = std::move(fresh.at(i));
    } else if (::dup3(fresh.at(i).get(), sound_.at(i).get(), O_CLOEXEC) < 0) {
      return {Code::kResourceExhausted, errno_text("cannot replace the files", errno)};
    }
  }
  files.version = files_ ? files_->version + 1 : 1;
  files_ = std::make_shared<TlsFiles>(std::move(files));
  return Status::ok();
}

TlsFolder::Paths TlsFolder::sound_paths() const {
  const auto path = [this](size_t which) {
    return "/proc/self/fd/" + std::to_string(sound_.at(which).get());
  };
  return {path(0), path(1), path(2)};
}

std::shared_ptr<const TlsFiles> TlsFolder::files() {
  const MutexLock lock(mutex_);
  look();
  return files_;
}

std::string TlsFolder::trouble() {
  const MutexLock lock(mutex_);
  look();
  return trouble_;
}

Result<Identity> TlsFolder::recognise(const std::string& peer_pem) {
  const std::shared_ptr<const TlsFiles> now = files();
  Result<CertificateFacts> peer = read_certificate(peer_pem);
  if (!peer.is_ok()) return Status(Code::kPermission, peer.status().message());
  const Identity& identity = peer.value().identity;
  if (identity.trust_domain != now->own.identity.trust_domain) {
    return Status(Code::kPermission, to_uri(identity) + " is of another trust domain than this, " +
                                         now->own.identity.trust_domain);
  }
  if (peer.value().not_after <= wall_now()) {
    return Status(Code::kPermission, "the certificate of " + to_uri(identity) + ", serial " +
                                         peer.value().serial + ", has ended");
  }
  if (now->revoked.has(peer.value().serial)) {
    return Status(Code::kPermission, "the certificate of " + to_uri(identity) + ", serial " +
                                         peer.value().serial + ", has been revoked");
  }
  return identity;
}

}  // namespace rueda::security
