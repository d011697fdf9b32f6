// Tests communicators on every device: two members, one on this device and one on another GPU;
// where there is one GPU, one member alone.
#include <cstring>
#include <numeric>
#include <vector>

#include "tests/gpu/rig.h"

namespace rueda::gpu {
namespace {

constexpr size_t kElements = 10'001;

class GpuCommunicator : public GpuConformance {
 protected:
  struct Member {
    Device* device = nullptr;
    std::unique_ptr<Stream> stream;
    std::unique_ptr<Communicator> communicator;
    DeviceAddress at = 0;
    std::span<std::byte> host;
  };

  // Connects as many members as there are GPUs. Skips the test where the library is missing.
  void connect() {
    members_.clear();
    members_.push_back({.device = &device()});
    if (const Result<Device*> peer = rig_->peer(); peer.is_ok()) {
      members_.push_back({.device = peer.value()});
    }
    const auto id = device().make_communicator_id();
    if (id.status().code() == Code::kUnavailable) GTEST_SKIP() << id.status().message();
    ASSERT_TRUE(id.is_ok()) << id.status().to_string();
    for (size_t i = 0; i < members_.size(); ++i) {
      Member& member = members_[i];
      auto made = member.device->connect(id.value(), static_cast<int>(i),
                                         static_cast<int>(members_.size()));
      ASSERT_TRUE(made.is_ok()) << made.status().to_string();
      member.communicator = std::move(made).value();
      member.stream = member.device->make_stream(Priority::kLow).value();
      member.at = member.device->allocate(kElements * 8, Sharing::kIpc).value();
      member.host = member.device->allocate_host(kElements * 8).value();
    }
    ASSERT_TRUE(until([](Member& member) { return member.communicator->health(); }));
  }
  // Repeats the call until it succeeds for all members. Returns false if one fails, or it takes too
  // long.
  template <class Call>
  bool until(Call call) {
    std::vector<bool> done(members_.size());
    const bool all = wait_for([&] {
      for (size_t i = 0; i < members_.size(); ++i) {
        if (done[i]) continue;
        const Status status = call(members_[i]);
        done[i] = status.is_ok();
        if (!status.is_ok() && status.code() != Code::kUnavailable) {
          ADD_FAILURE() << status.to_string();
          return true;
        }
      }
      return std::accumulate(done.begin(), done.end(), true, std::logical_and<>());
    });
    return all && !HasFailure();
  }
  template <class Value>
  static void put(Member& member, const std::vector<Value>& values) {
    std::memcpy(member.host.data(), values.data(), values.size() * sizeof(Value));
    ASSERT_TRUE(
        member.stream->copy_to_device(member.at, member.host.data(), values.size() * sizeof(Value))
            .is_ok());
  }
  template <class Value>
  std::vector<Value> get(Member& member) {
    std::vector<Value> values(kElements);
    const size_t bytes = kElements * sizeof(Value);
    EXPECT_TRUE(member.stream->copy_to_host(member.host.data(), member.at, bytes).is_ok());
    EXPECT_TRUE(wait_for([&] { return member.stream->is_idle().value(); }));
    std::memcpy(values.data(), member.host.data(), bytes);
    return values;
  }

  std::vector<Member> members_;
};

template <class Value>
Value come_to(ReduceOp op, Value one, Value other) {
  switch (op) {
    case ReduceOp::kSum: return static_cast<Value>(one + other);
    case ReduceOp::kProduct: return static_cast<Value>(one * other);
    case ReduceOp::kMin: return std::min(one, other);
    default: return std::max(one, other);
  }
}

template <class Value>
std::vector<Value> given(size_t member) {
  std::vector<Value> values(kElements);
  for (size_t i = 0; i < kElements; ++i) values[i] = static_cast<Value>(i % 11 + 2 * member);
  return values;
}

TEST_P(GpuCommunicator, ReducesEachElementOfAllMembersInPlace) {
  connect();
  if (IsSkipped()) return;
  const auto reduce = [&]<class Value>(DType dtype, ReduceOp op, Value) {
    for (size_t i = 0; i < members_.size(); ++i) put(members_[i], given<Value>(i));
    ASSERT_TRUE(until([&](Member& member) {
      return member.communicator->all_reduce(*member.stream, member.at, kElements, dtype, op);
    }));
    std::vector<Value> wanted = given<Value>(0);
    const std::vector<Value> others = given<Value>(1);
    for (size_t i = 0; members_.size() > 1 && i < kElements; ++i) {
      wanted[i] = come_to(op, wanted[i], others[i]);
    }
    for (Member& member : members_) EXPECT_EQ(get<Value>(member), wanted);
  };
  for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kProduct, ReduceOp::kMin, ReduceOp::kMax}) {
    SCOPED_TRACE(to_string(op));
    reduce(DType::kFloat32, op, float{});
    reduce(DType::kFloat64, op, double{});
    reduce(DType::kInt32, op, int32_t{});
    reduce(DType::kInt64, op, int64_t{});
    reduce(DType::kInt8, op, int8_t{});
    reduce(DType::kUInt8, op, uint8_t{});
    reduce(DType::kUInt32, op, uint32_t{});
    reduce(DType::kUInt64, op, uint64_t{});
  }
}

