#include "daemon/session/users/ledger.h"

#include <algorithm>
#include <string>

#include <sys/resource.h>
#include <unistd.h>

#include "daemon/base/limits.h"
#include "daemon/base/mutex.h"

namespace rueda::session {
namespace {

struct Words {
  const char* what;
  const char* flag;
  const char* remedy;
};

constexpr std::array<Words, kResources> kWords{{
    {"jobs", "--quota-jobs", "wait for one to end"},
    {"connections to the daemon's socket", "--quota-connections", "close some"},
    {"connections that have not attached", "--quota-connections", "attach at once, or close"},
    {"attached processes", "--quota-processes", "end a job first"},
    {"bytes of arenas", "--quota-arena-bytes", "free some, or end a job"},
    {"arenas", "--quota-arena-bytes", "free some, or use fewer and larger ones"},
    {"bytes of host memory in place of a GPU's", "--quota-pinned-bytes",
     "lower RUEDA_DEVICE_STAGING_BYTES, or end a job"},
    {"bytes of described tensors", "--quota-tensor-bytes", "reuse names, or end a job"},
    {"bytes of staging", "--quota-staging-bytes",
     "use fewer process sets, or smaller --staging-bytes"},
}};

constexpr uint64_t kNoBound = ~uint64_t{0};
// A connection takes its socket and two more descriptors, rounded up here to four. One user may
// have at most half of the daemon's descriptors.
constexpr uint64_t kDescriptorsOfConnection = 4;

uint64_t memory_of_machine() {
  return static_cast<uint64_t>(std::max(::sysconf(_SC_PHYS_PAGES), 1l)) *
         static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
}

uint64_t descriptors_of_process() {
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  return limit.rlim_cur;
}

// Returns the bound on what all users together may have, or kNoBound if it is bounded elsewhere.
uint64_t max_of_all(Resource resource) {
  return resource == Resource::kArenaBytes ? limits::kMaxMappedBytes : kNoBound;
}

}  // namespace

Quota::Quota(uint64_t memory_bytes, uint64_t descriptors) {
  Quota& most = *this;
  most[Resource::kJobs] = limits::kMaxJobs / 4;
  most[Resource::kConnections] =
      std::min<uint64_t>(limits::kMaxSessions, descriptors / 2 / kDescriptorsOfConnection);
  most[Resource::kUnattached] = most[Resource::kConnections] / 4;
  most[Resource::kSessions] = limits::kMaxSessions / 2;
  most[Resource::kArenaBytes] = memory_bytes;
  most[Resource::kArenas] = limits::kMaxArenasPerUser;
  most[Resource::kPinnedBytes] = memory_bytes / 4;
  most[Resource::kTensorBytes] = uint64_t{1} << 30;
  most[Resource::kStagingBytes] = uint64_t{16} << 30;
}

Quota::Quota() : Quota(memory_of_machine(), descriptors_of_process()) {}

Status Ledger::add(uid_t user, Resource resource, uint64_t amount) {
  const auto at = static_cast<size_t>(resource);
  const MutexLock lock(mutex_);
  const auto found = amounts_.find(user);
  const uint64_t has = found == amounts_.end() ? 0 : found->second[at];
  const Words& words = kWords[at];
  if (amount > quota_[resource] || has > quota_[resource] - amount) {
    return Status(Code::kResourceExhausted,
                  "user " + std::to_string(user) + " has " + std::to_string(has) + ' ' +
                      words.what + " here and wants " + std::to_string(amount) +
                      " more, and one user may have " + std::to_string(quota_[resource]) + ": " +
                      words.remedy + ", or raise ruedad's " + words.flag);
  }
  if (amount > max_of_all(resource) || all_[at] > max_of_all(resource) - amount) {
    return Status(Code::kResourceExhausted, "all users have " + std::to_string(all_[at]) + ' ' +
                                                words.what + " here, and may have " +
                                                std::to_string(max_of_all(resource)) + ": " +
                                                words.remedy);
  }
  all_[at] += amount;
  amounts_[user][at] += amount;
  return Status::ok();
}

void Ledger::remove(uid_t user, Resource resource, uint64_t amount) {
  if (amount == 0) return;
  const auto at = static_cast<size_t>(resource);
  const MutexLock lock(mutex_);
  const auto found = amounts_.find(user);
  RUEDA_CHECK(found != amounts_.end() && found->second[at] >= amount);
  found->second[at] -= amount;
  all_[at] -= amount;
  if (found->second == Amounts{}) amounts_.erase(found);
}

uint64_t Ledger::of(uid_t user, Resource resource) const {
  const MutexLock lock(mutex_);
  const auto found = amounts_.find(user);
  return found == amounts_.end() ? 0 : found->second[static_cast<size_t>(resource)];
}

Status Charge::add(uint64_t amount) {
  if (!account_.ledger) return Status::ok();
  Status added = account_.ledger->add(account_.user, resource_, amount);
  if (added.is_ok()) amount_ += amount;
  return added;
}

void Charge::remove(uint64_t amount) {
  if (!account_.ledger || amount == 0) return;
  RUEDA_CHECK(amount <= amount_);
  account_.ledger->remove(account_.user, resource_, amount);
  amount_ -= amount;
}

Result<Charge> charge(const Account& account, Resource resource, uint64_t amount) {
  Charge made(account, resource);
  if (Status added = made.add(amount); !added.is_ok()) return added;
  return made;
}

}  // namespace rueda::session
