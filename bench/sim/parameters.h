// Has every number that rueda-sim puts in, and its source. There are four kinds:
//
//  paper    Pumma et al. on Horovod at 24,576 GPUs of Summit, as docs/scale.md quotes it
//  known    published by others, named where it stands
//  assumed  a plausible value; docs/scale.md says what becomes of the results if it is another
//  FITTED   by `rueda-sim --fit`, on ResNet-50 under `baseline` and `global-sleep` at 24,576 GPUs
//           alone. Whatever else the simulator says of Horovod and its cures is a prediction.
//
// Times are in milliseconds unless the name says otherwise.
#pragma once

#include <cstdint>

namespace rueda::scale {

// Holds what the paper reports of ResNet-50 at 24,576 GPUs. The fitted values follow from it.
struct FitTargets {
  double below_linear = 3.3;           // paper: factor from the baseline's throughput to linear
  double coordination_share = 0.46;    // paper: the share in a baseline's step
  double global_sleep_speedup = 0.10;  // paper: of global-sleep over the baseline
};

struct Parameters {
  // --- The nodes' fabric: a fat tree of switches (known: Summit has EDR InfiniBand, two rails).
  int switch_ports_down = 18;        // known: 36 ports, half of them down
  double nic_us = 1.0;               // assumed: both ends of a small message, without switches
  double switch_us = 0.15;           // assumed: one switch
  double bandwidth_GBps = 23;        // known: 2 x 100 Gbit/s, less 8 % for headers (assumed)
  double local_bandwidth_GBps = 40;  // known: NVLink 2.0, 50 GB/s a direction; 80 % of it (assumed)
  // assumed: all-reduces up to this size use recursive doubling, also in the library that moves
  // data for Horovod.
  int64_t short_bytes = 64 << 10;
  // FITTED: the time of software and GPU at each hop of a ring between nodes, on top of the fabric.
  double ring_hop_us = 7.2281;

  // --- The operating system.
  // A background thread that has spun is preempted by the threads that it kept from running; a
  // thread that has slept is woken late by those that run. Both delays are exponential with these
  // means, and occur with this probability each time. Of N threads the latest counts.
  double preempted = 0.1;  // assumed
  // assumed: such that the latest of 24,576 threads comes after 20 ms. paper: "up to tens of ms".
  double spun_delay_ms = 2.4;
  // FITTED: the mean delay of a thread that has slept.
  double slept_delay_ms = 2.0687;
  double longest_delay_ms = 60;   // assumed: some scheduling periods of a loaded core
  double own_core_delay_us = 20;  // assumed: timer and interrupts of a core that nobody else uses
  // A thread that spins costs another thread on its core half of the core (known: a fair scheduler,
  // e.g. CFS), so that work of 1 takes 1 + this.
  double spin_slowdown = 1;
  // FITTED: the extra time, as a share of pure data time, because the library's threads that move
  // data in a training process share their cores with the input pipeline; a ring goes at the pace
  // of its slowest member.
  double mover_slowdown = 1.1587;
  double mover_delayed = 0.02;       // assumed: how likely a process's movers are held up in a step
  int cores = 42;                    // known: cores of a Summit node for programs
  double compute_variation = 0.005;  // assumed: one sigma of a step between GPUs, relative

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
  int daemon_cores = 1;      // the cores of a node that nobody but the daemon uses
  double node_cycle_ms = 1;  // daemon/core/order/agreement.h: cycle_ms of the mode `cached`
  int tree_fan_in = 32;      // daemon/core/model/tree.h
  int tree_threshold = 64;   // daemon/core/model/tree.h

  // --- Training.
  // known: the speed of a GPU of Summit over that of the GPU that the networks were measured on
  // (networks.h), by peak float32: V100 15.7, P100 10.6 TFLOPS.
  double gpu_speed = 1.48;
  // known: the share of a step's time at batch 64 that does not shrink with the batch, from
  // ResNet-50 at 219 images/s with 64 and 195 with 32 (from the source of the speeds in
  // networks.h).
  double fixed_compute = 0.123;
  int64_t strong_global_batch = 24'576;  // assumed: one image a GPU at the largest size
};

}  // namespace rueda::scale
