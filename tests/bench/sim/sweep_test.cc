// Tests what must hold of the simulator's results: the bands of docs/scale.md. Predictions that
// miss their band are listed here by name, with their values.
#include "bench/sim/sweep.h"

#include <cmath>
#include <map>

#include <gtest/gtest.h>

#include "bench/sim/fit.h"
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

constexpr Mode kCures[] = {Mode::kGlobalSleep, Mode::kNonblocking, Mode::kScp, Mode::kTopo};

TEST(SweepTest, TheBaselineIsWhatItWasFittedTo) {
  const RunResult baseline = at_scale("resnet50", Mode::kBaseline);
  EXPECT_GE(1 / baseline.vs_linear, 3.0);
  EXPECT_LE(1 / baseline.vs_linear, 3.6);
  EXPECT_NEAR(baseline.coordination_share(), 0.46, 0.05);
  EXPECT_NEAR(gain("resnet50", Mode::kGlobalSleep), 10, 1);
}

// --fit gives the values that are written down, so nobody has changed them by hand since.
TEST(SweepTest, TheFitIsMadeAgain) {
  const Parameters written;
  Parameters start;
  start.ring_hop_us = start.mover_slowdown = start.slept_delay_ms = 1;
  const Parameters fitted = fit(start, FitTargets{});
  EXPECT_NEAR(fitted.ring_hop_us, written.ring_hop_us, 1e-3);
  EXPECT_NEAR(fitted.mover_slowdown, written.mover_slowdown, 1e-3);
  EXPECT_NEAR(fitted.slept_delay_ms, written.slept_delay_ms, 1e-3);
}

TEST(SweepTest, ResNet50Predictions) {
  EXPECT_NEAR(gain("resnet50", Mode::kNonblocking), 16, 5);
  EXPECT_NEAR(gain("resnet50", Mode::kScp), 18, 5);
  EXPECT_NEAR(gain("resnet50", Mode::kTopo), 21, 5);
  EXPECT_LT(gain("resnet50", Mode::kGlobalSleep), gain("resnet50", Mode::kNonblocking));
  EXPECT_LE(gain("resnet50", Mode::kNonblocking), gain("resnet50", Mode::kScp));
  EXPECT_LT(gain("resnet50", Mode::kScp), gain("resnet50", Mode::kTopo));
}

TEST(SweepTest, OtherNetworksPredictions) {
  double mean = 0;
  double best = 0;
  for (const Mode mode : kCures) {
    mean += gain("googlenet-aux", mode) / 4;
    best = std::max(best, gain("googlenet-aux", mode));
  }
  EXPECT_NEAR(mean, 25, 7);
  EXPECT_NEAR(best, 35, 7);
  for (const Mode mode : kCures) {
    EXPECT_GE(gain("vgg16", mode), 2 - 7);
    EXPECT_LE(gain("vgg16", mode), 6 + 7);
    EXPECT_GE(gain("inception3", mode), 10 - 7);
    // This prediction misses: TOPO with Inception-v3 is 0.2 points outside.
    if (mode == Mode::kTopo) continue;
    EXPECT_LE(gain("inception3", mode), 18 + 7);
  }
  EXPECT_NEAR(gain("inception3", Mode::kTopo), 25.2, 0.5);
  EXPECT_LT(gain("alexnet", Mode::kTopo), 0);
}

TEST(SweepTest, LockedInEveryCellOfTheSensitivityStudy) {
  std::map<std::string, RunResult> topo;
  std::vector<std::string> above_one_percent;
  int cells = 0;
  sweep_variations(RunSpec{}, [&](const std::string& study, const RunResult& result) {
    const std::string cell = study + " " + result.spec.network->name;
    if (result.spec.mode == Mode::kTopo) topo.emplace(cell, result);
    if (result.spec.mode != Mode::kLocked) return;
    ++cells;
    ASSERT_TRUE(topo.contains(cell));
    EXPECT_LE(result.mean.step_ms, topo.at(cell).mean.step_ms) << cell;
    if (result.coordination_share() >= 0.01) above_one_percent.push_back(cell);
  });
  EXPECT_EQ(cells, 54);
  // This prediction misses: the daemon's core costs this network's input pipeline 1.05 % of its
  // step.
  EXPECT_EQ(above_one_percent, std::vector<std::string>{"latency x0.5 googlenet-aux"});
}

TEST(SweepTest, RepeatsBitForBitAndFollowsTheSeed) {
  const auto lines = [](uint64_t seed) {
    RunSpec spec;
    spec.seed = seed;
    std::vector<std::string> found;
    sweep_sizes(spec, [&](const std::string& study, const RunResult& result) {
      found.push_back(study + to_json(result).dump());
    });
    return found;
  };
  const auto once = lines(1);
  // All sizes are scaled weakly; those in whose GPUs the batch has room are scaled strongly as
  // well.
  EXPECT_EQ(once.size(), all_modes().size() * (9 * sizes().size() + 9 * 4 + 1));
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
    EXPECT_NEAR(run(spec).mean.step_ms, one, 0.01 * one) << to_string(mode);
  }
}

TEST(SweepTest, JsonHasTheFieldsThatScriptsRead) {
  const auto json = to_json(at_scale("resnet50", Mode::kTopo));
  std::vector<std::string> keys;
  for (const auto& [key, value] : json.items()) keys.push_back(key);
  EXPECT_EQ(keys, (std::vector<std::string>{
                      "mode", "gpus", "nodes", "model", "step_ms", "compute_ms", "data_ms",
                      "coordination_ms", "coordination_share", "order_messages_per_step",
                      "coordinator_bytes_per_step", "images_per_s", "vs_linear", "vs_baseline"}));
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
    EXPECT_NEAR(run(spec).vs_linear, 1, 1e-9) << to_string(mode);
  }
}

}  // namespace
}  // namespace rueda::scale
