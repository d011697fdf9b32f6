// Tests a session against a daemon that does its work.
#include "client/src/session/session.h"

#include <cstring>
#include <numeric>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/client/fake_daemon.h"
#include "tests/client/requests.h"
#include "tests/client/session/attached.h"

namespace rueda::client {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;

float* allocate_floats(Session& session, size_t count) {
  return static_cast<float*>(session.allocate(count * sizeof(float)).value());
}

TEST(SessionTest, KnowsItsPlace) {
  FakeDaemon daemon({.rank = 2, .world_size = 3});
  auto session = attach(daemon);
  EXPECT_EQ(session->place().world_size, 3);
  EXPECT_STREQ(session->place().node_id, "fake-node");
}

TEST(SessionTest, ReducesArenaMemoryWithoutACopy) {
  FakeDaemon daemon;
  auto session = attach(daemon);
  float* in = allocate_floats(*session, 1000);
  float* out = allocate_floats(*session, 1000);
  std::iota(in, in + 1000, 0.0f);
  const std::vector<float> before(in, in + 1000);
  rueda_handle handle = session->submit({allreduce_of("t", in, out, 1000, 2.0)}).value();
  rueda_result result{};
  ASSERT_TRUE(session->wait(handle, 20'000, &result).is_ok());
  EXPECT_EQ(out[999], 1998.0f);
  EXPECT_TRUE(std::equal(before.begin(), before.end(), in));
  EXPECT_EQ(result.epoch, 1u);
  EXPECT_EQ(result.contributors, 1u);
  EXPECT_EQ(result.seq, 1u);
  rueda_stats stats = session->stats();
  EXPECT_EQ(stats.bytes_copied_in + stats.bytes_copied_out, 0u);
  EXPECT_EQ(stats.submissions, 1u);
  EXPECT_EQ(stats.completions, 1u);
  EXPECT_EQ(daemon.submissions()[0].flags, 0u);
}

TEST(SessionTest, StagesForeignMemoryAndCountsIt) {
  FakeDaemon daemon;
  auto session = attach(daemon);
  const std::vector<float> in(1000, 3.0f);
  std::vector<float> out(1000);
  rueda_handle handle =
      session->submit({allreduce_of("t", in.data(), out.data(), 1000, 2.0)}).value();
  ASSERT_TRUE(session->wait(handle, 20'000, nullptr).is_ok());
  EXPECT_THAT(out, Each(6.0f));
  EXPECT_THAT(in, Each(3.0f));
  EXPECT_EQ(session->stats().bytes_copied_in, 4000u);
  EXPECT_EQ(session->stats().bytes_copied_out, 4000u);
  EXPECT_EQ(daemon.submissions()[0].flags, RUEDA_ABI_FLAG_COPIED_IN | RUEDA_ABI_FLAG_COPIED_OUT);
}

TEST(SessionTest, StagesOnlyTheSideThatIsForeign) {
  FakeDaemon daemon;
  auto session = attach(daemon);
  float* arena = allocate_floats(*session, 100);
  std::vector<float> foreign(100, 1.0f);
  auto reduce = [&](const float* in, float* out) {
    rueda_handle handle = session->submit({allreduce_of("t", in, out, 100, 1.0)}).value();
    ASSERT_TRUE(session->wait(handle, 20'000, nullptr).is_ok());
  };
  reduce(foreign.data(), arena);
  EXPECT_EQ(arena[99], 1.0f);
  EXPECT_EQ(daemon.submissions()[0].flags, RUEDA_ABI_FLAG_COPIED_IN);
  std::fill(arena, arena + 100, 5.0f);
  reduce(arena, foreign.data());
  EXPECT_THAT(foreign, Each(5.0f));
  EXPECT_EQ(daemon.submissions()[1].flags, RUEDA_ABI_FLAG_COPIED_OUT);
}

TEST(SessionTest, StagesWhatIsNotAlignedToItsElement) {
  FakeDaemon daemon;
  auto session = attach(daemon);
  auto bytes = static_cast<std::byte*>(session->allocate(4096).value());
  auto skewed = reinterpret_cast<float*>(bytes + 1);
  TensorRequest request = allreduce_of("t", skewed, skewed, 10, 1.0);
  rueda_handle handle = session->submit({request}).value();
  ASSERT_TRUE(session->wait(handle, 20'000, nullptr).is_ok());
  EXPECT_EQ(session->stats().bytes_copied_in, 40u);
}

TEST(SessionTest, TheRootBroadcastsItsInput) {
  FakeDaemon daemon;
  auto session = attach(daemon);
  std::vector<float> data(10, 4.0f);
  std::vector<float> out(10);
  auto run = [&](float* output) {
    rueda_handle handle =
        session->submit({broadcast_of("b", data.data(), output, 10, 0, 0)}).value();
    ASSERT_TRUE(session->wait(handle, 20'000, nullptr).is_ok());
  };
  run(data.data());
  EXPECT_EQ(session->stats().bytes_copied_out, 0u) << "in place on the root: nothing to copy back";
  run(out.data());
  EXPECT_THAT(out, Each(4.0f));
}

TEST(SessionTest, OthersReceiveTheBroadcast) {
  FakeDaemon daemon({.rank = 1, .world_size = 2});
  auto session = attach(daemon);
  std::vector<float> out(10);
  rueda_handle handle = session->submit({broadcast_of("b", nullptr, out.data(), 10, 0, 1)}).value();
  ASSERT_TRUE(session->wait(handle, 20'000, nullptr).is_ok());
  float expected = 0;
  std::memset(&expected, 0x11, sizeof(expected));
  EXPECT_THAT(out, Each(expected));
  EXPECT_EQ(session->stats().bytes_copied_in, 0u);
}

TEST(SessionTest, EmptyTensorsAndBarriersNeedNoMemory) {
  FakeDaemon daemon;
  auto session = attach(daemon);
  rueda_handle empty = session->submit({allreduce_of("e", nullptr, nullptr, 0, 1.0)}).value();
  rueda_handle barrier = session->submit({check_barrier(nullptr).value()}).value();
  EXPECT_TRUE(session->wait(empty, 20'000, nullptr).is_ok());
  EXPECT_TRUE(session->wait(barrier, 20'000, nullptr).is_ok());
  EXPECT_EQ(daemon.counts().arenas_added, 0);
}

TEST(SessionTest, AGroupEndsWithItsLastTensorAndItsFirstError) {
  FakeDaemon daemon({.completes = false});
  auto session = attach(daemon);
  std::vector<float> a(10, 1.0f), b(10, 2.0f);
  rueda_handle handle = session
                            ->submit({allreduce_of("a", a.data(), a.data(), 10, 2.0),
                                      allreduce_of("b", b.data(), b.data(), 10, 2.0)})
                            .value();
  ASSERT_TRUE(daemon.wait_for([](const auto& counts) { return counts.submissions == 2; }));
  auto records = daemon.submissions();
  daemon.complete(records[1].ticket, RUEDA_ERR_MISMATCH, "tensor \"b\" differs");
  EXPECT_FALSE(session->test(handle).value());
  EXPECT_THAT(session->wait(handle, 0, nullptr).message(), HasSubstr("\"a\""));
  daemon.complete(records[0].ticket);
  Status status = session->wait(handle, 20'000, nullptr);
  EXPECT_EQ(status.code(), Code::kMismatch);
  EXPECT_EQ(status.message(), "tensor \"b\" differs");
  EXPECT_THAT(a, Each(2.0f));
  EXPECT_THAT(b, Each(2.0f)) << "failed: untouched";
}

TEST(SessionTest, HandlesEndOnce) {
  FakeDaemon daemon;
  auto session = attach(daemon);
  rueda_handle handle = session->submit({check_barrier("x").value()}).value();
  EXPECT_TRUE(session->wait(handle, 20'000, nullptr).is_ok());
  EXPECT_EQ(session->wait(handle, 20'000, nullptr).code(), Code::kInvalidArgument);
  EXPECT_EQ(session->test(handle).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(session->wait(999, 0, nullptr).code(), Code::kInvalidArgument);
}

TEST(SessionTest, ATimeoutLeavesTheHandle) {
  FakeDaemon daemon({.completes = false});
  auto session = attach(daemon);
  std::vector<float> data(10, 1.0f);
  rueda_handle handle =
      session->submit({allreduce_of("slow", data.data(), data.data(), 10, 3.0)}).value();
  Status status = session->wait(handle, 1, nullptr);
  EXPECT_EQ(status.code(), Code::kTimeout);
  EXPECT_THAT(status.message(), HasSubstr("\"slow\""));
  daemon.set_completes(true);
  EXPECT_TRUE(session->wait(handle, 20'000, nullptr).is_ok());
  EXPECT_THAT(data, Each(3.0f));
}

TEST(SessionTest, AnAbandonedOperationFreesItsStagingAtItsEnd) {
  FakeDaemon daemon({.completes = false});
  auto session = attach(daemon);
  std::vector<float> data(10, 1.0f);
  rueda_handle handle =
      session->submit({allreduce_of("t", data.data(), data.data(), 10, 3.0)}).value();
  session->abandon(handle);
  EXPECT_FALSE(session->allocator()->is_idle());
  daemon.set_completes(true);
  rueda_handle barrier = session->submit({check_barrier("x").value()}).value();
  EXPECT_TRUE(session->wait(barrier, 20'000, nullptr).is_ok());
  EXPECT_TRUE(session->allocator()->is_idle());
  EXPECT_THAT(data, Each(1.0f));
  EXPECT_EQ(session->wait(handle, 0, nullptr).code(), Code::kInvalidArgument);
}

TEST(SessionTest, ManyMoreOperationsThanTheRingHolds) {
  FakeDaemon daemon({.submission_capacity = 8, .completion_capacity = 4});
  auto session = attach(daemon);
  std::vector<rueda_handle> handles;
  for (int i = 0; i < 300; ++i) {
    handles.push_back(
        session->submit({check_barrier(("b" + std::to_string(i)).c_str()).value()}).value());
  }
  for (rueda_handle handle : handles) ASSERT_TRUE(session->wait(handle, 20'000, nullptr).is_ok());
  EXPECT_EQ(session->stats().completions, 300u);
  std::vector<TensorRequest> group(5, check_barrier("g").value());
  EXPECT_EQ(session->submit(group).status().code(), Code::kResourceExhausted);
}

TEST(SessionTest, SubmitWaitsForRoom) {
  FakeDaemon daemon({.submission_capacity = 2, .completion_capacity = 2, .completes = false});
  auto session = attach(daemon);
  for (const char* name : {"a", "b"})
    ASSERT_TRUE(session->submit({check_barrier(name).value()}).is_ok());
  std::thread third([&] {
    rueda_handle handle = session->submit({check_barrier("c").value()}).value();
    EXPECT_TRUE(session->wait(handle, 20'000, nullptr).is_ok());
  });
  ASSERT_TRUE(daemon.wait_for([](const auto& counts) { return counts.interns == 3; }));
  EXPECT_EQ(daemon.counts().submissions, 2);
  daemon.set_completes(true);
  third.join();
}

TEST(SessionTest, SeveralThreadsWaitAtOnce) {
  FakeDaemon daemon({.completes = false});
  auto session = attach(daemon);
  constexpr int kThreads = 4;
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      std::vector<float> data(100, 1.0f);
      std::string name = "t" + std::to_string(i);
      for (int round = 0; round < 20; ++round) {
        rueda_handle handle =
            session->submit({allreduce_of(name.c_str(), data.data(), data.data(), 100, 1.0)})
                .value();
        ASSERT_TRUE(session->wait(handle, -1, nullptr).is_ok());
      }
    });
  }
  // All threads wait before any operation ends.
  ASSERT_TRUE(daemon.wait_for([](const auto& counts) { return counts.submissions == kThreads; }));
  daemon.set_completes(true);
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(session->stats().completions, uint64_t{kThreads} * 20);
}

TEST(SessionTest, InternsEachDescriptorOnce) {
  FakeDaemon daemon;
  auto session = attach(daemon);
  for (int i = 0; i < 3; ++i) {
    rueda_handle handle = session->submit({check_barrier("same").value()}).value();
    ASSERT_TRUE(session->wait(handle, 20'000, nullptr).is_ok());
  }
  EXPECT_EQ(daemon.counts().interns, 1);
}

TEST(SessionTest, MemoryInUseCannotBeFreed) {
  FakeDaemon daemon({.completes = false});
  auto session = attach(daemon);
  float* data = allocate_floats(*session, 10);
  rueda_handle handle = session->submit({allreduce_of("busy", data, data, 10, 1.0)}).value();
  Status status = session->free(data);
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("\"busy\""));
  daemon.set_completes(true);
  ASSERT_TRUE(session->wait(handle, 20'000, nullptr).is_ok());
  EXPECT_TRUE(session->free(data).is_ok());
  EXPECT_EQ(session->submit({allreduce_of("freed", data, data, 10, 1.0)}).status().code(),
            Code::kInvalidArgument);
}

// --- Submissions that repeat earlier ones

class RepeatTest : public ::testing::Test {
 protected:
  void attach_to(FakeDaemon::Options options) {
    daemon_.emplace(options);
    session_ = attach(*daemon_);
    data_ = allocate_floats(*session_, 64);
  }
  std::optional<rueda_handle> again(const char* name, float* data) {
    const rueda_tensor tensor = flat_tensor(name, data, data, &kElements);
    return session_->submit_again({&tensor, 1}, &kOptions, "");
  }
  rueda_handle first(const char* name, float* data) {
    return session_->submit({allreduce_of(name, data, data, kElements, 2.0)}).value();
  }
  void end(rueda_handle handle) { ASSERT_TRUE(session_->wait(handle, 20'000, nullptr).is_ok()); }

  static constexpr int64_t kElements = 16;
  static constexpr rueda_reduce_options kOptions{sizeof(rueda_reduce_options), RUEDA_SUM, 2.0, 1.0,
                                                 0};
  std::optional<FakeDaemon> daemon_;
  std::unique_ptr<Session> session_;
  float* data_ = nullptr;
};

TEST_F(RepeatTest, ReducesWhatTheMemoryHoldsByThen) {
  attach_to({});
  EXPECT_EQ(again("t", data_), std::nullopt);
  end(first("t", data_));
  for (float value : {1.0f, 7.0f, -3.0f}) {
    std::fill_n(data_, kElements, value);
    const std::optional<rueda_handle> handle = again("t", data_);
    ASSERT_TRUE(handle);
    end(*handle);
    EXPECT_EQ(data_[kElements - 1], 2 * value);
  }
  EXPECT_EQ(again("t", data_ + 16), std::nullopt) << "other memory";
  EXPECT_EQ(daemon_->counts().interns, 1);
  EXPECT_EQ(session_->stats().submissions, 4u);
}

TEST_F(RepeatTest, ForeignMemoryIsCopiedAnew) {
  attach_to({});
  std::vector<float> foreign(kElements);
  end(first("t", foreign.data()));
  EXPECT_EQ(again("t", foreign.data()), std::nullopt);
}

TEST_F(RepeatTest, AFreeMakesItLookAgain) {
  attach_to({});
  float* other = allocate_floats(*session_, 64);
  end(first("t", data_));
  end(first("u", other));
  ASSERT_TRUE(session_->free(data_).is_ok());
  EXPECT_EQ(again("t", data_), std::nullopt);
  EXPECT_EQ(again("u", other), std::nullopt);
  end(first("u", other));
  const std::optional<rueda_handle> handle = again("u", other);
  ASSERT_TRUE(handle);
  end(*handle);
}

TEST_F(RepeatTest, MemoryInUseCannotBeFreed) {
  attach_to({});
  end(first("t", data_));
  daemon_->set_completes(false);
  const std::optional<rueda_handle> handle = again("t", data_);
  ASSERT_TRUE(handle);
  EXPECT_EQ(session_->free(data_).code(), Code::kInvalidArgument);
  daemon_->set_completes(true);
  end(*handle);
}

TEST_F(RepeatTest, GroupsToo) {
  attach_to({});
  const rueda_tensor tensors[] = {flat_tensor("a", data_, data_, &kElements),
                                  flat_tensor("b", data_ + 16, data_ + 16, &kElements)};
  std::vector<TensorRequest> requests;
  for (const rueda_tensor& tensor : tensors) {
    requests.push_back(check_allreduce(&tensor, &kOptions, "g", 2).value());
  }
  end(session_->submit(requests).value());
  std::fill_n(data_, 32, 5.0f);
  const std::optional<rueda_handle> handle = session_->submit_again(tensors, &kOptions, "g");
  ASSERT_TRUE(handle);
  end(*handle);
  EXPECT_THAT(std::vector<float>(data_, data_ + 32), Each(10.0f));
  EXPECT_EQ(session_->submit_again({tensors, 1}, &kOptions, "g"), std::nullopt);
}

// The daemon keeps operations in flight by the places of their tickets.
TEST_F(RepeatTest, PlacesOfTicketsAreFree) {
  attach_to({.submission_capacity = 4, .completion_capacity = 4, .completes = false});
  const auto ticket = [&](size_t index) {
    EXPECT_TRUE(daemon_->wait_for(
        [&](const auto& counts) { return counts.submissions > static_cast<int>(index); }));
    return daemon_->submissions()[index].ticket;
  };
  const rueda_handle kept = first("kept", data_);
  daemon_->complete(ticket(0));
  end(kept);
  const rueda_handle one = first("one", data_);
  const rueda_handle two = first("two", data_ + 16);
  EXPECT_EQ(ticket(1) % 4, 0u) << "nothing is in flight: at the first place again";
  daemon_->complete(ticket(2));
  end(two);
  std::set<uint64_t> places{ticket(1) % 4};
  std::vector<rueda_handle> more;
  for (size_t i = 3; i < 6; ++i) {
    more.push_back(first(("t" + std::to_string(i)).c_str(), data_));
    EXPECT_TRUE(places.insert(ticket(i) % 4).second);
  }
  daemon_->set_completes(true);
  end(one);
  for (rueda_handle handle : more) end(handle);
}

TEST(SessionTest, AnEndedHandleIsNotTheNextOne) {
  FakeDaemon daemon;
  auto session = attach(daemon);
  const rueda_handle first = session->submit({check_barrier("x").value()}).value();
  ASSERT_TRUE(session->wait(first, 20'000, nullptr).is_ok());
  const rueda_handle second = session->submit({check_barrier("x").value()}).value();
  EXPECT_NE(first, second);
  EXPECT_EQ(session->wait(first, 0, nullptr).code(), Code::kInvalidArgument);
  EXPECT_EQ(session->test(first).status().code(), Code::kInvalidArgument);
  EXPECT_TRUE(session->wait(second, 20'000, nullptr).is_ok());
}

TEST(SessionTest, DetachSaysGoodbye) {
  FakeDaemon daemon;
  auto session = attach(daemon);
  EXPECT_TRUE(session->detach(20'000).is_ok());
  EXPECT_EQ(session->submit({check_barrier("x").value()}).status().code(), Code::kShutDown);
  session.reset();
  EXPECT_TRUE(daemon.wait_for([](const auto& counts) { return counts.detaches == 1; }));
  EXPECT_EQ(daemon.counts().lost, 0);
}

TEST(SessionTest, DetachNamesWhatIsStillInFlight) {
  FakeDaemon daemon({.completes = false});
  auto session = attach(daemon);
  rueda_handle handle = session->submit({check_barrier("late").value()}).value();
  Status status = session->detach(1);
  EXPECT_EQ(status.code(), Code::kTimeout);
  EXPECT_THAT(status.message(), HasSubstr("late"));
  EXPECT_EQ(session->wait(handle, 0, nullptr).code(), Code::kShutDown);
}

}  // namespace
}  // namespace rueda::client
