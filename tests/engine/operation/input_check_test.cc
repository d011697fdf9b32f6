// Tests that what the kernels of an operation read is checked before anything is written over it.
#include "daemon/engine/operation/input_check.h"

#include <cmath>
#include <cstring>
#include <limits>

#include <gtest/gtest.h>

#include "daemon/engine/operation/operation.h"
#include "tests/engine/operation_fixture.h"

namespace rueda::engine {
namespace {

using testing::OperationFixture;
using testing::OperationSpec;

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

std::shared_ptr<const core::TensorDescriptor> named(const std::string& name) {
  core::TensorDescriptor tensor;
  tensor.name = name;
  tensor.process_set = 3;
  return std::make_shared<core::TensorDescriptor>(tensor);
}

// Holds an operation of one node whose tensors are floats, and a check of it.
struct Checked {
  explicit Checked(OperationSpec spec, int ranks = 2) : work(spec, {ranks}, Seq{1}) {
    operation = work.operation(NodeIndex{0});
    std::vector<InputCheck::Contribution> all;
    for (int rank = 0; rank < ranks; ++rank) {
      for (size_t i = 0; i < spec.sizes.size(); ++i) {
        if (spec.sizes[i] == 0) continue;
        all.push_back({work.input_of(Rank{rank}, i), work.input_bytes(Rank{rank}, i), Rank{rank}, 5,
                       10 + i, named("t" + std::to_string(i))});
      }
    }
    operation->check = check = std::make_shared<InputCheck>(spec.dtype, std::move(all));
  }
  void plant(int rank, size_t tensor, size_t element, float value) {
    auto* at = const_cast<std::byte*>(work.input_of(Rank{rank}, tensor)) + 4 * element;
    std::memcpy(at, &value, 4);
  }
  core::ElementRange all() const { return {0, operation->elements()}; }

