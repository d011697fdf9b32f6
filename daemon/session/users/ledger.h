// The ledger counts what each user has of this daemon, and bounds it, so that nobody takes so much
// that nothing is left for others. It is thread-safe.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>

#include <sys/types.h>

#include "daemon/base/mutex.h"
#include "daemon/base/status.h"

namespace rueda::session {

enum class Resource {
  kJobs,
  kConnections,  // All connections on the unix socket, until they are closed.
  kUnattached,   // The connections that are neither attached nor gRPC's.
  kSessions,     // The connections of attached processes.
  kArenaBytes,
  kArenas,
  kPinnedBytes,  // Host memory in place of a GPU's.
  kTensorBytes,  // What the daemon keeps of tensors that clients have described.
  kStagingBytes,
};
inline constexpr size_t kResources = 9;

// The most that one user may have of each resource.
class Quota {
 public:
  // Chooses defaults for a machine with this much memory, and for a daemon that may have this many
  // descriptors.
  Quota(uint64_t memory_bytes, uint64_t descriptors);
  // Chooses defaults for this machine and this process.
  Quota();

  uint64_t& operator[](Resource resource) { return most_[static_cast<size_t>(resource)]; }
  uint64_t operator[](Resource resource) const { return most_[static_cast<size_t>(resource)]; }

 private:
  std::array<uint64_t, kResources> most_{};
};

class Ledger {
 public:
  explicit Ledger(const Quota& quota = {}) : quota_(quota) {}

  // Returns RESOURCE_EXHAUSTED if the user would have more than the quota, or all users together
  // more than the daemon can have; the text has both numbers and the remedy.
  Status add(uid_t user, Resource resource, uint64_t amount);
  void remove(uid_t user, Resource resource, uint64_t amount);
  uint64_t of(uid_t user, Resource resource) const;

 private:
  using Amounts = std::array<uint64_t, kResources>;

  const Quota quota_;
  mutable Mutex mutex_;
  // Users that have nothing are not in the map.
  std::map<uid_t, Amounts> amounts_ RUEDA_GUARDED_BY(mutex_);
  Amounts all_ RUEDA_GUARDED_BY(mutex_) = {};
};

// The user who pays, and the ledger where. Without a ledger nothing is charged.
struct Account {
  std::shared_ptr<Ledger> ledger;
  uid_t user = 0;
};

// An amount that an account is charged with for as long as this object lives.
class Charge {
 public:
  Charge() = default;
  Charge(Account account, Resource resource) : account_(std::move(account)), resource_(resource) {}
  Charge(Charge&& other) noexcept
      : account_(std::move(other.account_)),
        resource_(other.resource_),
        amount_(std::exchange(other.amount_, 0)) {}
  Charge& operator=(Charge&& other) noexcept {
    std::swap(account_, other.account_);
    std::swap(resource_, other.resource_);
    std::swap(amount_, other.amount_);
    return *this;
  }
  ~Charge() { remove(amount_); }

  Status add(uint64_t amount);
  void remove(uint64_t amount);

 private:
  Account account_;
  Resource resource_ = Resource::kJobs;
  uint64_t amount_ = 0;
};

// Charges the account, or returns the error that says why that is not possible.
Result<Charge> charge(const Account& account, Resource resource, uint64_t amount);

}  // namespace rueda::session
