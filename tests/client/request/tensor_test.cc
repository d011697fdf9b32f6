#include "client/src/request/tensor.h"

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
  std::vector<uint32_t> forgotten;
  InternCache cache{
      [this](const rueda_abi_intern& descriptor, std::span<const int64_t>) -> Result<uint32_t> {
        if (std::string(descriptor.name) == "refused") {
          return Status{Code::kInternal, "no"};
        }
        descriptors.push_back(descriptor);
        return static_cast<uint32_t>(descriptors.size());
      },
      [this](uint32_t id) {
        forgotten.push_back(id);
        return Status::ok();
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
  std::vector<rueda_abi_intern> all(12, base);
  all[1].name[0] = 'v';
  all[2].dims[1] = 4;
  all[3].ndim = 1;
  all[4].dtype = RUEDA_INT32;
  all[5].op = RUEDA_SUM;
  all[6].kind = 1;
  all[7].root = 2;
  all[8].prescale = 0.5;
  all[9].postscale = 0.5;
  // ("w", group "x") and ("wx", no group) must have different keys.
  all[10].group[0] = 'x';
  all[11].wire_dtype = RUEDA_WIRE_FLOAT16;
  rueda_abi_intern joined = base;
  joined.name[1] = 'x';
  all.push_back(joined);
  for (const rueda_abi_intern& descriptor : all) ASSERT_TRUE(asked.cache.id_of(descriptor).is_ok());
  EXPECT_EQ(asked.descriptors.size(), all.size());
}

TEST(InternCacheTest, ManyCountsAreForgottenButThoseInUse) {
  Asked asked;
  const std::vector<int64_t> shape = {2, 3};
  const rueda_abi_intern descriptor = check(tensor("w", shape)).value().descriptor;
  const auto intern = [&](int64_t count) {
    const std::vector<int64_t> counts = {count};
    return asked.cache.id_of(descriptor, counts).value();
  };
  const uint32_t used = intern(-1);
  const uint32_t oldest = intern(0);
  asked.cache.release(oldest);
  for (int i = 1; i < static_cast<int>(InternCache::kMaxWithCounts); ++i) {
    asked.cache.release(intern(i));
  }
  EXPECT_EQ(asked.forgotten, (std::vector<uint32_t>{oldest}));
  EXPECT_EQ(intern(-1), used);
  EXPECT_NE(intern(0), oldest);  // the daemon has been asked anew
  EXPECT_EQ(asked.forgotten.size(), 2u);
}

// Unnamed collectives, and shapes that differ with each batch, once filled the daemon's table.
TEST(InternCacheTest, ShapesThatNeverComeAgainAreForgotten) {
  Asked asked;
  const auto intern = [&](int64_t rows) {
    const std::vector<int64_t> shape = {rows};
    return asked.cache.id_of(check(tensor("w", shape)).value().descriptor).value();
  };
  const uint32_t held = intern(1);
  asked.cache.hold(held);  // as repeated submissions hold their ids
  asked.cache.release(held);
  const int64_t rows = static_cast<int64_t>(InternCache::kMost) + 1000;
  for (int64_t i = 2; i <= rows; ++i) asked.cache.release(intern(i));
  EXPECT_EQ(asked.descriptors.size() - asked.forgotten.size(), InternCache::kMost);
  EXPECT_EQ(intern(1), held);
}

TEST(InternCacheTest, ARefusalIsNotRemembered) {
  Asked asked;
  const std::vector<int64_t> shape = {1};
  rueda_abi_intern descriptor = check(tensor("refused", shape)).value().descriptor;
  EXPECT_EQ(asked.cache.id_of(descriptor).status().code(), Code::kInternal);
  EXPECT_EQ(asked.cache.id_of(descriptor).status().code(), Code::kInternal);
}

TEST(TensorTest, ComputesBytes) {
  EXPECT_EQ(check(tensor("t", {})).value().bytes(), 4u);
  EXPECT_EQ(check(tensor("t", {2, 3})).value().bytes(), 24u);
  EXPECT_EQ(check(tensor("t", {2, 0})).value().bytes(), 0u);
  const std::vector<int64_t> eight = {8};
  rueda_tensor wide = tensor("t", eight);
  wide.dtype = RUEDA_FLOAT64;
  EXPECT_EQ(check(wide).value().bytes(), 64u);
}

TEST(TensorTest, ABoolHasNeitherAnAverageNorScales) {
  const std::vector<int64_t> shape = {3};
  rueda_tensor flags = tensor("flags", shape);
  flags.dtype = RUEDA_BOOL;
  rueda_reduce_options options = {sizeof(options), RUEDA_SUM, 1.0, 1.0, 0};
  EXPECT_EQ(check(flags, &options).value().bytes(), 3u);
  EXPECT_EQ(check(flags).status().code(), Code::kInvalidArgument) << "the default is the average";
  options.postscale = 0.5;
  EXPECT_EQ(check(flags, &options).status().code(), Code::kInvalidArgument);
}

TEST(TensorTest, ComplexNumbersHaveNeitherAMinimumNorAMaximum) {
  const std::vector<int64_t> shape = {3};
  rueda_tensor values = tensor("values", shape);
  for (const auto& [dtype, name] :
       {std::pair{RUEDA_COMPLEX64, "complex64"}, {RUEDA_COMPLEX128, "complex128"}}) {
    values.dtype = dtype;
    for (const rueda_op op : {RUEDA_SUM, RUEDA_AVERAGE, RUEDA_PRODUCT}) {
      const rueda_reduce_options options = {sizeof(options), op, 0.5, 2.0, 0};
      EXPECT_TRUE(check(values, &options).is_ok()) << name;
    }
    for (const auto& [op, op_name] : {std::pair{RUEDA_MIN, "min"}, {RUEDA_MAX, "max"}}) {
      const rueda_reduce_options options = {sizeof(options), op, 1.0, 1.0, 0};
      const Status status = check(values, &options).status();
      EXPECT_EQ(status.code(), Code::kInvalidArgument);
      EXPECT_THAT(status.message(), AllOf(HasSubstr("\"values\""), HasSubstr(name),
                                          HasSubstr(std::string("no ") + op_name)));
    }
    const rueda_reduce_options rounded = {sizeof(rounded),   RUEDA_SUM, 1.0, 1.0, 0,
                                          RUEDA_WIRE_FLOAT16};
    EXPECT_THAT(check(values, &rounded).status().message(), HasSubstr("only float32 can be"));
  }
  EXPECT_EQ(check(values).value().bytes(), 48u);
}

TEST(TensorTest, OnlyFloatingPointHasAdasum) {
  const std::vector<int64_t> shape = {3};
  rueda_tensor values = tensor("values", shape);
  const rueda_reduce_options options = {sizeof(options), RUEDA_ADASUM, 1.0, 1.0, 0};
  for (int dtype = 0; dtype < kDTypeCount; ++dtype) {
    values.dtype = static_cast<rueda_dtype>(dtype);
    const Status status = check(values, &options).status();
    if (is_floating(static_cast<DType>(dtype))) {
      EXPECT_TRUE(status.is_ok()) << dtype;
    } else {
      EXPECT_EQ(status.code(), Code::kInvalidArgument) << dtype;
      EXPECT_THAT(status.message(), HasSubstr("Adasum"));
    }
  }
}

TEST(TensorTest, DefaultsToTheAverage) {
  TensorRequest request = check(tensor("t", {})).value();
  EXPECT_EQ(request.descriptor.op, RUEDA_AVERAGE);
  EXPECT_EQ(request.descriptor.prescale, 1.0);
  EXPECT_EQ(request.descriptor.root, -1);
}

// Holds a wrong request, and a word that the message must have.
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
      {"dtype", {"t", g_values, g_values, four, 1, static_cast<rueda_dtype>(15)}, "dtype 15"},
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
  rueda_reduce_options options{sizeof(options), static_cast<rueda_op>(6), 1.0, 1.0, 0};
  EXPECT_THAT(check_allreduce(&t, &options, "", 0).status().message(), HasSubstr("operator 6"));
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

TEST(TensorTest, OnlyFloat32IsRoundedOnItsWay) {
  const std::vector<int64_t> shape = {4};
  rueda_tensor t = tensor("t", shape);
  rueda_reduce_options options{sizeof(options), RUEDA_SUM, 1.0, 1.0, 0, RUEDA_WIRE_BFLOAT16};
  EXPECT_EQ(check_allreduce(&t, &options, "", 0).value().descriptor.wire_dtype, 2u);
  options.wire_dtype = static_cast<rueda_wire_dtype>(3);
  EXPECT_THAT(check_allreduce(&t, &options, "", 0).status().message(),
              HasSubstr("unknown wire dtype 3"));
  options.wire_dtype = RUEDA_WIRE_FLOAT16;
  t.dtype = RUEDA_FLOAT64;
  EXPECT_THAT(check_allreduce(&t, &options, "", 0).status().message(),
              HasSubstr("is float64, and is to be rounded to float16 on its way; only float32"));
}

TEST(TensorTest, OnlyTheRootOfABroadcastReadsItsInput) {
  const std::vector<int64_t> shape = {4};
  rueda_tensor t = tensor("t", shape);
  EXPECT_TRUE(check_broadcast(&t, 1, 1, 2).value().input_bytes > 0);
  EXPECT_FALSE(check_broadcast(&t, 1, 1, 2).value().writes_output);
  EXPECT_FALSE(check_broadcast(&t, 1, 0, 2).value().input_bytes > 0);
  EXPECT_TRUE(check_broadcast(&t, 1, 0, 2).value().writes_output);
  EXPECT_THAT(check_broadcast(&t, 2, 0, 2).status().message(), HasSubstr("root rank 2"));
}

class PartedTensorTest : public ::testing::Test {
 protected:
  // Rank 11 of the job is the second of the set's three ranks.
  const SetPlace self_{11, 1, 3, 20};
  const std::vector<int64_t> rows_{2, 2};
  rueda_tensor tensor_ = {"t", g_values, g_values + 32, rows_.data(), 2, RUEDA_FLOAT32};

  Result<TensorRequest> allgather(const std::vector<int64_t>& first_dims) {
    return check_gathering(CollectiveKind::kAllgather, &tensor_,
                           first_dims.empty() ? nullptr : first_dims.data(), -1, self_);
  }
};

TEST_F(PartedTensorTest, AnAllgatherKnowsWhereItsPartLies) {
  const TensorRequest even = allgather({}).value();
  EXPECT_EQ(even.descriptor.dims[0], 6);
  EXPECT_EQ(even.input_bytes, 16u);
  EXPECT_EQ(even.output_bytes, 48u);
  EXPECT_EQ(even.input_at_bytes, 16u);
  EXPECT_TRUE(even.input_lies_in_output());
  const TensorRequest uneven = allgather({1, 2, 0}).value();
  EXPECT_EQ(uneven.descriptor.dims[0], 3);
  EXPECT_EQ(uneven.descriptor.count_count, 3u);
  EXPECT_EQ(uneven.input_at_bytes, 8u);
  // Even counts describe the same tensor, whether they are spelled out or not.
  EXPECT_TRUE(allgather({2, 2, 2}).value().counts.empty());
}

TEST_F(PartedTensorTest, WhatCannotBeSaysWhy) {
  EXPECT_THAT(allgather({1, 3, 0}).status().message(), HasSubstr("has 3 for it"));
  EXPECT_THAT(allgather({-1, 2, 0}).status().message(), HasSubstr("a part of -1 rows"));
  rueda_tensor scalar = tensor_;
  scalar.ndim = 0;
  EXPECT_THAT(check_alltoall(&scalar, nullptr, self_).status().message(),
              HasSubstr("no first dimension"));
  EXPECT_THAT(check_alltoall(&tensor_, nullptr, self_).status().message(),
              HasSubstr("cannot be split equally among 3"));
  const rueda_reduce_options adasum = {sizeof(adasum), RUEDA_ADASUM, 1.0, 1.0, 0};
  EXPECT_THAT(check_reduce(&tensor_, &adasum, 3, self_).status().message(), HasSubstr("Adasum"));
  EXPECT_THAT(check_reduce(&tensor_, nullptr, 20, self_).status().message(),
              HasSubstr("root rank 20"));
  const int64_t sums_to_three[] = {1, 1, 1};
  EXPECT_THAT(
      check_scattering(CollectiveKind::kReduceScatter, &tensor_, sums_to_three, nullptr, -1, self_)
          .status()
          .message(),
      HasSubstr("2 rows"));
}

TEST_F(PartedTensorTest, MemoryIsApartOrThisRanksPart) {
  tensor_.output = g_values;  // this rank's part begins 16 bytes on
  EXPECT_FALSE(allgather({}).is_ok());
  tensor_.input = g_values + 4;
  EXPECT_TRUE(allgather({}).is_ok());
  const int64_t splits[] = {0, 0, 0, 0, 2, 0, 0, 0, 0};
  tensor_.input = tensor_.output;
  EXPECT_THAT(check_alltoall(&tensor_, splits, self_).status().message(),
              HasSubstr("must be apart"));
}

TEST_F(PartedTensorTest, OnlyTheRootHasBothSides) {
  tensor_.output = nullptr;
  EXPECT_EQ(check_reduce(&tensor_, nullptr, 3, self_).value().output_bytes, 0u);
  EXPECT_FALSE(check_reduce(&tensor_, nullptr, 11, self_).is_ok());
  EXPECT_EQ(
      check_gathering(CollectiveKind::kGather, &tensor_, nullptr, 3, self_).value().output_bytes,
      0u);
  tensor_.output = g_values + 32;
  tensor_.input = nullptr;
  EXPECT_EQ(check_scattering(CollectiveKind::kScatter, &tensor_, nullptr, nullptr, 3, self_)
                .value()
                .input_bytes,
            0u);
}

TEST(TensorTest, ABarrierHasNoShape) {
  TensorRequest request = check_barrier(nullptr).value();
  EXPECT_EQ(request.name(), "barrier");
  EXPECT_EQ(request.descriptor.ndim, 0);
  EXPECT_EQ(request.bytes(), 0u);
}

}  // namespace
}  // namespace rueda::client
