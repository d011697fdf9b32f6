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
constexpr size_t kMostOffers = 40;

// Some data loops, a thread each, with the transfers of one epoch.
class TransferLoops {
 public:
  explicit TransferLoops(int nodes) {
    for (int i = 0; i < nodes; ++i) {
      loops_.push_back(std::make_unique<DataLoop>(
          metrics_, [](boost::asio::io_context& io) { return transport::make_tcp_transport(io); }));
      Result<std::string> bound = loops_.back()->start("127.0.0.1:0");
      EXPECT_TRUE(bound.is_ok()) << bound.status().message();
      addresses_.push_back(bound.value());
    }
    for (int i = 0; i < nodes; ++i) {
      DataJobOptions options;
      options.job = "job";
      options.key = testing::kRingKey;
      options.epoch = Epoch{1};
      options.self = NodeIndex{i};
      for (int node = 0; node < nodes; ++node)
        options.node_ids.push_back("n" + std::to_string(node));
      options.data_addresses = addresses_;
      options.most_offers.assign(static_cast<size_t>(nodes), kMostOffers);
      options.timeout_ms = kPatienceMs;
      options.events.on_transfer_done = [this](const core::TransferKey& key) {
        tell([&] { ++done_[key]; });
      };
      options.events.on_transfer_message =
          [this, i](NodeIndex from, uint32_t set, const core::TransferMessage& message,
                    const std::shared_ptr<const std::vector<std::byte>>& data) {
            tell([&] { told_.push_back({i, from.value, set, message, data}); });
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
  struct Told {
    int at;
    int from;
    uint32_t process_set;
    core::TransferMessage message;
    std::shared_ptr<const std::vector<std::byte>> data;
  };
  // Waits for so many messages, over all nodes, or until something has gone wrong.
  std::vector<Told> wait_for_messages(size_t count) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, std::chrono::milliseconds(kPatienceMs),
                      [&] { return !broken_.empty() || told_.size() >= count; });
    EXPECT_EQ(broken_, "");
    return std::exchange(told_, {});
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
  const std::string& address(int index) const { return addresses_[static_cast<size_t>(index)]; }
  size_t told() {
    const std::lock_guard lock(mutex_);
    return told_.size();
  }
  std::string broken() {
    const std::lock_guard lock(mutex_);
    return broken_;
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
  std::vector<std::string> addresses_;
  std::vector<Told> told_;
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
    // The two parts of a transfer are launched as far apart as can be, in any order of transfers.
    std::vector<std::pair<Message*, bool>> parts;
    size_t expected = 0;
    for (Message& message : all) {
      parts.emplace_back(&message, true);
      if (message.key.from != message.key.to) parts.emplace_back(&message, false);
    }
    std::shuffle(parts.begin(), parts.end(), random);
    std::stable_partition(parts.begin(), parts.end(), [](const auto& part) { return part.second; });
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

TransferJob::Outgoing offer(int to, uint64_t number, const std::vector<std::byte>& data) {
  const auto bytes = static_cast<int64_t>(data.size());
  TransferJob::Outgoing message{NodeIndex{to}, 3, {}, {}};
  message.message = core::TransferOffer{number, Rank{0}, Rank{1}, 5, DType::kUInt8, bytes, false};
  message.source.bytes = bytes;
  message.source.input = data.data();
  return message;
}
TransferJob::Outgoing take(int to, uint64_t number, bool carried) {
  return {NodeIndex{to}, 0, core::TransferTake{number, carried}, {}};
}

TEST(TransferJob, SmallDataGoesWithItsOfferAsLongAsLittleWaits) {
  TransferLoops loops(2);
  std::vector<std::byte> data(kMostCarriedBytes);
  for (size_t i = 0; i < data.size(); ++i) data[i] = static_cast<std::byte>(i * 7);
  const uint64_t most = kCarriedBudget / kMostCarriedBytes;
  for (uint64_t i = 1; i <= most + 2; ++i) loops.loop(0).send("job", Epoch{1}, offer(1, i, data));
  loops.loop(1).open_transfers("job", Epoch{1}, NodeIndex{0});
  loops.loop(0).open_transfers("job", Epoch{1}, NodeIndex{1});
  const auto offers = loops.wait_for_messages(most + 2);
  ASSERT_EQ(offers.size(), most + 2);
  for (uint64_t i = 1; i <= most + 2; ++i) {
    const TransferLoops::Told& told = offers[i - 1];
    const auto& got = std::get<core::TransferOffer>(told.message);
    EXPECT_EQ(std::tuple(told.at, told.from, told.process_set, got.number),
              std::tuple(1, 0, 3u, i));
    EXPECT_EQ(got.carried, i <= most) << i;
    ASSERT_EQ(told.data != nullptr, got.carried);
    EXPECT_TRUE(!told.data || *told.data == data);
  }
  loops.loop(1).send("job", Epoch{1}, take(0, 1, true));
  const auto taken = loops.wait_for_messages(1);
  ASSERT_EQ(taken.size(), 1u);
  EXPECT_TRUE(std::get<core::TransferTake>(taken[0].message).carried);
  // There is room again; but what is too large never goes with its offer.
  loops.loop(0).send("job", Epoch{1}, offer(1, most + 3, data));
  const std::vector<std::byte> large(kMostCarriedBytes + 1);
  loops.loop(0).send("job", Epoch{1}, offer(1, most + 4, large));
  const auto more = loops.wait_for_messages(2);
  ASSERT_EQ(more.size(), 2u);
  EXPECT_TRUE(std::get<core::TransferOffer>(more[0].message).carried);
  EXPECT_FALSE(std::get<core::TransferOffer>(more[1].message).carried);
  EXPECT_TRUE(loops.end_epoch());
  EXPECT_EQ(loops.metrics().daemon().staging_bytes.Value(), 0);
}

// Node 0 says what it must not, and node 1 hears it.
TEST(TransferJob, WhatBreaksTheRulesEndsTheEpochWithTheReason) {
  const std::vector<std::byte> data(100);
  using Lie = std::function<void(DataLoop&)>;
  const auto send = [](DataLoop& loop, const TransferJob::Outgoing& message) {
    loop.send("job", Epoch{1}, message);
  };
  const std::vector<std::pair<Lie, const char*>> lies = {
      {[&](DataLoop& loop) { send(loop, take(1, 9, true)); },
       "answered offer 9, which is not open"},
      {[&](DataLoop& loop) {
         for (int i = 0; i < 2; ++i) send(loop, offer(1, 4, data));
       },
       "it made offer 4 twice"},
      {[&](DataLoop& loop) {
         for (uint64_t i = 1; i <= kMostOffers + 1; ++i) send(loop, offer(1, i, data));
       },
       "it has more than 40 offers open"},
      {[&](DataLoop& loop) {
         loop.run("job", Epoch{1},
                  {{NodeIndex{0}, NodeIndex{1}, 7}, 100, data.data(), nullptr, {}, {}});
       },
       "a part of transfer 7, which was not taken"},
  };
  for (const auto& [lie, why] : lies) {
    TransferLoops loops(2);
    loops.loop(1).open_transfers("job", Epoch{1}, NodeIndex{0});
    lie(loops.loop(0));
    EXPECT_THAT(loops.wait_for(SIZE_MAX), ::testing::HasSubstr(why));
    EXPECT_TRUE(loops.end_epoch());
  }
}

// Writes offers with data, one after the other, whatever waits on the other node.
class Glutton final : public transport::SendEvents {
 public:
  Glutton(const std::string& address, int offers) : left_(offers) {
    region_ = transport_->register_region(memory_).value();
    transport::ConnectOptions options;
    options.address = address;
    options.id = {testing::kRingKey, 1, 0, 1, 1u << 17, 0};
    options.slot_count = kTransferSlots;
    options.slot_bytes = kTransferSlotBytes;
    options.timeout_ms = kPatienceMs;
    options.events = this;
    transport_->connect(options, [this](Result<std::unique_ptr<transport::SendChannel>> made) {
      ASSERT_TRUE(made.is_ok()) << made.status().message();
      channel_ = std::move(made).value();
      for (uint32_t slot = 0; slot < kTransferSlots; ++slot) write(slot);
    });
  }
  void run_until(const std::function<bool()>& is_over) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(kPatienceMs);
    while (!is_over() && std::chrono::steady_clock::now() < deadline) {
      io_.run_for(std::chrono::milliseconds(10));
    }
  }
  void on_sent(uint64_t) override {}
  void on_slot_free(uint32_t slot) override { write(slot); }
  void on_closed(const Status&) override {}

 private:
  void write(uint32_t slot) {
    if (left_ == 0) return;
    --left_;
    std::byte* const at = memory_.data() + size_t{slot} * kTransferSlotBytes;
    const core::TransferOffer offer{++number_,     Rank{0},           Rank{1}, 0,
                                    DType::kUInt8, kMostCarriedBytes, true};
    transport::FrameHeader header;
    header.kind = transport::FrameKind::kTransferMessage;
    header.job = testing::kRingKey.first;
    header.epoch = 1;
    header.slot = slot;
    header.payload_bytes =
        static_cast<uint32_t>(write_record(0, offer, at) + size_t{kMostCarriedBytes});
    const transport::SendBuffer buffer{at, header.payload_bytes, region_};
    channel_->write(header, std::span(&buffer, 1), slot);
  }

  boost::asio::io_context io_;
  std::unique_ptr<transport::Transport> transport_ = transport::make_tcp_transport(io_);
  std::vector<std::byte> memory_ = std::vector<std::byte>(kTransferStagingBytes);
  transport::RegionKey region_;
  int left_;
  uint64_t number_ = 0;
  std::unique_ptr<transport::SendChannel> channel_;
};

TEST(TransferJob, WhoSendsMoreThanTheBudgetEndsTheEpoch) {
  const auto most = static_cast<int>(kCarriedBudget / kMostCarriedBytes);
  for (const bool is_too_much : {false, true}) {
    TransferLoops loops(2);
    loops.loop(1).open_transfers("job", Epoch{1}, NodeIndex{0});
    Glutton glutton(loops.address(1), most + (is_too_much ? 1 : 0));
    glutton.run_until([&] {
      return is_too_much ? !loops.broken().empty() : loops.told() == static_cast<size_t>(most);
    });
    EXPECT_EQ(loops.told(), static_cast<size_t>(most));
    if (is_too_much) {
      EXPECT_THAT(loops.broken(), ::testing::HasSubstr("bytes of what it sent with offers"));
    } else {
      EXPECT_EQ(loops.broken(), "");
    }
    EXPECT_TRUE(loops.end_epoch());
  }
}

TEST(TransferJob, AnAnswerThatDoesNotKnowWhatWasCarriedEndsTheEpoch) {
  const std::vector<std::byte> data(100);
  TransferLoops loops(2);
  loops.loop(1).open_transfers("job", Epoch{1}, NodeIndex{0});
  loops.loop(0).open_transfers("job", Epoch{1}, NodeIndex{1});
  loops.loop(0).send("job", Epoch{1}, offer(1, 1, data));
  ASSERT_EQ(loops.wait_for_messages(1).size(), 1u);
  loops.loop(1).send("job", Epoch{1}, take(0, 1, false));
  EXPECT_THAT(loops.wait_for(1), ::testing::HasSubstr("or was made in another way"));
  EXPECT_TRUE(loops.end_epoch());
}

}  // namespace
}  // namespace rueda::engine
