#include "bench/base/parallel.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <thread>
#include <vector>

namespace rueda::bench {

void in_parallel(size_t count, const std::function<void(size_t)>& each) {
  std::vector<std::exception_ptr> thrown(count);
  std::atomic<size_t> next = 0;
  const auto work = [&] {
    for (size_t i = next++; i < count; i = next++) {
      try {
        each(i);
      } catch (...) {
        thrown[i] = std::current_exception();
      }
    }
  };
  std::vector<std::thread> others;
  const size_t processors = std::max(1u, std::thread::hardware_concurrency());
  while (others.size() + 1 < std::min(processors, count)) others.emplace_back(work);
  work();
  for (std::thread& other : others) other.join();
  for (const std::exception_ptr& exception : thrown) {
    if (exception) std::rethrow_exception(exception);
  }
}

}  // namespace rueda::bench
