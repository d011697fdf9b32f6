// Draws a timeline: a row for each rank, and one for each stage of each node's data plane.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <utility>

#include "daemon/ctl/timeline.h"

namespace rueda::ctl {
namespace {

constexpr double kLeft = 170;
constexpr double kWidth = 1000;
constexpr double kTop = 66;
constexpr double kRow = 22;
constexpr double kBar = 16;

struct Colour {
  const char* name;
  const char* fill;
  const char* meaning;
};
// These colours are distinct to the colour-blind (Okabe and Ito).
constexpr Colour kColours[] = {
    {"FORWARD", "#56b4e9", "forward, input, optimizer"},
    {"BACKWARD", "#0072b2", "backward"},
    {"EXPOSED", "#d55e00", "exposed"},
    {"LOCAL_REDUCE", "#009e73", "local reduce"},
    {"RING", "#e69f00", "ring"},
    {"COPY_OUT", "#cc79a7", "copy out"},
    {"SEND", "#f0e442", "send"},
    {"RECEIVE", "#999999", "receive"},
};

const char* fill_of(const std::string& name) {
  for (const Colour& colour : kColours) {
    if (name == colour.name) return colour.fill;
  }
  return nullptr;
}

std::string number(double value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.2f", value);
  return text;
}

// Formats a number like "0", "2.5" or "100".
std::string short_number(double value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.6g", value);
  return text;
}

std::string escaped(const std::string& text) {
  std::string out;
  for (const char letter : text) {
    switch (letter) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      default: out += letter;
    }
  }
  return out;
}

std::string text_at(double x, double y, const std::string& text, const char* anchor) {
  return "<text x=\"" + number(x) + "\" y=\"" + number(y) + "\" text-anchor=\"" + anchor + "\">" +
         escaped(text) + "</text>\n";
}

std::string rectangle(double x, double y, double width, const char* fill) {
  return "<rect x=\"" + number(x) + "\" y=\"" + number(y) + "\" width=\"" + number(width) +
         "\" height=\"" + number(kBar) + "\" fill=\"" + fill + "\"/>\n";
}

std::string draw_row(const Timeline::Track& track, const std::string& label, const Span& window,
                     double y) {
  std::string out = text_at(kLeft - 8, y + kBar - 4, label, "end");
  const double scale = kWidth / (window.end_us - window.begin_us);
  for (const auto& [name, span] : track.spans) {
    const char* const fill = fill_of(name);
    const double begin_us = std::max(span.begin_us, window.begin_us);
    const double end_us = std::min(span.end_us, window.end_us);
    if (fill == nullptr || end_us <= begin_us) continue;
    // A span that is too short to be seen is drawn as a hairline.
    const double width = std::max((end_us - begin_us) * scale, 0.3);
    out += rectangle(kLeft + (begin_us - window.begin_us) * scale, y, width, fill);
  }
  return out;
}

// Draws the axis with about eight marks at round numbers.
std::string draw_axis(const Span& window, double bottom) {
  const double length_ms = (window.end_us - window.begin_us) / 1000;
  double step_ms = std::pow(10, std::floor(std::log10(length_ms / 8)));
  for (const double factor : {2.0, 2.5, 2.0}) {
    if (length_ms / step_ms > 10) step_ms *= factor;
  }
  std::string out;
  for (double at_ms = 0; at_ms <= length_ms; at_ms += step_ms) {
    const std::string x = number(kLeft + at_ms / length_ms * kWidth);
    out += "<line x1=\"" + x + "\" y1=\"" + number(kTop - 22) + "\" x2=\"" + x + "\" y2=\"" +
           number(bottom) + "\" stroke=\"#cccccc\"/>\n";
    out += text_at(kLeft + at_ms / length_ms * kWidth, kTop - 26, short_number(at_ms) + " ms",
                   "middle");
  }
  return out;
}

// Returns the last steps of the first rank, which define what is drawn; some may have no length.
Result<std::vector<StepSpan>> last_steps(const Timeline& timeline, int steps) {
  for (const auto& [rank, track] : timeline.ranks) {
    std::vector<StepSpan> found;
    for (const StepSpan& item : track.spans) {
      if (item.name.starts_with("STEP")) found.push_back(item);
    }
    if (found.empty()) continue;
    const auto count =
        static_cast<std::ptrdiff_t>(std::min(found.size(), static_cast<size_t>(steps)));
    found.erase(found.begin(), found.end() - count);
    if (found.back().span.end_us > found.front().span.begin_us) return found;
  }
  return Status(Code::kNotFound, "the timeline has no steps");
}

// Marks where steps begin, and numbers them as far as there is room.
std::string draw_steps(const std::vector<StepSpan>& steps, const Span& window, double bottom) {
  constexpr double kLabel = 50;
  std::string out;
  double free_from = 0;
  for (const StepSpan& step : steps) {
    const double x =
        kLeft + (step.span.begin_us - window.begin_us) / (window.end_us - window.begin_us) * kWidth;
    out += "<line x1=\"" + number(x) + "\" y1=\"" + number(kTop - 16) + "\" x2=\"" + number(x) +
           "\" y2=\"" + number(bottom) + "\" stroke=\"#666666\" stroke-dasharray=\"3 3\"/>\n";
    if (x < free_from) continue;
    out += text_at(x + 4, kTop - 6, "step" + step.name.substr(4), "start");
    free_from = x + kLabel;
  }
  return out;
}

bool is_seen(const Timeline::Track& track, const Span& window) {
  return std::any_of(track.spans.begin(), track.spans.end(), [&](const StepSpan& item) {
    return item.span.end_us >= window.begin_us && item.span.begin_us <= window.end_us;
  });
}

// Orders tracks as a tensor passes them.
int order_of(const Timeline::Track& track) {
  if (track.name.starts_with("local reduce")) return 0;
  return track.name.starts_with("ring") ? 1 : 2;
}

}  // namespace

