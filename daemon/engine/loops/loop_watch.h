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

// The class is thread-safe.
class LoopWatch {
 public:
  struct Loop {
    std::string name;
    std::function<void(std::function<void()>)> post;  // It is thread-safe.
  };

  explicit LoopWatch(std::vector<Loop> loops);

  // Asks the loops that owe no answer, and returns for how long each loop has owed one, in the
  // order of the loops.
  std::vector<std::chrono::duration<double>> ask();
  // Returns "" if every loop has answered what it was asked `bound` ago, or else a sentence that
  // names those which have not.
  std::string find_stalled(std::chrono::duration<double> bound);

 private:
  struct Asked {
    Mutex mutex;
    std::optional<std::chrono::steady_clock::time_point> since RUEDA_GUARDED_BY(mutex);
  };

  const std::vector<Loop> loops_;
  std::vector<std::shared_ptr<Asked>> asked_;  // By loop; an answer may outlive this object.
};

}  // namespace rueda::engine
