#include "bench/machine/limits.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "bench/base/failure.h"
#include "bench/machine/floor.h"
#include "bench/machine/link.h"

namespace rueda::bench {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;

constexpr size_t kBytes = 1u << 20;

TEST(LimitsTest, RatesOfMemory) {
  EXPECT_GT(memcpy_GBps(2, kBytes), 0);
  EXPECT_GT(sum_GBps(4, 2, kBytes), 0);
}

TEST(LimitsTest, CacheLineGoesThereAndBack) {
  const auto trip_ns = cache_line_round_trip_ns();
  EXPECT_GT(trip_ns.value_or(100), 1);
}

TEST(LinkTest, Places) {
  EXPECT_THAT(parse_places(""), IsEmpty());
  const auto places = parse_places("127.0.0.1,10.0.0.2@/run/netns/b");
  ASSERT_THAT(places, SizeIs(2));
  EXPECT_EQ(places[0].netns, "");
  EXPECT_EQ(places[1].address, "10.0.0.2");
  EXPECT_EQ(places[1].netns, "/run/netns/b");
  EXPECT_THROW(parse_places("localhost"), Failure);
}

TEST(LinkTest, CarriesBytesThatEndWhenItDoes) {
  const Link link({}, {}, "");
  EXPECT_NE(link.congestion(), "");
  std::vector<char> block(7);
  EXPECT_TRUE(send_all(link.near(), "0123456789", 10));
  EXPECT_TRUE(receive_all(link.far(), block, 10));
  link.shut_down();
  EXPECT_FALSE(receive_all(link.far(), block, 1));
}

TEST(LinkTest, SaysWhatIsNotAllowed) {
  EXPECT_THROW(Link({}, {}, "no-such-algorithm"), Failure);
  EXPECT_THROW(Link({.address = "127.0.0.1", .netns = "/nowhere"}, {}, ""), Failure);
}

TEST(FloorTest, RanksOfNodes) {
  EXPECT_THAT(ranks_by_node(5, 2), ElementsAre(3, 2));
  EXPECT_THAT(ranks_by_node(4, 1), ElementsAre(4));
}

TEST(FloorTest, TakesTime) {
  for (int nodes : {1, 2, 3}) {
    const FloorTime time =
        measure_floor({.nranks = 4, .nnodes = nodes, .bytes = kBytes + 12, .iters = 2});
    EXPECT_GT(time.time_us, 0);
    EXPECT_GT(time.cpu_s_per_GB.value_or(0), 0);
  }
  EXPECT_FALSE(measure_floor({.bytes = 0, .iters = 1}).cpu_s_per_GB);
}

TEST(FloorTest, NamesWhatDoesNotFit) {
  EXPECT_THROW(measure_floor({.nranks = 1, .nnodes = 2, .iters = 1}), Failure);
  EXPECT_THROW(measure_floor({.nranks = 2, .nnodes = 2, .places = {Place{}}, .iters = 1}), Failure);
}

}  // namespace
}  // namespace rueda::bench
