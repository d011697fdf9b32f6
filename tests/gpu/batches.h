// Batches of every kind, what they should give, and how that is compared.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "daemon/gpu/batch.h"

namespace rueda::gpu {

// What a batch consists of; offsets and counts in elements.
struct BatchPlan {
  DType dtype = DType::kFloat32;
  std::optional<DType> partial_dtype;
  std::optional<DType> dst_dtype;
  ReduceOp op = ReduceOp::kSum;
  double prescale = 1.0;
  double postscale = 1.0;
  int64_t divisor = 1;
  bool has_partial = false;
  size_t sources = 1;
  size_t destinations = 1;
  std::vector<uint64_t> counts;  // by segment
  // Whether the pieces of a segment lie alike modulo 16 bytes; else each begins where it likes.
  bool lie_alike = true;
  // The first destination is the first source.
  bool is_in_place = false;

  DType partial_type() const { return partial_dtype.value_or(dtype); }
  DType dst_type() const { return dst_dtype.value_or(dtype); }
  std::string name() const;
};

// Of several counts, one of which takes more than one tile of the CUDA kernel.
std::vector<uint64_t> odd_counts();

// A plan laid out in one memory, which begins at a multiple of 256: inputs, then outputs, with
// guards of kGuard around every piece.
class BatchMemory {
 public:
  static constexpr std::byte kGuard{0xc3};
  // The element of input k (0: the partial if there is one), segment, index.
  using Fill = std::function<double(size_t input, size_t segment, uint64_t i)>;

  BatchMemory(const BatchPlan& plan, uint64_t seed, const Fill& fill);
  // Inputs of any bits: infinities, NaN, the smallest and the largest.
  BatchMemory(const BatchPlan& plan, uint64_t seed);

  size_t size() const { return before_.size(); }
  const std::vector<std::byte>& before() const { return before_; }
  // For a memory that lies at `base`. Valid until the next call.
  Batch at(DeviceAddress base);

  // By the scalar model, in float64, rounded once. Integers: as the model of tests/reduce.
  std::vector<std::byte> expected() const;
  // By the CPU's kernels (daemon/reduce/kernels.h).
  std::vector<std::byte> by_kernels() const;
  // A sentence about the first byte that is not as expected; a NaN is as good as another. Empty:
  // there is none.
  std::string difference(const std::vector<std::byte>& after,
                         const std::vector<std::byte>& expected) const;

 private:
  struct Piece {
    std::vector<size_t> inputs;  // places; the partial first
    std::vector<size_t> outputs;
    uint64_t count = 0;
  };
  void lay_out(uint64_t seed);
  DType input_type(size_t input) const;

  BatchPlan plan_;
  std::vector<Piece> pieces_;
  std::vector<std::byte> before_;
  std::vector<std::vector<DeviceAddress>> addresses_;
  std::vector<Segment> segments_;
};

}  // namespace rueda::gpu
