// Makes everything that docs/scale.md shows, in one go: the studies of times (this file) and those
// of the order traffic (order_studies.h).
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "bench/sim/run.h"

namespace rueda::scale {

// Names one cell of the sensitivity study: the parameters, changed in one way.
struct Variation {
  std::string name;  // "as it is", "jitter x2", ...
  double jitter = 1;
  double latency = 1;
  double lis = 0;  // is added to the network's window

  Parameters apply(Parameters parameters) const;
};
const std::vector<Variation>& variations();

// Returns the numbers of GPUs, from one node to all of Summit that the paper used: 6 to 24,576.
const std::vector<int>& sizes();

using Found = std::function<void(const std::string& study, const RunResult& result)>;

// Runs each network and mode at each size, scaled weakly ("weak"), and ResNet-50 strongly
// ("strong") from the paper's smallest size on.
void sweep_sizes(const RunSpec& base, const Found& found);
// Runs each network and mode on base.gpus under each variation but the first, by its name.
void sweep_variations(const RunSpec& base, const Found& found);
// Runs the services at the largest size in a world where nothing holds up their training processes,
// beside the baseline in the usual one: "undisturbed".
void sweep_undisturbed(const RunSpec& base, const Found& found);
// Runs each mode with ResNet-50 on more GPUs than anybody had: "100,000".
void sweep_beyond(const RunSpec& base, const Found& found);

}  // namespace rueda::scale
