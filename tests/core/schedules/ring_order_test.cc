#include "daemon/core/schedules/ring_order.h"

#include <algorithm>
#include <numeric>
#include <random>
#include <set>

#include <gtest/gtest.h>

namespace rueda::core {
namespace {

using Order = std::vector<int>;
using Racks = std::vector<std::string>;

Bandwidths random_bandwidths(size_t nodes, uint32_t seed) {
  std::mt19937 random(seed);
  Bandwidths bandwidths(nodes, std::vector<double>(nodes));
  // The bandwidths have few different values, so that there are ties.
  for (auto& row : bandwidths) {
    for (double& value : row) value = 1 + random() % 5;
  }
  return bandwidths;
}

std::pair<double, double> slowest_and_sum(const Order& order, const Bandwidths& bandwidths) {
  std::pair<double, double> score{1e9, 0};
  for (size_t i = 0; i < order.size(); ++i) {
    const auto from = static_cast<size_t>(order[i]);
    const double link = bandwidths[from][static_cast<size_t>(order[(i + 1) % order.size()])];
    score.first = std::min(score.first, link);
    score.second += link;
  }
  return score;
}

bool is_order_of(Order order, size_t nodes) {
  std::sort(order.begin(), order.end());
  Order all(nodes);
  std::iota(all.begin(), all.end(), 0);
  return order == all;
}

// Returns whether each rack is one stretch of the ring, which may go over its end.
bool keeps_racks_together(const Order& order, const Racks& racks) {
  std::set<std::string> names;
  size_t loners = 0, borders = 0;
  for (size_t i = 0; i < order.size(); ++i) {
    const std::string& rack = racks[static_cast<size_t>(order[i])];
    const std::string& next = racks[static_cast<size_t>(order[(i + 1) % order.size()])];
    if (rack.empty()) ++loners;
    if (!rack.empty()) names.insert(rack);
    if (rack.empty() || rack != next) ++borders;
  }
  const size_t groups = names.size() + loners;
  return groups == 1 || borders == groups;
}

TEST(RingOrder, NothingIsKnown) {
  EXPECT_EQ(ring_order({""}, {}), Order{0});
  EXPECT_EQ(ring_order({"", "", "", ""}, {}), (Order{0, 1, 2, 3}));
}

TEST(RingOrder, RacksStandTogether) {
  EXPECT_EQ(ring_order({"a", "b", "a", "b"}, {}), (Order{0, 2, 1, 3}));
  EXPECT_EQ(ring_order({"z", "a", "", "z", "", "a"}, {}), (Order{0, 3, 1, 5, 2, 4}));
}

TEST(RingOrder, TheSlowestLinkIsAvoided) {
  Bandwidths bandwidths(4, std::vector<double>(4, 10));
  bandwidths[1][2] = 1;
  EXPECT_EQ(ring_order(Racks(4), bandwidths), (Order{0, 1, 3, 2}));
  bandwidths[1][2] = 10;
  EXPECT_EQ(ring_order(Racks(4), bandwidths), (Order{0, 1, 2, 3}));
}

TEST(RingOrder, RacksGoBeforeBandwidths) {
  Bandwidths bandwidths(4, std::vector<double>(4, 10));
  for (const auto& [a, b] : {std::pair<size_t, size_t>{0, 2}, {1, 3}}) {
    bandwidths[a][b] = bandwidths[b][a] = 1;
  }
  const Order order = ring_order({"a", "b", "a", "b"}, bandwidths);
  EXPECT_TRUE(keeps_racks_together(order, {"a", "b", "a", "b"}));
}

TEST(RingOrder, UpToEightNodesNoOrderIsBetter) {
  const Racks names{"", "a", "b", "c"};
  int reordered = 0;
  for (uint32_t seed = 0; seed < 60; ++seed) {
    std::mt19937 random(seed);
    const size_t nodes = 1 + seed % 7;
    const Bandwidths bandwidths = random_bandwidths(nodes, seed);
    Racks racks(nodes);
    for (std::string& rack : racks) rack = names[random() % names.size()];
    const Order found = ring_order(racks, bandwidths);
    ASSERT_TRUE(is_order_of(found, nodes) && found.front() == 0);
    EXPECT_TRUE(keeps_racks_together(found, racks)) << seed;
    const Order plain = ring_order(racks, {});
    double best = 0;
    Order order(nodes);
    std::iota(order.begin(), order.end(), 0);
    do {
      if (!keeps_racks_together(order, racks)) continue;
      best = std::max(best, slowest_and_sum(order, bandwidths).first);
    } while (std::next_permutation(order.begin(), order.end()));
    if (best <= 1.25 * slowest_and_sum(plain, bandwidths).first) {
      EXPECT_EQ(found, plain) << seed;
      continue;
    }
    ++reordered;
    const auto score = slowest_and_sum(found, bandwidths);
    std::iota(order.begin(), order.end(), 0);
    do {
      if (!keeps_racks_together(order, racks)) continue;
      EXPECT_LE(slowest_and_sum(order, bandwidths), score) << seed;
      if (order.front() == 0 && slowest_and_sum(order, bandwidths) == score) {
        EXPECT_LE(found, order) << seed;
      }
    } while (std::next_permutation(order.begin(), order.end()));
  }
  EXPECT_GE(reordered, 20);
}

TEST(RingOrder, WhatIsALittleFasterChangesNothing) {
  Bandwidths bandwidths(4, std::vector<double>(4, 10));
  bandwidths[1][2] = 8;
  EXPECT_EQ(ring_order(Racks(4), bandwidths), (Order{0, 1, 2, 3}));
  bandwidths[1][2] = 7.9;
  EXPECT_EQ(ring_order(Racks(4), bandwidths), (Order{0, 1, 3, 2}));
  bandwidths[1][2] = 0;
  EXPECT_EQ(ring_order(Racks(4), bandwidths), (Order{0, 1, 3, 2}));
}

TEST(RingOrder, ManyNodes) {
  for (const size_t nodes : {9u, 24u, 64u, 200u}) {
    Racks racks(nodes);
    for (size_t i = 0; i < nodes; ++i) racks[i] = std::string(1, "abcdefgh"[i * 7 % 5]);
    const Bandwidths bandwidths = random_bandwidths(nodes, 1);
    const Order order = ring_order(racks, bandwidths);
    EXPECT_TRUE(is_order_of(order, nodes) && order.front() == 0);
    EXPECT_TRUE(keeps_racks_together(order, racks)) << nodes;
    EXPECT_EQ(order, ring_order(racks, bandwidths));
  }
}

// The greedy search alone, from node 0, finds the optimum in none of these.
TEST(RingOrder, BeyondEightNodesTheSlowestLinkIsMostlyTheBestThereIs) {
  int best_found = 0;
  for (uint32_t seed = 0; seed < 20; ++seed) {
    std::mt19937 random(seed);
    Bandwidths bandwidths(9, std::vector<double>(9));
    for (auto& row : bandwidths) {
      for (double& value : row) value = 1 + random() % 20;
    }
    Order order(9);
    std::iota(order.begin(), order.end(), 0);
    double best = 0;
    do {
      best = std::max(best, slowest_and_sum(order, bandwidths).first);
    } while (std::next_permutation(order.begin() + 1, order.end()));
    const double found = slowest_and_sum(ring_order(Racks(9), bandwidths), bandwidths).first;
    if (found == best) ++best_found;
  }
  EXPECT_GE(best_found, 10);
}

}  // namespace
}  // namespace rueda::core
