#include "daemon/core/stall/near_miss.h"

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

// Returns the distance, or `limit` + 1 if it is more than `limit`. The table of distances between
// prefixes is computed row by row, and of each row only what is no further from the diagonal than
// `limit` (Ukkonen 1985): the rest is more than that anyway.
size_t edit_distance(std::string_view one, std::string_view other, size_t limit, int64_t& budget) {
  const size_t far = limit + 1;
  std::vector<size_t> before_last(other.size() + 1, far);
  std::vector<size_t> last(other.size() + 1, far);
  std::vector<size_t> row(other.size() + 1, far);
  for (size_t k = 0; k <= std::min(limit, other.size()); ++k) row[k] = k;
  budget -= static_cast<int64_t>(3 * other.size());
  for (size_t i = 1; i <= one.size(); ++i) {
    std::swap(before_last, last);
    std::swap(last, row);
    const size_t begin = i > limit ? i - limit : 0;
    const size_t end = std::min(i + limit, other.size());
    budget -= static_cast<int64_t>(2 * limit + 1);
    if (begin > 0) row[begin - 1] = far;  // An earlier row may have left a value here.
    size_t nearest = far;
    for (size_t k = begin; k <= end; ++k) {
      if (k == 0) {
        row[k] = i;
      } else {
        const size_t replaced = last[k - 1] + (one[i - 1] == other[k - 1] ? 0 : 1);
        const size_t inserted = k == i + limit ? far : last[k] + 1;
        row[k] = std::min({inserted, row[k - 1] + 1, replaced});
        const bool is_swapped =
            i > 1 && k > 1 && one[i - 1] == other[k - 2] && one[i - 2] == other[k - 1];
        if (is_swapped) row[k] = std::min(row[k], before_last[k - 2] + 1);
      }
      nearest = std::min(nearest, row[k]);
    }
    if (nearest > limit) return far;
  }
  return std::min(row[other.size()], far);
}

}  // namespace

std::optional<int> near_miss_distance(std::string_view one, std::string_view other,
                                      int64_t& budget) {
  if (budget-- <= 0) return std::nullopt;
  if (one.size() < other.size()) std::swap(one, other);
  if (one == other) return std::nullopt;
  if (is_behind_prefix(one, other)) return 1;
  const size_t limit = std::min(other.size() / 3, kMaxDistance);
  if (limit == 0 || one.size() - other.size() > limit) return std::nullopt;
  const size_t distance = edit_distance(one, other, limit, budget);
  if (distance > limit) return std::nullopt;
  return static_cast<int>(distance);
}

}  // namespace rueda::core