  const OperationFixture work;
  std::unique_ptr<Operation> operation;
  std::shared_ptr<InputCheck> check;
};

OperationSpec floats(bool in_place, CollectiveKind kind = CollectiveKind::kAllreduce) {
  OperationSpec spec;
  spec.kind = kind;
  spec.sizes = {5, 0, 30'000, 7};
  spec.in_place = in_place;
  return spec;
}

TEST(InputCheck, FindsNothingInFiniteValues) {
  for (const bool in_place : {false, true}) {
    Checked checked(floats(in_place));
    OperationKernels().run_on_one_node(*checked.operation, checked.all());
    EXPECT_EQ(checked.check->found(), 0u);
    EXPECT_FALSE(checked.check->first());
    EXPECT_EQ(checked.work.check(), "");
  }
}

// In place the sum is NaN in all ranks' memory afterwards, so the rank that contributed it must be
// known before.
TEST(InputCheck, NamesTheRankWhereOutputsAreInputs) {
  for (const bool in_place : {false, true}) {
    for (const size_t element : {0, 2047, 2048, 29'999}) {
      Checked checked(floats(in_place));
      checked.plant(1, 2, element, -kInfinity);
      OperationKernels().run_on_one_node(*checked.operation, checked.all());
      EXPECT_EQ(checked.check->found(), 1u);
      const Nonfinite expected{5, Rank{1}, 12, element, NonfiniteKind::kMinusInfinity, "t2", 3};
      EXPECT_EQ(checked.check->first(), expected);
    }
  }
}

TEST(InputCheck, LooksAtWhatGoesToOtherNodesAndNotAtWhatComes) {
  for (const WireDType wire : {WireDType::kSame, WireDType::kBFloat16}) {
    OperationSpec spec = floats(false);
    spec.wire_dtype = wire;
    Checked checked(spec);
    std::vector<std::byte> partial(checked.operation->wire_bytes());
    for (size_t i = 0; i < partial.size(); ++i) partial[i] = std::byte{0xff};  // is NaN everywhere
    OperationKernels().reduce_local(*checked.operation, checked.all(), partial.data(), false,
                                    partial.data());
    EXPECT_EQ(checked.check->found(), 0u);
    checked.plant(0, 3, 6, kNaN);
    OperationKernels().reduce_local(*checked.operation, checked.all(), nullptr, false,
                                    partial.data());
    const Nonfinite expected{5, Rank{0}, 13, 6, NonfiniteKind::kNaN, "t3", 3};
    EXPECT_EQ(checked.check->first(), expected);
  }
}

TEST(InputCheck, PutsTheLowestFirstWhateverIsReadFirst) {
  Checked checked(floats(false), 3);
  checked.plant(2, 0, 0, kNaN);
  checked.plant(1, 2, 29'000, kNaN);
  checked.plant(1, 2, 9'000, kInfinity);
  checked.plant(1, 3, 0, kNaN);
  OperationKernels kernels;
  kernels.run_on_one_node(*checked.operation, {20'000, checked.operation->elements()});
  kernels.run_on_one_node(*checked.operation, {0, 20'000});
  EXPECT_EQ(checked.check->found(), 3u);
  const Nonfinite expected{5, Rank{1}, 12, 9'000, NonfiniteKind::kInfinity, "t2", 3};
  EXPECT_EQ(checked.check->first(), expected);
}

TEST(InputCheck, FindsAllContributionsThatHaveTheSameMemory) {
  float values[8] = {0, 0, 0, kNaN, 0, 0, 0, 0};
  const auto* memory = reinterpret_cast<const std::byte*>(values);
  InputCheck check(DType::kFloat32, {{memory, 32, Rank{0}, 1, 1, named("a")},
                                     {memory, 8, Rank{0}, 1, 2, named("short")},
                                     {memory, 32, Rank{0}, 1, 3, named("b")}});
  check.look(memory, 32);
  EXPECT_EQ(check.found(), 2u);
  EXPECT_EQ(check.first()->tensor, "a");
  EXPECT_EQ(check.first()->element, 3u);
}

TEST(InputCheck, TellsWhatItIsInEveryDType) {
  const auto kind = [](DType dtype, uint64_t bits) {
    const auto* memory = reinterpret_cast<const std::byte*>(&bits);
    InputCheck check(dtype, {{memory, element_bytes(dtype), Rank{0}, 1, 1, named("x")}});
    check.look(memory, element_bytes(dtype));
    return check.first() ? static_cast<int>(check.first()->kind) : -1;
  };
  EXPECT_EQ(kind(DType::kFloat16, 0x7c00), 1);
  EXPECT_EQ(kind(DType::kFloat16, 0xfc00), 2);
  EXPECT_EQ(kind(DType::kFloat16, 0x7c01), 0);
  EXPECT_EQ(kind(DType::kFloat16, 0x7bff), -1);
  EXPECT_EQ(kind(DType::kBFloat16, 0x7f80), 1);
  EXPECT_EQ(kind(DType::kBFloat16, 0xff80), 2);
  EXPECT_EQ(kind(DType::kBFloat16, 0xffc0), 0);
  EXPECT_EQ(kind(DType::kFloat32, 0x7f800000), 1);
  EXPECT_EQ(kind(DType::kFloat32, 0xff800000), 2);
  EXPECT_EQ(kind(DType::kFloat32, 0x7f800001), 0);
  EXPECT_EQ(kind(DType::kFloat64, 0x7ff0000000000000), 1);
  EXPECT_EQ(kind(DType::kFloat64, 0xfff0000000000000), 2);
  EXPECT_EQ(kind(DType::kFloat64, 0xfff8000000000000), 0);
}

TEST(InputCheck, LooksAtBothComponentsOfComplexNumbers) {
  const float values[] = {1, 2, 3, 4, 5, -INFINITY, NAN, 8};
  const auto* memory = reinterpret_cast<const std::byte*>(values);
  InputCheck check(DType::kComplex64, {{memory, sizeof(values), Rank{0}, 1, 1, named("x")}});
  check.look(memory, sizeof(values));
  EXPECT_EQ(check.found(), 1u);
  EXPECT_EQ(check.first()->element, 2u);
  EXPECT_EQ(check.first()->kind, NonfiniteKind::kMinusInfinity);
  const double wide[] = {NAN, INFINITY};
  const auto* wide_memory = reinterpret_cast<const std::byte*>(wide);
  InputCheck of_wide(DType::kComplex128, {{wide_memory, sizeof(wide), Rank{0}, 1, 1, named("x")}});
  of_wide.look(wide_memory, sizeof(wide));
  EXPECT_EQ(of_wide.first()->kind, NonfiniteKind::kNaN) << "the first component counts";
}

TEST(InputCheck, IsForReductionsOfFloats) {
  EXPECT_TRUE(InputCheck::looks_at(CollectiveKind::kAllreduce, DType::kComplex64));
  EXPECT_FALSE(InputCheck::looks_at(CollectiveKind::kAllreduce, DType::kUInt16));
  EXPECT_TRUE(InputCheck::looks_at(CollectiveKind::kAllreduce, DType::kBFloat16));
  EXPECT_TRUE(InputCheck::looks_at(CollectiveKind::kReduceScatter, DType::kFloat64));
  EXPECT_TRUE(InputCheck::looks_at(CollectiveKind::kReduce, DType::kFloat16));
  EXPECT_FALSE(InputCheck::looks_at(CollectiveKind::kBroadcast, DType::kFloat32));
  EXPECT_FALSE(InputCheck::looks_at(CollectiveKind::kAllgather, DType::kFloat32));
  EXPECT_FALSE(InputCheck::looks_at(CollectiveKind::kAllreduce, DType::kInt64));
  EXPECT_FALSE(InputCheck::looks_at(CollectiveKind::kAllreduce, DType::kBool));
}

}  // namespace
}  // namespace rueda::engine
