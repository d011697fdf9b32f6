#include "daemon/engine/timeline.h"

#include <chrono>
#include <tuple>
#include <utility>

#include <gtest/gtest.h>

namespace rueda::engine {
namespace {

using observe::TraceBatch;
using observe::TraceKind;

constexpr int64_t kMs = 1'000'000;

class Host final : public TimelineHost {
 public:
  std::optional<NodeIndex> timeline_parent() const override { return parent; }
  std::vector<NodeIndex> timeline_children() const override { return children; }
  void send_timeline(NodeIndex to, TimelineMessage message) override {
    sent.emplace_back(to, std::move(message));
  }
  bool tell_launcher(TimelineNews item) override {
    if (std::holds_alternative<TraceBatch>(item) && is_full) return false;
    news.push_back(std::move(item));
    return true;
  }

  // The bodies of a kind that were sent, in order.
  template <class Body>
  std::vector<Body> sent_of() const {
    std::vector<Body> out;
    for (const auto& [to, message] : sent) {
      if (const auto* body = std::get_if<Body>(&message.body)) out.push_back(*body);
    }
    return out;
  }

  std::optional<NodeIndex> parent;
  std::vector<NodeIndex> children;
  bool is_full = false;
  std::vector<std::pair<NodeIndex, TimelineMessage>> sent;
  std::vector<TimelineNews> news;
};

class TimelineTest : public ::testing::Test {
 protected:
  std::unique_ptr<Timeline> make(Host& host, int self, int64_t skew_ns = 0) {
    TimelineOptions options;
    options.job = "job";
    options.self = NodeIndex{self};
    options.node_ids = {"n0", "n1", "n2"};
    options.ranks = {Rank{2 * self}, Rank{2 * self + 1}};
    options.clock_skew_ns = skew_ns;
    return std::make_unique<Timeline>(loop_, *job_, options, host);
  }
  // One that records, and knows its parent's clock, which is its own.
  std::unique_ptr<Timeline> make_below(Host& host) {
    host.parent = NodeIndex{0};
    auto timeline = make(host, 1);
    timeline->on_message(NodeIndex{0}, {"job", TimelineBegin{}});
    for (int i = 0; i < 8; ++i) {
      const ClockAsk ask = host.sent_of<ClockAsk>().back();
      timeline->on_message(NodeIndex{0},
                           {"job", ClockAnswer{ask.asked_ns, ask.asked_ns, ask.asked_ns}});
    }
    return timeline;
  }
  // One operation of one tensor, from submission to end.
  static void record(Timeline& timeline, uint64_t seq) {
    auto tensor = std::make_shared<core::TensorDescriptor>();
    tensor->name = "gradient";
    JobTrace& trace = *timeline.trace();
    trace.on_submitted(LocalRank{0}, *tensor);
    trace.on_submitted(LocalRank{1}, *tensor);
    core::Launch launch;
    launch.seq = Seq{seq};
    launch.tensors = std::make_shared<const std::vector<core::LaunchTensor>>(
        std::vector<core::LaunchTensor>{{tensor, 1}});
    trace.on_launch(launch);
    const auto part = trace.part_of_launch(4);
    part->begun_ns = steady_now_ns();
    part->note_sent();
    part->note_received(0);
    trace.on_ended(0, Seq{seq});
    trace.on_delivered(LocalRank{0}, *tensor, Status::ok());
    trace.on_delivered(LocalRank{1}, *tensor, Status::ok());
  }
  void run_for(int ms) { loop_.run_for(std::chrono::milliseconds(ms)); }

