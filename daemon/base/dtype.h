// Element types and reduction operators. The numbers are part of the ABI (client/abi/rueda_abi.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace rueda {

enum class DType : uint8_t {
  kFloat32 = 0,
  kFloat64 = 1,
  kFloat16 = 2,   // It is IEEE binary16.
  kBFloat16 = 3,  // It is the upper half of a float32.
  kInt32 = 4,
  kInt64 = 5,
  kInt8 = 6,
  kUInt8 = 7,
  kBool = 8,  // It is a byte: 0 is false, any other is true, results are 0 or 1.
  kInt16 = 9,
  kUInt16 = 10,
  kUInt32 = 11,
  kUInt64 = 12,
  kComplex64 = 13,   // It is two float32: the real part, then the imaginary part.
  kComplex128 = 14,  // It is two float64.
};
inline constexpr int kDTypeCount = 15;

enum class ReduceOp : uint8_t {
  kSum = 0,      // For bool it is "or", as NumPy adds.
  kAverage = 1,  // The sum / number of contributors; integers round towards zero; bool has none.
  // NaN in any contribution gives NaN. For bool the minimum is "and", and the maximum "or"; complex
  // numbers have no order, and so neither of the two.
  kMin = 2,
  kMax = 3,
  kProduct = 4,  // For bool it is "and".
  kAdasum = 5,   // It works tensor by tensor, by direction (reduce/adasum.h); see can_be_adasum().
};
inline constexpr int kReduceOpCount = 6;
// The operators before kAdasum work element by element.
inline constexpr int kElementwiseOpCount = 5;

// The type to which values of a reduction are rounded where they cross the network.
enum class WireDType : uint8_t {
  kSame = 0,  // Nothing is rounded.
  kFloat16 = 1,
  kBFloat16 = 2,
};
inline constexpr int kWireDTypeCount = 3;

// The kind of memory that a tensor's elements are in.
enum class MemorySpace : uint8_t {
  kHost = 0,
  kDevice = 1,  // Memory of a GPU.
  // The elements are on a GPU, in a job that leaves it to NCCL what goes between nodes. This value
  // is not part of the ABI, because it is the daemons who agree on it.
  kDeviceNccl = 2,
};
inline constexpr int kMemorySpaceCount = 3;

enum class CollectiveKind : uint8_t {
  kAllreduce = 0,
  kBroadcast = 1,
  kBarrier = 2,
  // Changes of the job itself: they move no data, and take effect at their place in the order.
  kAddProcessSet = 3,
  kRemoveProcessSet = 4,
  kDeclarePlan = 5,
  // The rank has no more data. A join moves no data either, and ends when all ranks have joined.
  kJoin = 6,
  kAllgather = 7,      // Everybody gets the parts of all, one after the other.
  kReduce = 8,         // The root gets the reduced values.
  kReduceScatter = 9,  // Each rank gets its part of the reduced values.
  kAlltoall = 10,      // Each rank gets its part of what every rank gives.
  kGather = 11,        // The root gets the parts of all.
  kScatter = 12,       // Each rank gets its part of what the root gives.
  // The two halves of a message from one rank to another. They are in no order of operations, and
  // are never interned (core/job/transfers.h).
  kSend = 13,
  kReceive = 14,
};
inline constexpr int kCollectiveKindCount = 15;

// Returns whether this is a half of a message from one rank to another.
constexpr bool is_transfer(CollectiveKind kind) {
  return kind == CollectiveKind::kSend || kind == CollectiveKind::kReceive;
}

constexpr bool moves_data(CollectiveKind kind) {
  return kind < CollectiveKind::kAddProcessSet || kind > CollectiveKind::kJoin;
}
// Returns whether one rank gives or gets what others do not.
constexpr bool has_root(CollectiveKind kind) {
  return kind == CollectiveKind::kBroadcast || kind == CollectiveKind::kReduce ||
         kind == CollectiveKind::kGather || kind == CollectiveKind::kScatter;
}
// Returns whether values of several ranks become one.
constexpr bool reduces(CollectiveKind kind) {
  return kind == CollectiveKind::kAllreduce || kind == CollectiveKind::kReduce ||
         kind == CollectiveKind::kReduceScatter;
}
// Returns whether each rank has a part of the values to itself, given or got (base/parts.h).
constexpr bool has_parts(CollectiveKind kind) {
  return kind == CollectiveKind::kAllgather || kind == CollectiveKind::kReduceScatter ||
         kind == CollectiveKind::kAlltoall || kind == CollectiveKind::kGather ||
         kind == CollectiveKind::kScatter;
}

