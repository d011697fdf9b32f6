// Tests the data of transfers between ranks: on one node, between nodes over loopback TCP, and what
// becomes of a node that sends what was not agreed.
#include "daemon/engine/data/transfer_job.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>
#include <random>

#include <gmock/gmock.h>

#include "daemon/engine/data/data_loop.h"
#include "daemon/transport/tcp/tcp_transport.h"
#include "tests/engine/ring.h"

namespace rueda::engine {
namespace {

constexpr TicksMs kPatienceMs = 60'000;

// Some data loops, a thread each, with the transfers of one epoch.
class TransferLoops {
 public:
  explicit TransferLoops(int nodes) {
    std::vector<std::string> addresses;
    for (int i = 0; i < nodes; ++i) {
      loops_.push_back(std::make_unique<DataLoop>(
          metrics_, [](boost::asio::io_context& io) { return transport::make_tcp_transport(io); }));
      Result<std::string> bound = loops_.back()->start("127.0.0.1:0");
      EXPECT_TRUE(bound.is_ok()) << bound.status().message();
      addresses.push_back(bound.value());
    }
    for (int i = 0; i < nodes; ++i) {
      DataJobOptions options;
      options.job = "job";
      options.key = testing::kRingKey;
      options.epoch = Epoch{1};
      options.self = NodeIndex{i};
      for (int node = 0; node < nodes; ++node)
        options.node_ids.push_back("n" + std::to_string(node));
      options.data_addresses = addresses;
      options.timeout_ms = kPatienceMs;
      options.events.on_transfer_done = [this](const core::TransferKey& key) {
        tell([&] { ++done_[key]; });
      };
      const auto broke = [this](const auto&, const Status& status) {
        tell([&] { broken_ = status.message(); });
      };
      options.events.on_failed = broke;
      options.events.on_channel_lost = [broke](NodeIndex peer, const Status& status, bool) {
        broke(peer, status);
      };
      loop(i).begin_transfers(std::move(options));
    }
  }

  // Waits until so many parts of transfers are done, over all nodes. Returns what went wrong.
  std::string wait_for(size_t parts) {
    std::unique_lock lock(mutex_);
    const bool came = changed_.wait_for(lock, std::chrono::milliseconds(kPatienceMs), [&] {
      size_t all = 0;
      for (const auto& [key, count] : done_) all += count;
      return !broken_.empty() || all == parts;
    });
    return came ? broken_ : "it stands still";
  }
  bool end_epoch() {
    size_t ended = 0;
    for (const auto& item : loops_) {
      item->end_epoch("job", Epoch{1}, [&] { tell([&] { ++ended; }); });
    }
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::milliseconds(kPatienceMs),
                             [&] { return ended == loops_.size(); });
  }
  DataLoop& loop(int index) { return *loops_[static_cast<size_t>(index)]; }
  observe::Metrics& metrics() { return metrics_; }

 private:
  template <class Change>
  void tell(Change change) {
    const std::lock_guard lock(mutex_);
    change();
    changed_.notify_all();
  }

