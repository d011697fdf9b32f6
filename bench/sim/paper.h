// Has what Pumma et al., "Alleviating Load Imbalance in Data Processing for Large-Scale Deep
// Learning", report: each number with the figure and the section that give it. The simulator is
// compared with these, like with like: "up to" with the best over sizes, TOPO with TOPO.
//
// The text gives numbers; the bars and curves of the figures themselves were not measured.
#pragma once

#include <vector>

namespace rueda::scale {

// Says over which runs a value is taken.
enum class Over {
  kLargest,  // 24,576 GPUs
  kBest,     // the best over all sizes: the paper's "up to"
  kRange,    // from the worst to the best over sizes
  kMean,     // the mean over sizes
};

struct PaperValue {
  const char* figure;
  const char* section;
  const char* quantity;  // "gain, %", "below linear", "all-reduce, %", "idle, %", "background, %"
  const char* network;
  const char* mode;
  bool strong;  // 24,576 images in all, from 96 GPUs on; otherwise 32 images a GPU
  Over over;
  double low;
  double high;  // is `low` unless the paper gives a range
};

const std::vector<PaperValue>& paper_values();
const char* to_string(Over over);

// Returns the smallest number of GPUs that the paper's figures of weak and of strong scaling have,
// as far as the text says: it says so of the strong ones (figure 12).
constexpr int kStrongFrom = 96;

}  // namespace rueda::scale
