#include "daemon/gpu/batch.h"

#include <string>

namespace rueda::gpu {
namespace {

Status refused(const std::string& what) {
  return {Code::kInvalidArgument, "the device cannot take this batch: " + what};
}

std::string name(size_t segment) { return "segment " + std::to_string(segment); }

bool is_rounding_of(DType rounded, DType dtype) {
  return dtype == DType::kFloat32 && (rounded == DType::kFloat16 || rounded == DType::kBFloat16);
}

Status check_types(const Batch& batch, bool has_partial) {
  const DType partial = batch.partial_dtype.value_or(batch.dtype);
  const DType dst = batch.dst_dtype.value_or(batch.dtype);
  if (static_cast<int>(batch.dtype) >= kDTypeCount) return refused("its dtype does not exist");
  if (static_cast<int>(batch.op) >= kElementwiseOpCount) {
    return refused("its operator does not go element by element");
  }
  if (!has_operator(batch.dtype, batch.op)) {
    return refused(std::string(to_string(batch.dtype)) + " has no " + to_string(batch.op));
  }
  for (const DType other : {partial, dst}) {
    if (other != batch.dtype && !is_rounding_of(other, batch.dtype)) {
      return refused(std::string(to_string(batch.dtype)) + " does not travel as " +
                     to_string(other));
    }
  }
  if (has_partial && dst != batch.dtype && dst != partial) {
    return refused("what is received and what is sent have different types");
  }
  return Status::ok();
}

Status check_scales(const Batch& batch) {
  if (batch.divisor <= 0) return refused("its divisor is " + std::to_string(batch.divisor));
  const bool is_scaled = batch.prescale != 1.0 || batch.postscale != 1.0 || batch.divisor != 1;
  if (batch.dtype == DType::kBool && (is_scaled || batch.op == ReduceOp::kAverage)) {
    return refused("bool has neither scales nor averages");
  }
  return Status::ok();
}

// Returns true for a valid address. Zero is none, and neither is one whose range wraps around.
bool is_address(DeviceAddress address, DType dtype, uint64_t count) {
  const uint64_t size = element_bytes(dtype);
  return address != 0 && address % size == 0 && count <= (UINT64_MAX - address) / size;
}

Status check_segment(const Batch& batch, size_t index) {
  const Segment& segment = batch.segments[index];
  const Segment& first = batch.segments[0];
  if (segment.count == 0) return refused(name(index) + " is empty");
  if (segment.sources.size() != first.sources.size() ||
      segment.destinations.size() != first.destinations.size() ||
      (segment.partial == 0) != (first.partial == 0)) {
    return refused(name(index) + " has other sources or destinations than the first");
  }
  const DType dst = batch.dst_dtype.value_or(batch.dtype);
  const DType partial = batch.partial_dtype.value_or(batch.dtype);
  bool are_addresses = segment.partial == 0 || is_address(segment.partial, partial, segment.count);
  for (const DeviceAddress source : segment.sources) {
    are_addresses = are_addresses && is_address(source, batch.dtype, segment.count);
  }
  for (const DeviceAddress destination : segment.destinations) {
    are_addresses = are_addresses && is_address(destination, dst, segment.count);
  }
  if (!are_addresses) {
    return refused(name(index) +
                   " has an address that is zero, runs over the end, or is no "
                   "multiple of the size of an element");
  }
  return Status::ok();
}

}  // namespace

size_t table_bytes(const Batch& batch) {
  if (batch.segments.empty()) return 0;
  const Segment& first = batch.segments[0];
  constexpr size_t kOthers = 4;  // The other words are the first tile, count, head and partial.
  return batch.segments.size() * sizeof(uint64_t) *
         (kOthers + first.sources.size() + first.destinations.size());
}

Status check_batch(const Batch& batch) {
  if (batch.segments.empty()) return Status::ok();
  const Segment& first = batch.segments[0];
  const bool has_partial = first.partial != 0;
  if (!has_partial && first.sources.empty()) return refused("it has no sources");
  if (first.sources.size() > kMaxSources || first.destinations.size() > kMaxDestinations) {
    return refused("it has more than " + std::to_string(kMaxSources) + " sources or " +
                   std::to_string(kMaxDestinations) + " destinations");
  }
  if (first.destinations.empty()) return refused("it has no destinations");
  if (Status status = check_types(batch, has_partial); !status.is_ok()) return status;
  if (Status status = check_scales(batch); !status.is_ok()) return status;
  for (size_t i = 0; i < batch.segments.size(); ++i) {
    if (Status status = check_segment(batch, i); !status.is_ok()) return status;
  }
  if (table_bytes(batch) > kMaxTableBytes) {
    return refused("its table has " + std::to_string(table_bytes(batch)) + " bytes, more than " +
                   std::to_string(kMaxTableBytes) + "; split it");
  }
  return Status::ok();
}

}  // namespace rueda::gpu
