// Tests what must hold of the simulator's results: the bands of docs/scale.md. Predictions that
// miss their band are listed here by name, with their values.
#include "bench/sim/sweep.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <string>

#include <gtest/gtest.h>

#include "bench/sim/fit.h"
#include "bench/sim/paper.h"
#include "bench/sim/report.h"

namespace rueda::scale {
namespace {

RunResult at_scale(const char* network, Mode mode) {
  RunSpec spec;
  spec.network = find_network(network);
  spec.mode = mode;
  return run(spec);
}

double gain(const char* network, Mode mode) {
  return 100 * (at_scale(network, mode).vs_baseline - 1);
}

// Returns the quantity of one of the paper's values, as it is simulated.
double quantity_of(const PaperValue& value, const RunResult& result) {
  const StepTimes& mean = result.mean;
  const std::string quantity = value.quantity;
  if (quantity == "gain, %") return 100 * (result.vs_baseline - 1);
  if (quantity == "below linear") return 1 / result.vs_linear;
  if (quantity == "all-reduce, %") return 100 * (1 - mean.compute_ms / mean.step_ms);
  if (quantity == "background, %") return 100 * mean.background_ms / mean.step_ms;
  EXPECT_EQ(quantity, "idle, %");
  return 100 * (mean.background_ms + mean.copy_ms) / (mean.step_ms - mean.compute_ms);
}

std::pair<double, double> simulated(const PaperValue& value) {
  std::vector<double> found;
  for (const int gpus : sizes()) {
    if (gpus < kStrongFrom) continue;
    if (value.over == Over::kLargest && gpus != sizes().back()) continue;
    RunSpec spec;
    spec.gpus = gpus;
    spec.strong = value.strong;
    spec.network = find_network(value.network);
    spec.mode = *parse_mode(value.mode);
    found.push_back(quantity_of(value, run(spec)));
  }
  const auto [low, high] = std::minmax_element(found.begin(), found.end());
  if (value.over == Over::kRange || value.over == Over::kLargest) return {*low, *high};
  if (value.over == Over::kBest) return {*high, *high};
  double sum = 0;
  for (const double each : found) sum += each;
  return {sum / static_cast<double>(found.size()), sum / static_cast<double>(found.size())};
}

std::string name_of(const PaperValue& value) {
  return std::string(value.figure) + " " + value.network + " " + value.mode + " " +
         to_string(value.over);
}

// These predictions miss the paper by more than the band: by so many points, rounded.
const std::map<std::string, int>& known_misses() {
  static const std::map<std::string, int> all{
      // Its threads wait for a late one in 96 GPUs already, beside much compute.
      {"12 resnet50 topo at best", 20},
      // Its short step has little in the window that could be slowed down.
      {"13 googlenet-aux topo at best", -19},
      {"13 googlenet-aux topo on average", -13},
      // A ring more costs TOPO most at the largest sizes; at the others it gains.
      {"13 alexnet topo on average", 10},
  };
  return all;
}

// Like is compared with like: figure by figure, over the sizes that the figure is about.
TEST(SweepTest, ThePapersNumbers) {
  constexpr double kBand = 7;
  std::map<std::string, int> misses;
  for (const PaperValue& value : paper_values()) {
    const auto [low, high] = simulated(value);
    const double below = std::min(0.0, low - value.low);
    const double above = std::max(0.0, high - value.high);
    const double miss = -below > above ? below : above;
    if (std::abs(miss) > kBand) {
      misses.emplace(name_of(value), static_cast<int>(std::lround(miss)));
    }
  }
  EXPECT_EQ(misses, known_misses());
}

// The paper's text is the source of each number: a figure, and the section that discusses it.
TEST(SweepTest, ThePapersNumbersHaveTheirSources) {
  EXPECT_EQ(paper_values().size(), 19u);
  for (const PaperValue& value : paper_values()) {
    EXPECT_TRUE(find_network(value.network)) << value.network;
    EXPECT_TRUE(parse_mode(value.mode)) << value.mode;
    EXPECT_LE(value.low, value.high);
    const int figure = std::stoi(value.figure);
    EXPECT_STREQ(value.section, figure < 10 ? "III-C" : figure == 13 ? "V-B" : "V-A");
    // Figure 13 is of TOPO alone, and the only one of other networks; figure 12 alone is strong.
    EXPECT_EQ(figure == 13, std::string(value.network) != "resnet50");
    EXPECT_TRUE(figure != 13 || std::string(value.mode) == "topo");
    EXPECT_EQ(figure == 12, value.strong);
  }
}

TEST(SweepTest, TheBaselineIsWhatItWasFittedTo) {
  const RunResult baseline = at_scale("resnet50", Mode::kBaseline);
  EXPECT_GE(1 / baseline.vs_linear, 3.0);
  EXPECT_LE(1 / baseline.vs_linear, 3.6);
  EXPECT_NEAR(baseline.mean.background_ms / baseline.mean.step_ms, 0.46, 0.05);
}

// --fit gives the values that are written down, so nobody has changed them by hand since.
TEST(SweepTest, TheFitIsMadeAgain) {
  const Parameters written;
  Parameters start;
  start.ring_hop_us = start.oversleep_ms = start.held_up_ms = 1;
  const Parameters fitted = fit(start, FitTargets{});
  EXPECT_NEAR(fitted.ring_hop_us, written.ring_hop_us, 1e-3);
  EXPECT_NEAR(fitted.oversleep_ms, written.oversleep_ms, 1e-3);
  EXPECT_NEAR(fitted.held_up_ms, written.held_up_ms, 1e-3);
}

TEST(SweepTest, TheRankingIsThePapers) {
  EXPECT_LT(gain("resnet50", Mode::kGlobalSleep), gain("resnet50", Mode::kNonblocking));
  EXPECT_LE(gain("resnet50", Mode::kNonblocking), gain("resnet50", Mode::kScp));
  EXPECT_LT(gain("resnet50", Mode::kScp), gain("resnet50", Mode::kTopo));
  EXPECT_LT(gain("alexnet", Mode::kTopo), 0);
}

TEST(SweepTest, LockedIsAheadOfTopoInEveryCellOfTheSensitivityStudy) {
  std::map<std::string, RunResult> topo;
  int cells = 0;
  // A size at which the shipped core's runs are short. Where both wait for the same hold-ups, which
  // are drawn for each by itself, their steps differ by chance.
  constexpr double kChance = 1.03;
  RunSpec base;
  base.gpus = 1536;
  sweep_variations(base, [&](const std::string& study, const RunResult& result) {
    const std::string cell = study + " " + result.spec.network->name;
    if (result.spec.mode == Mode::kTopo) topo.emplace(cell, result);
    if (result.spec.mode != Mode::kLocked) return;
    ++cells;
    ASSERT_TRUE(topo.contains(cell));
    EXPECT_LE(result.mean.step_ms, kChance * topo.at(cell).mean.step_ms) << cell;
  });
  EXPECT_EQ(cells, 54);
}

TEST(SweepTest, RepeatsBitForBitAndFollowsTheSeed) {
  const auto lines = [](uint64_t seed) {
    RunSpec spec;
    spec.seed = seed;
    spec.steps = 1;
    std::vector<std::string> found;
    sweep_sizes(spec, [&](const std::string& study, const RunResult& result) {
      found.push_back(study + to_json(result).dump());
    });
    return found;
  };
  const auto once = lines(1);
  // All networks are scaled weakly, and ResNet-50 strongly from 96 GPUs on.
  EXPECT_EQ(once.size(), all_modes().size() * (9 * sizes().size() + sizes().size() - 2));
  EXPECT_EQ(once, lines(1));
  EXPECT_NE(once, lines(2));
}

TEST(SweepTest, AnotherSeedTellsTheSame) {
  RunSpec spec;
  spec.network = find_network("resnet50");
  for (const Mode mode : all_modes()) {
    spec.mode = mode;
    spec.seed = 1;
    const double one = run(spec).mean.step_ms;
    spec.seed = 2;
    EXPECT_NEAR(run(spec).mean.step_ms, one, 0.03 * one) << to_string(mode);
  }
}

TEST(SweepTest, JsonHasTheFieldsThatScriptsRead) {
  const auto json = to_json(at_scale("resnet50", Mode::kTopo));
  std::vector<std::string> keys;
  for (const auto& [key, value] : json.items()) keys.push_back(key);
  EXPECT_EQ(keys, (std::vector<std::string>{
                      "mode", "gpus", "nodes", "model", "step_ms", "compute_ms", "background_ms",
                      "copy_ms", "allreduce_ms", "data_ms", "coordination_ms", "coordination_share",
                      "order_messages_per_step", "coordinator_bytes_per_step", "images_per_s",
                      "vs_linear", "vs_baseline"}));
  EXPECT_EQ(json["nodes"], 4096);
  EXPECT_EQ(json["order_messages_per_step"], 0);
  EXPECT_DOUBLE_EQ(json["coordination_ms"].get<double>(), json["step_ms"].get<double>() -
                                                              json["compute_ms"].get<double>() -
                                                              json["data_ms"].get<double>());
}

TEST(SweepTest, OneGpuIsLinear) {
  RunSpec spec;
  spec.gpus = 1;
  spec.network = find_network("resnet50");
  for (const Mode mode : {Mode::kBaseline, Mode::kNonblocking, Mode::kTopo}) {
    spec.mode = mode;
    EXPECT_NEAR(run(spec).vs_linear, 1, 0.005) << to_string(mode);
  }
}

}  // namespace
}  // namespace rueda::scale
