// Finds the Kind for a batch's types and operator, and calls visitor.run<Kind>(). It has four
// parts, because nvcc compiles each separately. The batch must have passed check_batch().
#pragma once

#include "daemon/gpu/batch.h"
#include "daemon/gpu/element.h"

namespace rueda::gpu {

template <class Source, class Partial, class Dst, class Visitor>
auto visit_op(ReduceOp op, const Visitor& visitor) {
  switch (op) {
    case ReduceOp::kMin: return visitor.template run<Kind<Source, Partial, Dst, ReduceOp::kMin>>();
    case ReduceOp::kMax: return visitor.template run<Kind<Source, Partial, Dst, ReduceOp::kMax>>();
    case ReduceOp::kProduct:
      return visitor.template run<Kind<Source, Partial, Dst, ReduceOp::kProduct>>();
    default: return visitor.template run<Kind<Source, Partial, Dst, ReduceOp::kSum>>();
  }
}

template <class Element, class Visitor>
auto visit_same(ReduceOp op, const Visitor& visitor) {
  return visit_op<Element, Element, Element>(op, visitor);
}

// Visits float32 that travels as `Wire`.
template <class Wire, class Visitor>
auto visit_wire(const Batch& batch, const Visitor& visitor) {
  const bool is_rounded = batch.dst_dtype.value_or(DType::kFloat32) != DType::kFloat32;
  return is_rounded ? visit_op<Plain<float>, Wire, Wire>(batch.op, visitor)
                    : visit_op<Plain<float>, Wire, Plain<float>>(batch.op, visitor);
}

template <class Visitor>
auto visit_float32(const Batch& batch, const Visitor& visitor) {
  const DType dst = batch.dst_dtype.value_or(DType::kFloat32);
  const DType wire = dst == DType::kFloat32 ? batch.partial_dtype.value_or(DType::kFloat32) : dst;
  switch (wire) {
    case DType::kFloat16: return visit_wire<Half>(batch, visitor);
    case DType::kBFloat16: return visit_wire<Brain>(batch, visitor);
    default: return visit_same<Plain<float>>(batch.op, visitor);
  }
}

// Visits complex numbers, which have only sums and products.
template <class T, class Visitor>
auto visit_complex(ReduceOp op, const Visitor& visitor) {
  using Element = Plain<Complex<T>>;
  return op == ReduceOp::kProduct
             ? visitor.template run<Kind<Element, Element, Element, ReduceOp::kProduct>>()
             : visitor.template run<Kind<Element, Element, Element, ReduceOp::kSum>>();
}

template <class Visitor>
auto visit_other_floats(const Batch& batch, const Visitor& visitor) {
  switch (batch.dtype) {
    case DType::kFloat16: return visit_same<Half>(batch.op, visitor);
    case DType::kBFloat16: return visit_same<Brain>(batch.op, visitor);
    case DType::kComplex64: return visit_complex<float>(batch.op, visitor);
    case DType::kComplex128: return visit_complex<double>(batch.op, visitor);
    default: return visit_same<Plain<double>>(batch.op, visitor);
  }
}

// Visits bool: sum and maximum are or, product and minimum are and.
template <class Visitor>
auto visit_bool(ReduceOp op, const Visitor& visitor) {
  return op == ReduceOp::kMin || op == ReduceOp::kProduct
             ? visitor.template run<Kind<Bool, Bool, Bool, ReduceOp::kMin>>()
             : visitor.template run<Kind<Bool, Bool, Bool, ReduceOp::kMax>>();
}

template <class Visitor>
auto visit_signed(const Batch& batch, const Visitor& visitor) {
  switch (batch.dtype) {
    case DType::kInt8: return visit_same<Plain<int8_t>>(batch.op, visitor);
    case DType::kInt16: return visit_same<Plain<int16_t>>(batch.op, visitor);
    case DType::kInt32: return visit_same<Plain<int32_t>>(batch.op, visitor);
    default: return visit_same<Plain<int64_t>>(batch.op, visitor);
  }
}

// Visits unsigned integers and bool.
template <class Visitor>
auto visit_unsigned(const Batch& batch, const Visitor& visitor) {
  switch (batch.dtype) {
    case DType::kUInt8: return visit_same<Plain<uint8_t>>(batch.op, visitor);
    case DType::kUInt16: return visit_same<Plain<uint16_t>>(batch.op, visitor);
    case DType::kUInt32: return visit_same<Plain<uint32_t>>(batch.op, visitor);
    case DType::kUInt64: return visit_same<Plain<uint64_t>>(batch.op, visitor);
    default: return visit_bool(batch.op, visitor);
  }
}

}  // namespace rueda::gpu