  boost::asio::io_context loop_;
  observe::Metrics metrics_{{"0", "n0", "none"}};
  std::shared_ptr<observe::JobMetrics> job_ = metrics_.job("job");
};

TEST_F(TimelineTest, NothingIsRecordedUntilItBegins) {
  Host host;
  const auto timeline = make(host, 0);
  EXPECT_EQ(timeline->trace(), nullptr);
  EXPECT_EQ(timeline->request({}).code(), Code::kInvalidArgument);
  ASSERT_TRUE(timeline->request({true, "/f", false}).is_ok());
  EXPECT_NE(timeline->trace(), nullptr);
  const Status twice = timeline->request({true, "/g", false});
  EXPECT_EQ(twice.code(), Code::kInvalidArgument);
  EXPECT_NE(twice.message().find("/f"), std::string::npos);
}

TEST_F(TimelineTest, TheFileHasAllOfAnOperation) {
  Host host;
  const auto timeline = make(host, 0);
  ASSERT_TRUE(timeline->request({true, "/f", false}).is_ok());
  record(*timeline, 1);
  ASSERT_TRUE(timeline->request({}).is_ok());
  EXPECT_EQ(timeline->trace(), nullptr);
  ASSERT_EQ(host.news.size(), 4u);  // opened, events, the last batch, closed
  EXPECT_EQ(std::get<TimelineOpened>(host.news[0]).path, "/f");
  std::vector<TraceKind> kinds;
  for (const auto& event : std::get<TraceBatch>(host.news[1]).events) kinds.push_back(event.kind);
  const std::vector<TraceKind> expected{
      TraceKind::kNegotiate, TraceKind::kReady,   TraceKind::kReady, TraceKind::kOperation,
      TraceKind::kQueue,     TraceKind::kRing,    TraceKind::kStep,  TraceKind::kForward,
      TraceKind::kBackward,  TraceKind::kExposed, TraceKind::kStep,  TraceKind::kForward,
      TraceKind::kBackward,  TraceKind::kExposed};
  EXPECT_EQ(kinds, expected);
  EXPECT_TRUE(std::get<TraceBatch>(host.news[2]).is_last);
  EXPECT_TRUE(std::get<TimelineClosed>(host.news[3]).missing_nodes.empty());
}

TEST_F(TimelineTest, WhatIsCancelledIsNegotiatedStill) {
  Host host;
  const auto timeline = make(host, 0);
  ASSERT_TRUE(timeline->request({true, "/f", false}).is_ok());
  auto tensor = std::make_shared<core::TensorDescriptor>();
  tensor->name = "gradient";
  timeline->trace()->on_submitted(LocalRank{0}, *tensor);
  core::Launch launch;
  launch.seq = Seq{1};
  launch.tensors = std::make_shared<const std::vector<core::LaunchTensor>>(
      std::vector<core::LaunchTensor>{{tensor, 1}});
  timeline->trace()->on_launch(launch);
  timeline->trace()->on_cancelled({Seq{1}, 2, 0});
  timeline->trace()->on_launch(launch);
  (void)timeline->trace()->part_of_launch(4);
  timeline->trace()->on_ended(0, Seq{1});
  const TraceBatch batch = timeline->trace()->buffer().take(100);
  ASSERT_GE(batch.events.size(), 2u);
  EXPECT_EQ(batch.events[0].kind, TraceKind::kNegotiate);
  EXPECT_EQ(batch.events[1].kind, TraceKind::kReady);
}

TEST_F(TimelineTest, ASlowNodeAboveGetsNoMoreThanItTakes) {
  Host host;
  const auto timeline = make_below(host);
  constexpr int kOperations = 30'000;  // of some eight events
  for (int i = 0; i < kOperations; ++i) {
    record(*timeline, static_cast<uint64_t>(i) + 1);
    if (i % 1'000 == 0) run_for(1);
  }
  run_for(250);
  EXPECT_EQ(host.sent_of<TraceBatch>().size(), 8u);  // and not one more before one is taken
  timeline->on_message(NodeIndex{0}, {"job", TimelineTaken{}});
  EXPECT_EQ(host.sent_of<TraceBatch>().size(), 9u);
  timeline->on_message(NodeIndex{0}, {"job", TimelineEnd{}});
  const std::vector<TraceBatch> batches = host.sent_of<TraceBatch>();
  uint64_t events = 0;
  for (const TraceBatch& batch : batches) events += batch.events.size();
  EXPECT_TRUE(batches.back().is_last);
  EXPECT_LE(events, 9u * 4096 + (1u << 16) + 100);
  EXPECT_GT(batches.back().dropped, 0u);
  EXPECT_EQ(static_cast<uint64_t>(job_->timeline_dropped_events.Value()), batches.back().dropped);
}

TEST_F(TimelineTest, WhatTheLauncherDoesNotTakeIsCounted) {
  Host host;
  const auto timeline = make(host, 0);
  ASSERT_TRUE(timeline->request({true, "/f", false}).is_ok());
  host.is_full = true;
  TraceBatch batch;
  batch.node = 1;
  batch.node_id = "n1";
  batch.events.resize(10);
  timeline->on_message(NodeIndex{1}, {"job", batch});
  EXPECT_EQ(host.sent_of<TimelineTaken>().size(), 1u);
  host.is_full = false;
  timeline->on_message(NodeIndex{1}, {"job", batch});
  EXPECT_EQ(std::get<TraceBatch>(host.news.back()).dropped, 10u);
  EXPECT_EQ(job_->timeline_dropped_events.Value(), 10);
}

TEST_F(TimelineTest, TimesAreRestatedOnTheClockAbove) {
  Host above_host;
  Host below_host;
  below_host.parent = NodeIndex{0};
  above_host.children = {NodeIndex{1}};
  const auto above = make(above_host, 0);
  const auto below = make(below_host, 1, 250 * kMs);
  ASSERT_TRUE(above->request({true, "/f", false}).is_ok());
  // Each gets what the other has sent, until nothing is left.
  const auto exchange = [&] {
    for (bool is_moving = true; is_moving;) {
      is_moving = false;
      for (auto [host, other, from] :
           {std::tuple{&above_host, below.get(), 0}, std::tuple{&below_host, above.get(), 1}}) {
        for (auto& [to, message] : std::exchange(host->sent, {})) {
          other->on_message(NodeIndex{from}, std::move(message));
          is_moving = true;
        }
      }
    }
  };
  exchange();
  ASSERT_NE(below->trace(), nullptr);
  const int64_t begin_ns = steady_now_ns();
  record(*below, 1);
  const int64_t end_ns = steady_now_ns();
  ASSERT_TRUE(above->request({}).is_ok());
  exchange();
  ASSERT_TRUE(std::holds_alternative<TimelineClosed>(above_host.news.back()));
  size_t events = 0;
  for (const TimelineNews& item : above_host.news) {
    const auto* batch = std::get_if<TraceBatch>(&item);
    if (!batch || batch->node != 1) continue;
    EXPECT_NEAR(batch->clock_offset_ns, -250 * kMs, batch->clock_error_ns);
    EXPECT_LT(batch->clock_error_ns, kMs);
    for (const observe::TraceEvent& event : batch->events) {
      EXPECT_GE(event.begin_ns, begin_ns - kMs);
      EXPECT_LE(event.begin_ns + event.duration_ns, end_ns + kMs);
      ++events;
    }
  }
  EXPECT_GT(events, 8u);
}

TEST_F(TimelineTest, ANodeThatDoesNotSayItsLastIsNamed) {
  Host host;
  host.children = {NodeIndex{1}};
  const auto timeline = make(host, 0);
  ASSERT_TRUE(timeline->request({true, "/f", false}).is_ok());
  timeline->on_message(NodeIndex{1}, {"job", ClockAsk{1}});
  ASSERT_TRUE(timeline->request({}).is_ok());
  EXPECT_FALSE(std::holds_alternative<TimelineClosed>(host.news.back()));
  run_for(1'200);
  EXPECT_EQ(std::get<TimelineClosed>(host.news.back()).missing_nodes,
            std::vector<std::string>{"n1"});
}

TEST_F(TimelineTest, OnlyTheNodeAboveBeginsAndEndsIt) {
  Host host;
  host.parent = NodeIndex{0};
  host.children = {NodeIndex{2}};
  const auto timeline = make(host, 1);
  timeline->on_message(NodeIndex{2}, {"job", TimelineBegin{}});
  EXPECT_EQ(timeline->trace(), nullptr);
  timeline->on_message(NodeIndex{0}, {"job", TimelineBegin{}});
  EXPECT_NE(timeline->trace(), nullptr);
  EXPECT_EQ(host.sent_of<TimelineBegin>().size(), 1u);  // to the node below
  timeline->on_message(NodeIndex{2}, {"job", TimelineEnd{}});
  EXPECT_NE(timeline->trace(), nullptr);
}

}  // namespace
}  // namespace rueda::engine
