#include "client/jax/call_sites.h"

namespace rueda::jax {

CallSites& CallSites::of_process() {
  static auto* sites = new CallSites;
  return *sites;
}

bool CallSites::note(std::string_view name, const void* site, int64_t run_id) {
  MutexLock lock(mutex_);
  auto [found, is_new] = last_.try_emplace(std::string(name), Last{site, run_id});
  if (is_new) return true;
  const bool is_shared = found->second.run_id == run_id && found->second.site != site;
  found->second = {site, run_id};
  return !is_shared;
}

}  // namespace rueda::jax
