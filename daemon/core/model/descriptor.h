// What every rank must agree on before a tensor may be reduced. A plain message struct: the rooms
// beside core may use it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "daemon/base/dtype.h"
#include "daemon/base/ids.h"
#include "daemon/base/parts.h"
#include "daemon/core/model/track.h"

namespace rueda::core {

// The name of every change of a job's process sets: ranks that ask for different ones at a time
// disagree.
inline constexpr char kProcessSetsName[] = "rueda.process_sets";

// The name of every declaration of a plan, likewise.
inline constexpr char kPlanName[] = "rueda.plan";

// The name of every join, and of nothing else.
inline constexpr char kJoinName[] = "rueda.join";

struct TensorDescriptor;

// A tensor of a plan that is declared ahead, and the places in its list of what must be complete
// before it can be submitted, because it is computed from that.
struct PlannedTensor {
  std::shared_ptr<const TensorDescriptor> tensor;
  std::vector<uint32_t> after;

  bool operator==(const PlannedTensor& other) const;  // by value
};

struct TensorDescriptor {
  std::string name;
  CollectiveKind kind = CollectiveKind::kAllreduce;
  DType dtype = DType::kFloat32;
  ReduceOp op = ReduceOp::kAverage;  // of what reduces
  // Elements along each dimension; empty: one element. Where each rank has a part to itself, that
  // of all parts one behind the other. Of a process set to be added: its ranks.
  std::vector<int64_t> shape;
  // The parts, in rows of the first dimension (base/parts.h); empty: as even as can be.
  std::vector<int64_t> counts;
  Rank root{-1};             // where one rank gives or gets what others do not
  uint32_t process_set = 0;  // 0 is the set of all ranks; or: which one is removed
  double prescale = 1.0;     // each contribution is multiplied by it before the reduction
  double postscale = 1.0;    // the result is multiplied by it
  WireDType wire_dtype = WireDType::kSame;  // what crosses the network is rounded to it
  MemorySpace memory = MemorySpace::kHost;
  std::string group;                // members of a group become one batch; empty: no group
  uint32_t group_size = 0;          // how many tensors the group has
  std::vector<PlannedTensor> plan;  // of a plan to be declared

  bool operator==(const TensorDescriptor&) const = default;

  // Product of the dimensions; 1 for a 0-dimensional tensor, 0 for a barrier.
  int64_t elements() const;
  int64_t bytes() const { return elements() * static_cast<int64_t>(element_bytes(dtype)); }
  PartedTensor parted() const { return {name, kind, shape, counts}; }
  // Differs when any field differs (up to hash collisions).
  uint64_t hash() const;
};

// What NCCL carries is decreed, too: a launch of its kernels cannot be cancelled.
inline Track track_of(const TensorDescriptor& tensor) {
  return tensor.memory == MemorySpace::kDeviceNccl ? Track::kDecreed : track_of(tensor.kind);
}

// Whether it can be carried out without what some rank would give, which has joined (L11): zeros
// change no sum. NCCL needs something of every rank.
inline bool takes_zeros(const TensorDescriptor& tensor) {
  if (tensor.kind == CollectiveKind::kBarrier) return true;
  return tensor.kind == CollectiveKind::kAllreduce && tensor.memory != MemorySpace::kDeviceNccl &&
         (tensor.op == ReduceOp::kSum || tensor.op == ReduceOp::kAverage ||
          tensor.op == ReduceOp::kAdasum);
}

// "[2, 3]".
std::string shape_to_string(const std::vector<int64_t>& shape);

// The first field in which two descriptors of one tensor differ, with both values.
struct Difference {
  std::string field;  // "shape", "dtype", ...
  std::string left;
  std::string right;
};
std::optional<Difference> find_difference(const TensorDescriptor& left,
                                          const TensorDescriptor& right);

// The sentence that every rank gets to read when two of them disagree.
std::string describe_mismatch(const TensorDescriptor& left, Rank left_rank,
                              const TensorDescriptor& right, Rank right_rank);

}  // namespace rueda::core
