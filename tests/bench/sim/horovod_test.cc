// Tests steps that can be worked out by hand, because nothing is late and all GPUs are alike.
#include "bench/sim/horovod.h"

#include <gtest/gtest.h>

#include "bench/sim/fabric.h"

namespace rueda::scale {
namespace {

RunSpec undisturbed(Mode mode) {
  RunSpec spec;
  spec.mode = mode;
  spec.gpus = 96;
  spec.network = find_network("resnet50");
  spec.held_up = false;
  spec.parameters.oversleeps = 0;
  spec.parameters.own_core_delay_us = 0;
  spec.parameters.compute_variation = 0;
  return spec;
}

struct Step : StepTimes {
  explicit Step(const RunSpec& spec) : StepTimes(step_of(spec)) {
    launched_ms = step_ms - data_ms;
    synchronisation_ms = Fabric(spec.parameters, spec.nodes()).synchronisation_ms(spec.gpus);
    rounds = order_messages / (2.0 * (spec.gpus - 1));
  }
  static StepTimes step_of(const RunSpec& spec) {
    Random random(1);
    return horovod_step(spec, random);
  }

  double launched_ms = 0;  // the time when the last rank's data begins to move
  double synchronisation_ms = 0;
  double rounds = 0;
};

TEST(HorovodTest, TheFourPartsMakeUpTheStep) {
  for (const Mode mode : all_modes()) {
    if (is_service(mode)) continue;
    RunSpec spec;
    spec.mode = mode;
    spec.gpus = 384;
    spec.network = find_network("resnet50");
    const Step step(spec);
    EXPECT_NEAR(step.compute_ms + step.background_ms + step.copy_ms + step.allreduce_ms,
                step.step_ms, 1e-9);
    EXPECT_GT(step.background_ms, 0);
    EXPECT_GE(step.allreduce_ms + step.copy_ms, step.data_ms - 1e-9);
  }
}

TEST(HorovodTest, TopoWaitsForItsOwnCycleAlone) {
  const RunSpec spec = undisturbed(Mode::kTopo);
  const Step step(spec);
  EXPECT_NEAR(step.compute_ms, compute_ms(spec, 32), 1e-9);
  EXPECT_GE(step.background_ms, 0);
  EXPECT_NEAR(step.background_ms, spec.parameters.cycle_ms / 2, 1);
  EXPECT_LE(step.launched_ms, step.compute_ms + spec.parameters.cycle_ms);
  EXPECT_EQ(step.order_messages, 0);
}

// Without delays the threads stay together and sleep: figure 6.
TEST(HorovodTest, TheBaselineWaitsForTheNextRound) {
  const RunSpec spec = undisturbed(Mode::kBaseline);
  const Step step(spec);
  EXPECT_GE(step.launched_ms, step.compute_ms + step.synchronisation_ms);
  EXPECT_LE(step.launched_ms,
            step.compute_ms * 1.02 + spec.parameters.cycle_ms + 2 * step.synchronisation_ms);
  EXPECT_NEAR(step.rounds, step.launched_ms / spec.parameters.cycle_ms, 2);
}

// One thread that oversleeps by more than a cycle is enough: it sleeps again while the others do
// not, so each round takes a cycle, and the others spin all the time (figure 7). With a sleep that
// is agreed nobody sleeps after such a round, and all are together again.
TEST(HorovodTest, AStragglerStaysOneUnlessTheSleepIsAgreed) {
  RunSpec spec = undisturbed(Mode::kBaseline);
  spec.network = find_network("resnet152");
  spec.gpus = 1536;
  spec.parameters.spin_slowdown = 1;
  const Step together(spec);
  spec.parameters.oversleeps = 1e-3;
  spec.parameters.oversleep_ms = 1e6;  // so long that the delay of a late thread is cut off
  spec.parameters.longest_delay_ms = 8;
  const Step apart(spec);
  spec.mode = Mode::kGlobalSleep;
  const Step agreed(spec);
  // From the first straggler on each round takes its cycle, because few sleep and may be late, and
  // the rest of the window is slow.
  EXPECT_NEAR(apart.rounds, (apart.launched_ms - 8) / spec.parameters.cycle_ms, 2);
  const double window_ms = together.compute_ms * spec.lis();
  EXPECT_GT(apart.launched_ms - together.launched_ms, 0.4 * window_ms);
  EXPECT_LT(agreed.launched_ms, apart.launched_ms);
}

TEST(HorovodTest, GlobalSleepHasASecondAllReduceARound) {
  const Step baseline(undisturbed(Mode::kBaseline));
  const Step sleep(undisturbed(Mode::kGlobalSleep));
  EXPECT_NEAR(sleep.rounds, 2 * baseline.rounds, 2);
}

TEST(HorovodTest, NonblockingSeesTheEndOfARoundACycleLater) {
  const RunSpec spec = undisturbed(Mode::kNonblocking);
  const Step step(spec);
  EXPECT_GE(step.launched_ms, step.compute_ms + spec.parameters.cycle_ms);
  EXPECT_LE(step.launched_ms,
            step.compute_ms + 2 * spec.parameters.cycle_ms + 2 * step.synchronisation_ms);
}

TEST(HorovodTest, ScpHasACoreFewerForTheRest) {
  const RunSpec spec = undisturbed(Mode::kScp);
  const Step step(spec);
  const double cores = static_cast<double>(spec.parameters.cores) / spec.gpus_per_node;
  const double longer_ms = step.compute_ms * (1 + spec.lis() / (cores - 1));
  EXPECT_GE(step.launched_ms, longer_ms);
  EXPECT_LE(step.launched_ms, longer_ms + spec.parameters.cycle_ms + 2 * step.synchronisation_ms);
}

// What keeps one rank from computing is the others' wait: in the background thread where there are
// rounds, in the all-reduce where there are none.
TEST(HorovodTest, AHoldUpIsSeenInTheAllReduceWithoutRounds) {
  RunSpec spec = undisturbed(Mode::kTopo);
  spec.held_up = true;
  spec.parameters.held_up = 1e-2 / spec.lis();
  spec.parameters.held_up_ms = 1e6;
  spec.parameters.longest_delay_ms = 30;
  spec.gpus = 1536;
  const Step topo(spec);
  EXPECT_GT(topo.allreduce_ms - (topo.data_ms - topo.copy_ms), 25);
  EXPECT_LT(topo.background_ms, 4);
  spec.mode = Mode::kBaseline;
  const Step baseline(spec);
  EXPECT_NEAR(baseline.allreduce_ms, baseline.data_ms - baseline.copy_ms, 1e-6);
  EXPECT_GT(baseline.background_ms, 25);
}

TEST(HorovodTest, CopiesGoThroughTheMemoryTwice) {
  RunSpec spec = undisturbed(Mode::kTopo);
  const double bytes_ms = 4 * 2 * 25'557'032 / 1e6 / spec.parameters.memory_GBps;
  const double calls_ms = 2 * 161 * spec.parameters.copy_us / 1e3;
  EXPECT_NEAR(Step(spec).copy_ms, bytes_ms + calls_ms, 1e-9);
  spec.gpus = 1;
  EXPECT_EQ(Step(spec).data_ms, 0);
}

TEST(FabricTest, LevelsAndRounds) {
  const Parameters parameters;
  const auto levels = [&](int nodes) {  // a level more is two switches more, there and back down
    const double switches =
        (Fabric(parameters, nodes).latency_ms() * 1e3 - parameters.nic_us) / parameters.switch_us;
    return (switches + 1) / 2;
  };
  EXPECT_NEAR(levels(18), 1, 1e-9);
  EXPECT_NEAR(levels(19), 2, 1e-9);
  EXPECT_NEAR(levels(4096), 3, 1e-9);
  EXPECT_EQ(rounds_of_tree(1), 0);
  EXPECT_EQ(rounds_of_tree(2), 1);
  EXPECT_EQ(rounds_of_tree(24'576), 15);
}

TEST(FabricTest, ARingHasItsLatencyAndItsBandwidth) {
  Parameters parameters;
  parameters.ring_hop_us = 10 - parameters.nic_us - parameters.switch_us;
  const Fabric fabric(parameters, 101);
  // The time is that of 200 hops of 10 us, and of 2 x 100 / 101 of the bytes.
  EXPECT_NEAR(fabric.allreduce_ms(1'000'000'000, 1), 2 + 200.0 / 101 / 23 * 1e3, 1e-6);
  // The steps within a node add the time of 2 x 5 / 6 of the bytes.
  EXPECT_NEAR(fabric.allreduce_ms(1'000'000'000, 6) - fabric.allreduce_ms(1'000'000'000, 1),
              10.0 / 6 / 40 * 1e3, 1e-6);
  EXPECT_LT(fabric.allreduce_ms(1000, 1), 0.2);  // is too short for a ring
  EXPECT_EQ(Fabric(parameters, 1).allreduce_ms(1000, 1), 0);
}

}  // namespace
}  // namespace rueda::scale
