// Reads a timeline file (docs/timeline.md), sums up where the time of its steps went, and draws it.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "daemon/base/status.h"

namespace rueda::ctl {

// Times are in microseconds on the file's clock.
struct Span {
  double begin_us = 0;
  double end_us = 0;
};

// A span of a track, which is that of a rank or of a stage of the data plane.
struct StepSpan {
  std::string name;  // "FORWARD" and so on, or the stage
  Span span;
};

struct Timeline {
  struct Track {
    int node = 0;
    std::string name;  // "rank 3" or "ring 0"
    std::vector<StepSpan> spans;
  };
  struct Ready {
    int rank = 0;
    double at_us = 0;
  };
  std::string job;
  std::vector<std::string> node_ids;
  uint64_t dropped_events = 0;
  double clock_error_us = 0;  // the largest error of a node
  std::map<int, Track> ranks;
  std::vector<Track> stages;  // ascending by node, then name
  // The times when some tensor that all ranks had submitted was under way, by node; the spans are
  // disjoint and ascending.
  std::map<int, std::vector<Span>> busy;
  // The times when the ranks of all nodes had submitted a tensor, for each tensor of each
  // operation.
  std::vector<std::vector<Ready>> ready;

  static Result<Timeline> read(const std::string& path);
};

// Means over the steps of one rank, except for its first step, whose beginning is not in the file.
struct RankSummary {
  int rank = 0;
  int node = 0;
  int steps = 0;
  double step_ms = 0;
  double forward_ms = 0;
  double backward_ms = 0;
  double exposed_ms = 0;  // a tensor is under way, and the rank has nothing else to do
  double idle_ms = 0;     // no tensor is under way either: other ranks are not ready
  int times_last = 0;     // number of tensors that the rank was the last to submit
  double held_up_ms = 0;  // in total, the time by which the rank was later than the last but one
};
std::vector<RankSummary> summarise(const Timeline& timeline);

std::string summary_table(const Timeline& timeline, const std::vector<RankSummary>& ranks);
nlohmann::ordered_json summary_json(const Timeline& timeline,
                                    const std::vector<RankSummary>& ranks);

// Draws the last `steps` steps as SVG. Returns kNotFound if there are no steps.
Result<std::string> plot_svg(const Timeline& timeline, int steps);

}  // namespace rueda::ctl
