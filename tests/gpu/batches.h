// Makes batches of every kind and their expected results, and compares them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "daemon/gpu/batch.h"

namespace rueda::gpu {

// Describes a batch; offsets and counts are in elements.
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
  std::vector<uint64_t> counts;  // of each segment
  // If true, the pieces of a segment lie alike modulo 16 bytes; otherwise each begins anywhere.
  bool lie_alike = true;
  // If true, the first destination is the first source.
  bool is_in_place = false;

  DType partial_type() const { return partial_dtype.value_or(dtype); }
  DType dst_type() const { return dst_dtype.value_or(dtype); }
  std::string name() const;
};

// Returns several counts, one of which takes more than one tile of the CUDA kernel.
std::vector<uint64_t> odd_counts();

// Lays out a plan in one memory, which begins at a multiple of 256: inputs, then outputs, with
// guards of kGuard around every piece.
class BatchMemory {
 public:
  static constexpr std::byte kGuard{0xc3};
  // Returns the element of input k (0 is the partial if there is one), segment, index. Of a complex
  // number it is the real part, and half of it the imaginary part.
  using Fill = std::function<double(size_t input, size_t segment, uint64_t i)>;

  BatchMemory(const BatchPlan& plan, uint64_t seed, const Fill& fill);
  // Fills inputs with any bits: infinities, NaN, the smallest and the largest.
  BatchMemory(const BatchPlan& plan, uint64_t seed);

  size_t size() const { return before_.size(); }
  const std::vector<std::byte>& before() const { return before_; }
  // Returns the batch for a memory that lies at `base`. It is valid until the next call.
  Batch at(DeviceAddress base);

  // Returns the results of the scalar model, in float64, rounded once. Integers are as in the model
  // of tests/reduce.
  std::vector<std::byte> expected() const;
  // Returns the results of the CPU's kernels (daemon/reduce/kernels.h).
  std::vector<std::byte> by_kernels() const;
  // Returns a sentence about the first byte that differs, or "" if none does. All NaN count as
  // equal.
  std::string difference(const std::vector<std::byte>& after,
                         const std::vector<std::byte>& expected) const;

 private:
  struct Piece {
    std::vector<size_t> inputs;  // places; the partial's is first
    std::vector<size_t> outputs;
    uint64_t count = 0;
  };
  void lay_out(uint64_t seed);
  // Writes the product of a piece's i-th elements.
  void multiply_complex(const Piece& piece, uint64_t i, std::vector<std::byte>& after) const;
  DType input_type(size_t input) const;

  BatchPlan plan_;
  std::vector<Piece> pieces_;
  std::vector<std::byte> before_;
  std::vector<std::vector<DeviceAddress>> addresses_;
  std::vector<Segment> segments_;
};

}  // namespace rueda::gpu
