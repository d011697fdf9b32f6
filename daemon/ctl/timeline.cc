#include "daemon/ctl/timeline.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <tuple>

#include <nlohmann/json.hpp>

#include "daemon/ctl/format.h"

namespace rueda::ctl {
namespace {

using nlohmann::json;

std::string milliseconds(double value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.2f", value);
  return text;
}

// Merges spans that overlap.
std::vector<Span> united(std::vector<Span> spans) {
  std::sort(spans.begin(), spans.end(),
            [](const Span& a, const Span& b) { return a.begin_us < b.begin_us; });
  std::vector<Span> out;
  for (const Span& span : spans) {
    if (!out.empty() && span.begin_us <= out.back().end_us) {
      out.back().end_us = std::max(out.back().end_us, span.end_us);
    } else {
      out.push_back(span);
    }
  }
  return out;
}

double overlap_us(const std::vector<Span>& spans, const Span& with) {
  double sum = 0;
  auto it = std::lower_bound(spans.begin(), spans.end(), with.begin_us,
                             [](const Span& span, double at) { return span.end_us <= at; });
  for (; it != spans.end() && it->begin_us < with.end_us; ++it) {
    sum += std::min(it->end_us, with.end_us) - std::max(it->begin_us, with.begin_us);
  }
  return sum;
}

using TrackKey = std::pair<int, int>;  // process, thread

// Names are read before the events, because they may come in any order.
void read_names(const json& events, std::map<TrackKey, std::string>& names) {
  for (const json& event : events) {
    if (event.at("ph") != "M" || event.at("name") != "thread_name") continue;
    names[{event.at("pid"), event.at("tid")}] = event.at("args").at("name");
  }
}

void read_events(const json& events, const std::map<TrackKey, std::string>& names,
                 Timeline& timeline) {
  using Tensor = std::tuple<std::string, int, std::string>;  // operation, process set, track
  std::vector<std::tuple<int, Tensor, Span>> operations;
  std::map<std::pair<int, std::string>, Timeline::Track> stages;
  std::map<Tensor, std::vector<Timeline::Ready>> ready;
  for (const json& event : events) {
    const std::string kind = event.at("ph");
    if (kind == "M") continue;
    const TrackKey key{event.at("pid"), event.at("tid")};
    const int node = key.first - 1;
    const std::string name = event.at("name");
    const double begin_us = event.at("ts");
    const std::string& track = names.at(key);
    const json& args = event.at("args");
    const Tensor tensor{args.value("operation", ""), args.value("process_set", 0), track};
    if (kind == "i") {
      if (args.contains("rank")) ready[tensor].push_back({args.at("rank"), begin_us});
      continue;
    }
    const Span span{begin_us, begin_us + event.at("dur").get<double>()};
    if (args.contains("step")) {
      Timeline::Track& rank = timeline.ranks[std::stoi(track.substr(5))];
      rank.node = node;
      rank.name = track;
      rank.spans.push_back({name, span});
    } else if (name == "LOCAL_REDUCE" || name == "RING" || name == "COPY_OUT" || name == "SEND" ||
               name == "RECEIVE") {
      Timeline::Track& stage = stages[{node, track}];
      stage.node = node;
      stage.name = track;
      stage.spans.push_back({name, span});
    } else if (name != "NEGOTIATE" && name != "QUEUE") {
      operations.emplace_back(node, tensor, span);
    }
  }
  for (auto& [node, tensor, span] : operations) {
    // A locked schedule launches an operation before other ranks have submitted it, and the
    // operation waits for them.
    for (const Timeline::Ready& mark : ready[tensor]) {
      span.begin_us = std::max(span.begin_us, mark.at_us);
    }
    if (span.begin_us < span.end_us) timeline.busy[node].push_back(span);
  }
  for (auto& [node, spans] : timeline.busy) spans = united(std::move(spans));
  for (auto& [key, stage] : stages) timeline.stages.push_back(std::move(stage));
  for (auto& [key, marks] : ready) timeline.ready.push_back(std::move(marks));
}

}  // namespace

Result<Timeline> Timeline::read(const std::string& path) {
  std::ifstream file(path);
  if (!file) {
    return Status(Code::kNotFound, "cannot read " + path + ": " + std::strerror(errno));
  }
  Timeline timeline;
  try {
    const json all = json::parse(file);
    std::map<TrackKey, std::string> names;
    read_names(all.at("traceEvents"), names);
    read_events(all.at("traceEvents"), names, timeline);
    const json& said = all.at("rueda");
    timeline.job = said.at("job");
    for (const json& node : said.at("nodes")) {
      timeline.node_ids.push_back(node.at("node_id"));
      timeline.dropped_events += node.at("dropped_events").get<uint64_t>();
      timeline.clock_error_us =
          std::max(timeline.clock_error_us, node.at("clock_error_us").get<double>());
    }
  } catch (const std::exception& error) {
    return Status(
        Code::kInvalidArgument,
        path + " is no whole timeline of Rueda's (" + error.what() +
            "): one that is being written ends with its job, or with ruedactl trace stop");
  }
  return timeline;
}

std::vector<RankSummary> summarise(const Timeline& timeline) {
  std::map<int, RankSummary> ranks;
  for (const auto& [number, track] : timeline.ranks) {
    RankSummary& rank = ranks[number];
    rank.rank = number;
    rank.node = track.node;
    int steps = 0;
    for (const auto& [name, span] : track.spans) {
      const double ms = (span.end_us - span.begin_us) / 1000;
      if (name.starts_with("STEP")) ++steps;
      if (steps == 1) continue;
      if (name.starts_with("STEP")) rank.step_ms += ms;
      if (name == "FORWARD") rank.forward_ms += ms;
      if (name == "BACKWARD") rank.backward_ms += ms;
      if (name != "EXPOSED") continue;
      const auto busy = timeline.busy.find(track.node);
      const double own_ms = busy == timeline.busy.end() ? 0 : overlap_us(busy->second, span) / 1000;
      rank.exposed_ms += own_ms;
      rank.idle_ms += ms - own_ms;
    }
    rank.steps = std::max(steps - 1, 0);
    const double count = std::max(rank.steps, 1);
    for (double* mean :
         {&rank.step_ms, &rank.forward_ms, &rank.backward_ms, &rank.exposed_ms, &rank.idle_ms}) {
      *mean /= count;
    }
  }
  for (std::vector<Timeline::Ready> marks : timeline.ready) {
    if (marks.size() < 2) continue;
    std::sort(marks.begin(), marks.end(),
              [](const auto& a, const auto& b) { return a.at_us < b.at_us; });
    RankSummary& last = ranks[marks.back().rank];
    last.rank = marks.back().rank;
    ++last.times_last;
    last.held_up_ms += (marks.back().at_us - marks[marks.size() - 2].at_us) / 1000;
  }
  std::vector<RankSummary> out;
  for (const auto& [number, rank] : ranks) out.push_back(rank);
  return out;
}

std::string summary_table(const Timeline& timeline, const std::vector<RankSummary>& ranks) {
  std::vector<std::vector<std::string>> rows{{"RANK", "NODE", "STEPS", "STEP ms", "FORWARD ms",
                                              "BACKWARD ms", "EXPOSED ms", "IDLE ms", "LAST",
                                              "HELD UP ms"}};
  for (const RankSummary& rank : ranks) {
    const auto node = static_cast<size_t>(rank.node);
    rows.push_back(
        {std::to_string(rank.rank), node < timeline.node_ids.size() ? timeline.node_ids[node] : "?",
         std::to_string(rank.steps), milliseconds(rank.step_ms), milliseconds(rank.forward_ms),
         milliseconds(rank.backward_ms), milliseconds(rank.exposed_ms), milliseconds(rank.idle_ms),
         std::to_string(rank.times_last), milliseconds(rank.held_up_ms)});
  }
  std::string text = "job " + timeline.job + ": clocks agree within " +
                     milliseconds(timeline.clock_error_us / 1000) + " ms, " +
                     std::to_string(timeline.dropped_events) + " events were dropped\n" +
                     aligned_table(rows);
  const auto slowest =
      std::max_element(ranks.begin(), ranks.end(),
                       [](const auto& a, const auto& b) { return a.held_up_ms < b.held_up_ms; });
  if (slowest != ranks.end() && slowest->times_last > 0) {
    text += "the slowest is rank " + std::to_string(slowest->rank) + ": the last with " +
            std::to_string(slowest->times_last) + " of " + std::to_string(timeline.ready.size()) +
            " tensors, " + milliseconds(slowest->held_up_ms) + " ms after the others in total\n";
  }
  return text;
}

nlohmann::ordered_json summary_json(const Timeline& timeline,
                                    const std::vector<RankSummary>& ranks) {
  nlohmann::ordered_json out;
  out["job_id"] = timeline.job;
  out["nodes"] = timeline.node_ids;
  out["dropped_events"] = timeline.dropped_events;
  out["clock_error_us"] = timeline.clock_error_us;
  out["tensors"] = timeline.ready.size();
  out["ranks"] = nlohmann::ordered_json::array();
  for (const RankSummary& rank : ranks) {
    out["ranks"].push_back({{"rank", rank.rank},
                            {"node", rank.node},
                            {"steps", rank.steps},
                            {"step_ms", rank.step_ms},
                            {"forward_ms", rank.forward_ms},
                            {"backward_ms", rank.backward_ms},
                            {"exposed_ms", rank.exposed_ms},
                            {"idle_ms", rank.idle_ms},
                            {"times_last", rank.times_last},
                            {"held_up_ms", rank.held_up_ms}});
  }
  return out;
}

}  // namespace rueda::ctl
