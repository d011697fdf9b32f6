#include "daemon/engine/loops/poster.h"

#include <utility>

#include <boost/asio/post.hpp>
#include <spdlog/spdlog.h>

#include "daemon/engine/loops/busy_poll_loop.h"

namespace rueda::engine {

void report_exception(const char* what) {
  spdlog::error("work on a loop has failed, and the daemon goes on: {}", what);
}

void LoopPoster::post(std::function<void()> work) const {
  boost::asio::post(loop_, std::move(work));
}

}  // namespace rueda::engine
