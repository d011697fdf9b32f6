// Rings of real data loops, each a thread, over loopback TCP.
#include <condition_variable>
#include <future>
#include <mutex>

#include <gtest/gtest.h>

#include "daemon/engine/data_loop.h"
#include "daemon/transport/striped.h"
#include "daemon/transport/tcp/tcp_transport.h"
#include "tests/engine/ring.h"

namespace rueda::engine {
namespace {

using testing::Work;
using testing::WorkSpec;

class LoopRing {
 public:
  explicit LoopRing(std::vector<int> ranks_per_node, uint32_t streams = 1)
      : ranks_per_node_(std::move(ranks_per_node)) {
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
      DataJobOptions options = testing::data_job_options(size(), i);
      options.data_addresses = addresses_;
      options.chunk_bytes = 16 << 10;
      options.timeout_ms = 60'000;
      options.events.on_done = [this](Seq, double) { tell([this] { ++done_; }); };
      const auto broke = [this](const auto&, const Status& status) {
        tell([this, &status] { broken_ = status.message(); });
      };
      options.events.on_failed = broke;
      options.events.on_channel_lost = broke;
      loops_[static_cast<size_t>(i)]->begin_epoch(std::move(options));
    }
  }

  void run(const Work& work) {
    for (int i = 0; i < size(); ++i) {
      loops_[static_cast<size_t>(i)]->run("ring", Epoch{1}, 0, work.operation(NodeIndex{i}));
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

  // True when every loop has dropped its epoch.
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
  observe::Metrics metrics_{{"0", "test", "none"}};
  std::vector<std::string> addresses_;
  std::mutex mutex_;
  std::condition_variable changed_;
  size_t done_ = 0;
  std::string broken_;
  std::vector<std::unique_ptr<DataLoop>> loops_;
};

class DataJobStreams : public ::testing::TestWithParam<uint32_t> {};

TEST_P(DataJobStreams, ManyOperationsInEveryLane) {
  LoopRing ring({2, 1, 2}, GetParam());
  ring.begin_epoch();
  std::vector<std::unique_ptr<Work>> works;
  for (uint64_t seq = 1; seq <= 60; ++seq) {
    WorkSpec spec;
    spec.sizes = {static_cast<int64_t>(seq * seq * 29), 0, 3};
    spec.dtype = static_cast<DType>(seq % kDTypeCount);
    spec.op = static_cast<ReduceOp>(seq % kReduceOpCount);
    if (seq % 5 == 0) {
      spec.kind = CollectiveKind::kBroadcast;
      spec.root = Rank{static_cast<int32_t>(seq / 5 % 5)};
    }
    works.push_back(std::make_unique<Work>(spec, ring.shape(), Seq{seq}));
  }
  // As core does: four at a time.
  for (size_t i = 0; i < works.size(); ++i) {
    if (i >= 4 && i % 4 == 0) {
      ASSERT_EQ(ring.wait_for(i), "");
    }
    ring.run(*works[i]);
  }
  ASSERT_EQ(ring.wait_for(works.size()), "");
  for (const auto& work : works) EXPECT_EQ(work->check(), "");
  EXPECT_TRUE(ring.end_epoch());
  EXPECT_EQ(ring.metrics().daemon().staging_bytes.Value(), 0);
}

TEST_P(DataJobStreams, AnEpochMayEndInMidOperation) {
  for (int round = 0; round < 5; ++round) {
    LoopRing ring({1, 1}, GetParam());
    ring.begin_epoch();
    WorkSpec spec;
    spec.sizes = {4'000'000};
    const Work work(spec, ring.shape(), Seq{1});
    ring.run(work);
    EXPECT_TRUE(ring.end_epoch());
    EXPECT_EQ(ring.metrics().daemon().staging_bytes.Value(), 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Streams, DataJobStreams, ::testing::Values(1, 2, 4),
                         ::testing::PrintToStringParamName());

TEST(DataJobTcp, TheNumberOfStreamsDoesNotChangeABit) {
  WorkSpec spec;
  spec.op = ReduceOp::kAverage;
  spec.sizes = {400'003, 5};
  spec.random_seed = 42;
  std::vector<testing::Bytes> outputs;
  for (const uint32_t streams : {1u, 2u, 4u}) {
    LoopRing ring({1, 2, 1}, streams);
    ring.begin_epoch();
    const Work work(spec, ring.shape(), Seq{1});
    ring.run(work);
    ASSERT_EQ(ring.wait_for(1), "");
    EXPECT_EQ(work.check(), "");
    outputs.push_back(work.output(Rank{0}));
    EXPECT_TRUE(ring.end_epoch());
  }
  EXPECT_EQ(outputs[0], outputs[1]);
  EXPECT_EQ(outputs[0], outputs[2]);
}

TEST(DataJobTcp, ALoopThatStopsDropsWhatIsUnderWay) {
  LoopRing ring({1, 1});
  ring.begin_epoch();
  WorkSpec spec;
  spec.sizes = {4'000'000};
  const Work work(spec, ring.shape(), Seq{1});
  ring.run(work);
  ring.loop(0).stop();
  ring.loop(1).stop();
  EXPECT_EQ(ring.metrics().daemon().staging_bytes.Value(), 0);
}

TEST(DataLoop, AnEpochThatIsGoneIsQuietAndEnds) {
  LoopRing ring({1});
  std::promise<void> quiet;
  ring.loop(0).when_quiet("ring", Epoch{7}, [&] { quiet.set_value(); });
  EXPECT_EQ(quiet.get_future().wait_for(std::chrono::seconds(60)), std::future_status::ready);
  std::promise<void> ended;
  ring.loop(0).end_epoch("ring", Epoch{7}, [&] { ended.set_value(); });
  EXPECT_EQ(ended.get_future().wait_for(std::chrono::seconds(60)), std::future_status::ready);
}

TEST(DataLoop, APortThatIsTakenIsAnError) {
  observe::Metrics metrics({"0", "test", "none"});
  const auto tcp = [](boost::asio::io_context& io) { return transport::make_tcp_transport(io); };
  DataLoop first(metrics, tcp);
  const Result<std::string> bound = first.start("127.0.0.1:0");
  ASSERT_TRUE(bound.is_ok());
  DataLoop second(metrics, tcp);
  const Result<std::string> taken = second.start(bound.value());
  ASSERT_FALSE(taken.is_ok());
  EXPECT_NE(taken.status().message().find(bound.value()), std::string::npos)
      << taken.status().message();
}

}  // namespace
}  // namespace rueda::engine
