#include "tests/gpu/batches.h"

#include <cmath>
#include <complex>
#include <cstring>
#include <random>

#include "daemon/reduce/kernels.h"
#include "tests/reduce/reference.h"

namespace rueda::gpu {
namespace {

namespace model = reduce::testing;

uint8_t* bytes_at(std::vector<std::byte>& memory, size_t place) {
  return reinterpret_cast<uint8_t*>(memory.data() + place);
}
const uint8_t* bytes_at(const std::vector<std::byte>& memory, size_t place) {
  return reinterpret_cast<const uint8_t*>(memory.data() + place);
}

// Returns an element's value. A bool is any byte, and 0 or 1 in the model.
double value_at(DType dtype, const uint8_t* at) {
  const double value = model::decode(dtype, at);
  return dtype == DType::kBool ? (value != 0 ? 1 : 0) : value;
}

double combine(DType dtype, ReduceOp op, double a, double b) {
  if (dtype != DType::kBool) return model::combine(op, a, b);
  return op == ReduceOp::kMin || op == ReduceOp::kProduct ? std::min(a, b) : std::max(a, b);
}

}  // namespace

std::string BatchPlan::name() const {
  return std::string(to_string(dtype)) + " " + to_string(op) + " of " + std::to_string(sources) +
         (has_partial ? " and a partial of " + std::string(to_string(partial_type())) : "") +
         " to " + std::to_string(destinations) + " of " + to_string(dst_type()) +
         (lie_alike ? "" : ", scattered") + (is_in_place ? ", in place" : "");
}

std::vector<uint64_t> odd_counts() { return {1, 3, 16, 2, 17, 7, 63, 255, 257, 1, 4099, 33}; }

BatchMemory::BatchMemory(const BatchPlan& plan, uint64_t seed, const Fill& fill) : plan_(plan) {
  lay_out(seed);
  for (size_t s = 0; s < pieces_.size(); ++s) {
    for (size_t k = 0; k < pieces_[s].inputs.size(); ++k) {
      const size_t size = element_bytes(input_type(k));
      const DType component = component_dtype(input_type(k));
      for (uint64_t i = 0; i < pieces_[s].count; ++i) {
        uint8_t* const at = bytes_at(before_, pieces_[s].inputs[k] + i * size);
        const double value = fill(k, s, i);
        model::encode(component, value, at);
        if (is_complex(input_type(k))) {
          model::encode(component, value / 2, at + element_bytes(component));
        }
      }
    }
  }
}

BatchMemory::BatchMemory(const BatchPlan& plan, uint64_t seed) : plan_(plan) {
  lay_out(seed);
  std::mt19937_64 random(seed);
  for (const Piece& piece : pieces_) {
    for (size_t k = 0; k < piece.inputs.size(); ++k) {
      const DType component = component_dtype(input_type(k));
      const size_t size = element_bytes(component);
      for (uint64_t i = 0; i < piece.count * components_of(input_type(k)); ++i) {
        uint64_t bits = random();
        // Often only bits of the exponent are set: infinities, zeros, powers of two.
        if (is_floating(component) && random() % 8 == 0) bits = ~uint64_t{0} << (random() % 64);
        std::memcpy(bytes_at(before_, piece.inputs[k] + i * size), &bits, size);
      }
    }
  }
}

DType BatchMemory::input_type(size_t input) const {
  return plan_.has_partial && input == 0 ? plan_.partial_type() : plan_.dtype;
}

void BatchMemory::lay_out(uint64_t seed) {
  std::mt19937_64 random(seed);
  size_t end = 256;
  const auto place = [&](DType dtype, uint64_t count, uint64_t head) {
    const size_t size = element_bytes(dtype);
    const size_t at = (end + 31) / 32 * 32 + head * size;
    end = at + count * size + 1;
    return at;
  };
  const size_t inputs = plan_.sources + (plan_.has_partial ? 1 : 0);
  for (const uint64_t count : plan_.counts) {
    Piece piece{.count = count};
    const uint64_t common = random() % 16;
    const auto head = [&] { return plan_.lie_alike ? common : random() % 16; };
    for (size_t k = 0; k < inputs; ++k) {
      piece.inputs.push_back(place(input_type(k), count, head()));
    }
    for (size_t k = 0; k < plan_.destinations; ++k) {
      piece.outputs.push_back(place(plan_.dst_type(), count, head()));
    }
    if (plan_.is_in_place) piece.outputs[0] = piece.inputs[0];
    pieces_.push_back(piece);
  }
  before_.assign(end + 256, kGuard);
}

Batch BatchMemory::at(DeviceAddress base) {
  addresses_.clear();
  segments_.clear();
  const size_t first = plan_.has_partial ? 1 : 0;
  for (const Piece& piece : pieces_) {
    std::vector<DeviceAddress> sources;
    std::vector<DeviceAddress> destinations;
    for (size_t k = first; k < piece.inputs.size(); ++k) sources.push_back(base + piece.inputs[k]);
    for (const size_t output : piece.outputs) destinations.push_back(base + output);
    addresses_.push_back(std::move(sources));
    addresses_.push_back(std::move(destinations));
  }
  for (size_t s = 0; s < pieces_.size(); ++s) {
    segments_.push_back({.count = pieces_[s].count,
                         .partial = plan_.has_partial ? base + pieces_[s].inputs[0] : 0,
                         .sources = addresses_[2 * s],
                         .destinations = addresses_[2 * s + 1]});
  }
  return {.dtype = plan_.dtype,
          .partial_dtype = plan_.partial_dtype,
          .dst_dtype = plan_.dst_dtype,
          .op = plan_.op,
          .prescale = plan_.prescale,
          .postscale = plan_.postscale,
          .divisor = plan_.divisor,
          .segments = segments_};
}

// The sums of complex numbers are those of their components, so that only a product needs both.
void BatchMemory::multiply_complex(const Piece& piece, uint64_t i,
                                   std::vector<std::byte>& after) const {
  const DType component = component_dtype(plan_.dtype);
  const size_t size = element_bytes(component);
  const auto number = [&](size_t place) {
    const uint8_t* const at = bytes_at(before_, place + 2 * i * size);
    return std::complex(model::decode(component, at), model::decode(component, at + size));
  };
  std::complex<double> product = number(piece.inputs[0]);
  for (size_t k = 1; k < piece.inputs.size(); ++k) product *= number(piece.inputs[k]);
  for (const size_t output : piece.outputs) {
    uint8_t* const at = bytes_at(after, output + 2 * i * size);
    model::encode(component, product.real(), at);
    model::encode(component, product.imag(), at + size);
  }
}

std::vector<std::byte> BatchMemory::expected() const {
  std::vector<std::byte> after = before_;
  const bool multiplies_complex = is_complex(plan_.dtype) && plan_.op == ReduceOp::kProduct;
  for (const Piece& piece : pieces_) {
    for (uint64_t i = 0; multiplies_complex && i < piece.count; ++i) {
      multiply_complex(piece, i, after);
    }
  }
  if (multiplies_complex) return after;
  for (const Piece& piece : pieces_) {
    for (uint64_t i = 0; i < piece.count * components_of(plan_.dtype); ++i) {
      double sum = 0;
      for (size_t k = 0; k < piece.inputs.size(); ++k) {
        const DType dtype = component_dtype(input_type(k));
        double value =
            value_at(dtype, bytes_at(before_, piece.inputs[k] + i * element_bytes(dtype)));
        if (!plan_.has_partial || k > 0) value *= plan_.prescale;
        sum = k == 0 ? value : combine(plan_.dtype, plan_.op, sum, value);
      }
      sum = sum * plan_.postscale / static_cast<double>(plan_.divisor);
      for (const size_t output : piece.outputs) {
        const DType dtype = component_dtype(plan_.dst_type());
        model::encode(dtype, sum, bytes_at(after, output + i * element_bytes(dtype)));
      }
    }
  }
  return after;
}

std::vector<std::byte> BatchMemory::by_kernels() const {
  std::vector<std::byte> after = before_;
  const size_t first = plan_.has_partial ? 1 : 0;
  for (const Piece& piece : pieces_) {
    std::vector<const void*> sources;
    for (size_t k = first; k < piece.inputs.size(); ++k) {
      sources.push_back(bytes_at(before_, piece.inputs[k]));
    }
    const DType dst = plan_.dst_type();
    std::vector<std::byte> sum(piece.count * element_bytes(dst));
    std::vector<float> wide(piece.count);
    const void* partial = plan_.has_partial ? bytes_at(before_, piece.inputs[0]) : nullptr;
    if (partial != nullptr && plan_.partial_type() != dst) {
      // A value that arrived rounded and goes no further is widened first.
      void* const to = wide.data();
      reduce::widen(std::span(&to, 1), partial, plan_.partial_type(), piece.count);
      partial = to;
    }
    reduce::reduce({.dtype = plan_.dtype,
                    .sum_dtype = dst,
                    .op = plan_.op,
                    .dst = sum.data(),
                    .partial = partial,
                    .sources = sources,
                    .count = piece.count,
                    .prescale = plan_.prescale,
                    .postscale = plan_.postscale,
                    .divisor = plan_.divisor});
    for (const size_t output : piece.outputs) {
      std::memcpy(bytes_at(after, output), sum.data(), sum.size());
    }
  }
  return after;
}

std::string BatchMemory::difference(const std::vector<std::byte>& after,
                                    const std::vector<std::byte>& expected) const {
  std::vector<std::byte> left = after;
  const DType dtype = component_dtype(plan_.dst_type());
  const size_t size = element_bytes(dtype);
  const size_t components = components_of(plan_.dst_type());
  for (size_t s = 0; s < pieces_.size(); ++s) {
    for (const size_t output : pieces_[s].outputs) {
      for (uint64_t i = 0; i < pieces_[s].count * components; ++i) {
        const uint8_t* is = bytes_at(after, output + i * size);
        const uint8_t* should_be = bytes_at(expected, output + i * size);
        const double value = model::decode(dtype, is);
        const double right = model::decode(dtype, should_be);
        const bool are_nan = is_floating(dtype) && std::isnan(value) && std::isnan(right);
        if (!are_nan && std::memcmp(is, should_be, size) != 0) {
          return plan_.name() + ": element " + std::to_string(i / components) + " of segment " +
                 std::to_string(s) + " is " + std::to_string(value) + " and should be " +
                 std::to_string(right);
        }
        std::memcpy(bytes_at(left, output + i * size), should_be, size);
      }
    }
  }
  return left == expected ? "" : plan_.name() + ": something was written beside the outputs";
}

}  // namespace rueda::gpu