Result<std::string> plot_svg(const Timeline& timeline, int steps) {
  const Result<std::vector<StepSpan>> found = last_steps(timeline, steps);
  if (!found.is_ok()) return found.status();
  const Span window{found.value().front().span.begin_us, found.value().back().span.end_us};
  const auto node_id = [&](int node) {
    const auto place = static_cast<size_t>(node);
    return place < timeline.node_ids.size() ? timeline.node_ids[place] : std::to_string(node);
  };
  double y = kTop;
  std::string rows;
  const auto add = [&](const Timeline::Track& track) {
    rows += draw_row(track, node_id(track.node) + " " + track.name, window, y);
    y += kRow;
  };
  for (const auto& [rank, track] : timeline.ranks) add(track);
  std::vector<Timeline::Track> stages;
  for (const Timeline::Track& track : timeline.stages) {
    if (is_seen(track, window)) stages.push_back(track);
  }
  std::stable_sort(stages.begin(), stages.end(), [](const auto& a, const auto& b) {
    return std::pair(a.node, order_of(a)) < std::pair(b.node, order_of(b));
  });
  int node = -1;
  for (const Timeline::Track& track : stages) {
    if (std::exchange(node, track.node) != track.node) y += kRow / 2;
    add(track);
  }
  std::string legend;
  double x = kLeft;
  for (const Colour& colour : kColours) {
    legend += rectangle(x, y + 8, 16, colour.fill);
    legend += text_at(x + 22, y + 8 + kBar - 4, colour.meaning, "start");
    x += colour.name == std::string("FORWARD") ? 190 : 125;
  }
  const std::string size =
      "width=\"" + number(kLeft + kWidth + 40) + "\" height=\"" + number(y + 40) + "\"";
  return "<svg xmlns=\"http://www.w3.org/2000/svg\" " + size +
         " font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" "
         "fill=\"white\"/>\n" +
         text_at(kLeft, 20, "job " + timeline.job, "start") + draw_axis(window, y) + rows +
         draw_steps(found.value(), window, y) + legend + "</svg>\n";
}

}  // namespace rueda::ctl
