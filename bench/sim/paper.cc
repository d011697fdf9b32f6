#include "bench/sim/paper.h"

namespace rueda::scale {

const char* to_string(Over over) {
  switch (over) {
    case Over::kLargest: return "at 24,576 GPUs";
    case Over::kBest: return "at best";
    case Over::kRange: return "over sizes";
    case Over::kMean: return "on average";
  }
  return "unknown";
}

const std::vector<PaperValue>& paper_values() {
  constexpr bool kWeak = false;
  constexpr bool kStrong = true;
  static const std::vector<PaperValue> all{
      // Baseline.
      {"3", "III-C", "below linear", "resnet50", "baseline", kWeak, Over::kLargest, 3.3, 3.3},
      {"4", "III-C", "all-reduce, %", "resnet50", "baseline", kWeak, Over::kBest, 70.3, 70.3},
      {"5", "III-C", "idle, %", "resnet50", "baseline", kWeak, Over::kLargest, 67, 100},
      {"11", "V-A", "background, %", "resnet50", "baseline", kWeak, Over::kLargest, 46, 46},
      {"11", "V-A", "background, %", "resnet50", "topo", kWeak, Over::kLargest, 3.4, 3.4},
      // The four cures.
      {"10", "V-A", "gain, %", "resnet50", "global-sleep", kWeak, Over::kBest, 10, 10},
      {"10", "V-A", "gain, %", "resnet50", "nonblocking", kWeak, Over::kBest, 16, 16},
      {"10", "V-A", "gain, %", "resnet50", "scp", kWeak, Over::kBest, 18, 18},
      {"10", "V-A", "gain, %", "resnet50", "topo", kWeak, Over::kBest, 21, 21},
      // "Our optimizations improve performance by up to ~19 %": the best of the four.
      {"12", "V-A", "gain, %", "resnet50", "topo", kStrong, Over::kBest, 19, 19},
      // TOPO alone, on other networks. The range of the ResNets is one for all five together.
      {"13", "V-B", "gain, %", "resnet18", "topo", kWeak, Over::kRange, 5, 21},
      {"13", "V-B", "gain, %", "resnet34", "topo", kWeak, Over::kRange, 5, 21},
      {"13", "V-B", "gain, %", "resnet101", "topo", kWeak, Over::kRange, 5, 21},
      {"13", "V-B", "gain, %", "resnet152", "topo", kWeak, Over::kRange, 5, 21},
      {"13", "V-B", "gain, %", "googlenet-aux", "topo", kWeak, Over::kMean, 25, 25},
      {"13", "V-B", "gain, %", "googlenet-aux", "topo", kWeak, Over::kBest, 35, 35},
      {"13", "V-B", "gain, %", "inception3", "topo", kWeak, Over::kRange, 10, 18},
      {"13", "V-B", "gain, %", "vgg16", "topo", kWeak, Over::kRange, 2, 6},
      {"13", "V-B", "gain, %", "alexnet", "topo", kWeak, Over::kMean, -6, -6},
  };
  return all;
}

}  // namespace rueda::scale
