// Simulates the order traffic of a job: one shipped core a node (daemon/core/job/job.h), in virtual
// time. Training processes hand over their gradients step by step; messages take the fabric's
// latency and, on both sides, a daemon's time; data operations take as long as they are told to.
// Nothing is drawn at random, so a run repeats exactly.
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
  // If true, a tensor is handed over when the one before has come back; otherwise all are handed
  // over at once.
  bool one_by_one = false;
  int steps = 10;
  double compute_ms = 10;            // the time of a step before its gradients are there
  double operation_ms = 0;           // the time of an operation once all nodes have launched it
  std::optional<int> deviates_at{};  // the step, from 0, in which each rank has one tensor more
  // The node that dies while the last step but one computes. Under policy `fail` its links break at
  // once, and the run ends when all nodes know; under `shrink` it falls silent, and the others go
  // on.
  std::optional<int> node_dies{};
  // The number of cores that all daemons share, as on one machine; 0 means that each has a core of
  // its own.
  int shared_cores = 0;
  // The cost of a message for the coordinator, if it differs from the others' cost.
  std::optional<double> coordinator_message_us{};
  // The share of a message's cost that comes after the message has left, or after its contents have
  // been acted on: the daemon is busy with it, and nobody waits for it.
  double unawaited_share = 0;
  Parameters parameters{};
};

struct OrderStep {
  uint64_t messages = 0;              // messages about order that any daemon sends
  uint64_t coordinator_messages = 0;  // those that the coordinator sends or receives
  uint64_t coordinator_bytes = 0;     // the fields of the coordinator's messages
  // The time from when the last rank has handed over its gradients until the last rank has them all
  // back, without data operations.
  double coordination_ms = 0;
  bool locked = false;  // a plan is in force on all nodes when the step ends
};

// Holds the times after a death.
struct LossTimes {
  double suspected_ms = 0;  // under `shrink`: until the first node seals its epoch
  double sealed_ms = 0;     // under `shrink`: until the last survivor has sealed
  double decided_ms = 0;    // until the last survivor goes on, or under `fail` has ended the job
  uint64_t messages = 0;    // messages of recovery, or of the job's failure, until then
};

struct OrderResult {
  double start_ms = 0;          // from the first rank to attach until the last node has started
  uint64_t start_messages = 0;  // all messages in that time
  std::vector<OrderStep> steps;
  std::optional<LossTimes> loss;
  uint64_t events = 0;  // the number of events that the cores were told
};

// Runs the simulation. Throws std::runtime_error if the job fails, or does not end, which is a
// mistake in the simulator or the core, or if there are more than limits::kMaxNodes nodes.
OrderResult run_order(const OrderSpec& spec);

}  // namespace rueda::scale
