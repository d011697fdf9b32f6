#include "daemon/core/near_miss.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace rueda::core {
namespace {

constexpr size_t kMaxDistance = 3;

bool is_behind_prefix(std::string_view longer, std::string_view shorter) {
  if (shorter.empty() || longer.size() <= shorter.size() || !longer.ends_with(shorter)) {
    return false;
  }
  const char before = longer[longer.size() - shorter.size() - 1];
  return before == '.' || before == '/';
}

// Row by row of the table of distances between prefixes; more than `limit` is `limit` + 1.
size_t edit_distance(std::string_view one, std::string_view other, size_t limit) {
  std::vector<size_t> before_last;
  std::vector<size_t> last(other.size() + 1);
  std::vector<size_t> row(other.size() + 1);
  for (size_t k = 0; k <= other.size(); ++k) row[k] = k;
  for (size_t i = 1; i <= one.size(); ++i) {
    before_last = std::exchange(last, row);
    row[0] = i;
    for (size_t k = 1; k <= other.size(); ++k) {
      const size_t replaced = last[k - 1] + (one[i - 1] == other[k - 1] ? 0 : 1);
      row[k] = std::min({last[k] + 1, row[k - 1] + 1, replaced});
      const bool is_swapped =
          i > 1 && k > 1 && one[i - 1] == other[k - 2] && one[i - 2] == other[k - 1];
      if (is_swapped) row[k] = std::min(row[k], before_last[k - 2] + 1);
    }
    if (*std::min_element(row.begin(), row.end()) > limit) return limit + 1;
  }
  return row.back();
}

}  // namespace

std::optional<int> near_miss_distance(std::string_view one, std::string_view other) {
  if (one.size() < other.size()) std::swap(one, other);
  if (one == other) return std::nullopt;
  if (is_behind_prefix(one, other)) return 1;
  const size_t limit = std::min(other.size() / 3, kMaxDistance);
  if (limit == 0 || one.size() - other.size() > limit) return std::nullopt;
  const size_t distance = edit_distance(one, other, limit);
  if (distance > limit) return std::nullopt;
  return static_cast<int>(distance);
}

}  // namespace rueda::core
