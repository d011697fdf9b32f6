#include "agent/rendezvous/munge.h"

#include <cstdlib>
#include <optional>

#include <dlfcn.h>
#include <sys/types.h>
#include <unistd.h>

namespace rueda::agent {
namespace {

// The values of munge.h.
constexpr int kOptionCipher = 0;
constexpr int kOptionMac = 1;
constexpr int kOptionZip = 2;
constexpr int kOptionUidRestriction = 9;
constexpr int kZipNone = 0;
// These are asked for, because munged may have been told to encrypt nothing where nobody asks.
constexpr int kCipherAes128 = 4;
constexpr int kMacSha256 = 5;
constexpr int kSuccess = 0;
constexpr int kErrorSocket = 6;
constexpr int kErrorExpired = 15;
constexpr int kErrorRewound = 16;
constexpr int kErrorReplayed = 17;

static_assert(sizeof(uid_t) == sizeof(unsigned));

using Freed = std::unique_ptr<void, decltype(&std::free)>;

std::string remedy_of(int error) {
  switch (error) {
    case kErrorSocket: return "is munged running on this machine (systemctl status munge)?";
    case kErrorExpired:
    case kErrorRewound: return "do the clocks of both machines agree?";
    case kErrorReplayed: return "somebody has sent what another one had sent before";
    default: return "do all machines have the same munge.key, and the job one user?";
  }
}

}  // namespace

Result<std::shared_ptr<const Munge>> Munge::load(const std::string& library) {
  void* const handle = ::dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    return Status(Code::kNotFound,
                  "--rdzv-auth munge needs libmunge (Debian's package libmunge2, "
                  "and munge, which runs munged): " +
                      std::string(::dlerror()));
  }
  Functions found;
  std::string missing;
  const auto look_up = [&](const char* name, auto& function) {
    function = reinterpret_cast<std::decay_t<decltype(function)>>(::dlsym(handle, name));
    if (function == nullptr) missing = name;
  };
  look_up("munge_ctx_create", found.ctx_create);
  look_up("munge_ctx_destroy", found.ctx_destroy);
  look_up("munge_ctx_set", found.ctx_set);
  look_up("munge_ctx_strerror", found.ctx_strerror);
  look_up("munge_encode", found.encode);
  look_up("munge_decode", found.decode);
  look_up("munge_strerror", found.strerror);
  if (!missing.empty()) {
    return Status(Code::kNotFound, "--rdzv-auth munge: " + library + " has no " + missing +
                                       ": install Debian's package libmunge2");
  }
  return std::shared_ptr<const Munge>(new Munge(found));
}

Status Munge::failure(const std::string& what, int error, Context context) const {
  const char* text = context == nullptr ? nullptr : functions_.ctx_strerror(context);
  if (text == nullptr) text = functions_.strerror(error);
  return {error == kErrorSocket ? Code::kUnavailable : Code::kPermission,
          what + " (" + (text == nullptr ? "no reason is given" : text) + "): " + remedy_of(error)};
}

Result<std::string> Munge::encode(const std::string& payload) const {
  const std::unique_ptr<struct munge_ctx, void (*)(Context)> context(functions_.ctx_create(),
                                                                     functions_.ctx_destroy);
  if (context == nullptr) return Status(Code::kResourceExhausted, "no memory for munge");
  for (const auto& [option, value] :
       {std::pair{kOptionCipher, kCipherAes128}, std::pair{kOptionMac, kMacSha256},
        std::pair{kOptionZip, kZipNone}}) {
    const int error = functions_.ctx_set(context.get(), option, value);
    if (error != kSuccess) return failure("munge cannot be set up", error, context.get());
  }
  int error = functions_.ctx_set(context.get(), kOptionUidRestriction, ::geteuid());
  if (error != kSuccess) return failure("munge cannot be set up", error, context.get());
  char* credential = nullptr;
  error = functions_.encode(&credential, context.get(), payload.data(),
                            static_cast<int>(payload.size()));
  const Freed freed(credential, &std::free);
  if (error != kSuccess) return failure("munge gives no credential", error, context.get());
  return std::string(credential);
}

Result<std::string> Munge::decode(const std::string& credential) const {
  const std::unique_ptr<struct munge_ctx, void (*)(Context)> context(functions_.ctx_create(),
                                                                     functions_.ctx_destroy);
  if (context == nullptr) return Status(Code::kResourceExhausted, "no memory for munge");
  void* payload = nullptr;
  int bytes = 0;
  unsigned uid = 0;
  unsigned gid = 0;
  const int error =
      functions_.decode(credential.c_str(), context.get(), &payload, &bytes, &uid, &gid);
  const Freed freed(payload, &std::free);
  // For some errors munge gives the payload nevertheless.
  if (error != kSuccess) return failure("munge refuses the credential", error, context.get());
  if (uid != ::geteuid()) {
    return Status(Code::kPermission, "munge says that user " + std::to_string(uid) +
                                         " has sent it, and the job is user " +
                                         std::to_string(::geteuid()) + "'s");
  }
  return std::string(static_cast<const char*>(payload), static_cast<size_t>(bytes));
}

}  // namespace rueda::agent
