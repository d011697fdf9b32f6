#include "daemon/engine/data/epoch_faults.h"

#include <boost/asio/post.hpp>
#include <spdlog/spdlog.h>

#include "daemon/base/one_line.h"

namespace rueda::engine {

void EpochFaults::fail(Seq seq, const Status& why) {
  is_stopped_ = true;  // nothing that was read, or added, may go out any more
  options_.events.on_failed(seq, why);
}

void EpochFaults::fail_for_memory(const Operation& operation) {
  fail(operation.seq, lost_memory(options_.id(options_.self)));
}

// The owner hears of it from a fresh turn, because the caller may be in the middle of an operation.
void EpochFaults::report_loss(NodeIndex peer, const Status& status, bool is_missed) {
  const std::string& id = options_.id(peer);
  const bool is_violation = status.code() == Code::kInternal || status.code() == Code::kVersion;
  if (is_violation && peer != options_.self) {
    const std::string what =
        "what comes from node " + id + " cannot be used: " + one_line(status.message());
    spdlog::warn("job {}: {}", options_.job, what);
    if (options_.events.on_unusable) {
      boost::asio::post(loop_, lifetime_.guard([this, peer, told = Status(Code::kNodeLost, what)] {
        options_.events.on_unusable(peer, told);
      }));
      return;
    }
  }
  boost::asio::post(
      loop_, lifetime_.guard(
                 [this, peer, is_missed,
                  told = Status(Code::kNodeLost, "node " + id + " is lost: " + status.message(),
                                Origin{id, {}})] {
                   options_.events.on_channel_lost(peer, told, is_missed);
                 }));
}

void EpochFaults::report_kept() {
  if (kept_) report_loss(kept_->first, kept_->second, true);
  kept_.reset();
}

}  // namespace rueda::engine
