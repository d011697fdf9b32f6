// Says how long a GPU computes a training step of each network, by the batch: from published speeds
// where there are any, and from multiply-adds where there are none.
#pragma once

#include <string>
#include <string_view>

namespace rueda::bench {

// The time of a step is a straight line over the batch. It has no network in it: it is what one GPU
// takes alone.
struct Compute {
  double fixed_ms = 0;
  double per_image_ms = 0;
  int usual_batch = 64;  // the largest batch of the source, or 64
  // Where the two numbers come from, as a sentence for reports.
  std::string source;
  bool is_published = false;

  double step_ms(int batch) const { return fixed_ms + per_image_ms * batch; }
  double images_per_s(int batch) const { return batch / step_ms(batch) * 1e3; }
};

// Returns the times on one NVIDIA P100 in single precision, with synthetic data. The name must be
// one of network_names().
const Compute& compute_on_p100(std::string_view network);

}  // namespace rueda::bench
