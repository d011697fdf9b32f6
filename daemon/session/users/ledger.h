// The ledger counts what each principal has of this daemon, and bounds it, so that nobody takes so
// much that nothing is left for others. It is thread-safe.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "daemon/base/mutex.h"
#include "daemon/base/principal.h"
#include "daemon/base/status.h"

namespace rueda::session {

enum class Resource {
  kJobs,
  kConnections,  // All connections on the unix sockets, until they are closed.
  kUnattached,   // The connections that have neither attached nor begun a call.
  kSessions,     // The connections of attached processes.
  kArenaBytes,
  kArenas,
  kPinnedBytes,  // Host memory in place of a GPU's.
  kTensorBytes,  // What the daemon keeps of tensors that clients have described.
  kStagingBytes,
  kGpuWorkers,  // Processes that have a GPU open; a job with device memory has one.
};
inline constexpr size_t kResources = 10;
// Returns the resource's name in metrics, such as "arena-bytes".
const char* name_of(Resource resource);

// An amount of each resource.
class Amounts {
 public:
  uint64_t& operator[](Resource resource) { return all_[static_cast<size_t>(resource)]; }
  uint64_t operator[](Resource resource) const { return all_[static_cast<size_t>(resource)]; }
  bool operator==(const Amounts&) const = default;

 private:
  std::array<uint64_t, kResources> all_{};
};

// The most that one principal may have of each resource.
class Quota : public Amounts {
 public:
  // Chooses defaults for a machine with this much memory, and for a daemon that may have this many
  // descriptors.
  Quota(uint64_t memory_bytes, uint64_t descriptors);
  // Chooses defaults for this machine and this process.
  Quota();

  // Takes what is not 0 in place of the present value. The bound of connections that have not
  // attached, for which there is no setting, is a quarter of that of connections.
  void change(const Amounts& wanted);
};

// The quotas of a daemon.
struct Quotas {
  Quota of_each;
  std::map<Principal, Quota> of;  // In place of of_each.
  // Who may change a quota, as refusals name them.
  std::string operators = "root";
};

class Ledger {
 public:
  // The refusals of at most so many principals are counted apart.
  static constexpr size_t kMaxCounted = 64;

  explicit Ledger(const Quota& of_each = {}) : Ledger(Quotas{of_each, {}, "root"}) {}
  explicit Ledger(Quotas quotas) : quotas_(std::move(quotas)) {}

  // Returns RESOURCE_EXHAUSTED if the principal would have more than its quota, or all together
  // more than the daemon can have; the text has the numbers, the setting and whom to ask.
  Status add(const Principal& principal, Resource resource, uint64_t amount);
  void remove(const Principal& principal, Resource resource, uint64_t amount);
  uint64_t of(const Principal& principal, Resource resource) const;

  struct Use {
    std::string principal;  // Principal::label(), or "others".
    Amounts has;
    Amounts most;     // 0 for others.
    Amounts refused;  // How often, since the daemon has started.
  };
  // Returns what the principals have that have something, or were refused something. At most `most`
  // of them are by themselves, those of named sockets first; the last entry is then the sum of the
  // others.
  std::vector<Use> snapshot(size_t most) const;

 private:
  const Quota& quota_of(const Principal& principal) const;
  // Returns whether the principal has a quota of its own.
  bool is_apart(const Principal& principal) const { return quotas_.of.contains(principal); }
  void count_refusal(const Principal& principal, Resource resource) RUEDA_REQUIRES(mutex_);

  const Quotas quotas_;
  mutable Mutex mutex_;
  // Principals that have nothing are not in the map.
  std::map<Principal, Amounts> amounts_ RUEDA_GUARDED_BY(mutex_);
  std::map<Principal, Amounts> refused_ RUEDA_GUARDED_BY(mutex_);
  Amounts refused_others_ RUEDA_GUARDED_BY(mutex_);
  Amounts all_ RUEDA_GUARDED_BY(mutex_);
};

// Who pays, and the ledger where. Without a ledger nothing is charged.
struct Account {
  std::shared_ptr<Ledger> ledger;
  Principal principal;
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
