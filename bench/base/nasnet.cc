// Defines NASNet-A (6 @ 4032) of Zoph et al., "NASNet-large": three rows of six normal cells with a
// reduction cell between two rows, behind a stem of two reduction cells.
#include <string>

#include "bench/base/families.h"
#include "bench/base/layers.h"

namespace rueda::bench {
namespace {

// Describes what a cell gets from one before it.
struct Plane {
  int64_t channels = 0;
  int64_t side = 0;
};

class Cells {
 public:
  Plane stem() {
    layers_.conv("stem.conv", 3, 96, 3, 165);
    layers_.batch_norm("stem.bn", 96);
    return {96, 165};
  }

  // Both take what the two cells before have given, the newest first, and return what they give.
  Plane normal(const std::string& name, Plane last, Plane before, int64_t filters) {
    const Plane fitted = fit(name + ".fit", before, last.side, filters);
    squeeze(name, last, filters);
    separable(name + ".left1", filters, filters, 5, last.side);
    separable(name + ".right1", fitted.channels, filters, 3, last.side);
    separable(name + ".left2", fitted.channels, filters, 5, last.side);
    separable(name + ".right2", fitted.channels, filters, 3, last.side);
    separable(name + ".left5", filters, filters, 3, last.side);
    return {6 * filters, last.side};
  }
  Plane reduction(const std::string& name, Plane last, Plane before, int64_t filters,
                  int64_t side) {
    const Plane fitted = fit(name + ".fit", before, last.side, filters);
    squeeze(name, last, filters);
    separable(name + ".left1", filters, filters, 5, side);
    separable(name + ".right1", fitted.channels, filters, 7, side);
    separable(name + ".right2", fitted.channels, filters, 7, side);
    separable(name + ".right3", fitted.channels, filters, 5, side);
    separable(name + ".left4", filters, filters, 3, side);
    return {4 * filters, side};
  }

  ParameterList take(Plane last) {
    layers_.linear("fc", last.channels, 1000);
    return layers_.take();
  }

 private:
  // Adds the two separable convolutions that stand for one edge of a cell.
  void separable(const std::string& name, int64_t in, int64_t out, int64_t kernel, int64_t side) {
    for (const auto& [number, from] : {std::pair<const char*, int64_t>{"1", in}, {"2", out}}) {
      layers_.depthwise(name + ".depthwise" + number, from, kernel, side);
      layers_.conv(name + ".pointwise" + number, from, out, 1, side);
      layers_.batch_norm(name + ".bn" + number, out);
    }
  }
  void squeeze(const std::string& name, Plane last, int64_t filters) {
    layers_.conv(name + ".squeeze", last.channels, filters, 1, last.side);
    layers_.batch_norm(name + ".bn", filters);
  }
  // Brings what the cell before the last has given to the last one's side, and to `filters`
  // channels, if either differs. Nothing is before the first cell, which gets its one input twice.
  Plane fit(const std::string& name, Plane before, int64_t side, int64_t filters) {
    if (is_first_) {
      is_first_ = false;
      return before;
    }
    if (before.side != side) {
      layers_.conv(name + ".path1", before.channels, filters / 2, 1, side);
      layers_.conv(name + ".path2", before.channels, filters / 2, 1, side);
    } else if (before.channels != filters) {
      layers_.conv(name + ".conv", before.channels, filters, 1, side);
    } else {
      return before;
    }
    layers_.batch_norm(name + ".bn", filters);
    return {filters, side};
  }

  Layers layers_;
  bool is_first_ = true;
};

}  // namespace

ParameterList nasnet_large() {
  constexpr int64_t kFilters = 168;  // 4,032 channels at the end, by 24
  constexpr int kCells = 6;
  constexpr int64_t kSides[] = {42, 21, 11};
  Cells cells;
  Plane before = cells.stem();
  Plane last = cells.reduction("stem1", before, before, kFilters / 4, 83);
  const Plane second = cells.reduction("stem2", last, before, kFilters / 2, kSides[0]);
  before = last;
  last = second;
  for (int row = 0; row < 3; ++row) {
    const int64_t filters = kFilters << row;
    // A reduction cell leaves alone what the row's first cell gets from before it.
    if (row > 0) {
      last = cells.reduction("reduction" + std::to_string(row), last, before, filters, kSides[row]);
    }
    for (int cell = 0; cell < kCells; ++cell) {
      const Plane next =
          cells.normal("normal" + std::to_string(row * kCells + cell), last, before, filters);
      before = last;
      last = next;
    }
  }
  return cells.take(last);
}

}  // namespace rueda::bench
