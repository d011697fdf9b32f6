#include "daemon/engine/trace/timeline.h"

#include <algorithm>
#include <chrono>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

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
  // Each node has one child, the next node.
  bool is_below_child(NodeIndex node, NodeIndex child) const override { return child <= node; }
  void send_timeline(NodeIndex to, TimelineMessage message) override {
    sent.emplace_back(to, std::move(message));
  }
  bool tell_launcher(TimelineNews item) override {
    if (std::holds_alternative<TraceBatch>(item) && is_full) return false;
    news.push_back(std::move(item));
    return true;
  }

  // Returns the bodies of a kind that were sent, in order.
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
  // Makes a timeline that records, and knows its parent's clock, which equals its own.
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
  static core::Launch launch_of(uint64_t seq, const std::vector<std::string>& names) {
    core::Launch launch;
    launch.seq = Seq{seq};
    std::vector<core::LaunchTensor> tensors;
    for (const std::string& name : names) {
      auto tensor = std::make_shared<core::TensorDescriptor>();
      tensor->name = name;
      tensors.push_back({tensor, 1});
      for (int local = 0; local < 2; ++local) launch.tickets.emplace_back(Ticket{0});
    }
    launch.tensors = std::make_shared<const std::vector<core::LaunchTensor>>(std::move(tensors));
    return launch;
  }
  static void launch(Timeline& timeline, const core::Launch& launched) {
    const int64_t submitted_ns = steady_now_ns() - kMs / 100;
    timeline.trace()->on_launch(launched, {LocalRank{0}, LocalRank{1}},
                                [&](LocalRank, Ticket) { return submitted_ns; });
  }
  // Records one operation of one tensor, from launch to end.
  static void record(Timeline& timeline, uint64_t seq) {
    launch(timeline, launch_of(seq, {"gradient"}));
    JobTrace& trace = *timeline.trace();
    const auto part = trace.part_of_launch(4);
    part->begun_ns = steady_now_ns();
    part->note_sent();
    part->note_received(0);
    trace.on_ended(0, Seq{seq});
  }
  void run_for(int ms) {
    loop_.restart();
    loop_.run_for(std::chrono::milliseconds(ms));
  }

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
  const auto& batch = std::get<TraceBatch>(host.news[1]);
  std::vector<TraceKind> kinds;
  for (const auto& event : batch.events) kinds.push_back(event.kind);
  const std::vector<TraceKind> expected{
      TraceKind::kRing,     TraceKind::kStep,     TraceKind::kForward,
      TraceKind::kBackward, TraceKind::kExposed,  TraceKind::kStep,
      TraceKind::kForward,  TraceKind::kBackward, TraceKind::kExposed};
  EXPECT_EQ(kinds, expected);
  ASSERT_EQ(batch.operations.size(), 1u);
  const observe::TraceOperation& operation = batch.operations[0];
  EXPECT_EQ(operation.number, 1u);
  EXPECT_EQ(operation.tensors->size(), 1u);
  ASSERT_EQ(operation.ready.size(), 2u);
  for (int local = 0; local < 2; ++local) {
    const observe::TraceReady& ready = operation.ready[static_cast<size_t>(local)];
    EXPECT_EQ(ready.rank, local);
    EXPECT_EQ(ready.tensors, 1u);
    EXPECT_LT(ready.at_ns, operation.launched_ns);
  }
  EXPECT_LT(operation.launched_ns, operation.begun_ns);
  EXPECT_LT(operation.begun_ns, operation.ended_ns);
  EXPECT_TRUE(std::get<TraceBatch>(host.news[2]).is_last);
  EXPECT_TRUE(std::get<TimelineClosed>(host.news[3]).missing_nodes.empty());
}

