// Finds out whether loops turn. A loop is asked when somebody wants to know, and at no other time,
// so that a loop that sleeps is not woken for it.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "daemon/base/mutex.h"

namespace rueda::engine {

// Thread-safe.
class LoopWatch {
 public:
  struct Loop {
    std::string name;
    std::function<void(std::function<void()>)> post;  // thread-safe
  };

  explicit LoopWatch(std::vector<Loop> loops);

  // Asks those that owe no answer; returns for how long each of the others has owed one, in the
  // order of the loops.
  std::vector<std::chrono::duration<double>> ask();
  // Empty: every loop has answered what it was asked `bound` ago. Else who has not, in a sentence.
  std::string find_stalled(std::chrono::duration<double> bound);

 private:
  struct Asked {
    Mutex mutex;
    std::optional<std::chrono::steady_clock::time_point> since RUEDA_GUARDED_BY(mutex);
  };

  const std::vector<Loop> loops_;
  std::vector<std::shared_ptr<Asked>> asked_;  // by loop; its answer may outlive this
};

}  // namespace rueda::engine
