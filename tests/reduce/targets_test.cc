// Tests that all instruction sets give the same bits, so that nodes with different processors
// agree.
#include <random>

#include "tests/reduce/reference.h"

namespace rueda::reduce::testing {
namespace {

// Returns buffers of any bits, including NaN, infinities and denormals.
std::vector<Buffer> random_bits(DType dtype, size_t inputs, size_t count) {
  std::mt19937 random(static_cast<unsigned>(inputs));
  std::vector<Buffer> out(inputs, Buffer(dtype, count, 1));
  for (Buffer& buffer : out) {
    auto* bytes = static_cast<uint8_t*>(buffer.data());
    for (size_t i = 0; i < buffer.size_bytes(); ++i) bytes[i] = static_cast<uint8_t>(random());
  }
  return out;
}

// Compares results. A NaN's payload is not part of the contract (kernels.h), but that it is a NaN
// is.
void expect_same(DType dtype, const Buffer& a, const Buffer& b) {
  for (size_t i = 0; i < a.count(); ++i) {
    if (!is_integer(dtype) && std::isnan(a.get(i)) && std::isnan(b.get(i))) continue;
    ASSERT_EQ(std::memcmp(a.at(i), b.at(i), element_bytes(dtype)), 0)
        << to_string(dtype) << " at " << i << ": " << a.get(i) << " and " << b.get(i);
  }
}

TEST(Targets, AgreeBitForBit) {
  struct Scales {
    double prescale, postscale;
    int64_t divisor;
  };
  constexpr Scales kScales[] = {{1, 1, 1}, {1, 1, 4}, {0.3, 1, 1}, {1.7, 0.9, 3}};
  constexpr size_t kCount = 3001;
  for (DType dtype : kDTypes) {
    for (ReduceOp op : kOps) {
      for (size_t inputs : {2, 3, 4, 7}) {
        const std::vector<Buffer> buffers = random_bits(dtype, inputs, kCount);
        const auto sources = pointers_to(buffers);
        for (const Scales& scales : kScales) {
          const ReduceArgs args{.dtype = dtype,
                                .op = op,
                                .sources = sources,
                                .count = kCount,
                                .prescale = scales.prescale,
                                .postscale = scales.postscale,
                                .divisor = scales.divisor};
          std::vector<Buffer> results;
          for_each_target([&] {
            ReduceArgs mine = args;
            mine.dst = results.emplace_back(dtype, kCount, 3).data();
            reduce(mine);
          });
          ASSERT_FALSE(results.empty());
          for (const Buffer& result : results) expect_same(dtype, results[0], result);
        }
      }
    }
  }
}

TEST(Targets, AnElementDoesNotDependOnItsPlaceOrOnTheLength) {
  constexpr size_t kCount = 200;
  for (DType dtype : kDTypes) {
    const std::vector<Buffer> buffers = random_bits(dtype, 3, kCount);
    const auto sources = pointers_to(buffers);
    Buffer whole(dtype, kCount), single(dtype, kCount);
    reduce({.dtype = dtype, .dst = whole.data(), .sources = sources, .count = kCount});
    for (size_t i = 0; i < kCount; ++i) {
      const std::vector<const void*> elements{buffers[0].at(i), buffers[1].at(i), buffers[2].at(i)};
      reduce({.dtype = dtype, .dst = single.at(i), .sources = elements, .count = 1});
    }
    expect_same(dtype, whole, single);
  }
}

}  // namespace
}  // namespace rueda::reduce::testing
