// Tests values that are rounded where they cross the network: the result, that it is the same on
// every rank, and how far it is from the exact result.
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include <gtest/gtest.h>

#include "daemon/engine/data/data_job.h"
#include "tests/engine/ring.h"

namespace rueda::engine {
namespace {

using testing::Bytes;
using testing::OperationFixture;
using testing::OperationSpec;
using testing::Ring;
using testing::RingOptions;

constexpr WireDType kWires[] = {WireDType::kFloat16, WireDType::kBFloat16};
const std::vector<std::vector<int>> kWireShapes{
    {1}, {3}, {1, 1}, {3, 2}, {1, 2, 1}, {2, 2, 2, 2}, {1, 1, 2, 1, 1}, {1, 1, 1, 1, 1, 1, 1, 1}};

OperationSpec rounded(WireDType wire, ReduceOp op, std::vector<int64_t> sizes) {
  OperationSpec spec;
  spec.wire_dtype = wire;
  spec.op = op;
  spec.sizes = std::move(sizes);
  return spec;
}

RingOptions nodes(const std::vector<int>& ranks_per_node) {
  RingOptions options;
  options.ranks_per_node = ranks_per_node;
  return options;
}

int total(const std::vector<int>& ranks_per_node) {
  int all = 0;
  for (const int ranks : ranks_per_node) all += ranks;
  return all;
}

std::vector<float> floats(const std::byte* from, size_t count) {
  std::vector<float> values(count);
  std::memcpy(values.data(), from, count * sizeof(float));
  return values;
}

class DataJobWire : public ::testing::TestWithParam<std::vector<int>> {
 protected:
  bool is_one_node() const { return GetParam().size() == 1; }
};

TEST_P(DataJobWire, WhatIsExactInTheWireDtypeComesOutExactly) {
  for (const core::DeathPolicy policy : {core::DeathPolicy::kFail, core::DeathPolicy::kShrink}) {
    RingOptions options = nodes(GetParam());
    options.policy = policy;
    Ring ring(options);
    for (const WireDType wire : kWires) {
      for (int op = 0; op < kElementwiseOpCount; ++op) {
        for (const int64_t elements : {1, 3, 1021, 20'011}) {
          OperationSpec spec = rounded(wire, static_cast<ReduceOp>(op), {elements});
          spec.in_place = elements % 2 == 0;
          ring.add(spec);
        }
      }
      OperationSpec batch = rounded(wire, ReduceOp::kAverage, {0, 999, 1, 0, 5001, 13, 0});
      batch.in_place = true;
      batch.prescale = 0.5;
      batch.postscale = 4.0;
      ring.add(batch);
    }
    ASSERT_TRUE(ring.run_all());
    EXPECT_EQ(ring.check(), "");
  }
}

TEST_P(DataJobWire, ReduceAndReduceScatterToo) {
  Ring ring(nodes(GetParam()));
  for (const WireDType wire : kWires) {
    for (const CollectiveKind kind : {CollectiveKind::kReduce, CollectiveKind::kReduceScatter}) {
      for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kAverage, ReduceOp::kMin}) {
        OperationSpec spec = rounded(wire, op, {10'007});
        spec.kind = kind;
        spec.root = Rank{total(GetParam()) - 1};
        ring.add(spec);
      }
    }
  }
  ASSERT_TRUE(ring.run_all());
  EXPECT_EQ(ring.check(), "");
}

// The bytes are half as many, and so is the memory for final values.
TEST_P(DataJobWire, ElementsTravelInTwoBytes) {
  if (is_one_node()) GTEST_SKIP() << "nothing travels";
  double sent[2] = {};
  for (const WireDType wire : {WireDType::kSame, WireDType::kBFloat16}) {
    RingOptions options = nodes(GetParam());
    options.chunk_bytes = 1 << 20;
    Ring ring(options);
    ring.add(rounded(wire, ReduceOp::kSum, {64'000}));
    ASSERT_TRUE(ring.run_all());
    ring.settle();
    for (int i = 0; i < ring.size(); ++i) ring.node(i).job.reset();
    for (int i = 0; i < ring.size(); ++i) {
      sent[wire == WireDType::kSame ? 0 : 1] +=
          ring.metrics().peer("n" + std::to_string(i), "mem")->sent_bytes.Value();
    }
  }
  const auto n = static_cast<double>(GetParam().size());
  const double headers = n * 2 * (n - 1) * 64;
  EXPECT_EQ(sent[0] - headers, 2 * (n - 1) * 64'000 * 4);
  EXPECT_EQ(sent[1] - headers, 2 * (n - 1) * 64'000 * 2);
}

// An element's place in the tensor, its chunk and the time of its travel change nothing.
TEST_P(DataJobWire, TheSizeOfAChunkDoesNotChangeABitNorDoesASecondRun) {
  for (const WireDType wire : kWires) {
    std::vector<Bytes> results;
    for (const uint64_t chunk_bytes : {4096u, 4096u, 8192u, 65'536u, 1u << 20}) {
      RingOptions options = nodes(GetParam());
      options.chunk_bytes = chunk_bytes;
      Ring ring(options);
      OperationSpec spec = rounded(wire, ReduceOp::kAverage, {30'011, 7});
      spec.random_seed = 3;
      ring.add(spec);
      ASSERT_TRUE(ring.run_all());
      EXPECT_EQ(ring.check(), "");
      results.push_back(ring.work(0).output(Rank{0}));
    }
    for (const Bytes& result : results) EXPECT_EQ(result, results.front());
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, DataJobWire, ::testing::ValuesIn(kWireShapes),
                         [](const auto& test) {
                           std::string name = "nodes";
                           for (const int ranks : test.param) name += "_" + std::to_string(ranks);
                           return name;
                         });

// On one node the result is that of a job that asks for no wire dtype, bit for bit.
TEST(DataJobWireOnOneNode, NothingIsRounded) {
  Ring ring(nodes({3}));
  for (const WireDType wire : {WireDType::kSame, WireDType::kFloat16, WireDType::kBFloat16}) {
    OperationSpec spec = rounded(wire, ReduceOp::kAverage, {10'001});
    spec.random_seed = 7;
    ring.add(spec);
  }
  ASSERT_TRUE(ring.run_all());
  EXPECT_EQ(ring.check(), "");
  EXPECT_EQ(ring.work(1).output(Rank{0}), ring.work(0).output(Rank{0}));
  EXPECT_EQ(ring.work(2).output(Rank{0}), ring.work(0).output(Rank{0}));
}

// Returns what the contributions of the only ranks of n nodes become in the first element.
float one_element(WireDType wire, ReduceOp op, const std::vector<float>& values) {
  Ring ring(nodes(std::vector<int>(values.size(), 1)));
  OperationSpec spec = rounded(wire, op, {5});
  spec.in_place = true;
  OperationFixture& work = ring.add(spec);
  for (size_t rank = 0; rank < values.size(); ++rank) {
    std::byte* to = work.output_of(Rank{static_cast<int>(rank)}, 0);
    std::memcpy(to, &values[rank], sizeof(float));
  }
  EXPECT_TRUE(ring.run_all());
  const float result = floats(work.output_of(Rank{0}, 0), 1).front();
  for (int rank = 1; rank < work.ranks(); ++rank) {
    EXPECT_EQ(std::memcmp(work.output_of(Rank{rank}, 0), &result, sizeof(float)), 0);
  }
  return result;
}

TEST(DataJobWireRange, NanAndInfinityComeThrough) {
  const float infinity = std::numeric_limits<float>::infinity();
  for (const WireDType wire : kWires) {
    for (int op = 0; op < kElementwiseOpCount; ++op) {
      for (size_t place = 0; place < 3; ++place) {
        std::vector<float> values{1, 2, 3};
        values[place] = std::numeric_limits<float>::quiet_NaN();
        EXPECT_TRUE(std::isnan(one_element(wire, static_cast<ReduceOp>(op), values)));
      }
    }
    EXPECT_EQ(one_element(wire, ReduceOp::kSum, {1, -infinity, 2}), -infinity);
    EXPECT_TRUE(std::isnan(one_element(wire, ReduceOp::kSum, {infinity, -infinity, 2})));
  }
}

// float16 ends at 65504, also for values that are only on their way; bfloat16 goes as far as
// float32.
TEST(DataJobWireRange, WhatFloat16CannotHoldBecomesInfinite) {
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(one_element(WireDType::kFloat16, ReduceOp::kSum, {65'504, 15}), 65'504);
  EXPECT_EQ(one_element(WireDType::kFloat16, ReduceOp::kSum, {65'504, 16}), infinity);
  EXPECT_EQ(one_element(WireDType::kFloat16, ReduceOp::kMin, {-70'000, 16, 3}), -infinity);
  EXPECT_EQ(one_element(WireDType::kBFloat16, ReduceOp::kMin, {-69'632, 16, 3}), -69'632);
  EXPECT_EQ(one_element(WireDType::kBFloat16, ReduceOp::kSum, {0x1p120F, 0x1p120F, 0}), 0x1p121F);
}

// Each of two values is rounded, and not only their sum, in which one of them is lost.
TEST(DataJobWireRange, ExtremaAreRoundedAsTheirValuesAre) {
  EXPECT_EQ(one_element(WireDType::kBFloat16, ReduceOp::kMax, {1.0F, 257.0F, 3.0F}), 256.0F);
  EXPECT_EQ(one_element(WireDType::kFloat16, ReduceOp::kMin, {5000.0F, 4099.0F}), 4100.0F);
}

// --- The error (docs/decisions/0029-wire-compression.md) ----------------------------------------

constexpr core::AlgorithmChoice kWays[] = {
    core::AlgorithmChoice::kRing, core::AlgorithmChoice::kRecursiveDoubling,
    core::AlgorithmChoice::kHalvingDoubling, core::AlgorithmChoice::kDirect,
    core::AlgorithmChoice::kCentral};

// Returns how often a node's values are rounded on their way into a result, at most.
int roundings(core::AlgorithmChoice way, int n) {
  const auto whole = static_cast<unsigned>(n);
  switch (way) {
    case core::AlgorithmChoice::kRing: return n;
    case core::AlgorithmChoice::kDirect:
    case core::AlgorithmChoice::kCentral: return 2;
    // Values are rounded before each step and at the end; those of a node beyond a power of two,
    // once more.
    default: return std::bit_width(whole) + (std::has_single_bit(whole) ? 0 : 1);
  }
}

struct Errors {
  double worst = 0;        // relative to the bound
  double mean_square = 0;  // of the error in units of u * sum |x|
};

// Returns the errors of random values on n nodes of one rank each, against the exact sum.
Errors errors_of(core::AlgorithmChoice way, int n, WireDType wire, ReduceOp op) {
  RingOptions options = nodes(std::vector<int>(static_cast<size_t>(n), 1));
  options.algorithm = way;
  Ring ring(options);
  constexpr size_t kElements = 20'000;
  OperationSpec spec = rounded(wire, op, {kElements});
  spec.random_seed = 11;
  OperationFixture& work = ring.add(spec);
  EXPECT_TRUE(ring.run_all());
  EXPECT_EQ(ring.check(), "");
  std::vector<std::vector<float>> inputs;
  for (int rank = 0; rank < n; ++rank) {
    inputs.push_back(floats(work.input_of(Rank{rank}, 0), kElements));
  }
  const Bytes output = work.output(Rank{0});
  const std::vector<float> got = floats(output.data(), kElements);
  const double u = wire == WireDType::kFloat16 ? 0x1p-11 : 0x1p-8;
  const double divisor = op == ReduceOp::kAverage ? n : 1;
  Errors errors;
  for (size_t i = 0; i < kElements; ++i) {
    double exact = 0;
    double magnitude = 0;
    for (const auto& values : inputs) {
      exact += values[i];
      magnitude += std::fabs(values[i]);
    }
    // One in a thousand is added for float32's additions, and for subnormal values of float16.
    const double bound =
        std::expm1(roundings(way, n) * std::log1p(u)) * magnitude * 1.001 / divisor;
    const double error = std::fabs(got[i] - exact / divisor);
    errors.worst = std::max(errors.worst, error / bound);
    const double relative = error / (u * magnitude / divisor);
    errors.mean_square += relative * relative / kElements;
  }
  return errors;
}

TEST(DataJobWireErrors, AreWithinTheBoundOfEachWay) {
  for (const core::AlgorithmChoice way : kWays) {
    for (int n = 2; n <= 8; ++n) {
      for (const WireDType wire : kWires) {
        const Errors errors = errors_of(way, n, wire, ReduceOp::kSum);
        std::printf("%s, %d nodes, %s: at most %.2f of the bound, rms %.3f u sum|x|\n",
                    core::to_string(way), n, to_string(wire), errors.worst,
                    std::sqrt(errors.mean_square));
        EXPECT_LE(errors.worst, 1.0) << core::to_string(way) << ", " << n << " nodes";
        EXPECT_GT(errors.worst, 0.02) << "was anything rounded?";
      }
      EXPECT_LE(errors_of(way, n, WireDType::kBFloat16, ReduceOp::kAverage).worst, 1.0);
    }
  }
}

TEST(DataJobWireErrors, NoWayRoundsMoreOftenThanThereAreNodes) {
  for (const core::AlgorithmChoice way : kWays) {
    for (int n = 2; n <= 64; ++n) EXPECT_LE(roundings(way, n), n);
  }
}

TEST(DataJobWireExchange, WhatIsExactInTheWireDtypeComesOutExactly) {
  for (const core::AlgorithmChoice way : kWays) {
    for (int n = 2; n <= 8; ++n) {
      RingOptions options = nodes(std::vector<int>(static_cast<size_t>(n), 1));
      options.ranks_per_node.back() = 2;
      options.algorithm = way;
      Ring ring(options);
      for (const WireDType wire : kWires) {
        for (int op = 0; op < kElementwiseOpCount; ++op) {
          for (const int64_t elements : {1, 1023, 21'001}) {
            OperationSpec spec = rounded(wire, static_cast<ReduceOp>(op), {elements, 5});
            spec.in_place = elements != 1;
            ring.add(spec);
          }
        }
      }
      ASSERT_TRUE(ring.run_all());
      EXPECT_EQ(ring.check(), "") << core::to_string(way) << ", " << n << " nodes";
    }
  }
}

}  // namespace
}  // namespace rueda::engine
