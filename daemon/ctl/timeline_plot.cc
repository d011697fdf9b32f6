// The picture of a timeline: a row for each rank, and one for each stage of each node's data plane.

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "daemon/ctl/timeline.h"

namespace rueda::ctl {
namespace {

constexpr double kLeft = 170;
constexpr double kWidth = 1000;
constexpr double kTop = 50;
constexpr double kRow = 22;
constexpr double kBar = 16;

struct Colour {
  const char* name;
  const char* fill;
  const char* meaning;
};
// Distinct to the colour-blind (Okabe and Ito).
constexpr Colour kColours[] = {
    {"FORWARD", "#56b4e9", "forward, input, optimizer"},
    {"BACKWARD", "#0072b2", "backward"},
    {"EXPOSED", "#d55e00", "exposed"},
    {"LOCAL_REDUCE", "#009e73", "local reduce"},
    {"RING", "#e69f00", "ring"},
    {"COPY_OUT", "#cc79a7", "copy out"},
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
    // What is too short to be seen is drawn as a hairline.
    const double width = std::max((end_us - begin_us) * scale, 0.3);
    out += rectangle(kLeft + (begin_us - window.begin_us) * scale, y, width, fill);
  }
  return out;
}

// At round numbers, some eight of them.
std::string draw_axis(const Span& window, double bottom) {
  const double length_ms = (window.end_us - window.begin_us) / 1000;
  double step_ms = std::pow(10, std::floor(std::log10(length_ms / 8)));
  for (const double factor : {2.0, 2.5, 2.0}) {
    if (length_ms / step_ms > 10) step_ms *= factor;
  }
  std::string out;
  for (double at_ms = 0; at_ms <= length_ms; at_ms += step_ms) {
    const std::string x = number(kLeft + at_ms / length_ms * kWidth);
    out += "<line x1=\"" + x + "\" y1=\"" + number(kTop - 4) + "\" x2=\"" + x + "\" y2=\"" +
           number(bottom) + "\" stroke=\"#cccccc\"/>\n";
    out += text_at(kLeft + at_ms / length_ms * kWidth, kTop - 10, number(at_ms) + " ms", "middle");
  }
  return out;
}

// From the beginning of the first of the rank's last steps to the end of the last.
Result<Span> window_of(const Timeline& timeline, int steps) {
  for (const auto& [rank, track] : timeline.ranks) {
    std::vector<Span> found;
    for (const auto& [name, span] : track.spans) {
      if (name.starts_with("STEP")) found.push_back(span);
    }
    if (found.empty()) continue;
    const size_t count = std::min(found.size(), static_cast<size_t>(steps));
    const Span window{found[found.size() - count].begin_us, found.back().end_us};
    if (window.end_us > window.begin_us) return window;
  }
  return Status(Code::kNotFound, "the timeline has no steps");
}

}  // namespace

Result<std::string> plot_svg(const Timeline& timeline, int steps) {
  const Result<Span> found = window_of(timeline, steps);
  if (!found.is_ok()) return found.status();
  const Span& window = found.value();
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
  y += kRow / 2;
  for (const Timeline::Track& track : timeline.stages) add(track);
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
         text_at(kLeft, 20, "job " + timeline.job, "start") + draw_axis(window, y) + rows + legend +
         "</svg>\n";
}

}  // namespace rueda::ctl
