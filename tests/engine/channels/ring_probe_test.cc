#include "daemon/engine/channels/ring_probe.h"

#include <gtest/gtest.h>

namespace rueda::engine {
namespace {

TEST(RingProbe, FindsLatencyAndTimeForAByteInWhatComesBack) {
  RingProbe probe(4, 100'000);
  bool first = true;
  while (const std::optional<uint32_t> bytes = probe.next_bytes()) {
    // The round trip is four hops of 20 us and 1 ns a byte; the first message finds everything
    // cold.
    probe.note_round_trip(std::exchange(first, false) ? 1.0 : 4 * (20e-6 + *bytes * 1e-9));
  }
  EXPECT_EQ(probe.sent(), 14u);
  const core::TransferCosts costs = probe.costs(3e-10);
  EXPECT_NEAR(costs.latency_s, 20e-6, 1e-9);
  EXPECT_NEAR(costs.s_per_byte, 1e-9, 1e-12);
  EXPECT_EQ(costs.add_s_per_byte, 3e-10);
}

TEST(RingProbe, ANetworkThatIsQuickerWithMoreBytesCostsNothingForThem) {
  RingProbe probe(2, 4096);
  for (double s = 1e-3; probe.next_bytes(); s /= 2) probe.note_round_trip(s);
  EXPECT_EQ(probe.costs(0).s_per_byte, 0);
}

TEST(RingProbe, AdditionsTakeSomeTime) {
  const double s_per_byte = measure_additions();
  EXPECT_GT(s_per_byte, 0);
  EXPECT_LT(s_per_byte, 1e-6) << "a MB/s";
}

}  // namespace
}  // namespace rueda::engine
