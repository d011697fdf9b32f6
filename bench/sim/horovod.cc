#include "bench/sim/horovod.h"

#include <algorithm>
#include <cmath>

#include "bench/sim/fabric.h"

namespace rueda::scale {
namespace {

// Says how a mode's background threads behave.
struct Threads {
  Delay after_spin;     // of a thread that has not slept since the last round
  Delay after_sleep;    // of a thread that has slept since then
  double slowdown = 0;  // of the process's other threads while this one spins, in the LIS window
  double longer_compute = 0;  // of work in the LIS window, because cores are taken away
};

Threads threads_of(const RunSpec& spec) {
  const Parameters& p = spec.parameters;
  if (spec.mode == Mode::kScp) {
    const Delay own{1, p.own_core_delay_us / 1e3, p.longest_delay_ms};
    const double cores = static_cast<double>(p.cores) / spec.gpus_per_node;
    return {own, own, 0, 1 / (cores - 1)};
  }
  return {{p.preempted, p.spun_delay_ms, p.longest_delay_ms},
          {p.preempted, p.slept_delay_ms, p.longest_delay_ms},
          p.spin_slowdown,
          0};
}

class Step {
 public:
  Step(const RunSpec& spec, Random& random)
      : spec_(spec),
        p_(spec.parameters),
        random_(random),
        fabric_(p_, spec.nodes()),
        threads_(threads_of(spec)) {}

  StepTimes run();

 private:
  // These return the moment at which all ranks know that all gradients are ready.
  double blocking_rounds(double work_ms);
  double nonblocking_rounds(double work_ms);
  void count_round();
  double synchronisation_ms() const { return fabric_.synchronisation_ms(spec_.gpus); }

  const RunSpec& spec_;
  const Parameters& p_;
  Random& random_;
  const Fabric fabric_;
  const Threads threads_;
  StepTimes times_;
};

void Step::count_round() {
  // The bits go up and down a binomial tree over all ranks; the root has a link for each of its
  // rounds.
  const double bits = static_cast<double>(spec_.network->tensors.size() + p_.flag_bits);
  times_.order_messages += 2.0 * (spec_.gpus - 1);
  times_.coordinator_bytes += 2.0 * rounds_of_tree(spec_.gpus) * 8 * std::ceil(bits / 64);
}

double Step::blocking_rounds(double work_ms) {
  const double slow_rate = 1 / (1 + spec_.lis() * threads_.slowdown);
  double now = 0;
  // the data operations of the step before took longer than that
  double last_round_ms = p_.cycle_ms;
  bool ready = false;
  for (;;) {
    const double pause = spec_.mode == Mode::kGlobalSleep
                             ? p_.global_sleep_ms
                             : std::max(0.0, p_.cycle_ms - last_round_ms);
    const Delay& delay = pause > 0 ? threads_.after_sleep : threads_.after_spin;
    const double latest = delay.largest_of(spec_.gpus, random_);
    const double usual = std::min(latest, delay.average());
    const double spins_ms = latest - usual + synchronisation_ms();
    // Most threads arrive after `usual` and spin until the latest has come; meanwhile the work
    // beside them is slow. A gradient that is ready only then has missed the round.
    work_ms -= pause + usual;
    ready = ready || work_ms <= 0;
    count_round();
    now += pause + latest + synchronisation_ms();
    if (ready) return now;
    work_ms -= spins_ms * slow_rate;
    ready = work_ms <= 0;
    last_round_ms = latest + synchronisation_ms();
  }
}

double Step::nonblocking_rounds(double work_ms) {
  double now = 0;
  for (;;) {
    const double latest = threads_.after_sleep.largest_of(spec_.gpus, random_);
    const bool ready = now + p_.cycle_ms >= work_ms;
    count_round();
    now += p_.cycle_ms + latest + synchronisation_ms();
    // Nobody waits inside a round: each thread sees its end when it wakes next, and the last thread
    // does so after a whole cycle.
    if (ready) return now + p_.cycle_ms + threads_.after_sleep.largest_of(spec_.gpus, random_);
  }
}

StepTimes Step::run() {
  const double alone = compute_ms(spec_, images_per_gpu(spec_));
  times_.compute_ms = alone * (1 + p_.compute_variation * largest_normal(spec_.gpus, random_));
  const bool has_order = spec_.mode == Mode::kTopo;
  for (const int64_t bytes : fused_bytes(*spec_.network, p_.fusion_bytes, !has_order)) {
    if (spec_.gpus > 1) times_.data_ms += fabric_.allreduce_ms(bytes, spec_.gpus_per_node);
  }
  const double held_up = 1 - std::pow(1 - p_.mover_delayed, spec_.gpus);
  const double data = times_.data_ms * (1 + p_.mover_slowdown * held_up);
  const double work = times_.compute_ms + alone * spec_.lis() * threads_.longer_compute;
  double launched = work;
  if (spec_.gpus > 1 && spec_.mode == Mode::kNonblocking) launched = nonblocking_rounds(work);
  if (spec_.gpus > 1 && spec_.mode != Mode::kNonblocking && !has_order) {
    launched = blocking_rounds(work);
  }
  times_.step_ms = launched + data;
  return times_;
}

}  // namespace

StepTimes horovod_step(const RunSpec& spec, Random& random) { return Step(spec, random).run(); }

}  // namespace rueda::scale
