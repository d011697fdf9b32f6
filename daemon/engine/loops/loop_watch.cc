#include "daemon/engine/loops/loop_watch.h"

#include <utility>

#include "daemon/base/mutex.h"

namespace rueda::engine {

LoopWatch::LoopWatch(std::vector<Loop> loops) : loops_(std::move(loops)) {
  for (size_t i = 0; i < loops_.size(); ++i) asked_.push_back(std::make_shared<Asked>());
}

std::vector<std::chrono::duration<double>> LoopWatch::ask() {
  const auto now = std::chrono::steady_clock::now();
  std::vector<std::chrono::duration<double>> owed;
  for (size_t i = 0; i < loops_.size(); ++i) {
    const std::shared_ptr<Asked>& asked = asked_[i];
    {
      const MutexLock lock(asked->mutex);
      if (asked->since) {
        owed.emplace_back(now - *asked->since);
        continue;
      }
      asked->since = now;
    }
    owed.emplace_back(0);
    loops_[i].post([asked] {
      const MutexLock lock(asked->mutex);
      asked->since.reset();
    });
  }
  return owed;
}

std::string LoopWatch::find_stalled(std::chrono::duration<double> bound) {
  const auto owed = ask();
  for (size_t i = 0; i < owed.size(); ++i) {
    if (owed[i] < bound || owed[i].count() == 0) continue;
    return "the " + loops_[i].name + " loop has not turned for " +
           std::to_string(static_cast<int64_t>(owed[i].count())) + " s";
  }
  return "";
}

}  // namespace rueda::engine
