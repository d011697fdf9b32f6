#include "daemon/session/users/ledger.h"

#include <algorithm>
#include <functional>
#include <string>

#include <sys/resource.h>
#include <unistd.h>

#include "daemon/base/limits.h"

namespace rueda::session {
namespace {

struct Words {
  const char* name;
  const char* what;
  const char* setting;  // Its key under [quota], and the end of its flag.
  const char* remedy;
};

constexpr std::array<Words, kResources> kWords{{
    {"jobs", "jobs", "jobs", "wait for one to end"},
    {"connections", "connections to the daemon's socket", "connections", "close some"},
    {"unattached", "connections that have not attached", "connections", "attach at once, or close"},
    {"processes", "attached processes", "processes", "end a job first"},
    {"arena-bytes", "bytes of arenas", "arena-bytes", "free some, or end a job"},
    {"arenas", "arenas", "arenas", "free some, or use fewer and larger ones"},
    {"pinned-bytes", "bytes of host memory in place of a GPU's", "pinned-bytes",
     "lower RUEDA_DEVICE_STAGING_BYTES, or end a job"},
    {"tensor-bytes", "bytes of described tensors", "tensor-bytes", "reuse names, or end a job"},
    {"staging-bytes", "bytes of staging", "staging-bytes", "use fewer process sets, or end a job"},
    {"gpu-workers", "GPU workers", "gpu-workers", "end a job first, or hand over host memory"},
}};

const Words& words_of(Resource resource) { return kWords[static_cast<size_t>(resource)]; }

constexpr uint64_t kNoBound = ~uint64_t{0};
// A connection takes its socket and two more descriptors, rounded up here to four. One
// principal may have at most half of the daemon's descriptors.
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

// Returns the bound on what all together may have, or kNoBound if it is bounded elsewhere.
uint64_t max_of_all(Resource resource) {
  return resource == Resource::kArenaBytes ? limits::kMaxMappedBytes : kNoBound;
}

// One principal may have the workers of twice as many GPUs as a large node has.
constexpr uint64_t kGpuWorkersOfEach = 16;

}  // namespace

const char* name_of(Resource resource) { return words_of(resource).name; }

Quota::Quota(uint64_t memory_bytes, uint64_t descriptors) {
  Quota& most = *this;
  most[Resource::kJobs] = limits::kMaxJobs / 4;
  most[Resource::kConnections] =
      std::min<uint64_t>(limits::kMaxSessions, descriptors / 2 / kDescriptorsOfConnection);
  most[Resource::kUnattached] = most[Resource::kConnections] / 4;
  most[Resource::kSessions] = limits::kMaxSessions / 2;
  most[Resource::kArenaBytes] = memory_bytes;
  most[Resource::kArenas] = limits::kMaxArenasPerPrincipal;
  most[Resource::kPinnedBytes] = memory_bytes / 4;
  most[Resource::kTensorBytes] = uint64_t{1} << 30;
  most[Resource::kStagingBytes] = uint64_t{16} << 30;
  most[Resource::kGpuWorkers] = kGpuWorkersOfEach;
}

Quota::Quota() : Quota(memory_of_machine(), descriptors_of_process()) {}

void Quota::change(const Amounts& wanted) {
  Quota& most = *this;
  for (size_t i = 0; i < kResources; ++i) {
    const auto resource = static_cast<Resource>(i);
    if (wanted[resource] > 0) most[resource] = wanted[resource];
  }
  most[Resource::kUnattached] = std::max<uint64_t>(most[Resource::kConnections] / 4, 1);
}

const Quota& Ledger::quota_of(const Principal& principal) const {
  const auto found = quotas_.of.find(principal);
  return found == quotas_.of.end() ? quotas_.of_each : found->second;
}

Status Ledger::add(const Principal& principal, Resource resource, uint64_t amount) {
  const Words& words = words_of(resource);
  const uint64_t most = quota_of(principal)[resource];
  const MutexLock lock(mutex_);
  const auto found = amounts_.find(principal);
  const uint64_t has = found == amounts_.end() ? 0 : found->second[resource];
  if (amount > most || has > most - amount) {
    count_refusal(principal, resource);
    const std::string setting = words.setting;
    const std::string where = is_apart(principal)
                                  ? setting + " under [quota." + principal.label() + "]"
                                  : "--quota-" + setting + ", or " + setting + " under [quota]";
    return Status(Code::kResourceExhausted,
                  principal.to_string() + " has " + std::to_string(has) + ' ' + words.what +
                      " here and wants " + std::to_string(amount) + " more, and may have " +
                      std::to_string(most) + ": " + words.remedy +
                      ", or ask an operator of this node (" + quotas_.operators + ") to raise " +
                      where + " in ruedad.toml");
  }
  if (amount > max_of_all(resource) || all_[resource] > max_of_all(resource) - amount) {
    count_refusal(principal, resource);
    return Status(Code::kResourceExhausted,
                  "all users have " + std::to_string(all_[resource]) + ' ' + words.what +
                      " here, " + principal.to_string() + " wants " + std::to_string(amount) +
                      " more, and one daemon can have " + std::to_string(max_of_all(resource)) +
                      ": " + words.remedy + ", or ask an operator of this node (" +
                      quotas_.operators + ") who has them");
  }
  amounts_[principal][resource] += amount;
  all_[resource] += amount;
  return Status::ok();
}

void Ledger::count_refusal(const Principal& principal, Resource resource) {
  const bool has_room = refused_.size() < kMaxCounted || refused_.contains(principal);
  ++(has_room ? refused_[principal] : refused_others_)[resource];
}

void Ledger::remove(const Principal& principal, Resource resource, uint64_t amount) {
  if (amount == 0) return;
  const MutexLock lock(mutex_);
  const auto found = amounts_.find(principal);
  RUEDA_CHECK(found != amounts_.end() && found->second[resource] >= amount);
  found->second[resource] -= amount;
  all_[resource] -= amount;
  if (found->second == Amounts{}) amounts_.erase(found);
}

uint64_t Ledger::of(const Principal& principal, Resource resource) const {
  const MutexLock lock(mutex_);
  const auto found = amounts_.find(principal);
  return found == amounts_.end() ? 0 : found->second[resource];
}

std::vector<Ledger::Use> Ledger::snapshot(size_t most) const {
  const MutexLock lock(mutex_);
  // Named principals are the last ones, and nobody can make more of those.
  std::map<Principal, Use, std::greater<>> all;
  for (const auto& [principal, has] : amounts_) all[principal].has = has;
  for (const auto& [principal, refused] : refused_) all[principal].refused = refused;
  std::vector<Use> uses;
  Use others{"others", {}, {}, refused_others_};
  for (auto& [principal, use] : all) {
    if (uses.size() < most) {
      use.principal = principal.label();
      use.most = quota_of(principal);
      uses.push_back(std::move(use));
      continue;
    }
    for (size_t i = 0; i < kResources; ++i) {
      const auto resource = static_cast<Resource>(i);
      others.has[resource] += use.has[resource];
      others.refused[resource] += use.refused[resource];
    }
  }
  if (all.size() > most || refused_others_ != Amounts{}) uses.push_back(std::move(others));
  return uses;
}

Status Charge::add(uint64_t amount) {
  if (!account_.ledger) return Status::ok();
  Status added = account_.ledger->add(account_.principal, resource_, amount);
  if (added.is_ok()) amount_ += amount;
  return added;
}

void Charge::remove(uint64_t amount) {
  if (!account_.ledger || amount == 0) return;
  RUEDA_CHECK(amount <= amount_);
  account_.ledger->remove(account_.principal, resource_, amount);
  amount_ -= amount;
}

Result<Charge> charge(const Account& account, Resource resource, uint64_t amount) {
  Charge made(account, resource);
  if (Status added = made.add(amount); !added.is_ok()) return added;
  return made;
}

}  // namespace rueda::session
