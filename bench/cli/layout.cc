#include "bench/cli/layout.h"

namespace rueda::bench {
namespace {

// Checks a result that consists of one part of each rank's input, which begins at element `first`
// there; the parts lie one behind the other.
Verdict check_parts(const Layout& layout, const Scenario& scenario, size_t first,
                    const void* result) {
  const size_t part_bytes = layout.part() * element_bytes(scenario.dtype);
  const auto* bytes = static_cast<const std::byte*>(result);
  Verdict all;
  for (int rank = 0; rank < layout.nranks; ++rank) {
    const auto place = static_cast<size_t>(rank);
    Verdict one = check_copy(scenario, rank, first, layout.part(), bytes + place * part_bytes);
    one.index += place * layout.part() - first;
    all.merge(one);
  }
  return all;
}

}  // namespace

size_t Layout::input() const {
  if (work == Work::kAllgather || work == Work::kGather) return part();
  return work == Work::kScatter && rank != root ? 0 : count;
}

size_t Layout::output() const {
  if (work == Work::kReduceScatter || work == Work::kScatter) return part();
  const bool at_root_alone = work == Work::kReduce || work == Work::kGather;
  return at_root_alone && rank != root ? 0 : count;
}

size_t Layout::shape() const {
  return work == Work::kAllgather || work == Work::kGather ? part() : count;
}

Verdict check_result(const Layout& layout, const Scenario& scenario, const void* result) {
  if (layout.output() == 0) return {};
  const size_t own = static_cast<size_t>(layout.rank) * layout.part();
  switch (layout.work) {
    case Work::kReduceScatter: return check_reduction(scenario, own, layout.part(), result);
    case Work::kAllgather:
    case Work::kGather: return check_parts(layout, scenario, 0, result);
    case Work::kAlltoall: return check_parts(layout, scenario, own, result);
    case Work::kScatter: {
      Verdict verdict = check_copy(scenario, layout.root, own, layout.part(), result);
      verdict.index -= own;
      return verdict;
    }
    case Work::kBroadcast: return check_copy(scenario, layout.root, 0, layout.count, result);
    default: return check_reduction(scenario, 0, layout.count, result);
  }
}

}  // namespace rueda::bench
