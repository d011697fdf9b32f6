#include "bench/gpu/measure.h"

#include <gtest/gtest.h>

#include "tests/gpu/fake/fake_device.h"

namespace rueda::gpu::bench {
namespace {

TEST(Measure, GivesANumberForEachRoundAndTheMemoryBack) {
  fake::FakeGpu gpu;
  const fake::FakeRunner runner(gpu);
  fake::FakeDevice device(gpu);
  for (const size_t segments : {1, 7, 1000}) {
    const auto measured = measure(
        device,
        {.bytes = 10'000, .ranks = 3, .segments = segments, .rounds = 4, .round_seconds = 0.001});
    ASSERT_TRUE(measured.is_ok()) << measured.status().to_string();
    EXPECT_EQ(measured.value().ratio.size(), 4u);
    EXPECT_EQ(measured.value().latency_us.size(), 4u);
    for (size_t i = 0; i < 4; ++i) {
      const double copied = measured.value().copy_bytes_per_s[i];
      EXPECT_GT(copied, 0);
      EXPECT_DOUBLE_EQ(measured.value().ratio[i], measured.value().reduce_bytes_per_s[i] / copied);
    }
    EXPECT_EQ(device.allocated_bytes(), 0u);
  }
}

TEST(Measure, SaysWhatWentWrong) {
  fake::FakeGpu gpu;
  const fake::FakeRunner runner(gpu);
  fake::FakeDevice device(gpu);
  EXPECT_EQ(measure(device, {.bytes = 40 << 20}).status().code(), Code::kResourceExhausted);
  EXPECT_EQ(device.allocated_bytes(), 0u);
  device.lose_after(2, {Code::kUnavailable, "on demand"});
  EXPECT_EQ(measure(device, {.bytes = 4096}).status().message(), "on demand");
}

}  // namespace
}  // namespace rueda::gpu::bench
