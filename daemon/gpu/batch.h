// A batch: what one launch of the reduction kernel does. Scattered segments, each with the same
// number of sources and destinations, are passed over once; there is no gather copy.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "daemon/base/dtype.h"
#include "daemon/base/status.h"

namespace rueda::gpu {

// Of device memory, in the address space of one process. The host does not look there.
using DeviceAddress = uint64_t;

inline constexpr size_t kMaxSources = 16;
inline constexpr size_t kMaxDestinations = 16;
// A batch is described to the device in a table: this much of it at most (table_bytes()).
inline constexpr size_t kMaxTableBytes = size_t{256} << 10;

// Every address is a multiple of its elements' size.
struct Segment {
  uint64_t count = 0;         // elements, more than 0
  DeviceAddress partial = 0;  // what was received, not scaled again; 0: none
  std::span<const DeviceAddress> sources;
  // All get the same values. One may be a source or the partial, exactly and of the same type;
  // nothing overlaps otherwise.
  std::span<const DeviceAddress> destinations;
};

// destination[i] = finish(partial[i] (op) prescale * source 0[i] (op) prescale * source 1[i] and so
// on), in this order: the arithmetic of daemon/reduce/kernels.h, and the same bits, but for the
// sign and payload of a NaN. Of bool, results are 0 or 1.
//
// Without sources, it scatters what is at `partial`.
struct Batch {
  DType dtype = DType::kFloat32;  // of sources, and what is added up in
  // Of float32: float16 or bfloat16 for what travels. `dst_dtype` may be one without a partial, or
  // with a partial of the same type; none: dtype.
  std::optional<DType> partial_dtype;
  std::optional<DType> dst_dtype;
  ReduceOp op = ReduceOp::kSum;
  double prescale = 1.0;
  double postscale = 1.0;
  int64_t divisor = 1;                // > 0; what makes a sum an average
  std::span<const Segment> segments;  // none does nothing
};

// What a table with this batch takes.
size_t table_bytes(const Batch& batch);

// Ok when a device can take it. Else kInvalidArgument, whose sentence says which segment and why: a
// kernel that is given what it cannot do costs the whole context.
Status check_batch(const Batch& batch);

}  // namespace rueda::gpu