TEST_F(TimelineTest, WhatIsCancelledHasNotHappenedAndIsRecordedWhenItComesAgain) {
  Host host;
  const auto timeline = make(host, 0);
  ASSERT_TRUE(timeline->request({true, "/f", false}).is_ok());
  launch(*timeline, launch_of(1, {"gradient"}));
  launch(*timeline, launch_of(2, {"loss"}));
  timeline->trace()->on_cancelled({Seq{1}, 2, 0});
  launch(*timeline, launch_of(1, {"loss", "gradient"}));
  (void)timeline->trace()->part_of_launch(4);
  timeline->trace()->on_ended(0, Seq{1});
  timeline->trace()->on_ended(0, Seq{2});
  const TraceBatch batch = timeline->trace()->buffer().take({});
  ASSERT_EQ(batch.operations.size(), 1u);
  EXPECT_EQ(batch.operations[0].number, 1u);
  EXPECT_EQ(batch.operations[0].tensors->size(), 2u);
  ASSERT_FALSE(batch.operations[0].ready.empty());
  EXPECT_NE(batch.operations[0].ready[0].at_ns, observe::TraceReady::kNever);
}

TEST_F(TimelineTest, RanksAreReadyAtTimesOfTheirOwnOrNever) {
  Host host;
  const auto timeline = make(host, 1, 5 * kMs);
  host.parent = NodeIndex{0};
  timeline->on_message(NodeIndex{0}, {"job", TimelineBegin{}});
  core::Launch launched = launch_of(1, {"a", "b", "c"});
  const int64_t now_ns = steady_now_ns();
  // Rank 2 submits a and b at one time, and c later; rank 3 submits a and b, and never c.
  for (size_t i = 0; i < 6; ++i) launched.tickets[i] = Ticket{i};
  launched.tickets[5].reset();
  const std::vector<int64_t> at{30, 9, 30, 9, 20};
  timeline->trace()->on_launch(
      launched, {LocalRank{0}, LocalRank{1}},
      [&](LocalRank, Ticket ticket) { return now_ns - at[ticket.value] * kMs; });
  timeline->trace()->on_ended(0, Seq{1});
  const TraceBatch batch = timeline->trace()->buffer().take({});
  ASSERT_EQ(batch.operations.size(), 1u);
  const auto ready = [&](int32_t rank, uint32_t tensors, int64_t ms) {
    return observe::TraceReady{rank, tensors, now_ns - ms * kMs + 5 * kMs};
  };
  EXPECT_EQ(
      batch.operations[0].ready,
      (std::vector<observe::TraceReady>{
          ready(2, 2, 30), ready(2, 1, 20), ready(3, 2, 9), {3, 1, observe::TraceReady::kNever}}));
}

TEST_F(TimelineTest, APlansTensorsAreTheSameOnesEachTime) {
  Host host;
  const auto timeline = make(host, 0);
  ASSERT_TRUE(timeline->request({true, "/f", false}).is_ok());
  core::Launch launched = launch_of(1, {"gradient", "loss"});
  launched.locked = true;
  for (uint64_t seq = 1; seq <= 2; ++seq) {
    launched.seq = Seq{seq};
    launch(*timeline, launched);
    timeline->trace()->on_ended(0, Seq{seq});
  }
  launch(*timeline, launch_of(3, {"gradient"}));
  timeline->trace()->on_ended(0, Seq{3});
  const TraceBatch batch = timeline->trace()->buffer().take({});
  ASSERT_EQ(batch.operations.size(), 3u);
  EXPECT_EQ(batch.operations[0].tensors, batch.operations[1].tensors);
  EXPECT_EQ(*batch.operations[2].tensors,
            std::vector<uint32_t>{batch.operations[0].tensors->front()});
}

TEST_F(TimelineTest, TensorsBeyondItsBoundAreDroppedAndCounted) {
  JobTrace trace({.ranks = {Rank{0}, Rank{1}}, .max_tracks = 4});  // two of them for the ranks
  trace.on_launch(launch_of(1, {"a", "b", "c", "d", "e"}), {LocalRank{0}, LocalRank{1}},
                  [](LocalRank, Ticket) { return kMs; });
  trace.on_ended(0, Seq{1});
  const TraceBatch batch = trace.buffer().take({});
  ASSERT_EQ(batch.operations.size(), 1u);
  EXPECT_EQ(batch.operations[0].tensors->size(), 2u);
  EXPECT_EQ(batch.operations[0].ready.front().tensors, 2u);
  EXPECT_EQ(batch.dropped, 3u * (3 + 2));
}

