// The descriptor of a tensor: what every rank must agree on before the tensor may be reduced. It is
// a plain message struct, which the rooms beside core may use, too.
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

// Every change of a job's process sets has this name, so that ranks which ask for different changes
// at the same time disagree, and are told so.
inline constexpr char kProcessSetsName[] = "rueda.process_sets";

// Every declaration of a plan has this name, so that ranks which declare different plans disagree.
inline constexpr char kPlanName[] = "rueda.plan";

// Every join has this name, and nothing else has it.
inline constexpr char kJoinName[] = "rueda.join";

// The peer of a receive that takes what any rank of the process set sends.
inline constexpr Rank kAnySource{-1};

struct TensorDescriptor;

// A tensor of a plan that is declared ahead. `after` holds indices into the plan's list: the
// tensors that must be complete before this one can be submitted, because it is computed from them.
struct PlannedTensor {
  std::shared_ptr<const TensorDescriptor> tensor;
  std::vector<uint32_t> after;

  bool operator==(const PlannedTensor& other) const;  // Compares by value.
};

struct TensorDescriptor {
  std::string name;
  CollectiveKind kind = CollectiveKind::kAllreduce;
  DType dtype = DType::kFloat32;
  ReduceOp op = ReduceOp::kAverage;  // Only collectives that reduce use it.
  // The number of elements along each dimension; an empty shape is one element. Where each rank has
  // a part to itself, this is the shape of all parts one behind the other. For a process set to be
  // added, it holds the set's ranks.
  std::vector<int64_t> shape;
  // The sizes of the parts, in rows of the first dimension (base/parts.h). If it is empty, the
  // parts are as even as can be.
  std::vector<int64_t> counts;
  Rank root{-1};  // The rank that gives or gets what others do not; -1 without one.
  // Of a send and a receive alone: the rank at the other end, which is kAnySource for a receive
  // from whichever rank sends first, and the number that both ends have in common.
  Rank peer{-1};
  int64_t tag = 0;
  uint32_t process_set = 0;  // The set of all ranks is 0. For a removal: the set to be removed.
  double prescale = 1.0;     // Each contribution is multiplied by it before the reduction.
  double postscale = 1.0;    // The result is multiplied by it.
  WireDType wire_dtype = WireDType::kSame;  // What crosses the network is rounded to this type.
  MemorySpace memory = MemorySpace::kHost;
  std::string group;        // All members of a group become ready as one; empty without a group.
  uint32_t group_size = 0;  // How many tensors the group has.
  std::vector<PlannedTensor> plan;  // It is empty unless this declares a plan.

  bool operator==(const TensorDescriptor&) const = default;

  // Returns the product of the dimensions: 1 for a 0-dimensional tensor, and 0 for a collective
  // that moves no data, such as a barrier.
  int64_t elements() const;
  int64_t bytes() const { return elements() * static_cast<int64_t>(element_bytes(dtype)); }
  PartedTensor parted() const { return {name, kind, shape, counts}; }
  // Returns a hash that differs when any field differs (up to hash collisions).
  uint64_t hash() const;
};

// Returns the order that the tensor's operation belongs to. What NCCL carries is always decreed,
// because a launch of its kernels cannot be cancelled.
inline Track track_of(const TensorDescriptor& tensor) {
  return tensor.memory == MemorySpace::kDeviceNccl ? Track::kDecreed : track_of(tensor.kind);
}

// Returns whether the operation can be carried out without the contribution of a rank that has
// joined (L11). That is so where zeros change no sum; NCCL needs something of every rank.
inline bool takes_zeros(const TensorDescriptor& tensor) {
  if (tensor.kind == CollectiveKind::kBarrier) return true;
  return tensor.kind == CollectiveKind::kAllreduce && tensor.memory != MemorySpace::kDeviceNccl &&
         (tensor.op == ReduceOp::kSum || tensor.op == ReduceOp::kAverage ||
          tensor.op == ReduceOp::kAdasum);
}

// Returns the shape as text, such as "[2, 3]".
std::string shape_to_string(const std::vector<int64_t>& shape);

// The first field in which two descriptors of one tensor differ, with both values as text.
struct Difference {
  std::string field;  // The field's name: "shape", "dtype", ...
  std::string left;
  std::string right;
};
std::optional<Difference> find_difference(const TensorDescriptor& left,
                                          const TensorDescriptor& right);

// Returns the sentence that every rank gets to read, with kMismatch, when two of them disagree. The
// comparison is made where reports of several ranks meet: on a node (SubmissionTable::take_ready),
// in the tree (Combiner), and at the coordinator (Coordinator::on_report).
std::string describe_mismatch(const TensorDescriptor& left, Rank left_rank,
                              const TensorDescriptor& right, Rank right_rank);

}  // namespace rueda::core
