// Every number that rueda-sim puts in, and where it comes from. Four kinds:
//
//   paper    Pumma et al. on Horovod at 24,576 GPUs of Summit, as docs/scale.md quotes it
//   known    published by others, named where it stands
//   assumed  a plausible value; docs/scale.md says what becomes of the results if it is another
//   FITTED   by `rueda-sim --fit`, on ResNet-50 under `baseline` and `global-sleep` at 24,576 GPUs
//            alone. Whatever else the simulator says of Horovod and its cures is a prediction.
//
// Times are in milliseconds unless the name says otherwise.
#pragma once

#include <cstdint>

namespace rueda::scale {

// What the paper reports of ResNet-50 at 24,576 GPUs, and is fitted.
struct FitTargets {
  double below_linear = 3.3;           // paper: the baseline's throughput
  double coordination_share = 0.46;    // paper: of a baseline's step
  double global_sleep_speedup = 0.10;  // paper: global-sleep over the baseline
};

struct Parameters {
  // --- The nodes' fabric: a fat tree of switches (known: Summit has EDR InfiniBand, two rails).
  int switch_ports_down = 18;        // known: 36 ports, half of them down
  double nic_us = 1.0;               // assumed: both ends of a small message, without switches
  double switch_us = 0.15;           // assumed: one switch
  double bandwidth_GBps = 23;        // known: 2 x 100 Gbit/s, less 8 % for headers (assumed)
  double local_bandwidth_GBps = 40;  // known: NVLink 2.0, 50 GB/s a direction; 80 % of it (assumed)
  // assumed: up to here an all-reduce is recursive doubling, in what moves data for Horovod, too.
  int64_t short_bytes = 64 << 10;
  // FITTED: software and GPU at each hop of a ring between nodes, on top of the fabric.
  double ring_hop_us = 7.2281;

  // --- The operating system.
  // A background thread that has spun is preempted by those it kept from running; one that has
  // slept is woken late by those that run. Both delays are exponential with these means, and met
  // with this probability each time. Of N threads the latest counts.
  double preempted = 0.1;  // assumed
  // assumed, such that the latest of 24,576 comes after 20 ms. paper: "up to tens of ms".
  double spun_delay_ms = 2.4;
  // FITTED.
  double slept_delay_ms = 2.0687;
  double longest_delay_ms = 60;   // assumed: some scheduling periods of a loaded core
  double own_core_delay_us = 20;  // assumed: timer and interrupts of a core that nobody else uses
  // What a thread that spins costs another one on its core: half of it (known: a fair scheduler,
  // e.g. CFS), so that work of 1 takes 1 + this.
  double spin_slowdown = 1;
  // FITTED: the library's threads that move data in a training process share their cores with the
  // input pipeline; a ring goes at the pace of its slowest member. Extra time, as a share of pure
  // data time.
  double mover_slowdown = 1.1587;
  double mover_delayed = 0.02;       // assumed: how likely a process's movers are held up in a step
  int cores = 42;                    // known: of a Summit node, for programs
  double compute_variation = 0.005;  // assumed: of a step, between GPUs, relative (one sigma)

  // --- Horovod 0.16.
  double cycle_ms = 5;              // known: HOROVOD_CYCLE_TIME
  int64_t fusion_bytes = 64 << 20;  // known: HOROVOD_FUSION_THRESHOLD
  int flag_bits = 3;                // assumed: beside one bit a tensor in the cache's bit vector
  // The longest cycle that daemon/core/order/agreement.h's global-sleep agrees on.
  double global_sleep_ms = 16;

  // --- Rueda.
  double wake_us =
      30;  // assumed: from a rank's doorbell to the daemon's loop, on a core of its own
  double message_us = 5;     // assumed: a daemon's CPU for one message about order, either side
  int daemon_cores = 1;      // of a node's, that nobody else uses
  double node_cycle_ms = 1;  // daemon/core/order/agreement.h: cycle_ms of the mode `cached`
  int tree_fan_in = 32;      // daemon/core/model/tree.h
  int tree_threshold = 64;   // likewise

  // --- Training.
  // known: a GPU of Summit against the one that the networks' speeds were measured on (networks.h),
  // peak float32: V100 15.7, P100 10.6 TFLOPS.
  double gpu_speed = 1.48;
  // known: of a step's time at batch 64, what does not shrink with the batch: from ResNet-50 at
  // 219 images/s with 64 and 195 with 32 (where networks.h has its speeds from).
  double fixed_compute = 0.123;
  int64_t strong_global_batch = 24'576;  // assumed: one image a GPU at the largest size
};

}  // namespace rueda::scale
