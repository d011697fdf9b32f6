// Tests a coordinator or a member that holds the job's token and breaks the protocol. Whatever it
// says, the job ends with a Status, and nothing is launched that the ranks here did not agree to.
#include <functional>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "daemon/core/messages/fusion.h"
#include "tests/core/job/job_cluster.h"

namespace rueda::core {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

// Node 0 coordinates and lies to node 1, whose ranks are 1 and 2.
class HostilePeerTest : public testing::Test {
 protected:
  void start(Coordination mode = Coordination::kNegotiate) {
    JobOptions options;
    options.agreement.mode = mode;
    cluster_.emplace(std::vector<int>{1, 2}, options);
    cluster_->start();
    launched_before_ = victim().launches.size();
  }
  Cluster::Node& victim() { return cluster_->node(1); }

  void say(AgreementMessage message, uint32_t process_set = 0) {
    Message said{n0, victim().core->epoch(), ++said_, std::move(message), process_set};
    cluster_->step(1, MessageArrived{std::move(said)});
    cluster_->step(1, TurnEnded{});
  }
  void decree(Seq seq, const std::vector<DescriptorPtr>& tensors, uint32_t process_set = 0) {
    OrderedOperation operation;
    operation.seq = seq;
    operation.tensors = names_of(tensors);
    operation.plan_hash = plan_hash(tensors);
    say(Decree{{operation}}, process_set);
  }
  // Submits the tensor on both ranks of the victim's node, or on one of them.
  void submit(const DescriptorPtr& item) {
    for (const int rank : {1, 2}) cluster_->submit(rank, item);
    cluster_->step(1, TurnEnded{});
  }
  void expect_end(const std::string& text) {
    ASSERT_EQ(victim().failed.size(), 1u) << "the job goes on";
    EXPECT_THAT(victim().failed.front().message(), HasSubstr(text));
    EXPECT_EQ(victim().launches.size(), launched_before_) << "something was launched";
  }

