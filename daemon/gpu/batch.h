// A batch is the work of one launch of the reduction kernel. Scattered segments, each with the same
// number of sources and destinations, are passed over once, without a copy to gather them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "daemon/base/dtype.h"
#include "daemon/base/status.h"

namespace rueda::gpu {

// An address of device memory in the address space of one process. The host does not access it.
using DeviceAddress = uint64_t;

inline constexpr size_t kMaxSources = 16;
inline constexpr size_t kMaxDestinations = 16;
// The largest table that describes a batch to the device (table_bytes()).
inline constexpr size_t kMaxTableBytes = size_t{256} << 10;

// One segment of a batch. Every address is a multiple of its elements' size.
struct Segment {
  uint64_t count = 0;  // In elements; there must be more than 0.
  // The values that were received, and are not scaled again; 0: there are none.
  DeviceAddress partial = 0;
  std::span<const DeviceAddress> sources;
  // All destinations get the same values. A destination may be a source or the partial, exactly and
  // of the same type; otherwise nothing overlaps.
  std::span<const DeviceAddress> destinations;
};

// Computes destination[i] = finish(partial[i] (op) prescale * source 0[i] (op) prescale * source
// 1[i] and so on), in this order: the arithmetic is that of daemon/reduce/kernels.h, and gives the
// same bits, except for the sign and payload of a NaN. Results of bool are 0 or 1. Complex numbers
// have neither a minimum nor a maximum.
//
// A batch without sources copies the partial to the destinations.
struct Batch {
  DType dtype = DType::kFloat32;  // The type of the sources, and of the sums.
  // These may be float16 or bfloat16, for values that travel, if `dtype` is float32. `dst_dtype`
  // may be set without a partial, or with a partial of the same type; nullopt means `dtype`.
  std::optional<DType> partial_dtype;
  std::optional<DType> dst_dtype;
  ReduceOp op = ReduceOp::kSum;
  double prescale = 1.0;
  double postscale = 1.0;
  int64_t divisor = 1;                // It is greater than 0, and divides a sum to make an average.
  std::span<const Segment> segments;  // A batch without segments does nothing.
};

// Returns the bytes of a table with this batch.
size_t table_bytes(const Batch& batch);

// Returns ok if a device can take the batch. Otherwise it returns kInvalidArgument, whose sentence
// says which segment is wrong and why: a kernel that gets an impossible batch costs the whole
// context.
Status check_batch(const Batch& batch);

}  // namespace rueda::gpu
