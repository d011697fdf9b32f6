#include "daemon/engine/ports/nonfinite.h"

#include <array>
#include <tuple>

namespace rueda::engine {

bool comes_before(const Nonfinite& a, const Nonfinite& b) {
  const auto order = [](const Nonfinite& value) {
    return std::tie(value.step, value.rank, value.submission, value.element);
  };
  return order(a) < order(b);
}

std::string describe(const Nonfinite& value, const std::string& node_id) {
  static constexpr std::array<const char*, kNonfiniteKindCount> kNames{"NaN", "infinity",
                                                                       "-infinity"};
  const std::string set =
      value.process_set == 0 ? "" : " of process set " + std::to_string(value.process_set);
  return "rank " + std::to_string(value.rank.value) + " on node " + node_id + " gave " +
         kNames[static_cast<size_t>(value.kind)] + " in element " + std::to_string(value.element) +
         " of tensor \"" + value.tensor + "\"" + set + " in step " + std::to_string(value.step);
}

}  // namespace rueda::engine