// Returns the bytes of one element.
constexpr size_t element_bytes(DType dtype) {
  switch (dtype) {
    case DType::kComplex128: return 16;
    case DType::kFloat64:
    case DType::kInt64:
    case DType::kUInt64:
    case DType::kComplex64: return 8;
    case DType::kFloat32:
    case DType::kInt32:
    case DType::kUInt32: return 4;
    case DType::kFloat16:
    case DType::kBFloat16:
    case DType::kInt16:
    case DType::kUInt16: return 2;
    case DType::kInt8:
    case DType::kUInt8:
    case DType::kBool: return 1;
  }
  return 0;
}

// Returns the type in which elements of `dtype` travel between nodes.
constexpr DType dtype_on_wire(DType dtype, WireDType wire) {
  switch (wire) {
    case WireDType::kSame: return dtype;
    case WireDType::kFloat16: return DType::kFloat16;
    case WireDType::kBFloat16: return DType::kBFloat16;
  }
  return dtype;
}
// Returns whether a collective on elements of this type can have a wire dtype of its own.
constexpr bool can_be_rounded(CollectiveKind kind, DType dtype) {
  return reduces(kind) && dtype == DType::kFloat32;
}

constexpr bool is_floating(DType dtype) {
  return dtype == DType::kFloat32 || dtype == DType::kFloat64 || dtype == DType::kFloat16 ||
         dtype == DType::kBFloat16;
}
constexpr bool is_complex(DType dtype) {
  return dtype == DType::kComplex64 || dtype == DType::kComplex128;
}
// Returns the type of the numbers that an element consists of, and how many they are: two for a
// complex number, otherwise the element itself. What treats these numbers alike (a sum, an average,
// a scale, a search for NaN) needs no code for complex numbers.
constexpr DType component_dtype(DType dtype) {
  if (!is_complex(dtype)) return dtype;
  return dtype == DType::kComplex64 ? DType::kFloat32 : DType::kFloat64;
}
constexpr size_t components_of(DType dtype) { return is_complex(dtype) ? 2 : 1; }

// Returns whether an operator that works element by element exists for this type.
constexpr bool has_operator(DType dtype, ReduceOp op) {
  return !is_complex(dtype) || (op != ReduceOp::kMin && op != ReduceOp::kMax);
}
// Returns whether a collective on elements of this type can have the operator kAdasum.
constexpr bool can_be_adasum(CollectiveKind kind, DType dtype) {
  return kind == CollectiveKind::kAllreduce && is_floating(dtype);
}

// Returns whether a collective can be carried out on memory of a GPU.
constexpr bool can_be_on_device(CollectiveKind kind, ReduceOp op) {
  return kind == CollectiveKind::kBroadcast ||
         (kind == CollectiveKind::kAllreduce && op != ReduceOp::kAdasum);
}

// Returns whether NCCL can carry out a collective on memory of a GPU: it has neither integers of 16
// bits nor complex numbers, of which it can add the components.
constexpr bool can_be_by_nccl(CollectiveKind kind, DType dtype, ReduceOp op) {
  if (!can_be_on_device(kind, op)) return false;
  if (kind == CollectiveKind::kBroadcast) return true;
  if (is_complex(dtype)) return op == ReduceOp::kSum || op == ReduceOp::kAverage;
  return dtype != DType::kInt16 && dtype != DType::kUInt16;
}

// Returns whether the type is of numbers that wrap and truncate; bool is not.
constexpr bool is_integer(DType dtype) {
  return !is_floating(dtype) && !is_complex(dtype) && dtype != DType::kBool;
}

const char* to_string(DType dtype);
const char* to_string(ReduceOp op);
const char* to_string(WireDType wire);
const char* to_string(MemorySpace space);
const char* to_string(CollectiveKind kind);

}  // namespace rueda
