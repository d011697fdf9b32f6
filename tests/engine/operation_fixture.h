// One operation as a test wants it: the memory of every rank of a job for it, filled so that a
// result can be told exactly, and what must come out.
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
  // Elements by tensor. Where each rank has a part: rows of one element, of all parts together, of
  // one tensor.
  std::vector<int64_t> sizes{1};
  std::vector<int64_t> counts{};  // of the parts
  Rank root{0};                   // where there is one
  double prescale = 1.0;
  double postscale = 1.0;
  WireDType wire_dtype = WireDType::kSame;
  bool in_place = false;
  uint64_t plan_hash = 7;
  core::DataTuning tuning{};
  SendPriority urgency;
  // Not 0: random values of this seed instead of exact ones; dtype float32. check() then cannot
  // know the sum, only that all ranks have the same.
  uint32_t random_seed = 0;
};

// Adasum: values of few bits, and a result as near to the reference as the type allows, with the
// same bits on all ranks.
//
// Sums: of any 8 ranks in a row, rank r gives 2^(r + i) at element i, the others nothing; so a
// result says who contributed, and no type of number has to round on the way.
class OperationFixture {
 public:
  // ranks_per_node: how many local ranks each node has; global ranks count through.
  OperationFixture(OperationSpec spec, const std::vector<int>& ranks_per_node, Seq seq);
  OperationFixture(const OperationFixture&) = delete;
  OperationFixture& operator=(const OperationFixture&) = delete;

  const OperationSpec& spec() const { return spec_; }
  Seq seq() const { return seq_; }
  std::unique_ptr<Operation> operation(NodeIndex node) const;
  // Empty if every rank has the right result and what it gave is intact; else what is wrong.
  std::string check() const;
  // All tensors of a rank's output, one after the other.
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
  // By rank, then tensor. Mutable: an operation in place writes through pointers into them.
  mutable std::vector<std::vector<Bytes>> inputs_;
  mutable std::vector<std::vector<Bytes>> outputs_;  // empty when in place
  std::vector<std::vector<Bytes>> given_;            // what the inputs were
  std::vector<std::vector<Bytes>> expected_;         // by rank, then tensor
};

// The bits of a small whole number (below 2^8 for bfloat16, 2^11 for float16; modulo 2^8 for bytes;
// any but 0 is true).
void put_number(DType dtype, double value, std::byte* to);
double get_number(DType dtype, const std::byte* from);

}  // namespace rueda::engine::testing
