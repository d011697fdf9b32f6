#include "client/src/tensor.h"

#include <limits>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace rueda::client {
namespace {

using ::testing::HasSubstr;

struct Asked {
  std::vector<rueda_abi_intern> descriptors;
  InternCache cache{[this](const rueda_abi_intern& descriptor) -> Result<uint32_t> {
    if (std::string(descriptor.name) == "refused") return Status{Code::kInternal, "no"};
    descriptors.push_back(descriptor);
    return static_cast<uint32_t>(descriptors.size());
  }};
};

float g_values[64];

rueda_tensor tensor(const char* name, const std::vector<int64_t>& shape) {
  return {name,         g_values, g_values, shape.data(), static_cast<int32_t>(shape.size()),
          RUEDA_FLOAT32};
}

Result<TensorRequest> check(const rueda_tensor& t, const rueda_reduce_options* options = nullptr) {
  return check_allreduce(&t, options, "", 0);
}

TEST(InternCacheTest, AsksOnceForEachDescriptor) {
  Asked asked;
  const std::vector<int64_t> shape = {2, 3};
  rueda_abi_intern descriptor = check(tensor("w", shape)).value().descriptor;
  EXPECT_EQ(asked.cache.id_of(descriptor).value(), 1u);
  EXPECT_EQ(asked.cache.id_of(descriptor).value(), 1u);
  EXPECT_EQ(asked.descriptors.size(), 1u);
}

TEST(InternCacheTest, TheWholeDescriptorIsTheKey) {
  Asked asked;
  const std::vector<int64_t> shape = {2, 3};
  const rueda_abi_intern base = check(tensor("w", shape)).value().descriptor;
  std::vector<rueda_abi_intern> all(11, base);
  all[1].name[0] = 'v';
  all[2].dims[1] = 4;
  all[3].ndim = 1;
  all[4].dtype = RUEDA_INT32;
  all[5].op = RUEDA_SUM;
  all[6].kind = 1;
  all[7].root = 2;
  all[8].prescale = 0.5;
  all[9].postscale = 0.5;
  // ("w", group "x") and ("wx", no group) must not meet.
  all[10].group[0] = 'x';
  rueda_abi_intern joined = base;
  joined.name[1] = 'x';
  all.push_back(joined);
  for (const rueda_abi_intern& descriptor : all) ASSERT_TRUE(asked.cache.id_of(descriptor).is_ok());
  EXPECT_EQ(asked.descriptors.size(), all.size());
}

TEST(InternCacheTest, ARefusalIsNotRemembered) {
  Asked asked;
  const std::vector<int64_t> shape = {1};
  rueda_abi_intern descriptor = check(tensor("refused", shape)).value().descriptor;
  EXPECT_EQ(asked.cache.id_of(descriptor).status().code(), Code::kInternal);
  EXPECT_EQ(asked.cache.id_of(descriptor).status().code(), Code::kInternal);
}

TEST(TensorTest, ComputesBytes) {
  EXPECT_EQ(check(tensor("t", {})).value().bytes, 4u);
  EXPECT_EQ(check(tensor("t", {2, 3})).value().bytes, 24u);
  EXPECT_EQ(check(tensor("t", {2, 0})).value().bytes, 0u);
  const std::vector<int64_t> eight = {8};
  rueda_tensor wide = tensor("t", eight);
  wide.dtype = RUEDA_FLOAT64;
  EXPECT_EQ(check(wide).value().bytes, 64u);
}

TEST(TensorTest, ABoolHasNeitherAnAverageNorScales) {
  const std::vector<int64_t> shape = {3};
  rueda_tensor flags = tensor("flags", shape);
  flags.dtype = RUEDA_BOOL;
  rueda_reduce_options options = {sizeof(options), RUEDA_SUM, 1.0, 1.0, 0};
  EXPECT_EQ(check(flags, &options).value().bytes, 3u);
  EXPECT_EQ(check(flags).status().code(), Code::kInvalidArgument) << "the default is the average";
  options.postscale = 0.5;
  EXPECT_EQ(check(flags, &options).status().code(), Code::kInvalidArgument);
}

TEST(TensorTest, DefaultsToTheAverage) {
  TensorRequest request = check(tensor("t", {})).value();
  EXPECT_EQ(request.descriptor.op, RUEDA_AVERAGE);
  EXPECT_EQ(request.descriptor.prescale, 1.0);
  EXPECT_EQ(request.descriptor.root, -1);
}

// What is wrong, and a word that the message must have.
struct BadCase {
  const char* label;
  rueda_tensor tensor;
  const char* word;
};

TEST(TensorTest, NamesWhatIsWrong) {
  static const int64_t negative[] = {-1}, huge[] = {int64_t{1} << 40, int64_t{1} << 40};
  static const int64_t nine[9] = {}, four[] = {4};
  static const std::string long_name(256, 'n');
  const BadCase cases[] = {
      {"no name", {nullptr, g_values, g_values, four, 1, RUEDA_FLOAT32}, "no name"},
      {"empty name", {"", g_values, g_values, four, 1, RUEDA_FLOAT32}, "no name"},
      {"long name", {long_name.c_str(), g_values, g_values, four, 1, RUEDA_FLOAT32}, "255"},
      {"dtype", {"t", g_values, g_values, four, 1, static_cast<rueda_dtype>(9)}, "dtype 9"},
      {"ndim", {"t", g_values, g_values, nine, 9, RUEDA_FLOAT32}, "9 dimensions"},
      {"no shape", {"t", g_values, g_values, nullptr, 1, RUEDA_FLOAT32}, "no shape"},
      {"negative", {"t", g_values, g_values, negative, 1, RUEDA_FLOAT32}, "-1"},
      {"huge", {"t", g_values, g_values, huge, 2, RUEDA_FLOAT32}, "1 TiB"},
      {"null input", {"t", nullptr, g_values, four, 1, RUEDA_FLOAT32}, "NULL"},
      {"null output", {"t", g_values, nullptr, four, 1, RUEDA_FLOAT32}, "NULL"},
      {"overlap", {"t", g_values, g_values + 1, four, 1, RUEDA_FLOAT32}, "overlap"},
  };
  for (const BadCase& bad : cases) {
    Result<TensorRequest> result = check(bad.tensor);
    ASSERT_FALSE(result.is_ok()) << bad.label;
    EXPECT_EQ(result.status().code(), Code::kInvalidArgument) << bad.label;
    EXPECT_THAT(result.status().message(), HasSubstr(bad.word)) << bad.label;
  }
}

TEST(TensorTest, ChecksTheOptions) {
  const std::vector<int64_t> shape = {4};
  rueda_tensor t = tensor("t", shape);
  rueda_reduce_options options{sizeof(options), static_cast<rueda_op>(5), 1.0, 1.0, 0};
  EXPECT_THAT(check_allreduce(&t, &options, "", 0).status().message(), HasSubstr("operator 5"));
  options.op = RUEDA_SUM;
  options.prescale = std::numeric_limits<double>::infinity();
  EXPECT_THAT(check_allreduce(&t, &options, "", 0).status().message(), HasSubstr("finite"));
  options.prescale = 2.0;
  options.struct_bytes = 8;
  EXPECT_THAT(check_allreduce(&t, &options, "", 0).status().message(), HasSubstr("struct_bytes"));
  options.struct_bytes = sizeof(options);
  TensorRequest request = check_allreduce(&t, &options, "g", 3).value();
  EXPECT_STREQ(request.descriptor.group, "g");
  EXPECT_EQ(request.descriptor.group_size, 3u);
  EXPECT_EQ(request.descriptor.prescale, 2.0);
}

TEST(TensorTest, OnlyTheRootOfABroadcastReadsItsInput) {
  const std::vector<int64_t> shape = {4};
  rueda_tensor t = tensor("t", shape);
  EXPECT_TRUE(check_broadcast(&t, 1, 1, 2).value().reads_input);
  EXPECT_FALSE(check_broadcast(&t, 1, 1, 2).value().writes_output);
  EXPECT_FALSE(check_broadcast(&t, 1, 0, 2).value().reads_input);
  EXPECT_TRUE(check_broadcast(&t, 1, 0, 2).value().writes_output);
  EXPECT_THAT(check_broadcast(&t, 2, 0, 2).status().message(), HasSubstr("root rank 2"));
}

TEST(TensorTest, ABarrierHasNoShape) {
  TensorRequest request = check_barrier(nullptr).value();
  EXPECT_EQ(request.name(), "barrier");
  EXPECT_EQ(request.descriptor.ndim, 0);
  EXPECT_EQ(request.bytes, 0u);
}

}  // namespace
}  // namespace rueda::client