  std::optional<Cluster> cluster_;
  uint64_t said_ = 0;
  size_t launched_before_ = 0;
};

constexpr Seq kFirst{first_of(Track::kLockable)};
constexpr Seq kFirstDecreed{first_of(Track::kDecreed)};

// Returns a tensor, and others that may not share a batch with it, each for another reason.
std::pair<DescriptorPtr, std::vector<DescriptorPtr>> unlike_tensors() {
  const auto other = [](const std::function<void(TensorDescriptor&)>& change) {
    return tensor("b", 8192, [&](TensorDescriptor& t) {
      t.dtype = DType::kInt64;
      change(t);
    });
  };
  const auto of_kind = [&](CollectiveKind kind, Rank root = Rank{-1}) {
    return other([&](TensorDescriptor& t) {
      t.kind = kind;
      t.root = root;
    });
  };
  return {tensor("a", 8192, [](TensorDescriptor& t) { t.dtype = DType::kInt64; }),
          {other([](TensorDescriptor& t) { t.dtype = DType::kUInt8; }),
           other([](TensorDescriptor& t) { t.op = ReduceOp::kMax; }),
           other([](TensorDescriptor& t) { t.op = ReduceOp::kAdasum; }),
           other([](TensorDescriptor& t) { t.memory = MemorySpace::kDevice; }),
           of_kind(CollectiveKind::kAllgather), of_kind(CollectiveKind::kReduceScatter),
           of_kind(CollectiveKind::kReduce, Rank{1})}};
}

// The second tensor's 8 KiB were once read and written as 64 KiB, by the first tensor's dtype: into
// another user's memory.
TEST_F(HostilePeerTest, UnlikeTensorsAreNoBatch) {
  const auto [first, others] = unlike_tensors();
  for (const DescriptorPtr& other : others) {
    for (const bool is_swapped : {false, true}) {
      start();
      submit(first);
      submit(other);
      said_ = 0;
      decree(kFirst, is_swapped ? std::vector{other, first} : std::vector{first, other});
      expect_end("in one batch, which differ in more than name and shape");
    }
  }
}

TEST_F(HostilePeerTest, UnlikeTensorsAreNoBatchOfAPlan) {
  const auto [first, others] = unlike_tensors();
  for (const DescriptorPtr& other : others) {
    for (const bool is_swapped : {false, true}) {
      start(Coordination::kLocked);
      said_ = 0;
      Lock lock;
      lock.generation = 1;
      lock.first = kFirst;
      lock.plan.batches = {
          {is_swapped ? std::vector{other, first} : std::vector{first, other}, kPlanStart, true}};
      say(lock);
      expect_end("in one batch, which differ in more than name and shape");
    }
  }
}

// Two roots in one batch: the first one's was once taken for both.
TEST_F(HostilePeerTest, BroadcastsOfTwoRootsAreNoBatch) {
  start();
  const auto of_root = [](const std::string& name, int root) {
    return tensor(name, 4, [&](TensorDescriptor& t) {
      t.kind = CollectiveKind::kBroadcast;
      t.root = Rank{root};
    });
  };
  const DescriptorPtr a = of_root("a", 0);
  const DescriptorPtr b = of_root("b", 2);
  submit(a);
  submit(b);
  decree(kFirstDecreed, {a, b});
  expect_end("in one batch");
}

TEST_F(HostilePeerTest, ABroadcastIsInNoPlan) {
  start(Coordination::kLocked);
  Lock lock;
  lock.generation = 1;
  lock.first = kFirst;
  lock.plan.batches = {{{tensor("a", 1,
                                [](TensorDescriptor& t) {
                                  t.kind = CollectiveKind::kBroadcast;
                                  t.root = Rank{0};
                                })},
                        kPlanStart,
                        true}};
  say(lock);
  expect_end("tensor \"a\" among what may be in a plan");
}

// The ranks of the node have buffers of different sizes, and have reported that they disagree.
TEST_F(HostilePeerTest, WhatLocalRanksDisagreeOnIsNotCarriedOut) {
  start();
  cluster_->submit(1, tensor("a", 8192));
  cluster_->submit(2, tensor("a", 1));
  cluster_->step(1, TurnEnded{});
  decree(kFirst, {tensor("a", 8192)});
  expect_end("on which the ranks of this node disagree");
}

TEST_F(HostilePeerTest, ATensorIsInOneOperationAtATime) {
  start();
  const DescriptorPtr a = tensor("a", 4);
  submit(a);
  decree(kFirst, {a, a});
  expect_end("tensor \"a\", which another operation has");

  start();
  said_ = 0;
  submit(a);
  decree(kFirst, {a});
  launched_before_ = victim().launches.size();
  EXPECT_EQ(launched_before_, 1u);
  decree(Seq{kFirst.value + 1}, {a});
  expect_end("tensor \"a\", which another operation has");
}

// The core once called front() on an empty list of tensors.
TEST_F(HostilePeerTest, AnOperationNamesTensors) {
  for (const bool fails : {false, true}) {
    for (const Coordination mode : {Coordination::kNegotiate, Coordination::kCached}) {
      start(mode);
      said_ = 0;
      OrderedOperation operation;
      operation.seq = kFirst;
      if (fails) operation.error = Status(Code::kMismatch, "they differ");
      say(Decree{{operation}});
      expect_end("names no tensors");
    }
  }
}

// The layout was once asked on which node that rank is, behind the end of a vector.
TEST_F(HostilePeerTest, ARootIsARankOfTheJob) {
  for (const int root : {-1, 3, 1 << 30}) {
    start();
    said_ = 0;
    const DescriptorPtr a = tensor("a", 4, [&](TensorDescriptor& t) {
      t.kind = CollectiveKind::kBroadcast;
      t.root = Rank{root};
    });
    submit(a);
    decree(kFirstDecreed, {a});
    expect_end("with root rank " + std::to_string(root));
  }
}

TEST_F(HostilePeerTest, AnOperationIsOfItsTrack) {
  start();
  const DescriptorPtr a = tensor("a", 4);
  submit(a);
  decree(kFirstDecreed, {a});
  expect_end("among what is decreed one by one");
}

TEST_F(HostilePeerTest, AChangeOfTheJobIsNoOperation) {
  start();
  const DescriptorPtr change = tensor(kProcessSetsName, 1, [](TensorDescriptor& t) {
    t.kind = CollectiveKind::kAddProcessSet;
    t.shape = {0, 1};
  });
  submit(change);
  decree(kFirst, {change});
  expect_end("which moves no data");
}

// The node's ranks have joined, and have no memory for NCCL, or for a root that is one of them.
TEST_F(HostilePeerTest, WhoHasJoinedGivesZerosAndNothingElse) {
  for (const bool is_broadcast : {false, true}) {
    start();
    said_ = 0;
    submit(join());
    OrderedOperation operation;
    operation.seq = kFirstDecreed;
    operation.tensors = {"a"};
    operation.descriptors = {tensor("a", 4, [&](TensorDescriptor& t) {
      if (is_broadcast) {
        t.kind = CollectiveKind::kBroadcast;
        t.root = Rank{1};
      } else {
        t.op = ReduceOp::kSum;
        t.memory = MemorySpace::kDeviceNccl;
      }
    })};
    operation.plan_hash = plan_hash(operation.descriptors);
    say(Decree{{operation}});
    expect_end("which needs what a rank that has joined would give");
  }
}

// The rank had objected, because it has an operation in flight in the set.
TEST_F(HostilePeerTest, AProcessSetInUseIsNotRemoved) {
  start();
  const DescriptorPtr add = tensor(kProcessSetsName, 1, [](TensorDescriptor& t) {
    t.kind = CollectiveKind::kAddProcessSet;
    t.shape = {0, 1};
  });
  submit(add);
  decree(kFirstDecreed, {add});
  ASSERT_THAT(victim().failed, IsEmpty());
  const auto of_set = [](TensorDescriptor& t) { t.process_set = 1; };
  cluster_->submit(1, tensor("a", 4, of_set));
  const DescriptorPtr remove = tensor(kProcessSetsName, 1, [](TensorDescriptor& t) {
    t.kind = CollectiveKind::kRemoveProcessSet;
    t.shape = {};
    t.process_set = 1;
  });
  submit(remove);
  decree(Seq{kFirstDecreed.value + 1}, {remove});
  expect_end("on which the ranks of this node disagree");
}

// An inner node of a tree had reported the tensor to itself for the nodes below it. An error that
// came before that report ended the tensor, and the next tensor of the name was reported twice,
// which made a check of our own fail.
TEST(HostileParentTest, AnErrorThatComesBeforeItsTensorMayEndIt) {
  JobOptions options;
  options.agreement.mode = Coordination::kEventDriven;
  options.tree = {.threshold = 2, .fan_in = 2};
  Cluster job({1, 1, 1, 1, 1}, options);
  job.start();
  OrderedOperation operation;
  operation.seq = kFirst;
  operation.tensors = {"a"};
  operation.error = Status(Code::kMismatch, "they differ");
  job.step(1, MessageArrived{{n0, Epoch{1}, 1, AgreementMessage(Decree{{operation}})}});
  const Ticket first = job.submit(1, tensor("a"));
  job.step(1, TurnEnded{});
  EXPECT_EQ(job.end_of(1, first).message(), "they differ");
  const Ticket second = job.submit(1, tensor("a"));
  job.step(1, TurnEnded{});
  EXPECT_FALSE(job.has_ended(1, second));
  EXPECT_EQ(job.node(1).core->submissions_in_flight(), 1u);
}

// Plays a hostile member of the coordinator's job.
class HostileMemberTest : public testing::Test {
 protected:
  void start() {
    JobOptions options;
    options.agreement.mode = Coordination::kLocked;
    options.agreement.lock_after_steps = 2;
    cluster_.emplace(std::vector<int>{1, 1}, options);
    cluster_->start();
  }
  std::optional<Cluster> cluster_;
  std::set<std::pair<int, uint64_t>> done_;
};

// A group whose tensors were of both tracks was once counted once, and forgotten with the first of
// them.
TEST_F(HostileMemberTest, AGroupOfBothTracksIsCountedByTrack) {
  start();
  const auto in_group = [](const std::string& name, bool is_broadcast) {
    return tensor(name, 1, [&](TensorDescriptor& t) {
      t.group = "g";
      t.group_size = 2;
      if (!is_broadcast) return;
      t.kind = CollectiveKind::kBroadcast;
      t.root = Rank{0};
    });
  };
  for (int step = 0; step < 5; ++step) {
    cluster_->submit_everywhere(in_group("a", false));
    cluster_->submit_everywhere(in_group("b", true));
    cluster_->submit_everywhere(tensor("c"));
    cluster_->settle();
    for (uint64_t seq = 1; seq < 40; ++seq) {
      for (const Track track : {Track::kLockable, Track::kDecreed}) {
        const uint64_t number = before_first_of(track).value + seq;
        for (int node = 0; node < 2; ++node) {
          const auto& launches = cluster_->node(node).launches;
          const bool is_launched =
              std::any_of(launches.begin(), launches.end(),
                          [&](const Launch& l) { return l.seq.value == number; });
          if (is_launched && done_.insert({node, number}).second) {
            cluster_->step(node, OperationDone{Seq{number}});
          }
        }
      }
      cluster_->settle();
    }
  }
  for (const Status& status : cluster_->node(0).failed) ADD_FAILURE() << status.message();
}

}  // namespace
}  // namespace rueda::core
