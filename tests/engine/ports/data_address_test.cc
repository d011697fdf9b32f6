#include "daemon/engine/ports/data_address.h"

#include <gtest/gtest.h>

namespace rueda::engine {
namespace {

TEST(DataAddress, IsWhatWasToldAndAPortAloneIsOfTheControlHost) {
  EXPECT_EQ(data_address_of("node-a:28400", "10.1.0.1:28401"), "10.1.0.1:28401");
  EXPECT_EQ(data_address_of("node-a:28400", ":28401"), "node-a:28401");
  EXPECT_EQ(data_address_of("[::1]:28400", ":28401"), "[::1]:28401");
  EXPECT_EQ(data_address_of("node-a:28400", "nonsense"), "nonsense");
}

TEST(DataAddress, MayBeOfTheControlHostWhateverWasTold) {
  EXPECT_EQ(data_address_of("node-a:28400", "10.1.0.1:22", /*keeps_host=*/true), "node-a:22");
  EXPECT_EQ(data_address_of("[::1]:28400", "[fd00::1]:22", true), "[::1]:22");
  EXPECT_EQ(data_address_of("node-a:28400", ":28401", true), "node-a:28401");
}

}  // namespace
}  // namespace rueda::engine
