// Tests batches on every device: the right values, the CPU's bits, and nothing written beside them.
#include <atomic>
#include <cmath>
#include <cstring>

#include "tests/gpu/plans.h"
#include "tests/gpu/rig.h"
#include "tests/reduce/reference.h"

namespace rueda::gpu {
namespace {

class GpuReduce : public GpuConformance {
 protected:
  void SetUp() override {
    GpuConformance::SetUp();
    if (!rig_) return;
    stream_ = make_stream();
    memory_ = allocate(kMemoryBytes);
  }
  void TearDown() override { stream_.reset(); }

  std::vector<std::byte> run(BatchMemory& batch) {
    EXPECT_LE(batch.size(), kMemoryBytes);
    put(memory_, batch.before());
    const Status status = stream_->reduce(batch.at(memory_));
    EXPECT_TRUE(status.is_ok()) << status.to_string();
    const Status done = finish(*stream_);
    EXPECT_TRUE(done.is_ok()) << done.to_string();
    return get(memory_, batch.size());
  }

  static constexpr size_t kMemoryBytes = 16 << 20;
  std::unique_ptr<Stream> stream_;
  DeviceAddress memory_ = 0;
};

// Returns a small number. Sums and products of such numbers have no more bits than float32 and the
// integers hold, so that the model's float64, rounded once, is the one right answer.
double small_number(DType dtype, ReduceOp op, size_t input, uint64_t i) {
  const auto pick = static_cast<int>((i * 7 + input * 3) % 5);
  if (dtype == DType::kBool) return pick == 0 ? 0 : pick * 50;
  if (op == ReduceOp::kProduct) {
    const double small = is_integer(dtype) ? 1 : 0.5;
    const double negative = reduce::testing::is_unsigned(dtype) ? 1 : -1;
    const double factors[] = {1, 2, small, negative, 1};
    return factors[(i + input * 3) % 5];
  }
  const double number = pick + static_cast<double>(i % 3);
  if (reduce::testing::is_unsigned(dtype)) return number;
  return is_integer(dtype) ? number - 3 : number / 4 - 1;
}

TEST_P(GpuReduce, EveryDtypeOpAndNumberOfSources) {
  for_each_plain_plan([&](const BatchPlan& plan) {
    BatchMemory batch(plan, plan.sources, [&](size_t input, size_t, uint64_t i) {
      return small_number(plan.dtype, plan.op, input, i);
    });
    const std::string difference = batch.difference(run(batch), batch.expected());
    ASSERT_EQ(difference, "");
  });
}

TEST_P(GpuReduce, AnyBitsAsTheCpusKernels) {
  for_each_plain_plan([&](const BatchPlan& plan) {
    BatchMemory batch(plan, plan.sources + 100);
    const std::string difference = batch.difference(run(batch), batch.by_kernels());
    ASSERT_EQ(difference, "");
  });
}

TEST_P(GpuReduce, PartialsAndScalesAsTheCpusKernels) {
  for_each_other_plan([&](const BatchPlan& plan) {
    BatchMemory batch(plan, 5);
    const std::string difference = batch.difference(run(batch), batch.by_kernels());
    ASSERT_EQ(difference, "");
  });
}

TEST_P(GpuReduce, WireTypesAsTheCpusKernels) {
  for_each_wire_plan([&](const BatchPlan& plan) {
    BatchMemory batch(plan, 6, [](size_t input, size_t segment, uint64_t i) {
      return static_cast<double>((i * 2654435761 + input * 97 + segment) % 100'003) / 1003 - 50;
    });
    const std::string difference = batch.difference(run(batch), batch.by_kernels());
    ASSERT_EQ(difference, "");
  });
}

// Rank r gives 2^r, so a sum says whose values are in it, and how often.
TEST_P(GpuReduce, ASumSaysWhoseValuesAreInIt) {
  for (size_t ranks = 1; ranks <= kMaxSources; ++ranks) {
    BatchPlan plan{.dtype = DType::kInt32, .sources = ranks, .destinations = 16};
    plan.counts = {1, 5000, 37, 4};
    BatchMemory batch(plan, ranks, [](size_t rank, size_t, uint64_t) {
      return static_cast<double>(uint64_t{1} << rank);
    });
    const std::string difference = batch.difference(run(batch), batch.expected());
    ASSERT_EQ(difference, "");
  }
}

TEST_P(GpuReduce, FloatSumsAreWithinTheirBound) {
  BatchPlan plan{.sources = 8, .destinations = 1, .counts = {100'000}};
  const auto value = [](size_t input, size_t, uint64_t i) {
    return static_cast<double>((i * 2654435761 + input * 40503) % 1'000'003) / 500'001.5 - 1;
  };
  BatchMemory batch(plan, 8, value);
  const auto after = run(batch);
  const DeviceAddress at = batch.at(0).segments[0].destinations[0];
  for (uint64_t i = 0; i < 100'000; ++i) {
    double sum = 0;
    double magnitude = 0;
    for (size_t k = 0; k < 8; ++k) {
      sum += static_cast<float>(value(k, 0, i));
      magnitude += std::abs(static_cast<float>(value(k, 0, i)));
    }
    float got;
    std::memcpy(&got, after.data() + at + i * sizeof got, sizeof got);
    ASSERT_LE(std::abs(got - sum), 7 * magnitude * 0x1p-24) << i;
  }
}

// There are more segments than a table that travels with the launch has room for, and some have
// more than one tile. The batches run one after the other, so that their tables must not mix.
TEST_P(GpuReduce, LargeBatchesAreOneLaunch) {
  const auto stream = make_stream();
  BatchPlan plan{.dtype = DType::kInt32, .sources = 4, .destinations = 4};
  for (uint64_t s = 0; s < 2000; ++s)
    plan.counts.push_back(1 + s * 37 % 300 + (s % 500 == 0) * 9000);
  std::vector<BatchMemory> batches;
  for (size_t b = 0; b < 2; ++b) {
    batches.emplace_back(plan, b, [b](size_t input, size_t segment, uint64_t i) {
      return static_cast<double>(i + 1000 * input + 5000 * segment + b);
    });
    ASSERT_GT(table_bytes(batches[b].at(256)), size_t{64} << 10);
  }
  std::vector<DeviceAddress> memory;
  for (BatchMemory& batch : batches) {
    memory.push_back(allocate(batch.size()));
    put(memory.back(), batch.before());
  }
  for (size_t b = 0; b < batches.size(); ++b) {
    ASSERT_TRUE(stream->reduce(batches[b].at(memory[b])).is_ok());
  }
  ASSERT_TRUE(finish(*stream).is_ok());
  for (size_t b = 0; b < batches.size(); ++b) {
    const auto after = get(memory[b], batches[b].size());
    ASSERT_EQ(batches[b].difference(after, batches[b].expected()), "");
  }
}

TEST_P(GpuReduce, ABatchIsCopiedBeforeTheCallReturns) {
  const auto go = counter();
  put(memory_, std::vector(64, std::byte{1}));
  DeviceAddress source = memory_;
  DeviceAddress destination = memory_ + 64;
  Segment segment{
      .count = 64, .sources = std::span(&source, 1), .destinations = std::span(&destination, 1)};
  Batch batch{.dtype = DType::kUInt8, .segments = std::span(&segment, 1)};
  ASSERT_TRUE(stream_->wait_value(go, 1).is_ok());
  ASSERT_TRUE(stream_->reduce(batch).is_ok());
  source = destination = memory_ + 1024;
  segment.count = 1;
  batch.dtype = DType::kFloat64;
  std::atomic_ref(*go).store(1, std::memory_order_release);
  ASSERT_TRUE(finish(*stream_).is_ok());
  EXPECT_EQ(get(memory_ + 64, 64), std::vector(64, std::byte{1}));
}

TEST_P(GpuReduce, ABatchThatCannotBeIsRefusedAndCostsNothing) {
  const DeviceAddress odd = memory_ + 2;
  const Segment segment{
      .count = 1, .sources = std::span(&odd, 1), .destinations = std::span(&memory_, 1)};
  const Batch batch{.segments = std::span(&segment, 1)};
  EXPECT_EQ(stream_->reduce(batch).code(), Code::kInvalidArgument);
  EXPECT_TRUE(stream_->reduce({}).is_ok());
  EXPECT_TRUE(finish(*stream_).is_ok());
  EXPECT_TRUE(device().health().is_ok());
}

INSTANTIATE_TEST_SUITE_P(Rigs, GpuReduce, testing::ValuesIn(all_rigs()), rig_name);

}  // namespace
}  // namespace rueda::gpu
