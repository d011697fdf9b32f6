#include "daemon/engine/loops/poster.h"

#include <utility>

#include <boost/asio/post.hpp>
#include <spdlog/spdlog.h>

#include "daemon/engine/loops/busy_poll_loop.h"

namespace rueda::engine {

void report_exception(const char* what) {
  spdlog::error("work on a loop has failed, and the daemon goes on: {}", what);
}

void report_slow(const char* loop, const SlowHandler& slow) {
  if (!slow.is_news && !slow.is_ended) return;
  spdlog::warn("the {} loop worked {} ms in one go for {} ({} ms passed), and others waited{}",
               loop, slow.worked.count(), slow.cause.name, slow.passed.count(),
               slow.is_ended ? ": it is ended" : "");
}

void LoopPoster::post(std::function<void()> work) const {
  boost::asio::post(loop_, std::move(work));
}

}  // namespace rueda::engine
