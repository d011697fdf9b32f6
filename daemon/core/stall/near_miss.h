// Finds names that are almost the same: what a typing error, a counter that has lost its step, or a
// wrapper's prefix makes of a tensor's name.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace rueda::core {

// Returns how far apart two different names are if they are near misses of each other: the number
// of characters to insert, delete, replace or swap with their neighbour (Damerau 1964, adjacent
// swaps counted once), at most a third of the shorter name and at most 3. A name that is the other
// one behind a prefix and '.' or '/' ("module.fc.weight") is 1 away. Returns none if the names are
// no near misses, or are equal, or the budget is spent.
//
// `budget` is how many cells of tables of distances may still be computed, some nanoseconds each:
// what the comparison took is subtracted. Names are the users', as many and as long as they like.
std::optional<int> near_miss_distance(std::string_view one, std::string_view other,
                                      int64_t& budget);

}  // namespace rueda::core
