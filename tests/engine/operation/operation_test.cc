#include "daemon/engine/operation/operation.h"

#include <cstring>
#include <iterator>
#include <numeric>
#include <vector>

#include <gtest/gtest.h>

#include "tests/engine/operation_fixture.h"

namespace rueda::engine {
namespace {

using testing::Bytes;
using testing::OperationFixture;
using testing::OperationSpec;

constexpr NodeIndex kNode0{0};

// Returns an operation of three ranks on one node, and a batch with empty tensors at every place.
OperationSpec batch_with_gaps() {
  OperationSpec spec;
  spec.sizes = {0, 5, 0, 0, 3, 7, 0};
  return spec;
}

std::vector<float> floats(const Bytes& bytes) {
  std::vector<float> values(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

// With 3 ranks, element i of the batch has 2^((r + i) mod 3) of rank r, so any sum is 7.
TEST(OperationKernels, EveryRangeOfABatchIsReducedWhereverItBeginsAndEnds) {
  const OperationFixture work(batch_with_gaps(), {3}, Seq{1});
  const auto operation = work.operation(kNode0);
  ASSERT_EQ(operation->elements(), 15);
  OperationKernels kernels;
  for (int64_t begin = 0; begin <= 15; ++begin) {
    for (int64_t end = begin; end <= 15; ++end) {
      Bytes result(static_cast<size_t>(end - begin) * 4 + 4, std::byte{0x55});
      kernels.reduce_local(*operation, {begin, end}, nullptr, true, result.data());
      for (int64_t i = 0; i < end - begin; ++i) {
        float value = 0;
        std::memcpy(&value, result.data() + i * 4, 4);
        ASSERT_EQ(value, 7.0F) << "range " << begin << " to " << end << ", element " << i;
      }
      EXPECT_EQ(result.back(), std::byte{0x55}) << "wrote past the range";
    }
  }
}

TEST(Operation, SharesTakeEachElementOnceAndLeaveItInItsShard) {
  for (const CollectiveKind kind : {CollectiveKind::kAllreduce, CollectiveKind::kAllgather}) {
    OperationSpec spec;
    spec.kind = kind;
    spec.sizes = {5003};
    if (has_parts(kind)) spec.counts = {4000, 3, 1000};
    const OperationFixture work(spec, {1, 1, 1}, Seq{1});
    const auto operation = work.operation(kNode0);
    const auto shards_of_elements = [&](const core::RingCut& cut, std::vector<int>& taken) {
      for (int64_t piece = 0; piece < cut.pieces(); ++piece) {
        for (int shard = 0; shard < cut.shards(); ++shard) {
          const core::ElementRange range = cut.chunk(piece, shard);
          for (int64_t i = range.begin; i < range.end; ++i) taken[i] += 1 << (8 * shard);
        }
      }
    };
    const auto elements = static_cast<size_t>(operation->elements());
    std::vector<int> whole(elements), shares(elements);
    shards_of_elements(operation->cut(3, 100), whole);
    for (int index = 0; index < 4; ++index) {
      operation->share = {index, 4};
      const core::RingCut cut = operation->cut(3, 100);
      EXPECT_NEAR(static_cast<double>(cut.elements()), elements / 4.0, 4);
      shards_of_elements(cut, shares);
    }
    EXPECT_EQ(shares, whole);
  }
}

TEST(OperationKernels, APartialSumIsAddedToInPlace) {
  const OperationFixture work(batch_with_gaps(), {3}, Seq{1});
  const auto operation = work.operation(kNode0);
  std::vector<float> partial{100, 200, 300, 400, 500, 600};
  OperationKernels kernels;
  auto* bytes = reinterpret_cast<std::byte*>(partial.data());
  kernels.reduce_local(*operation, {3, 9}, bytes, false, bytes);
  EXPECT_EQ(partial, (std::vector<float>{107, 207, 307, 407, 507, 607}));
}

TEST(OperationKernels, ANodeWhoseRanksHaveAllJoinedGivesZeros) {
  const OperationFixture work(batch_with_gaps(), {3}, Seq{1});
  const auto operation = work.operation(kNode0);
  for (OperationTensor& item : operation->tensors) item.ranks.clear();
  OperationKernels kernels;
  std::vector<float> values{100, 200, 300, 400, 500, 600, 700};
  auto* bytes = reinterpret_cast<std::byte*>(values.data());
  kernels.reduce_local(*operation, {3, 9}, bytes, false, bytes);
  EXPECT_EQ(values, (std::vector<float>{100, 200, 300, 400, 500, 600, 700}));
  kernels.reduce_local(*operation, {3, 9}, nullptr, true, bytes);
  EXPECT_EQ(values, (std::vector<float>{0, 0, 0, 0, 0, 0, 700}));
  kernels.store(*operation, {3, 9}, bytes);
}

TEST(OperationKernels, OnlyTheLastStepScalesAndDivides) {
  OperationSpec spec = batch_with_gaps();
  spec.op = ReduceOp::kAverage;
  spec.prescale = 2.0;
  spec.postscale = 5.0;
  const OperationFixture work(spec, {3, 4}, Seq{1});
  const auto operation = work.operation(kNode0);
  ASSERT_EQ(operation->divisor, 7);
  OperationKernels kernels;
  const std::byte* first_input = work.input_of(Rank{0}, 1);
  float own[3];
  for (int rank = 0; rank < 3; ++rank) std::memcpy(&own[rank], work.input_of(Rank{rank}, 1), 4);
  float partial = 1000;
  float result = 0;
  kernels.reduce_local(*operation, {0, 1}, reinterpret_cast<std::byte*>(&partial), false,
                       reinterpret_cast<std::byte*>(&result));
  EXPECT_EQ(result, 1000 + 2 * (own[0] + own[1] + own[2]));
  kernels.reduce_local(*operation, {0, 1}, reinterpret_cast<std::byte*>(&partial), true,
                       reinterpret_cast<std::byte*>(&result));
  EXPECT_EQ(result, (1000 + 2 * (own[0] + own[1] + own[2])) * 5 / 7);
  EXPECT_EQ(first_input, operation->tensors[1].ranks[0].input);
}

TEST(OperationKernels, StoreWritesEveryLocalOutputAndNothingElse) {
  const OperationFixture work(batch_with_gaps(), {3}, Seq{1});
  const auto operation = work.operation(kNode0);
  const std::vector<float> values{1, 2, 3, 4};
  OperationKernels kernels;
  kernels.store(*operation, {4, 8}, reinterpret_cast<const std::byte*>(values.data()));
  float untouched = 0;
  std::memset(&untouched, 0xEE, 4);
  for (int rank = 0; rank < 3; ++rank) {
    const std::vector<float> got = floats(work.output(Rank{rank}));
    for (size_t i = 0; i < got.size(); ++i) {
      const float want = i >= 4 && i < 8 ? values[i - 4] : untouched;
      EXPECT_EQ(std::memcmp(&got[i], &want, 4), 0) << "rank " << rank << ", element " << i;
    }
  }
}

// The store of a batch that is larger than the caches bypasses them.
TEST(OperationKernels, StoreOfALargeBatchWritesTheSame) {
  OperationSpec spec;
  spec.sizes = {5, 3 << 20};
  const OperationFixture work(spec, {3}, Seq{1});
  const auto operation = work.operation(kNode0);
  std::vector<float> values(static_cast<size_t>(operation->elements()));
  std::iota(values.begin(), values.end(), 0.0F);
  OperationKernels kernels;
  constexpr int64_t kCuts[] = {1, 3, 70'001, (3 << 20) + 4};  // leave out the first and the last
  for (size_t i = 0; i + 1 < std::size(kCuts); ++i) {
    kernels.store(*operation, {kCuts[i], kCuts[i + 1]},
                  reinterpret_cast<const std::byte*>(values.data() + kCuts[i]));
  }
  std::memset(values.data(), 0xEE, sizeof(float));
  std::memset(&values.back(), 0xEE, sizeof(float));
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(std::memcmp(work.output(Rank{rank}).data(), values.data(), values.size() * 4), 0)
        << "rank " << rank;
  }
}

TEST(OperationKernels, OneNodeIsOnePassForAllDtypesAndOps) {
  OperationKernels kernels;
  for (int dtype = 0; dtype < kDTypeCount; ++dtype) {
    for (int op = 0; op < kElementwiseOpCount; ++op) {
      if (!has_operator(static_cast<DType>(dtype), static_cast<ReduceOp>(op))) continue;
      for (const bool in_place : {false, true}) {
        OperationSpec spec = batch_with_gaps();
        spec.dtype = static_cast<DType>(dtype);
        spec.op = static_cast<ReduceOp>(op);
        spec.in_place = in_place;
        const OperationFixture work(spec, {4}, Seq{1});
        const auto operation = work.operation(kNode0);
        kernels.run_on_one_node(*operation, {0, 6});
        kernels.run_on_one_node(*operation, {6, 6});
        kernels.run_on_one_node(*operation, {6, 15});
        EXPECT_EQ(work.check(), "") << (in_place ? "in place" : "out of place");
      }
    }
  }
}

TEST(OperationKernels, ABroadcastOnOneNodeCopiesTheRoots) {
  OperationKernels kernels;
  for (int root = 0; root < 4; ++root) {
    for (const bool in_place : {false, true}) {
      OperationSpec spec = batch_with_gaps();
      spec.kind = CollectiveKind::kBroadcast;
      spec.dtype = DType::kInt64;
      spec.root = Rank{root};
      spec.in_place = in_place;
      const OperationFixture work(spec, {4}, Seq{1});
      kernels.run_on_one_node(*work.operation(kNode0), {0, 15});
      EXPECT_EQ(work.check(), "") << "root " << root;
    }
  }
}

TEST(OperationKernels, ReadTakesTheRootsInputAlone) {
  OperationSpec spec = batch_with_gaps();
  spec.kind = CollectiveKind::kBroadcast;
  spec.dtype = DType::kInt32;
  spec.root = Rank{4};
  const OperationFixture work(spec, {3, 3}, Seq{1});
  const auto operation = work.operation(NodeIndex{1});
  ASSERT_EQ(operation->root_node, NodeIndex{1});
  OperationKernels kernels;
  Bytes read(4 * 6);
  kernels.read(*operation, {2, 8}, read.data());
  EXPECT_EQ(std::memcmp(read.data(), work.input_of(Rank{4}, 1) + 8, 12), 0);
  EXPECT_EQ(std::memcmp(read.data() + 12, work.input_of(Rank{4}, 4), 12), 0);
}

TEST(OperationKernels, AnEmptyBatchTouchesNothing) {
  OperationSpec spec;
  spec.kind = CollectiveKind::kBarrier;
  spec.sizes = {0};
  const OperationFixture work(spec, {2}, Seq{1});
  OperationKernels kernels;
  kernels.run_on_one_node(*work.operation(kNode0), {0, 0});
  kernels.reduce_local(*work.operation(kNode0), {0, 0}, nullptr, true, nullptr);
  kernels.store(*work.operation(kNode0), {0, 0}, nullptr);
}

// The fault must be large enough for any tolerance, and must not appear in values that are passed
// on.
TEST(OperationKernels, TheTestFaultMakesFinalResultsWrongAndNothingElse) {
  OperationKernels corrupt(true);
  for (int dtype = 0; dtype < kDTypeCount; ++dtype) {
    OperationSpec spec;
    spec.dtype = static_cast<DType>(dtype);
    spec.sizes = {9};
    const OperationFixture work(spec, {2}, Seq{1});
    corrupt.run_on_one_node(*work.operation(kNode0), {0, 9});
    EXPECT_NE(work.check(), "") << to_string(spec.dtype);

    Bytes partial(9 * element_bytes(spec.dtype));
    corrupt.reduce_local(*work.operation(kNode0), {0, 9}, nullptr, false, partial.data());
    EXPECT_EQ(testing::get_number(spec.dtype, partial.data()), spec.dtype == DType::kBool ? 1 : 3)
        << to_string(spec.dtype);
  }
}

}  // namespace
}  // namespace rueda::engine