  observe::Metrics metrics_{{"0", "test", "none"}};
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<core::TransferKey, size_t> done_;
  std::string broken_;
  std::vector<std::unique_ptr<DataLoop>> loops_;
};

struct Message {
  core::TransferKey key;
  std::vector<std::byte> sent;
  std::vector<std::byte> got;
};

std::vector<Message> messages(int nodes, const std::vector<size_t>& sizes, std::mt19937& random) {
  std::vector<Message> all;
  std::map<std::pair<int, int>, uint64_t> numbers;
  for (const size_t size : sizes) {
    const int from = static_cast<int>(random() % static_cast<uint32_t>(nodes));
    const int to = static_cast<int>(random() % static_cast<uint32_t>(nodes));
    Message message;
    message.key = {NodeIndex{from}, NodeIndex{to}, ++numbers[{from, to}]};
    message.sent.resize(size);
    for (std::byte& byte : message.sent) byte = static_cast<std::byte>(random());
    message.got.resize(size);
    all.push_back(std::move(message));
  }
  return all;
}

class TransferJobNodes : public ::testing::TestWithParam<int> {};

TEST_P(TransferJobNodes, ManyOfAllSizesInAnyOrderArriveAsTheyWere) {
  const int nodes = GetParam();
  for (uint32_t seed = 1; seed <= 5; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 random(seed);
    std::vector<size_t> sizes;
    for (int i = 0; i < 60; ++i) {
      const size_t most[] = {1, 100, kTransferSlotBytes, 3 * kTransferSlotBytes, 2 << 20};
      sizes.push_back(1 + random() % most[random() % 5]);
    }
    sizes.insert(sizes.end(), {kTransferSlotBytes, kTransferSlotBytes + 1, 20 << 20});
    std::vector<Message> all = messages(nodes, sizes, random);
    TransferLoops loops(nodes);
    // The two parts of a transfer are launched in any order, as far apart as can be.
    std::vector<std::pair<Message*, bool>> parts;
    size_t expected = 0;
    for (Message& message : all) {
      parts.emplace_back(&message, true);
      if (message.key.from != message.key.to) parts.emplace_back(&message, false);
    }
    std::shuffle(parts.begin(), parts.end(), random);
    for (const auto& [message, is_first] : parts) {
      Transfer transfer;
      transfer.key = message->key;
      transfer.bytes = static_cast<int64_t>(message->sent.size());
      const bool is_local = transfer.is_local();
      if (is_first) transfer.output = message->got.data();
      if (!is_first || is_local) transfer.input = message->sent.data();
      const NodeIndex node = is_first ? message->key.to : message->key.from;
      loops.loop(node.value).run("job", Epoch{1}, std::move(transfer));
      ++expected;
    }
    ASSERT_EQ(loops.wait_for(expected), "");
    for (const Message& message : all) {
      ASSERT_TRUE(message.got == message.sent) << message.sent.size() << " bytes";
    }
    EXPECT_TRUE(loops.end_epoch());
    EXPECT_EQ(loops.metrics().daemon().staging_bytes.Value(), 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Nodes, TransferJobNodes, ::testing::Values(1, 2, 4));

TEST(TransferJob, AnEpochMayEndInMidTransfer) {
  for (int round = 0; round < 5; ++round) {
    std::vector<std::byte> sent(64 << 20);
    std::vector<std::byte> got(sent.size());
    TransferLoops loops(2);
    const core::TransferKey key{NodeIndex{0}, NodeIndex{1}, 1};
    loops.loop(1).run("job", Epoch{1},
                      {key, static_cast<int64_t>(got.size()), nullptr, got.data(), {}, {}});
    loops.loop(0).run("job", Epoch{1},
                      {key, static_cast<int64_t>(sent.size()), sent.data(), nullptr, {}, {}});
    EXPECT_TRUE(loops.end_epoch());
    EXPECT_EQ(loops.metrics().daemon().staging_bytes.Value(), 0);
  }
}

TEST(TransferJob, PartsOfAnotherSizeThanWasAgreedEndTheEpoch) {
  std::vector<std::byte> sent(1000);
  std::vector<std::byte> got(2000, std::byte{7});
  TransferLoops loops(2);
  const core::TransferKey key{NodeIndex{0}, NodeIndex{1}, 1};
  loops.loop(1).run("job", Epoch{1}, {key, 900, nullptr, got.data(), {}, {}});
  loops.loop(0).run("job", Epoch{1}, {key, 1000, sent.data(), nullptr, {}, {}});
  EXPECT_THAT(loops.wait_for(2), ::testing::HasSubstr("part 0 of 1000 bytes where part 0 of 900"));
  EXPECT_EQ(got[0], std::byte{7}) << "nothing of it was written";
  EXPECT_TRUE(loops.end_epoch());
}

}  // namespace
}  // namespace rueda::engine
