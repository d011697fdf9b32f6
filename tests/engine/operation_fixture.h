// Sets up one operation as a test wants it: the memory of every rank of a job, filled so that a
// result can be checked exactly, and the expected results.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "daemon/core/model/layout.h"
#include "daemon/engine/operation/operation.h"

namespace rueda::engine::testing {

using Bytes = std::vector<std::byte>;

struct OperationSpec {
  CollectiveKind kind = CollectiveKind::kAllreduce;
  DType dtype = DType::kFloat32;
  ReduceOp op = ReduceOp::kSum;
  // The elements of each tensor. Where each rank has a part, these are rows of one element, of all
  // parts of a tensor together.
  std::vector<int64_t> sizes{1};
  std::vector<int64_t> counts{};  // the sizes of the parts
  Rank root{0};                   // for collectives that have a root
  double prescale = 1.0;
  double postscale = 1.0;
  WireDType wire_dtype = WireDType::kSame;
  bool in_place = false;
  uint64_t plan_hash = 7;
  core::DataTuning tuning{};
  SendPriority urgency;
  // If not 0, inputs are random values of this seed instead of exact ones; dtype must be float32.
  // check() then cannot know the sum, only that all ranks have the same.
  uint32_t random_seed = 0;
};

// Fills inputs and checks results.
//
// For Adasum, values have few bits, and a result must be as near to the reference as the type
// allows, with the same bits on all ranks. For sums, of any 8 ranks in a row, rank r gives 2^(r +
// i) at element i, and the other ranks nothing; so a result says who contributed, and no type of
// number has to round on the way.
class OperationFixture {
 public:
  // Makes the fixture. `ranks_per_node` has the number of local ranks of each node; global ranks
  // count through.
  OperationFixture(OperationSpec spec, const std::vector<int>& ranks_per_node, Seq seq);
  OperationFixture(const OperationFixture&) = delete;
  OperationFixture& operator=(const OperationFixture&) = delete;

  const OperationSpec& spec() const { return spec_; }
  Seq seq() const { return seq_; }
  std::unique_ptr<Operation> operation(NodeIndex node) const;
  // Returns "" if every rank has the right result and its inputs are intact, and otherwise what is
  // wrong.
  std::string check() const;
  // Returns all tensors of a rank's output, one after the other.
  Bytes output(Rank rank) const;
  int ranks() const { return static_cast<int>(inputs_.size()); }
  std::byte* output_of(Rank rank, size_t tensor) const;
  const std::byte* input_of(Rank rank, size_t tensor) const;
  size_t input_bytes(Rank rank, size_t tensor) const {
    return inputs_[static_cast<size_t>(rank.value)][tensor].size();
  }

 private:
  double value(int rank, int64_t element) const;
  void fill_inputs();
  Extent extent(int rank, size_t tensor) const;
  core::Layout layout() const;
  Bytes expected(int rank, size_t tensor) const;
  Bytes reduced(size_t tensor) const;
  std::vector<double> adasum_of(size_t tensor) const;
  std::string check_adasum() const;

  const OperationSpec spec_;
  const std::vector<int> ranks_per_node_;
  const Seq seq_;
  // The inputs by rank, then tensor. The field is mutable because an operation in place writes
  // through pointers into it.
  mutable std::vector<std::vector<Bytes>> inputs_;
  mutable std::vector<std::vector<Bytes>> outputs_;  // are empty when in place
  std::vector<std::vector<Bytes>> given_;            // the inputs' original values
  std::vector<std::vector<Bytes>> expected_;         // by rank, then tensor
};

// Writes the bits of a small whole number (below 2^8 for bfloat16, 2^11 for float16; modulo 2^8 for
// bytes; any but 0 is true).
void put_number(DType dtype, double value, std::byte* to);
double get_number(DType dtype, const std::byte* from);

}  // namespace rueda::engine::testing
