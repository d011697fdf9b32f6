// What each user has of this daemon, and may have: nobody takes so much that nothing is left for
// others. Thread-safe.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include <sys/types.h>

#include "daemon/base/status.h"

namespace rueda::session {

enum class Resource {
  kJobs,
  kConnections,  // all on the unix socket, until they are closed
  kUnattached,   // of those, the ones that are neither attached nor gRPC's
  kSessions,     // of those, attached processes
  kArenaBytes,
  kArenas,
  kPinnedBytes,  // host memory in place of a GPU's
  kTensorBytes,  // what is kept of tensors that have been described
  kStagingBytes,
};
inline constexpr size_t kResources = 9;

// Of one user, by resource.
class Quota {
 public:
  // Defaults for a machine with so much memory, and so many descriptors for the daemon.
  Quota(uint64_t memory_bytes, uint64_t descriptors);
  // Of this machine and process.
  Quota();

  uint64_t& operator[](Resource resource) { return most_[static_cast<size_t>(resource)]; }
  uint64_t operator[](Resource resource) const { return most_[static_cast<size_t>(resource)]; }

 private:
  std::array<uint64_t, kResources> most_{};
};

class Ledger {
 public:
  explicit Ledger(const Quota& quota = {}) : quota_(quota) {}

  // RESOURCE_EXHAUSTED: the user would have more than the quota; the text has both numbers and the
  // remedy.
  Status add(uid_t user, Resource resource, uint64_t amount);
  void remove(uid_t user, Resource resource, uint64_t amount);
  uint64_t of(uid_t user, Resource resource) const;
  const Quota& quota() const { return quota_; }

 private:
  using Amounts = std::array<uint64_t, kResources>;

  const Quota quota_;
  mutable std::mutex mutex_;
  std::map<uid_t, Amounts> amounts_;  // of users that have anything
  Amounts all_{};
};

// Who pays. Without a ledger nobody does.
struct Account {
  std::shared_ptr<Ledger> ledger;
  uid_t user = 0;
};

// What an account is charged with for as long as this lives.
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

// Charged with so much, or why it cannot be.
Result<Charge> charge(const Account& account, Resource resource, uint64_t amount);

}  // namespace rueda::session
