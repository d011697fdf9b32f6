// Tests steps that can be worked out by hand, because nothing is late and all GPUs are alike.
#include "bench/sim/horovod.h"

#include <gtest/gtest.h>

#include "bench/sim/fabric.h"

namespace rueda::scale {
namespace {

RunSpec undisturbed(Mode mode) {
  RunSpec spec;
  spec.mode = mode;
  spec.network = find_network("resnet50");
  spec.parameters.preempted = 0;
  spec.parameters.own_core_delay_us = 0;
  spec.parameters.compute_variation = 0;
  return spec;
}

struct Step : StepTimes {
  explicit Step(const RunSpec& spec) : StepTimes(step_of(spec)) {
    data_taken_ms = data_ms * (1 + spec.parameters.mover_slowdown);
    launched_ms = step_ms - data_taken_ms;
    synchronisation_ms = Fabric(spec.parameters, spec.nodes()).synchronisation_ms(spec.gpus);
  }
  static StepTimes step_of(const RunSpec& spec) {
    Random random(1);
    return horovod_step(spec, random);
  }

  double data_taken_ms = 0;
  double launched_ms = 0;  // the time when data begins to move
  double synchronisation_ms = 0;
};

TEST(HorovodTest, TopoGoesOnAtOnce) {
  const RunSpec spec = undisturbed(Mode::kTopo);
  const Step step(spec);
  EXPECT_DOUBLE_EQ(step.compute_ms, compute_ms(spec, 64));
  EXPECT_NEAR(step.launched_ms, step.compute_ms, 1e-9);
  EXPECT_EQ(step.order_messages, 0);
}

TEST(HorovodTest, TheBaselineWaitsForTheNextRound) {
  const RunSpec spec = undisturbed(Mode::kBaseline);
  const Step step(spec);
  EXPECT_GE(step.launched_ms, step.compute_ms + step.synchronisation_ms);
  // Threads spin only while the bits go up and down the tree.
  EXPECT_LE(step.launched_ms,
            step.compute_ms * 1.01 + spec.parameters.cycle_ms + 2 * step.synchronisation_ms);
  // There is one round in each cycle.
  const double rounds = step.order_messages / (2.0 * (spec.gpus - 1));
  EXPECT_NEAR(rounds, step.launched_ms / spec.parameters.cycle_ms, 2);
}

TEST(HorovodTest, GlobalSleepHasFewerRounds) {
  const Step baseline(undisturbed(Mode::kBaseline));
  const RunSpec spec = undisturbed(Mode::kGlobalSleep);
  const Step sleep(spec);
  EXPECT_NEAR(baseline.order_messages / sleep.order_messages,
              spec.parameters.global_sleep_ms / spec.parameters.cycle_ms, 0.3);
  EXPECT_LE(sleep.launched_ms, sleep.compute_ms * 1.01 + spec.parameters.global_sleep_ms +
                                   2 * sleep.synchronisation_ms);
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

// All threads but one spin until that one comes; in the window, work beside them takes twice as
// long.
TEST(HorovodTest, SpinningSlowsTheWindowDown) {
  RunSpec spec = undisturbed(Mode::kBaseline);
  spec.parameters.preempted = 1e-3;
  spec.parameters.spun_delay_ms = 1e6;  // so long that the delay of a late thread is cut off
  spec.parameters.longest_delay_ms = 20;
  const Step step(spec);
  const double work_ms = step.compute_ms * (1 + spec.lis());
  EXPECT_GE(step.launched_ms, work_ms - 20);
  EXPECT_LE(step.launched_ms, work_ms + 2 * 21);
  spec.mode = Mode::kScp;
  EXPECT_LT(Step(spec).launched_ms, work_ms - 20);
}

TEST(HorovodTest, DataTakesLongerWhereManyMoveIt) {
  RunSpec spec = undisturbed(Mode::kTopo);
  const Step many(spec);
  EXPECT_NEAR(many.coordination_ms(), many.data_ms * spec.parameters.mover_slowdown, 1e-6);
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
