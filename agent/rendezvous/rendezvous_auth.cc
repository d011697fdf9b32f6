#include "agent/rendezvous/rendezvous_auth.h"

#include "agent/base/text.h"

namespace rueda::agent {
namespace {

constexpr size_t kKeyBytes = 32;
// A credential of an honest client has some 300 bytes.
constexpr size_t kMaxCredentialBytes = 2048;
constexpr char kPrefix[] = "rueda rendezvous\n";

std::string payload_prefix(const Nonces& nonces) { return kPrefix + nonces.server + nonces.client; }

const char* name_of(RendezvousAuth::Kind kind, const char* none) {
  switch (kind) {
    case RendezvousAuth::Kind::kSecret: return "a secret";
    case RendezvousAuth::Kind::kMunge: return "--rdzv-auth munge";
    case RendezvousAuth::Kind::kNone: return none;
  }
  return none;
}

}  // namespace

RendezvousAuth RendezvousAuth::with_secret(std::string secret) {
  RendezvousAuth out;
  out.kind_ = Kind::kSecret;
  out.secret_ = std::move(secret);
  return out;
}

RendezvousAuth RendezvousAuth::with_munge(std::shared_ptr<const Munge> munge) {
  RendezvousAuth out;
  out.kind_ = Kind::kMunge;
  out.munge_ = std::move(munge);
  return out;
}

Status RendezvousAuth::check() const {
  if (kind_ != Kind::kMunge) return Status::ok();
  const Status status = munge_->encode("").status();
  if (status.is_ok()) return status;
  return {status.code(), "--rdzv-auth munge: " + status.message()};
}

Result<RendezvousAuth::MeetingKey> RendezvousAuth::begin(const Nonces& nonces) const {
  if (kind_ == Kind::kSecret) return MeetingKey{secret_, ""};
  Result<std::string> key = random_bytes(kKeyBytes);
  if (!key.is_ok()) return key.status();
  // munge encrypts the payload. The nonces bind it to one meeting: munged of node 0 forgets which
  // credentials it has seen, once they have expired or it is started again.
  Result<std::string> credential = munge_->encode(payload_prefix(nonces) + key.value());
  if (!credential.is_ok()) return credential.status();
  return MeetingKey{std::move(key).value(), std::move(credential).value()};
}

Result<std::string> RendezvousAuth::key_of(const Nonces& nonces,
                                           const std::string& credential) const {
  if (kind_ == Kind::kSecret) return secret_;
  const Status wrong(
      Code::kPermission,
      "its munge credential is not of this meeting: start the job on all nodes again");
  if (credential.empty() || credential.size() > kMaxCredentialBytes) return wrong;
  const Result<std::string> payload = munge_->decode(credential);
  if (!payload.is_ok()) return payload;
  const std::string prefix = payload_prefix(nonces);
  if (payload.value().size() != prefix.size() + kKeyBytes ||
      !is_same_proof(prefix, payload.value().substr(0, prefix.size()))) {
    return wrong;
  }
  return payload.value().substr(prefix.size());
}

Status RendezvousAuth::fits(Kind other) const {
  if (kind_ == other) return Status::ok();
  return {Code::kPermission, std::string("node 0 has ") + name_of(other, "no secret") +
                                 ", and this node has " + name_of(kind_, "none") +
                                 ": give all nodes the same --rdzv-secret-file or --rdzv-auth"};
}

}  // namespace rueda::agent