TEST_P(GpuCommunicator, RefusesWhatHasNoMeaningAmongSeveral) {
  connect();
  if (IsSkipped()) return;
  Member& member = members_[0];
  for (const auto& [dtype, op] : {std::pair{DType::kFloat32, ReduceOp::kAverage},
                                  {DType::kFloat32, ReduceOp::kAdasum},
                                  {DType::kBool, ReduceOp::kMax},
                                  {DType::kInt16, ReduceOp::kSum},
                                  {DType::kUInt16, ReduceOp::kMin},
                                  {DType::kComplex64, ReduceOp::kSum},
                                  {DType::kComplex128, ReduceOp::kProduct}}) {
    EXPECT_EQ(member.communicator->all_reduce(*member.stream, member.at, 1, dtype, op).code(),
              Code::kInvalidArgument);
  }
  EXPECT_TRUE(member.communicator->health().is_ok());
}

TEST_P(GpuCommunicator, BroadcastsFromAnyMember) {
  connect();
  if (IsSkipped()) return;
  for (size_t root = 0; root < members_.size(); ++root) {
    for (size_t i = 0; i < members_.size(); ++i) put(members_[i], given<uint8_t>(i));
    ASSERT_TRUE(until([&](Member& member) {
      return member.communicator->broadcast(*member.stream, member.at, kElements,
                                            static_cast<int>(root));
    }));
    for (Member& member : members_) EXPECT_EQ(get<uint8_t>(member), given<uint8_t>(root));
  }
}

// Calls of a stream follow each other, and the last waits for the slower member.
TEST_P(GpuCommunicator, WaitsForTheOtherMembersStream) {
  connect();
  if (IsSkipped()) return;
  if (members_.size() < 2) GTEST_SKIP() << "one GPU";
  auto* const gate =
      reinterpret_cast<uint64_t*>(members_[1].device->allocate_host(8).value().data());
  const auto reduce = [this] {
    return until([](Member& member) {
      return member.communicator->all_reduce(*member.stream, member.at, kElements, DType::kFloat32,
                                             ReduceOp::kSum);
    });
  };
  for (size_t i = 0; i < 2; ++i) put(members_[i], std::vector<float>(kElements, 1));
  ASSERT_TRUE(reduce());  // connects, and waits for the devices
  for (Member& member : members_) EXPECT_EQ(get<float>(member), std::vector<float>(kElements, 2));
  for (size_t i = 0; i < 2; ++i) put(members_[i], std::vector<float>(kElements, 1));
  ASSERT_TRUE(members_[1].stream->wait_value(gate, 1).is_ok());
  for (int step = 0; step < 3; ++step) ASSERT_TRUE(reduce());
  wait_a_while();
  EXPECT_FALSE(members_[0].stream->is_idle().value());
  std::atomic_ref(*gate).store(1);
  for (Member& member : members_) EXPECT_EQ(get<float>(member), std::vector<float>(kElements, 8));
}

// A member that leaves does not wait for others, and holds nothing of the device but itself.
TEST_P(GpuCommunicator, IsLeftWhileTheOthersAreWaitedFor) {
  connect();
  if (IsSkipped()) return;
  for (Member& member : members_) put(member, given<float>(0));
  Member& first = members_[0];
  const auto reduce = [&] {
    return first.communicator->all_reduce(*first.stream, first.at, kElements, DType::kFloat32,
                                          ReduceOp::kSum);
  };
  ASSERT_TRUE(wait_for([&] { return reduce().code() != Code::kUnavailable; }));
  first.communicator.reset();
  EXPECT_TRUE(device().health().is_ok());
  connect();
  EXPECT_TRUE(members_[0].communicator->health().is_ok());
}

INSTANTIATE_TEST_SUITE_P(Rigs, GpuCommunicator, testing::ValuesIn(all_rigs()), rig_name);

}  // namespace
}  // namespace rueda::gpu
