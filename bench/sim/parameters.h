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
  double below_linear = 3.3;           // paper, figure 3: from the baseline's throughput to linear
  double background_share = 0.46;      // paper, figure 11: of the thread, in a baseline's step
  double global_sleep_speedup = 0.10;  // paper, figure 10: the most that global-sleep brings
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
  double ring_hop_us = 0.8804;

  // A tensor is copied into the fusion buffer and back, each by one call that takes so long, at the
  // speed of the GPU's memory.
  double copy_us = 3;        // assumed: a small copy on the GPU, with its launch
  double memory_GBps = 900;  // known: V100, HBM2; a copy reads and writes
  // --- The operating system.
  // A background thread that has slept waits until one of the threads that run is preempted: with
  // this probability, exponentially with this mean. One that does not sleep goes on running.
  double oversleeps = 0.1;       // assumed
  double oversleep_ms = 1.2000;  // FITTED
  // The input pipeline keeps a process's graph scheduling from running in the window of a step:
  // with this probability times the window's share of the step, exponentially with this mean.
  double held_up = 0.2;           // assumed
  double held_up_ms = 3.9551;     // FITTED
  double longest_delay_ms = 60;   // assumed: some scheduling periods of a loaded core
  double own_core_delay_us = 20;  // assumed: timer and interrupts of a core that nobody else uses
  // A thread that spins costs another thread on its core half of the core (known: a fair scheduler,
  // e.g. CFS), so that work of 1 takes 1 + this.
  double spin_slowdown = 1;
  int cores = 42;                    // known: cores of a Summit node for programs
  double compute_variation = 0.005;  // assumed: one sigma of a step between GPUs, relative

  // --- Horovod 0.16.
  double cycle_ms = 5;              // known: HOROVOD_CYCLE_TIME
  int64_t fusion_bytes = 64 << 20;  // known: HOROVOD_FUSION_THRESHOLD
  int flag_bits = 3;                // assumed: beside one bit a tensor in the cache's bit vector

  // --- Rueda.
  double wake_us =
      30;  // assumed: from a rank's doorbell to the daemon's loop, on a core of its own
  double message_us = 5;    // assumed: a daemon's CPU for one message about order, either side
  int daemon_cores = 1;     // the cores of a node that nobody but the daemon uses
  int tree_fan_in = 32;     // daemon/core/model/tree.h
  int tree_threshold = 64;  // daemon/core/model/tree.h

  // --- Training.
  // paper, V-A: images a GPU in figure 10. It gives none for other networks; 32 is assumed for them
  // (docs/scale.md says why).
  int weak_batch = 32;
  int gradient_bytes =
      2;  // paper, III-A: mixed precision everywhere. That is what travels: assumed
  // The speed of a GPU of Summit in mixed precision over that of the GPU that the networks were
  // measured on (networks.h). known, of ResNet-50: 1,270 images/s on a V100 with TensorFlow 1, XLA,
  // mixed precision and 256 images (NVIDIA's DeepLearningExamples, ResNet-50 v1.5), over 241.5,
  // which is the P100 with as many by the next line. assumed: so with the other networks.
  double gpu_speed = 5.26;
  // known: the share of a step's time at the networks' batch that does not shrink with the batch,
  // from ResNet-50 at 219 images/s with 64 and 195 with 32 (from the source of the speeds in
  // networks.h).
  double fixed_compute = 0.123;
  int64_t strong_global_batch = 24'576;  // paper, V-A: figure 12, one image a GPU at the largest
};

}  // namespace rueda::scale
