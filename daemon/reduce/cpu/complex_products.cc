// Multiplies complex numbers. Products are rare, so the code is scalar; all else that is done with
// complex numbers is done with their components (kernels.cc).

#include <cstring>

#include "daemon/base/check.h"
#include "daemon/reduce/cpu/job.h"

namespace rueda::reduce {
namespace {

template <class T>
struct Complex {
  T real;
  T imaginary;
};

template <class T>
Complex<T> load(const void* source, size_t index) {
  Complex<T> value;
  std::memcpy(&value, static_cast<const uint8_t*>(source) + index * sizeof(value), sizeof(value));
  return value;
}

template <class T>
Complex<T> scaled(Complex<T> x, T scale) {
  return {x.real * scale, x.imaginary * scale};
}

// The operator of std::complex would look for infinities in products that are NaN, which NumPy and
// PyTorch do not.
template <class T>
Complex<T> product(Complex<T> a, Complex<T> b) {
  return {a.real * b.real - a.imaginary * b.imaginary, a.real * b.imaginary + a.imaginary * b.real};
}

template <class T>
void run(const Job& job) {
  const auto prescale = static_cast<T>(job.prescale);
  const auto postscale = static_cast<T>(job.postscale);
  const auto divisor = static_cast<T>(job.divisor);
  for (size_t i = 0; i < job.count; ++i) {
    Complex<T> value = load<T>(job.first, i);
    if (!job.is_first_partial) value = scaled(value, prescale);
    for (size_t k = 0; k < job.rest_count; ++k) {
      value = product(value, scaled(load<T>(job.rest[k], i), prescale));
    }
    value = scaled(value, postscale);
    value = {value.real / divisor, value.imaginary / divisor};
    std::memcpy(job.dst + i * sizeof(value), &value, sizeof(value));
  }
}

}  // namespace

void multiply_complex(const Job& job) {
  RUEDA_CHECK(job.op == ReduceOp::kProduct);
  if (job.dtype == DType::kComplex64) return run<float>(job);
  RUEDA_CHECK(job.dtype == DType::kComplex128);
  run<double>(job);
}

}  // namespace rueda::reduce
