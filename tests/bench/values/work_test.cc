#include "bench/values/work.h"

#include <gtest/gtest.h>

namespace rueda::bench {
namespace {

TEST(WorkTest, BusBandwidthsAreThoseOfNcclTests) {
  EXPECT_DOUBLE_EQ(busbw_GBps(Work::kAllreduce, 1.0, 4), 1.5);
  for (Work work :
       {Work::kAllgather, Work::kReduceScatter, Work::kAlltoall, Work::kGather, Work::kScatter}) {
    EXPECT_DOUBLE_EQ(busbw_GBps(work, 2.0, 4), 1.5) << to_string(work);
    EXPECT_DOUBLE_EQ(busbw_GBps(work, 2.0, 1), 0.0) << to_string(work);
  }
  for (Work work : {Work::kBroadcast, Work::kReduce}) {
    EXPECT_DOUBLE_EQ(busbw_GBps(work, 2.0, 4), 2.0) << to_string(work);
  }
  EXPECT_DOUBLE_EQ(busbw_GBps(Work::kAllreduce, 1.0, 1), 0.0);
}

TEST(WorkTest, WhatCollectivesHave) {
  EXPECT_TRUE(reduces(Work::kReduceScatter));
  EXPECT_FALSE(reduces(Work::kAllgather));
  EXPECT_TRUE(has_root(Work::kScatter));
  EXPECT_FALSE(has_root(Work::kAlltoall));
  EXPECT_FALSE(has_parts(Work::kReduce));
  EXPECT_TRUE(has_sizes(Work::kGather));
  EXPECT_FALSE(has_sizes(Work::kBarrier));
  EXPECT_FALSE(has_sizes(Work::kFloor));
}

}  // namespace
}  // namespace rueda::bench
