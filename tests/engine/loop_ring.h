// Runs a ring of data loops, each a thread, over loopback TCP.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "daemon/engine/data/data_loop.h"
#include "daemon/transport/striped.h"
#include "daemon/transport/tcp/tcp_transport.h"
#include "tests/engine/ring.h"

namespace rueda::engine::testing {

class LoopRing {
 public:
  explicit LoopRing(std::vector<int> ranks_per_node, uint32_t streams = 1,
                    uint64_t chunk_bytes = 16 << 10)
      : ranks_per_node_(std::move(ranks_per_node)), chunk_bytes_(chunk_bytes) {
    for (size_t i = 0; i < ranks_per_node_.size(); ++i) {
      loops_.push_back(std::make_unique<DataLoop>(metrics_, [streams](boost::asio::io_context& io) {
        return transport::make_striped_transport(io, transport::make_tcp_transport(io), streams);
      }));
      Result<std::string> bound = loops_.back()->start("127.0.0.1:0");
      EXPECT_TRUE(bound.is_ok()) << bound.status().message();
      addresses_.push_back(bound.value());
    }
  }

  void begin_epoch() {
    for (int i = 0; i < size(); ++i) {
      DataJobOptions options = data_job_options(size(), i);
      options.data_addresses = addresses_;
      options.chunk_bytes = chunk_bytes_;
      options.timeout_ms = 60'000;
      options.events.on_done = [this](Seq, double) { tell([this] { ++done_; }); };
      const auto broke = [this](const auto&, const Status& status) {
        tell([this, &status] { broken_ = status.message(); });
      };
      options.events.on_failed = broke;
      options.events.on_channel_lost = [broke](NodeIndex peer, const Status& status, bool) {
        broke(peer, status);
      };
      loops_[static_cast<size_t>(i)]->begin_epoch(std::move(options));
    }
  }

  void run(const OperationFixture& work, Operation::Share share = {}) {
    for (int i = 0; i < size(); ++i) {
      std::unique_ptr<Operation> operation = work.operation(NodeIndex{i});
      operation->share = share;
      loop(i).run("ring", Epoch{1}, 0, std::move(operation));
    }
  }

  // Waits until so many operations are done, counted on every node.
  std::string wait_for(size_t operations) {
    std::unique_lock lock(mutex_);
    const bool came = changed_.wait_for(lock, std::chrono::seconds(60), [&] {
      return !broken_.empty() || done_ == operations * loops_.size();
    });
    return came ? broken_ : "it stands still";
  }

  // Ends the epoch. Returns true when every loop has dropped it.
  bool end_epoch() {
    size_t ended = 0;
    for (const auto& loop : loops_) {
      loop->end_epoch("ring", Epoch{1}, [&] { tell([&] { ++ended; }); });
    }
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(60),
                             [&] { return ended == loops_.size(); });
  }

  int size() const { return static_cast<int>(ranks_per_node_.size()); }
  const std::vector<int>& shape() const { return ranks_per_node_; }
  DataLoop& loop(int index) { return *loops_[static_cast<size_t>(index)]; }
  observe::Metrics& metrics() { return metrics_; }

 private:
  template <class Change>
  void tell(Change change) {
    const std::lock_guard lock(mutex_);
    change();
    changed_.notify_all();
  }

  const std::vector<int> ranks_per_node_;
  const uint64_t chunk_bytes_;
  observe::Metrics metrics_{{"0", "test", "none"}};
  std::vector<std::string> addresses_;
  std::mutex mutex_;
  std::condition_variable changed_;
  size_t done_ = 0;
  std::string broken_;
  std::vector<std::unique_ptr<DataLoop>> loops_;
};

}  // namespace rueda::engine::testing
