// Tests weighted sums and dot products, against float64.
#include "daemon/reduce/weighted.h"

#include <cmath>
#include <random>

#include "tests/reduce/reference.h"

namespace rueda::reduce::testing {
namespace {

double precision(DType dtype) {
  switch (dtype) {
    case DType::kFloat64: return 0x1p-52;
    case DType::kFloat32: return 0x1p-23;
    case DType::kFloat16: return 0x1p-10;
    default: return 0x1p-7;
  }
}

std::vector<Buffer> random_buffers(DType dtype, size_t inputs, size_t count) {
  std::mt19937 random(static_cast<unsigned>(inputs + count));
  std::uniform_real_distribution<double> uniform(-2, 2);
  std::vector<Buffer> out(inputs, Buffer(dtype, count, 1));
  for (Buffer& buffer : out) {
    for (size_t i = 0; i < count; ++i) buffer.set(i, uniform(random));
  }
  return out;
}

const std::vector<double> kWeights{0.5, -1.25, 0.3, 1.0, 0.7};

class WeightedSum : public ::testing::TestWithParam<DType> {};

// The lengths are more and less than a block of the kernel, and odd.
TEST_P(WeightedSum, OfAnyNumberOfSourcesAndAnyLength) {
  const DType dtype = GetParam();
  for (const size_t inputs : {0, 1, 2, 5}) {
    for (const size_t count : {1, 63, 1024, 3001}) {
      for (const bool has_partial : {false, true}) {
        SCOPED_TRACE(std::to_string(inputs) + " of " + std::to_string(count));
        const auto buffers = random_buffers(dtype, inputs, count);
        const auto sources = pointers_to(buffers);
        const auto partial = random_buffers(dtype, 7, count).front();
        Buffer dst(dtype, count, 3), copy(dtype, count, 2);
        void* const copies[] = {copy.data()};
        add_weighted({.dtype = dtype,
                      .dst = dst.data(),
                      .copies = copies,
                      .partial = has_partial ? partial.data() : nullptr,
                      .sources = sources,
                      .weights = std::span(kWeights).first(inputs),
                      .count = count});
        for (size_t i = 0; i < count; ++i) {
          double want = has_partial ? partial.get(i) : 0;
          for (size_t k = 0; k < inputs; ++k) want += kWeights[k] * buffers[k].get(i);
          ASSERT_NEAR(dst.get(i), want, 8 * precision(dtype)) << i;
        }
        EXPECT_EQ(copy.values(), dst.values());
      }
    }
  }
}

TEST_P(WeightedSum, IntoOneOfItsSourcesAndIntoThePartial) {
  const DType dtype = GetParam();
  const auto given = random_buffers(dtype, 4, 3001);
  Buffer apart(dtype, 3001, 1);
  const auto run = [&](std::vector<Buffer>& buffers, void* dst) {
    const auto sources = pointers_to(buffers);
    add_weighted({.dtype = dtype,
                  .dst = dst,
                  .partial = sources[0],
                  .sources = std::span(sources).subspan(1),
                  .weights = std::span(kWeights).first(3),
                  .count = 3001});
  };
  std::vector<Buffer> buffers = given;
  run(buffers, apart.data());
  for (const size_t place : {0, 1, 3}) {
    buffers = given;
    run(buffers, buffers[place].data());
    EXPECT_EQ(buffers[place].values(), apart.values()) << place;
  }
}

INSTANTIATE_TEST_SUITE_P(DTypes, WeightedSum, ::testing::ValuesIn(kFloatDTypes),
                         [](const auto& dtype) { return to_string(dtype.param); });

TEST(WeightedSum, OfFloat32RoundedForTheWire) {
  for (const DType rounded : {DType::kFloat16, DType::kBFloat16}) {
    const auto buffers = random_buffers(DType::kFloat32, 3, 2000);
    const auto sources = pointers_to(buffers);
    const auto partial = random_buffers(rounded, 1, 2000).front();
    Buffer dst(rounded, 2000, 3);
    add_weighted({.sum_dtype = rounded,
                  .dst = dst.data(),
                  .partial = partial.data(),
                  .sources = sources,
                  .weights = std::span(kWeights).first(3),
                  .count = 2000});
    for (size_t i = 0; i < 2000; ++i) {
      double want = partial.get(i);
      for (size_t k = 0; k < 3; ++k) want += kWeights[k] * buffers[k].get(i);
      ASSERT_NEAR(dst.get(i), want, 8 * precision(rounded)) << i;
    }
  }
}

TEST(DotProducts, OfAllPairsWithTheSameBitsOnEveryTarget) {
  for (const DType dtype : kFloatDTypes) {
    for (const size_t count : {1, 15, 16, 17, 1025, 5000}) {
      SCOPED_TRACE(std::string(to_string(dtype)) + " " + std::to_string(count));
      const auto buffers = random_buffers(dtype, 4, count);
      const auto vectors = pointers_to(buffers);
      std::vector<std::vector<double>> results;
      for_each_target([&] {
        std::vector<double>& products = results.emplace_back(pairs_of(4), 1.0);
        add_dot_products(dtype, vectors, count, products);
      });
      for (size_t j = 0; j < 4; ++j) {
        for (size_t i = 0; i <= j; ++i) {
          double want = 1;
          for (size_t at = 0; at < count; ++at) want += buffers[i].get(at) * buffers[j].get(at);
          EXPECT_NEAR(results[0][pair_place(i, j)], want, 1e-9);
          EXPECT_EQ(dot_product(dtype, vectors[j], vectors[i], count),
                    dot_product(dtype, vectors[i], vectors[j], count));
        }
      }
      for (const auto& result : results) EXPECT_EQ(result, results[0]);
    }
  }
}

TEST(DotProducts, OfTheSmallestAndTheLargestFloat32) {
  for (const double value : {0x1p-149, 0x1.fffffep127}) {
    const Buffer buffer = Buffer::of(DType::kFloat32, {value, -value});
    EXPECT_EQ(dot_product(DType::kFloat32, buffer.data(), buffer.data(), 2), 2 * value * value);
  }
}

}  // namespace
}  // namespace rueda::reduce::testing
