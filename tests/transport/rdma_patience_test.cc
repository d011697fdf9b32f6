#include <gtest/gtest.h>

#include "daemon/transport/rdma/patience.h"

namespace rueda::transport::rdma {
namespace {

double total_s(uint8_t exponent) { return (kRetries + 1) * 4.096e-6 * (1 << exponent); }

TEST(Patience, APacketIsGivenUpWithinTheFailureTimeoutAndNotMuchBefore) {
  for (const int64_t timeout_ms : {1000, 4000, 10'000, 29'000}) {
    const uint8_t exponent = ack_timeout_of(timeout_ms);
    EXPECT_LE(total_s(exponent), timeout_ms / 1e3) << timeout_ms;
    EXPECT_GT(2.01 * total_s(exponent), timeout_ms / 1e3) << timeout_ms;
  }
}

TEST(Patience, ItHasBounds) {
  EXPECT_EQ(ack_timeout_of(0), 14);
  EXPECT_EQ(ack_timeout_of(-1), 14);
  EXPECT_EQ(ack_timeout_of(100), 14);
  EXPECT_EQ(ack_timeout_of(INT64_MAX), 20);
}

}  // namespace
}  // namespace rueda::transport::rdma
