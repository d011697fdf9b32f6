// Tests jobs that go well: from attach to goodbye.
#include "daemon/engine/node/engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/engine/cluster.h"

namespace rueda::engine {
namespace {

using testing::Cluster;
using testing::FakeSession;

core::TensorDescriptor with_op(ReduceOp op) {
  core::TensorDescriptor as;
  as.op = op;
  return as;
}

using Shape = std::tuple<std::vector<int>, core::Reducer>;

class EngineShapes : public ::testing::TestWithParam<Shape> {
 protected:
  Cluster cluster_{{.ranks_per_node = std::get<0>(GetParam()), .reducer = std::get<1>(GetParam())}};
};

INSTANTIATE_TEST_SUITE_P(
    Jobs, EngineShapes,
    ::testing::Combine(::testing::Values(std::vector<int>{1}, std::vector<int>{3},
                                         std::vector<int>{1, 1}, std::vector<int>{2, 1, 2}),
                       ::testing::Values(core::Reducer::kNode, core::Reducer::kDevice)));

TEST_P(EngineShapes, AttachStartSubmitComplete) {
  cluster_.register_everywhere("job");
  const auto sessions = cluster_.start("job");
  ASSERT_EQ(sessions.size(), static_cast<size_t>(cluster_.ranks()));
  for (int rank = 0; rank < cluster_.ranks(); ++rank) {
    const session::Started& place = sessions[static_cast<size_t>(rank)]->places.at(0);
    const int node = cluster_.node_of(Rank{rank});
    EXPECT_EQ(place.epoch, Epoch{1});
    EXPECT_EQ(place.world_size, cluster_.ranks());
    EXPECT_EQ(place.local_size, cluster_.ranks_per_node()[static_cast<size_t>(node)]);
    EXPECT_EQ(place.node, NodeIndex{node});
    EXPECT_EQ(place.node_count, cluster_.size());
    EXPECT_EQ(place.node_id, "n" + std::to_string(node));
  }

  std::vector<Cluster::Tensor*> tensors;
  for (int rank = 0; rank < cluster_.ranks(); ++rank) {
    FakeSession& session = *sessions[static_cast<size_t>(rank)];
    tensors.push_back(&cluster_.submit(session, "sum", 1000, static_cast<float>(1 << rank),
                                       with_op(ReduceOp::kSum)));
    tensors.push_back(
        &cluster_.submit(session, "max", 3, static_cast<float>(rank), with_op(ReduceOp::kMax)));
  }
  ASSERT_TRUE(cluster_.run_until([&] {
    return std::all_of(sessions.begin(), sessions.end(),
                       [](const FakeSession* s) { return s->flushed == 2; });
  }));
  for (int rank = 0; rank < cluster_.ranks(); ++rank) {
    for (const auto& completion : sessions[static_cast<size_t>(rank)]->completions) {
      EXPECT_TRUE(completion.status.is_ok()) << completion.status.message();
      EXPECT_EQ(completion.epoch, Epoch{1});
      EXPECT_EQ(completion.contributors, static_cast<uint32_t>(cluster_.ranks()));
      EXPECT_GT(completion.seq, Seq{0});
    }
    const auto sum = static_cast<float>((1 << cluster_.ranks()) - 1);
    EXPECT_EQ(tensors[static_cast<size_t>(rank) * 2]->output, std::vector<float>(1000, sum));
    const auto max = static_cast<float>(cluster_.ranks() - 1);
    EXPECT_EQ(tensors[static_cast<size_t>(rank) * 2 + 1]->output, std::vector<float>(3, max));
  }
  for (int i = 0; i < cluster_.size(); ++i) {
    const JobSnapshot job = cluster_.snapshot(i, "job");
    EXPECT_EQ(job.state, "running");
    EXPECT_EQ(job.operations, 2u);
    EXPECT_EQ(job.bytes_reduced, 4012u);
    EXPECT_EQ(job.in_flight, 0u);
    EXPECT_EQ(job.attached, job.local_size);
    EXPECT_EQ(cluster_.node(i).started, (std::vector<Epoch>{Epoch{1}}));
    EXPECT_EQ(cluster_.engine(i).clients(), job.local_size);
  }
}

TEST_P(EngineShapes, EveryRankLeavesAndTheNextProcessesComeAtOnce) {
  cluster_.register_everywhere("job");
  for (uint32_t epoch = 1; epoch <= 3; ++epoch) {
    const auto sessions = cluster_.start("job");
    ASSERT_EQ(sessions.size(), static_cast<size_t>(cluster_.ranks())) << cluster_.refusal.message();
    EXPECT_EQ(sessions[0]->places[0].epoch, Epoch{epoch});
    std::vector<Cluster::Tensor*> tensors;
    for (FakeSession* session : sessions) {
      tensors.push_back(&cluster_.submit(*session, "x", 10, 1, with_op(ReduceOp::kSum)));
    }
    ASSERT_TRUE(cluster_.run_until([&] {
      return std::all_of(sessions.begin(), sessions.end(),
                         [](const FakeSession* s) { return s->flushed == 1; });
    }));
    for (const Cluster::Tensor* tensor : tensors) {
      EXPECT_EQ(tensor->output, std::vector<float>(10, static_cast<float>(cluster_.ranks())));
    }
    for (FakeSession* session : sessions) cluster_.detach(*session);
    // There is no turn of the loop in between, because the same process may call init right after
    // shutdown.
  }
}

TEST(Engine, ARankThatIsSlowToLeaveDoesNotHoldUpTheNextOne) {
  Cluster cluster({{2}});
  cluster.register_everywhere("job");
  const auto sessions = cluster.start("job");
  ASSERT_EQ(sessions.size(), 2u);
  cluster.detach(*sessions[0]);
  FakeSession* again = cluster.attach("job", Rank{0});
  ASSERT_TRUE(again) << cluster.refusal.message();
  cluster.settle();
  EXPECT_TRUE(again->places.empty()) << "rank 1 is still in the first epoch";
  cluster.detach(*sessions[1]);
  ASSERT_TRUE(cluster.attach("job", Rank{1}));
  ASSERT_TRUE(cluster.run_until([&] { return !again->places.empty(); }));
  EXPECT_EQ(again->places[0].epoch, Epoch{2});
}

TEST(Engine, ARankMayComeAndGoBeforeTheJobHasStarted) {
  Cluster cluster({{2, 1}});
  cluster.register_everywhere("job");
  for (int i = 0; i < 3; ++i) {
    FakeSession* session = cluster.attach("job", Rank{1});
    ASSERT_TRUE(session) << cluster.refusal.message();
    if (i % 2 == 0) cluster.settle();
    cluster.detach(*session);
    cluster.settle();
  }
  EXPECT_EQ(cluster.snapshot(0, "job").state, "idle");
  EXPECT_EQ(cluster.start("job").size(), 3u);
}

TEST(Engine, TwoJobsAtATimeDoNotMix) {
  Cluster cluster({{1, 1}});
  cluster.register_everywhere("a");
  cluster.register_everywhere("b");
  const auto of_a = cluster.start("a");
  const auto of_b = cluster.start("b");
  ASSERT_EQ(of_a.size() + of_b.size(), 4u);
  std::vector<Cluster::Tensor*> tensors;
  for (FakeSession* session : of_a) {
    tensors.push_back(&cluster.submit(*session, "x", 5, 1, with_op(ReduceOp::kSum)));
  }
  for (FakeSession* session : of_b) {
    tensors.push_back(&cluster.submit(*session, "x", 5, 100, with_op(ReduceOp::kSum)));
  }
  ASSERT_TRUE(cluster.run_until([&] {
    return of_a[0]->flushed + of_a[1]->flushed + of_b[0]->flushed + of_b[1]->flushed == 4;
  }));
  EXPECT_EQ(tensors[0]->output, std::vector<float>(5, 2));
  EXPECT_EQ(tensors[1]->output, std::vector<float>(5, 2));
  EXPECT_EQ(tensors[2]->output, std::vector<float>(5, 200));
  EXPECT_EQ(tensors[3]->output, std::vector<float>(5, 200));
}

TEST(Engine, ShapesThatDifferBetweenNodesFailThatTensorAlone) {
  Cluster cluster({{1, 1}});
  cluster.register_everywhere("job");
  const auto sessions = cluster.start("job");
  ASSERT_EQ(sessions.size(), 2u);
  cluster.submit(*sessions[0], "w", 4, 1);
  cluster.submit(*sessions[1], "w", 5, 1);
  ASSERT_TRUE(cluster.run_until([&] { return sessions[0]->flushed + sessions[1]->flushed == 2; }));
  for (FakeSession* session : sessions) {
    const Status& status = session->completions[0].status;
    EXPECT_EQ(status.code(), Code::kMismatch);
    for (const char* part : {"\"w\"", "rank 0", "rank 1", "[4]", "[5]"}) {
      EXPECT_NE(status.message().find(part), std::string::npos) << status.message();
    }
    EXPECT_EQ(session->completions[0].contributors, 0u);
  }
  std::vector<Cluster::Tensor*> after;
  for (FakeSession* session : sessions) {
    after.push_back(&cluster.submit(*session, "w", 4, 1, with_op(ReduceOp::kSum)));
  }
  ASSERT_TRUE(cluster.run_until([&] { return sessions[0]->flushed + sessions[1]->flushed == 4; }));
  EXPECT_EQ(after[0]->output, std::vector<float>(4, 2));
}

TEST(Engine, DtypesThatDifferOnOneNodeFailThatTensor) {
  Cluster cluster({{2}});
  cluster.register_everywhere("job");
  const auto sessions = cluster.start("job");
  ASSERT_EQ(sessions.size(), 2u);
  core::TensorDescriptor as_int;
  as_int.dtype = DType::kInt32;
  cluster.submit(*sessions[0], "w", 4, 1);
  cluster.submit(*sessions[1], "w", 4, 1, as_int);
  ASSERT_TRUE(cluster.run_until([&] { return sessions[0]->flushed + sessions[1]->flushed == 2; }));
  EXPECT_EQ(sessions[0]->completions[0].status, sessions[1]->completions[0].status);
  EXPECT_EQ(sessions[0]->completions[0].status.code(), Code::kMismatch);
  EXPECT_NE(sessions[0]->completions[0].status.message().find("int32"), std::string::npos);
}

TEST(Engine, ATensorTwiceIsRefusedAndTheFirstGoesOn) {
  Cluster cluster({{1, 1}});
  cluster.register_everywhere("job");
  const auto sessions = cluster.start("job");
  ASSERT_EQ(sessions.size(), 2u);
  const auto& first = cluster.submit(*sessions[0], "w", 4, 1, with_op(ReduceOp::kSum));
  const auto& second = cluster.submit(*sessions[0], "w", 4, 1, with_op(ReduceOp::kSum));
  cluster.settle();
  ASSERT_EQ(sessions[0]->flushed, 1u);
  EXPECT_EQ(sessions[0]->completions[0].ticket, second.ticket);
  EXPECT_EQ(sessions[0]->completions[0].status.code(), Code::kDuplicateName);
  cluster.submit(*sessions[1], "w", 4, 2, with_op(ReduceOp::kSum));
  ASSERT_TRUE(cluster.run_until([&] { return sessions[0]->flushed == 2; }));
  EXPECT_EQ(sessions[0]->completions[1].ticket, first.ticket);
  EXPECT_EQ(first.output, std::vector<float>(4, 3));
}

TEST(Engine, ABroadcastAndABarrierComplete) {
  Cluster cluster({{2, 1}});
  cluster.register_everywhere("job");
  const auto sessions = cluster.start("job");
  ASSERT_EQ(sessions.size(), 3u);
  core::TensorDescriptor from_2;
  from_2.kind = CollectiveKind::kBroadcast;
  from_2.root = Rank{2};
  core::TensorDescriptor barrier;
  barrier.kind = CollectiveKind::kBarrier;
  std::vector<Cluster::Tensor*> tensors;
  for (size_t rank = 0; rank < 3; ++rank) {
    tensors.push_back(&cluster.submit(*sessions[rank], "w", 9, static_cast<float>(rank), from_2));
    cluster.submit(*sessions[rank], "barrier", 0, 0, barrier);
  }
  ASSERT_TRUE(cluster.run_until([&] {
    return std::all_of(sessions.begin(), sessions.end(),
                       [](const FakeSession* s) { return s->flushed == 2; });
  }));
  for (const Cluster::Tensor* tensor : tensors) {
    EXPECT_EQ(tensor->output, std::vector<float>(9, 2));
  }
}

// Ranks give their number, and get the parts of all in the order of the ranks.
TEST(Engine, EachRankGetsItsPart) {
  Cluster cluster({{2, 1}});
  cluster.register_everywhere("job");
  const auto sessions = cluster.start("job");
  ASSERT_EQ(sessions.size(), 3u);
  core::TensorDescriptor gathered;
  gathered.kind = CollectiveKind::kAllgather;
  gathered.counts = {1, 3, 2};
  core::TensorDescriptor scattered = with_op(ReduceOp::kSum);
  scattered.kind = CollectiveKind::kReduceScatter;
  std::vector<Cluster::Tensor*> all;
  std::vector<Cluster::Tensor*> parts;
  for (size_t rank = 0; rank < 3; ++rank) {
    const auto value = static_cast<float>(rank);
    all.push_back(&cluster.submit(*sessions[rank], "all", 6, value, gathered));
    parts.push_back(&cluster.submit(*sessions[rank], "part", 7, value, scattered));
  }
  ASSERT_TRUE(cluster.run_until([&] {
    return std::all_of(sessions.begin(), sessions.end(),
                       [](const FakeSession* s) { return s->flushed == 2; });
  }));
  for (size_t rank = 0; rank < 3; ++rank) {
    EXPECT_TRUE(sessions[rank]->completions[0].status.is_ok());
    EXPECT_EQ(all[rank]->output, (std::vector<float>{0, 1, 1, 1, 2, 2}));
    EXPECT_EQ(parts[rank]->output, std::vector<float>(rank == 0 ? 3 : 2, 3));
  }
}

// The client's memory was measured for another rank, so nothing may be read or written there.
TEST(Engine, AClientThatTakesItselfForAnotherRankIsRefused) {
  Cluster cluster({{2, 1}});
  cluster.register_everywhere("job");
  const auto sessions = cluster.start("job");
  core::TensorDescriptor gathered;
  gathered.kind = CollectiveKind::kAllgather;
  cluster.pretend_places(2);
  cluster.submit(*sessions[0], "all", 6, 1, gathered);
  ASSERT_TRUE(cluster.run_until([&] { return sessions[0]->flushed == 1; }));
  const Status& status = sessions[0]->completions[0].status;
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_THAT(status.message(), ::testing::HasSubstr("place 0 of 2 ranks"));
}

TEST(Engine, ManyTensorsAreFusedIntoFewOperations) {
  Cluster cluster({{1, 1}});
  cluster.register_everywhere("job");
  const auto sessions = cluster.start("job");
  ASSERT_EQ(sessions.size(), 2u);
  std::vector<Cluster::Tensor*> tensors;
  for (int i = 0; i < 200; ++i) {
    for (FakeSession* session : sessions) {
      tensors.push_back(&cluster.submit(*session, "t" + std::to_string(i), 1 + i,
                                        static_cast<float>(i), with_op(ReduceOp::kSum)));
    }
  }
  ASSERT_TRUE(
      cluster.run_until([&] { return sessions[0]->flushed + sessions[1]->flushed == 400; }));
  for (size_t i = 0; i < tensors.size(); ++i) {
    ASSERT_EQ(tensors[i]->output, std::vector<float>(1 + i / 2, static_cast<float>(2 * (i / 2))));
  }
  EXPECT_LT(cluster.snapshot(0, "job").operations, 100u);
  EXPECT_EQ(cluster.snapshot(0, "job").operations, cluster.snapshot(1, "job").operations);
}

// Nodes may know different bandwidths, because one has restarted, or was away when they were
// measured.
TEST(Engine, TheCoordinatorsBandwidthsOrderTheRingOfAll) {
  Cluster cluster({.ranks_per_node = {1, 1, 1, 1}});
  NodeBandwidths bandwidths{{"n3", "n2", "n1", "n0"}, core::Bandwidths(4, {9, 9, 9, 9})};
  bandwidths.bytes_per_second[3][2] = 1;  // from n0 to n1
  cluster.engine(0).keep_bandwidths(bandwidths);
  bandwidths.bytes_per_second[3] = {9, 1, 9, 9};
  cluster.engine(1).keep_bandwidths(bandwidths);
  cluster.register_everywhere("job");
  const auto sessions = cluster.start("job");
  ASSERT_EQ(sessions.size(), 4u);
  for (int node = 0; node < 4; ++node) {
    EXPECT_EQ(cluster.snapshot(node, "job").ring,
              (std::vector<std::string>{"n0", "n2", "n1", "n3"}));
  }
  std::vector<Cluster::Tensor*> tensors;
  for (FakeSession* session : sessions) {
    tensors.push_back(&cluster.submit(*session, "sum", 1000, static_cast<float>(1 + tensors.size()),
                                      with_op(ReduceOp::kSum)));
  }
  ASSERT_TRUE(cluster.run_until([&] {
    return std::all_of(sessions.begin(), sessions.end(),
                       [](const FakeSession* session) { return session->flushed == 1; });
  }));
  for (const Cluster::Tensor* tensor : tensors) {
    EXPECT_EQ(tensor->output, std::vector<float>(1000, 10));
  }
}

}  // namespace
}  // namespace rueda::engine
