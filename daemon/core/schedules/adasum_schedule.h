// The way in which the nodes of a ring carry out an Adasum (reduce/adasum.h) of vectors that each
// of them has, as rounds of one cut:
//
// 1. Meet. Each node's vector goes half round the ring, and every node that it passes computes its
//    dot product with the node's own. So every pair of nodes meets once, and nothing need be kept.
//    With an even number of nodes one half of a vector goes to the node opposite, whose other half
//    comes from there. Over each link go (n - 1) / 2 times the vector's bytes in all.
// 2. Share. The products, which are few numbers, are all-reduced, so every node knows the same
//    weights.
// 3. Sum. The weighted vectors are all-reduced.
//
// A round begins on a node when the one before has ended there.
#pragma once

#include <cstdint>
#include <vector>

#include "daemon/core/schedules/ring_schedule.h"

namespace rueda::core {

enum class AdasumStage : uint8_t { kMeet, kShare, kSum };

class AdasumSchedule {
 public:
  // The schedule for vectors of so many elements, and so many products in all, among 2 or more
  // nodes.
  AdasumSchedule(int nodes, int64_t elements, int64_t products, int64_t max_chunk_elements,
                 int64_t max_chunk_products);

  // Returns the cut. In the rounds of kShare its elements are products, else those of the vectors.
  const RingCut& cut() const { return cut_; }
  // Returns the stage that a piece of the cut belongs to.
  AdasumStage stage_of(int64_t piece) const;
  Route route(int64_t piece, int shard) const;
  // Returns how many chunks kMeet has; they come before all others.
  int64_t meeting_chunks() const { return meeting_chunks_; }

 private:
  const int nodes_;
  std::vector<int> hops_;  // The index is the round of kMeet.
  RingCut cut_;
  int64_t meeting_chunks_ = 0;
};

}  // namespace rueda::core
