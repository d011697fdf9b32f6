// Tests that complex numbers are reduced component by component, with the bits of their components'
// type, but for products, which have a model of their own here.
#include <random>

#include "tests/reduce/reference.h"

namespace rueda::reduce::testing {
namespace {

constexpr DType kComplexDTypes[] = {DType::kComplex64, DType::kComplex128};

// Returns components with any bits, of which some are NaN or infinite.
std::vector<Buffer> random_components(DType dtype, size_t inputs, size_t count) {
  std::mt19937 random(static_cast<unsigned>(inputs));
  const DType component = component_dtype(dtype);
  std::vector<Buffer> out(inputs, Buffer(component, 2 * count, 1));
  for (Buffer& buffer : out) {
    auto* bytes = static_cast<uint8_t*>(buffer.data());
    for (size_t i = 0; i < buffer.size_bytes(); ++i) bytes[i] = static_cast<uint8_t>(random());
  }
  return out;
}

void expect_same(const Buffer& a, const Buffer& b, size_t component_bytes) {
  for (size_t i = 0; i < a.count(); ++i) {
    if (std::isnan(a.get(i)) && std::isnan(b.get(i))) continue;
    ASSERT_EQ(std::memcmp(a.at(i), b.at(i), component_bytes), 0)
        << "component " << i << ": " << a.get(i) << " and " << b.get(i);
  }
}

TEST(Complex, SumsAveragesAndScalesAreThoseOfTheComponents) {
  for_each_target([] {
    constexpr size_t kCount = 301;
    for (const DType dtype : kComplexDTypes) {
      const DType component = component_dtype(dtype);
      const std::vector<Buffer> inputs = random_components(dtype, 4, kCount);
      const auto all = pointers_to(inputs);
      for (const bool has_partial : {false, true}) {
        for (const int64_t divisor : {1, 3, 4}) {
          for (const double scale : {1.0, 0.3}) {
            Buffer whole(component, 2 * kCount, 1);
            Buffer parts(component, 2 * kCount, 1);
            ReduceArgs args{.dtype = dtype,
                            .op = ReduceOp::kAverage,
                            .dst = whole.data(),
                            .partial = has_partial ? all[0] : nullptr,
                            .sources = std::span(all).subspan(has_partial ? 1 : 0),
                            .count = kCount,
                            .prescale = scale,
                            .postscale = scale * 7,
                            .divisor = divisor};
            reduce(args);
            args.dtype = component;
            args.count = 2 * kCount;
            args.dst = parts.data();
            reduce(args);
            expect_same(whole, parts, element_bytes(component));
          }
        }
      }
    }
  });
}

template <class T>
struct Number {
  T real;
  T imaginary;
};

template <class T>
Number<T> times(Number<T> x, double factor) {
  return {x.real * static_cast<T>(factor), x.imaginary * static_cast<T>(factor)};
}

// Every operation is rounded by itself: `volatile` keeps the compiler from fusing two of them.
template <class T>
Number<T> product(Number<T> a, Number<T> b) {
  volatile T ac = a.real * b.real;
  volatile T bd = a.imaginary * b.imaginary;
  volatile T ad = a.real * b.imaginary;
  volatile T bc = a.imaginary * b.real;
  return {ac - bd, ad + bc};
}

template <class T>
void check_products(DType dtype, bool has_partial, double scale) {
  constexpr size_t kCount = 131;
  const DType component = component_dtype(dtype);
  std::mt19937 random(1);
  std::uniform_real_distribution<double> uniform(-2, 2);
  std::vector<Buffer> inputs(4, Buffer(component, 2 * kCount, 1));
  for (Buffer& input : inputs) {
    for (size_t i = 0; i < 2 * kCount; ++i) input.set(i, uniform(random));
  }
  const auto number = [](const Buffer& buffer, size_t i) {
    return Number<T>{static_cast<T>(buffer.get(2 * i)), static_cast<T>(buffer.get(2 * i + 1))};
  };
  const auto all = pointers_to(inputs);
  std::vector<Buffer> outputs(3, Buffer(component, 2 * kCount, 3));
  const std::vector<void*> copies{outputs[1].data(), outputs[2].data()};
  reduce({.dtype = dtype,
          .op = ReduceOp::kProduct,
          .dst = outputs[0].data(),
          .copies = copies,
          .partial = has_partial ? all[0] : nullptr,
          .sources = std::span(all).subspan(has_partial ? 1 : 0),
          .count = kCount,
          .prescale = scale,
          .postscale = 3 * scale});
  for (size_t i = 0; i < kCount; ++i) {
    Number<T> expected = number(inputs[0], i);
    if (!has_partial) expected = times(expected, scale);
    for (size_t k = 1; k < inputs.size(); ++k) {
      expected = product(expected, times(number(inputs[k], i), scale));
    }
    expected = times(expected, 3 * scale);
    for (const Buffer& output : outputs) {
      ASSERT_EQ(number(output, i).real, expected.real) << to_string(dtype) << " " << i;
      ASSERT_EQ(number(output, i).imaginary, expected.imaginary) << to_string(dtype) << " " << i;
    }
  }
}

TEST(Complex, ProductsAreThoseOfComplexNumbers) {
  for (const bool has_partial : {false, true}) {
    for (const double scale : {1.0, 0.3}) {
      check_products<float>(DType::kComplex64, has_partial, scale);
      check_products<double>(DType::kComplex128, has_partial, scale);
    }
  }
}

TEST(Complex, KnownProducts) {
  const double a[] = {3, 4, 0, 1};
  const double b[] = {1, -2, 0, 1};
  double out[4] = {};
  const std::vector<const void*> sources{a, b};
  reduce({.dtype = DType::kComplex128,
          .op = ReduceOp::kProduct,
          .dst = out,
          .sources = sources,
          .count = 2});
  EXPECT_EQ(out[0], 11);
  EXPECT_EQ(out[1], -2);
  EXPECT_EQ(out[2], -1) << "i times i";
  EXPECT_EQ(out[3], 0);
}

TEST(Complex, ProductsWriteOverAnyInputInPlace) {
  for (const size_t target : {0, 1, 2}) {
    float inputs[3][4] = {{1, 2, 0, 1}, {3, -1, 2, 2}, {0, 1, -1, 0}};
    const std::vector<const void*> sources{inputs[1], inputs[2]};
    reduce({.dtype = DType::kComplex64,
            .op = ReduceOp::kProduct,
            .dst = inputs[target],
            .partial = inputs[0],
            .sources = sources,
            .count = 2});
    // (1 + 2i)(3 - i)i and i(2 + 2i)(-1)
    EXPECT_EQ(inputs[target][0], -5) << target;
    EXPECT_EQ(inputs[target][1], 5);
    EXPECT_EQ(inputs[target][2], 2);
    EXPECT_EQ(inputs[target][3], -2);
  }
}

TEST(Complex, ASingleInputKeepsItsBits) {
  for (const DType dtype : kComplexDTypes) {
    for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kAverage, ReduceOp::kProduct}) {
      const std::vector<Buffer> inputs = random_components(dtype, 1, 37);
      Buffer out(component_dtype(dtype), 2 * 37);
      const auto sources = pointers_to(inputs);
      reduce({.dtype = dtype, .op = op, .dst = out.data(), .sources = sources, .count = 37});
      EXPECT_EQ(std::memcmp(out.data(), inputs[0].data(), out.size_bytes()), 0) << to_string(op);
    }
  }
}

// A kernel that took their components for numbers would give a minimum that is nobody's value.
TEST(ComplexDeathTest, HaveNoOrder) {
  const double one[] = {1, 2};
  double out[2] = {};
  const std::vector<const void*> sources{one, one};
  for (const ReduceOp op : {ReduceOp::kMin, ReduceOp::kMax}) {
    EXPECT_DEATH(
        reduce({.dtype = DType::kComplex128, .op = op, .dst = out, .sources = sources, .count = 1}),
        "has_operator");
  }
}

TEST(Complex, ANumberIsNotFiniteIfOneOfItsComponentsIsNot) {
  for_each_target([] {
    constexpr size_t kCount = 300;
    for (const DType dtype : kComplexDTypes) {
      Buffer values(component_dtype(dtype), 2 * kCount, 1);
      EXPECT_EQ(find_nonfinite(dtype, values.data(), kCount), kCount);
      for (size_t i = 2 * kCount; i-- > 0;) {
        values.set(i, i % 3 == 0 ? kNan : kInf);
        ASSERT_EQ(find_nonfinite(dtype, values.data(), kCount), i / 2) << to_string(dtype);
      }
    }
  });
}

}  // namespace
}  // namespace rueda::reduce::testing
