// A timeline file (docs/timeline.md), read again: where the time of its steps went, and a picture.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "daemon/base/status.h"

namespace rueda::ctl {

// Microseconds on the file's clock.
struct Span {
  double begin_us = 0;
  double end_us = 0;
};

// What a track shows, where it is one of a rank or of a stage of the data plane.
struct StepSpan {
  std::string name;  // "FORWARD", ..., or the stage
  Span span;
};

struct Timeline {
  struct Track {
    int node = 0;
    std::string name;  // "rank 3", "ring 0"
    std::vector<StepSpan> spans;
  };
  struct Ready {
    int rank = 0;
    double at_us = 0;
  };
  std::string job;
  std::vector<std::string> node_ids;
  uint64_t dropped_events = 0;
  double clock_error_us = 0;  // the largest of a node
  std::map<int, Track> ranks;
  std::vector<Track> stages;  // ascending by node, then name
  // By node: when some tensor that all ranks had submitted was on its way; disjoint and ascending.
  std::map<int, std::vector<Span>> busy;
  // Of each tensor of each operation: when the ranks of all nodes had submitted it.
  std::vector<std::vector<Ready>> ready;

  static Result<Timeline> read(const std::string& path);
};

// Means over the steps of one rank but for its first, of which nobody saw the beginning.
struct RankSummary {
  int rank = 0;
  int node = 0;
  int steps = 0;
  double step_ms = 0;
  double forward_ms = 0;
  double backward_ms = 0;
  double exposed_ms = 0;  // something is on its way, and the rank has nothing else to do
  double idle_ms = 0;     // nor is anything: other ranks are not ready
  int times_last = 0;     // of tensors
  double held_up_ms = 0;  // in total: by how much it was the last, after the last but one
};
std::vector<RankSummary> summarise(const Timeline& timeline);

std::string summary_table(const Timeline& timeline, const std::vector<RankSummary>& ranks);
nlohmann::ordered_json summary_json(const Timeline& timeline,
                                    const std::vector<RankSummary>& ranks);

// The last steps, so many of them, as SVG. kNotFound: there are no steps.
Result<std::string> plot_svg(const Timeline& timeline, int steps);

}  // namespace rueda::ctl
