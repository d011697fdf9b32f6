#include "bench/cli/options.h"

#include <iterator>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "bench/values/elements.h"

namespace rueda::bench {
namespace {

using testing::ElementsAre;
using testing::SizeIs;

std::optional<Options> parse(std::vector<const char*> arguments, int* exit_code) {
  arguments.insert(arguments.begin(), "rueda-bench");
  return parse_options(static_cast<int>(arguments.size()), arguments.data(), exit_code);
}

Options parse(const std::vector<const char*>& arguments) {
  int exit_code = 0;
  const auto options = parse(arguments, &exit_code);
  EXPECT_TRUE(options) << exit_code;
  return options.value_or(Options{});
}

TEST(OptionsTest, AsInTheManual) {
  const Options options = parse({"allreduce", "-b", "4K", "-e", "64M", "-f", "4", "--inplace",
                                 "--op", "max", "--dtype", "int64", "--json", "x.json"});
  EXPECT_EQ(options.work, Work::kAllreduce);
  EXPECT_THAT(options.dtypes, ElementsAre(RUEDA_INT64));
  EXPECT_THAT(options.ops, ElementsAre(RUEDA_MAX));
  EXPECT_TRUE(options.in_place);
  EXPECT_FALSE(options.foreign);
  EXPECT_EQ(options.json_path, "x.json");
  EXPECT_THAT(options.sizes(RUEDA_INT64), SizeIs(8));
}

TEST(OptionsTest, Defaults) {
  const Options options = parse({"allreduce"});
  EXPECT_THAT(options.dtypes, ElementsAre(RUEDA_FLOAT32));
  EXPECT_THAT(options.ops, ElementsAre(RUEDA_SUM));
  EXPECT_EQ(options.sizes(RUEDA_FLOAT32).front(), 4096u);
  EXPECT_EQ(options.sizes(RUEDA_FLOAT32).back(), 64u << 20);
  EXPECT_THAT(parse({"step"}).ops, ElementsAre(RUEDA_AVERAGE));
  EXPECT_FALSE(parse({"step"}).plan);
  EXPECT_TRUE(parse({"step", "--plan"}).plan);
}

TEST(OptionsTest, AllAndLists) {
  EXPECT_THAT(parse({"allreduce", "--dtype", "all", "--op", "all"}).dtypes,
              SizeIs(std::size(kAllDTypes)));
  EXPECT_THAT(parse({"allreduce", "--dtype", "all", "--op", "all"}).ops, SizeIs(5));
  EXPECT_THAT(parse({"allreduce", "--op", "sum,min"}).ops, ElementsAre(RUEDA_SUM, RUEDA_MIN));
  EXPECT_EQ(parse({"allreduce", "--wire", "bfloat16"}).wire, RUEDA_WIRE_BFLOAT16);
  EXPECT_EQ(parse({"step"}).wire, RUEDA_WIRE_SAME);
}

TEST(OptionsTest, ExplicitSizes) {
  const Options options = parse({"allreduce", "--sizes", "0,4,1K,13e"});
  EXPECT_THAT(options.sizes(RUEDA_FLOAT32), ElementsAre(0, 4, 1024, 52));
  EXPECT_THAT(options.sizes(RUEDA_FLOAT64), ElementsAre(0, 0, 1024, 104));
}

TEST(OptionsTest, EveryCollectiveHasWhatFitsIt) {
  for (const char* name : {"allreduce", "broadcast", "reduce", "allgather", "reduce_scatter",
                           "alltoall", "gather", "scatter"}) {
    const Options options = parse({name, "--sizes", "1K", "--dtype", "int8", "--foreign"});
    EXPECT_STREQ(to_string(options.work), name);
    EXPECT_TRUE(options.foreign) << name;
  }
  EXPECT_THAT(parse({"reduce_scatter", "--op", "max", "--inplace"}).ops, ElementsAre(RUEDA_MAX));
  EXPECT_EQ(parse({"gather", "--root", "3", "--inplace"}).root, 3);
}

TEST(OptionsTest, SizesOfEqualParts) {
  EXPECT_THAT(parse({"alltoall", "--sizes", "0,1e,13e,1K"}).sizes(RUEDA_FLOAT32, 3),
              ElementsAre(0, 0, 48, 1020));
  EXPECT_THAT(parse({"alltoall", "-b", "0", "-e", "64", "-f", "4"}).sizes(RUEDA_FLOAT32, 3),
              ElementsAre(0, 12, 48));
}

TEST(OptionsTest, WhatNeedsNoJob) {
  const Options floor = parse(
      {"floor", "--np", "6", "--nodes", "3", "--sizes", "1M", "--places", "10.0.0.1@/run/netns/a"});
  EXPECT_FALSE(needs_job(floor.work));
  EXPECT_EQ(floor.nranks, 6);
  EXPECT_EQ(floor.nnodes, 3);
  EXPECT_EQ(floor.places, "10.0.0.1@/run/netns/a");
  EXPECT_FALSE(needs_job(parse({"limits"}).work));
  EXPECT_FALSE(needs_job(parse({"models"}).work));
  EXPECT_TRUE(needs_job(parse({"allreduce"}).work));
}

TEST(OptionsTest, RefusesNonsense) {
  const std::vector<std::vector<const char*>> lines = {
      {},
      {"reduction"},
      {"allgather", "--op", "sum"},
      {"reduce_scatter", "--root", "0"},
      {"alltoall", "--inplace"},
      {"scatter", "--root", "-1"},
      {"allreduce", "--dtype", "float8"},
      {"allreduce", "--op", "median"},
      {"allreduce", "--wire", "int8"},
      {"allreduce", "-b", "4KB"},
      {"allreduce", "--sizes", "1,,x"},
      {"allreduce", "-f", "1"},
      {"allreduce", "--iters", "-1"},
      {"step", "--model", "resnet51"},
      {"step", "--compute-ms", "-1"},
      {"step", "--model", "small0"},
      {"models", "--model", "small10x"},
      {"barrier", "--inplace"},
  };
  for (const auto& line : lines) {
    int exit_code = 0;
    testing::internal::CaptureStderr();
    EXPECT_FALSE(parse(line, &exit_code)) << (line.empty() ? "" : line.back());
    testing::internal::GetCapturedStderr();
    EXPECT_NE(exit_code, 0);
  }
}

TEST(OptionsTest, HelpIsNoError) {
  int exit_code = -1;
  testing::internal::CaptureStdout();
  EXPECT_FALSE(parse({"--help"}, &exit_code));
  EXPECT_THAT(testing::internal::GetCapturedStdout(), testing::HasSubstr("allreduce"));
  EXPECT_EQ(exit_code, 0);
}

}  // namespace
}  // namespace rueda::bench