TEST_F(TimelineTest, ASlowNodeAboveGetsNoMoreThanItTakes) {
  Host host;
  const auto timeline = make_below(host);
  constexpr int kOperations = 60'000;  // of some five records and eleven events
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
  for (const TraceBatch& batch : batches)
    events += batch.events.size() + 3 * batch.operations.size();
  EXPECT_TRUE(batches.back().is_last);
  EXPECT_LE(events, 9u * 4100 + (1u << 16) + 100);  // three records an operation, or one an event
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

TEST_F(TimelineTest, NamesOfABatchThatFoundNoRoomComeWithTheNext) {
  Host host;
  const auto timeline = make(host, 0);
  ASSERT_TRUE(timeline->request({true, "/f", false}).is_ok());
  const auto hear = [&](int32_t node, std::vector<std::pair<uint32_t, std::string>> tracks) {
    TraceBatch batch;
    batch.node = node;
    batch.tracks = std::move(tracks);
    timeline->on_message(NodeIndex{node}, {"job", batch});
    return std::get_if<TraceBatch>(&host.news.back());
  };
  host.is_full = true;
  hear(1, {{3, "a"}, {4, "b"}});
  hear(2, {{3, "c"}});
  hear(1, {{5, "d"}});
  host.is_full = false;
  using Names = decltype(TraceBatch::tracks);
  EXPECT_EQ(hear(1, {{6, "e"}})->tracks, (Names{{6, "e"}, {3, "a"}, {4, "b"}, {5, "d"}}));
  EXPECT_EQ(hear(1, {})->tracks, Names{});
  EXPECT_EQ(hear(2, {})->tracks, (Names{{3, "c"}}));
}

TEST_F(TimelineTest, BatchesThatWereLostWithAnEpochHoldUpNoneOfTheNext) {
  Host host;
  const auto timeline = make_below(host);
  uint64_t seq = 0;
  const auto send_one = [&] {
    record(*timeline, ++seq);
    timeline->flush();  // whatever is on its way
  };
  for (int i = 0; i < 8; ++i) send_one();
  ASSERT_EQ(host.sent_of<TraceBatch>().size(), 8u);
  record(*timeline, ++seq);
  run_for(150);
  EXPECT_EQ(host.sent_of<TraceBatch>().size(), 8u);
  timeline->on_message(NodeIndex{0}, {"job", TimelineBegin{}});  // of the next epoch
  run_for(150);
  EXPECT_EQ(host.sent_of<TraceBatch>().size(), 9u);
}

TEST_F(TimelineTest, ATrackIsNamedOnceInAnEpoch) {
  Host host;
  const auto timeline = make_below(host);
  const auto is_named = [&](uint64_t seq) {
    record(*timeline, seq);
    timeline->flush();
    const TraceBatch batch = host.sent_of<TraceBatch>().back();
    return std::any_of(batch.tracks.begin(), batch.tracks.end(),
                       [](const auto& track) { return track.second == "tensor gradient"; });
  };
  EXPECT_TRUE(is_named(1));
  EXPECT_FALSE(is_named(2));
  timeline->on_message(NodeIndex{0}, {"job", TimelineBegin{}});  // of the next epoch
  EXPECT_TRUE(is_named(3));
  EXPECT_FALSE(is_named(4));
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
  size_t operations = 0;
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
    for (const observe::TraceOperation& operation : batch->operations) {
      const std::vector<int64_t> times{operation.ready[0].at_ns, operation.ready[1].at_ns,
                                       operation.launched_ns, operation.begun_ns,
                                       operation.ended_ns};
      for (const int64_t time : times) {
        EXPECT_GE(time, begin_ns - kMs);
        EXPECT_LE(time, end_ns + kMs);
      }
      ++operations;
    }
  }
  EXPECT_GT(events, 8u);
  EXPECT_EQ(operations, 1u);
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

// Node 0 had all of the last operation, and its launcher said that it is enough; the others had it
// a moment later, and their spans of it were missing.
TEST_F(TimelineTest, WhatIsUnderWayWhenItEndsIsRecordedOnAllNodes) {
  Host host;
  const auto below = make_below(host);
  launch(*below, launch_of(1, {"gradient"}));
  below->on_message(NodeIndex{0}, {"job", TimelineEnd{}});
  ASSERT_NE(below->trace(), nullptr);
  EXPECT_EQ(below->trace_of_launches(), nullptr) << "nothing new is recorded";
  run_for(250);
  ASSERT_NE(below->trace(), nullptr);
  below->trace()->on_ended(0, Seq{1});
  run_for(250);
  EXPECT_EQ(below->trace(), nullptr);
  size_t operations = 0;
  for (const TraceBatch& batch : host.sent_of<TraceBatch>()) operations += batch.operations.size();
  EXPECT_EQ(operations, 1u);
  EXPECT_TRUE(host.sent_of<TraceBatch>().back().is_last);

  Host root_host;
  const auto root = make(root_host, 0);
  ASSERT_TRUE(root->request({true, "/f", false}).is_ok());
  launch(*root, launch_of(1, {"gradient"}));
  ASSERT_TRUE(root->request({}).is_ok());
  EXPECT_FALSE(std::holds_alternative<TimelineClosed>(root_host.news.back()));
  root->trace()->on_ended(0, Seq{1});
  run_for(250);
  EXPECT_TRUE(std::holds_alternative<TimelineClosed>(root_host.news.back()));
}

TEST_F(TimelineTest, WhatNeverEndsHoldsUpNoTimeline) {
  Host host;
  const auto root = make(host, 0);
  ASSERT_TRUE(root->request({true, "/f", false}).is_ok());
  launch(*root, launch_of(1, {"gradient"}));
  ASSERT_TRUE(root->request({}).is_ok());
  run_for(1'200);
  EXPECT_TRUE(std::holds_alternative<TimelineClosed>(host.news.back()));
}

TEST_F(TimelineTest, EventsOfANodeThatTheJobDoesNotHaveAreDropped) {
  Host host;
  host.children = {NodeIndex{1}};
  const auto root = make(host, 0);
  ASSERT_TRUE(root->request({true, "/f", false}).is_ok());
  const size_t before = host.news.size();
  for (const int32_t node : {-1, 3, 4095, 0}) {
    for (const bool is_last : {false, true}) {
      TraceBatch batch;
      batch.node = node;
      batch.is_last = is_last;
      root->on_message(NodeIndex{1}, {"job", std::move(batch)});
    }
  }
  EXPECT_EQ(host.news.size(), before);
  TraceBatch batch;
  batch.node = 1;
  batch.node_id = "another";
  root->on_message(NodeIndex{1}, {"job", std::move(batch)});
  EXPECT_EQ(std::get<TraceBatch>(host.news.back()).node_id, "n1");
}

// A node could put what it likes under the name of another.
TEST_F(TimelineTest, EventsOfANodeThatIsNotBelowTheSenderAreDropped) {
  Host host;
  host.children = {NodeIndex{1}, NodeIndex{2}};
  const auto root = make(host, 0);
  ASSERT_TRUE(root->request({true, "/f", false}).is_ok());
  const size_t before = host.news.size();
  TraceBatch foreign;
  foreign.node = 1;
  root->on_message(NodeIndex{2}, {"job", foreign});
  EXPECT_EQ(host.news.size(), before);
  TraceBatch below;
  below.node = 2;
  root->on_message(NodeIndex{1}, {"job", below});
  EXPECT_EQ(host.news.size(), before + 1);
}

TEST_F(TimelineTest, TheLauncherHearsThatAnotherNodeAsks) {
  Host host;
  const auto root = make(host, 0);
  root->on_message(NodeIndex{1}, {"job", TimelineRequest{true, "/f", false}});
  ASSERT_EQ(host.news.size(), 1u);
  EXPECT_TRUE(std::get<TimelineOpened>(host.news[0]).is_from_elsewhere);
  root->on_message(NodeIndex{1}, {"job", TimelineRequest{}});
  ASSERT_TRUE(root->request({true, "/f", false}).is_ok());
  EXPECT_FALSE(std::get<TimelineOpened>(host.news.back()).is_from_elsewhere);
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
