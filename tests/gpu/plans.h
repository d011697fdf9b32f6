// Lists the plans that every reduction is tested with: on each device, and for the CUDA kernel's
// text alone.
#pragma once

#include <cstdint>
#include <functional>

#include "tests/gpu/batches.h"

namespace rueda::gpu {

inline constexpr DType kAllDTypes[] = {
    DType::kFloat32, DType::kFloat64, DType::kFloat16, DType::kBFloat16,  DType::kInt32,
    DType::kInt64,   DType::kInt8,    DType::kUInt8,   DType::kBool,      DType::kInt16,
    DType::kUInt16,  DType::kUInt32,  DType::kUInt64,  DType::kComplex64, DType::kComplex128};
inline constexpr ReduceOp kAllOps[] = {ReduceOp::kSum, ReduceOp::kAverage, ReduceOp::kMin,
                                       ReduceOp::kMax, ReduceOp::kProduct};

using UsePlan = std::function<void(const BatchPlan& plan)>;

// Visits every dtype, operator and number of sources from 1 to 8.
inline void for_each_plain_plan(const UsePlan& use) {
  for (const DType dtype : kAllDTypes) {
    for (const ReduceOp op : kAllOps) {
      if (dtype == DType::kBool && op == ReduceOp::kAverage) continue;
      if (!has_operator(dtype, op)) continue;
      for (size_t sources = 1; sources <= 8; ++sources) {
        BatchPlan plan{.dtype = dtype, .op = op, .sources = sources, .counts = odd_counts()};
        plan.destinations = 1 + sources % 3;
        plan.lie_alike = sources % 2 == 0;
        plan.is_in_place = sources % 3 == 0;
        use(plan);
      }
    }
  }
}

// Visits plans with partials, scales and wire types, and with nothing but a partial.
inline void for_each_other_plan(const UsePlan& use) {
  for (const DType dtype : kAllDTypes) {
    const bool is_bool = dtype == DType::kBool;
    BatchPlan plan{.dtype = dtype, .has_partial = true, .sources = 0, .counts = odd_counts()};
    plan.destinations = 8;
    use(plan);
    plan.lie_alike = false;
    use(plan);
    plan.sources = 3;
    plan.destinations = 2;
    use(plan);
    plan.is_in_place = plan.lie_alike = true;
    use(plan);
    plan.divisor = is_bool ? 1 : 6;
    use(plan);
    plan.prescale = is_bool ? 1.0 : 0.3;
    use(plan);
    plan.postscale = is_bool ? 1.0 : -2.5;
    plan.divisor = is_bool ? 1 : 8;
    use(plan);
    plan.has_partial = plan.is_in_place = false;
    use(plan);
  }
}

// Visits plans of float32 that travels rounded: sent first, passed on, received last, scattered.
inline void for_each_wire_plan(const UsePlan& use) {
  for (const DType wire : {DType::kFloat16, DType::kBFloat16}) {
    for (const bool lie_alike : {true, false}) {
      BatchPlan plan{.sources = 2, .counts = odd_counts(), .lie_alike = lie_alike};
      plan.dst_dtype = wire;
      use(plan);
      plan.prescale = 0.3;
      use(plan);
      plan.partial_dtype = wire;
      plan.has_partial = true;
      use(plan);
      plan.is_in_place = true;
      use(plan);
      plan.op = ReduceOp::kMax;
      use(plan);
      plan.is_in_place = false;
      plan.dst_dtype.reset();
      plan.op = ReduceOp::kSum;
      plan.divisor = 3;
      use(plan);
      use({.partial_dtype = wire,
           .has_partial = true,
           .sources = 0,
           .destinations = 4,
           .counts = odd_counts(),
           .lie_alike = lie_alike});
    }
  }
}

}  // namespace rueda::gpu
