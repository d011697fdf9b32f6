#include "daemon/observe/refusals.h"

#include <spdlog/spdlog.h>

#include "daemon/base/one_line.h"

namespace rueda::observe {
namespace {

constexpr TicksMs kPeriodMs = 60'000;

}  // namespace

void Refusals::note(const std::string& who, const std::string& why) {
  counter_.Increment();
  const std::string line = one_line(who + ": " + why);
  const MutexLock lock(mutex_);
  const TicksMs now = steady_now_ms();
  if (began_ms_ == 0 || now - began_ms_ >= kPeriodMs) {
    if (unsaid_ > 0) spdlog::warn("{}: {} more refusals were not logged", where_, unsaid_);
    began_ms_ = now;
    said_.clear();
    unsaid_ = 0;
  }
  if (said_.size() >= kMostLines || !said_.insert(line).second) {
    ++unsaid_;
    return;
  }
  spdlog::warn("{}: refused {}", where_, line);
}

}  // namespace rueda::observe
