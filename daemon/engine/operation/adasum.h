// Finds what one Adasum (reduce/adasum.h) on one node must know before it can be added up: dot
// products, and the weights that follow from them.
//
// - The products of the node's ranks take one pass over their memory. Their weights make the node's
//   vector, which is never stored: whatever needs some of it adds it up again.
// - The products of the nodes' vectors are made as core/schedules/adasum_schedule.h says. The
//   vectors are those that travel, rounded to the type they travel in.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "daemon/core/schedules/adasum_schedule.h"
#include "daemon/engine/memory/pass_threads.h"
#include "daemon/engine/operation/operation.h"

namespace rueda::engine {

class Adasum {
 public:
  // On more than one node, `chunk_bytes` is the most that a chunk may have. The operation must
  // outlive this object, and gets its weights from it.
  Adasum(Operation& operation, int nodes, NodeIndex self, int64_t chunk_bytes);

  // Returns null on one node.
  const core::AdasumSchedule* schedule() const { return schedule_ ? &*schedule_ : nullptr; }

  // Does a turn of the passes over the ranks' memory. Returns false if there is more to do.
  // `kernels` has an object for each thread.
  bool weigh(PassThreads& threads, std::span<OperationKernels> kernels);

  bool is_weighing() const { return state_ < State::kMeet; }

  // Returns whether the piece's round may begin on this node. All pieces before `first_incomplete`
  // are done here.
  bool may_begin(int64_t piece, int64_t first_incomplete);

  // Takes another node's elements of that chunk, and computes their products with this node's.
  void meet(OperationKernels& kernels, int64_t chunk, const std::byte* values);
  // These two deal with a chunk of the products: dst = partial + this node's own products, where
  // partial may be null, or equal to dst; and the totals that have come back.
  void add_products(core::ElementRange range, const std::byte* partial, std::byte* dst) const;
  void take_products(core::ElementRange range, const std::byte* total);

 private:
  // Some elements of one tensor, few enough for a cache.
  struct Stretch {
    size_t tensor;
    core::ElementRange range;  // The range is of the operation.
  };
  enum class State : uint8_t { kRanks, kSquares, kMeet, kShare, kSum };

  void cut_into_stretches();
  void weigh_ranks();
  void gather_products();
  void weigh_nodes();
  // Multiplies the weights of the tensor's ranks.
  void scale(size_t tensor, double factor);
  std::span<double> products_of(std::vector<double>& all, size_t tensor, size_t pairs) const {
    return std::span(all).subspan(tensor * pairs, pairs);
  }

  Operation& operation_;
  const int nodes_;
  const NodeIndex self_;
  const size_t rank_pairs_;
  const size_t node_pairs_;
  std::optional<core::AdasumSchedule> schedule_;
  State state_ = State::kRanks;

  std::vector<Stretch> stretches_;
  size_t next_stretch_ = 0;
  std::vector<double> turn_;              // By stretch of a turn: its products.
  std::vector<double> rank_products_;     // By tensor.
  std::vector<double> squares_;           // By tensor: the square of the node's vector.
  std::vector<std::vector<double>> met_;  // By chunk, and tensor in it.
  std::vector<double> products_;          // By tensor: at first this node's, in the end all.
};

}  // namespace rueda::engine
