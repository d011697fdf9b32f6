// The order traffic of a job: one shipped core a node (daemon/core/job/job.h), in virtual time.
// Training processes hand over their gradients step by step; messages take the fabric's latency
// and, on both sides, a daemon's time; data operations take as long as they are told to. Nothing is
// drawn at random: a run repeats exactly.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "bench/sim/parameters.h"
#include "daemon/core/job/job_options.h"

namespace rueda::scale {

struct OrderSpec {
  int nodes = 2;
  core::Coordination mode = core::Coordination::kLocked;
  core::DeathPolicy policy = core::DeathPolicy::kFail;
  int tensors = 1;
  // Each is handed over when the one before has come back; else all at once.
  bool one_by_one = false;
  int steps = 10;
  double compute_ms = 10;            // of a step, before its gradients are there
  double operation_ms = 0;           // of a data operation, once all nodes have launched it
  std::optional<int> deviates_at{};  // in this step, from 0, each rank has one tensor more
  // While the last step but one computes. Under policy `fail` its links break at once, and the run
  // ends when all know; under `shrink` it falls silent, and the others go on.
  std::optional<int> node_dies{};
  // All daemons share so many cores, as on one machine; 0: each has one of its own.
  int shared_cores = 0;
  // What a message costs the coordinator, where it is not what it costs the others.
  std::optional<double> coordinator_message_us{};
  // Of what a message costs, the share that comes after it has left, or after what it brings has
  // been acted on: the daemon is busy with it, and nobody waits for it.
  double unawaited_share = 0;
  Parameters parameters{};
};

struct OrderStep {
  uint64_t messages = 0;              // about order, that any daemon sends
  uint64_t coordinator_messages = 0;  // of them, that the coordinator sends or receives
  uint64_t coordinator_bytes = 0;     // of these, their fields
  // From when the last rank has handed over its gradients until the last has them all back, without
  // data operations.
  double coordination_ms = 0;
  bool locked = false;  // a plan is in force on all nodes when it ends
};

// What a death came to.
struct LossTimes {
  double suspected_ms = 0;  // policy `shrink`: after the death, until the first node seals
  double sealed_ms = 0;     // likewise: the last survivor has sealed
  double decided_ms = 0;    // the last survivor goes on, or under `fail` has ended the job
  uint64_t messages = 0;    // of recovery, or that the job has failed, from the death until then
};

struct OrderResult {
  double start_ms = 0;          // from the first rank to attach until the last node has started
  uint64_t start_messages = 0;  // all of them
  std::vector<OrderStep> steps;
  std::optional<LossTimes> loss;
  uint64_t events = 0;  // that the cores were told
};

// Throws std::runtime_error if the job fails, or does not end: a mistake in the simulator or the
// core. More than limits::kMaxNodes nodes are such a mistake, too.
OrderResult run_order(const OrderSpec& spec);

}  // namespace rueda::scale
