// The rule by which ready tensors go into one operation (tensor fusion; Sergeev and Del Balso 2018,
// section 4). Only the coordinator applies it: to what is ready (Coordinator::call), and to the
// steps that it makes a plan of (plan_tree.h), where more conditions are added. Other nodes check
// the batches that they are told of (batch_check.h).
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "daemon/core/messages/messages.h"

namespace rueda::core {

// Tensors that must be launched together: one tensor, or a whole group.
struct FusionUnit {
  // The tensors of a unit have the same group, kind, dtype, op, scales and wire dtype.
  std::vector<DescriptorPtr> tensors;
};

struct FusionOptions {
  // The most bytes of a batch of several units (--fusion-threshold); a unit that is larger is a
  // batch by itself. 0: every unit is an operation of its own.
  int64_t threshold_bytes = int64_t{64} << 20;
  // The most units behind the first that are inspected, so that a long queue costs no quadratic
  // time.
  size_t look_ahead_units = 256;
};

// Returns true if the two may share an operation: both must be all-reduces of like dtype, op,
// scales, wire dtype, memory and process set.
bool can_fuse(const TensorDescriptor& a, const TensorDescriptor& b);

// Takes the first unit and, in order, every later one that is like it and still fits under the
// threshold; what does not fit stays where it is. The queue must not be empty.
std::vector<DescriptorPtr> take_batch(std::deque<FusionUnit>& queue, const FusionOptions& options);

// Returns a hash that names the batch: its descriptors, in order. Both ends of a frame must mean
// the same batch.
uint64_t plan_hash(const std::vector<DescriptorPtr>& batch);

}  // namespace rueda::core
