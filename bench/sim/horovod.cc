#include "bench/sim/horovod.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "bench/sim/fabric.h"

namespace rueda::scale {
namespace {

// Says how a mode's background threads behave.
struct Threads {
  Delay oversleep;            // of a thread that has slept
  double slowdown = 0;        // of the process's other threads while this one spins, in the window
  double longer_compute = 0;  // of work in the window, because a core is taken away
};

Threads threads_of(const RunSpec& spec) {
  const Parameters& p = spec.parameters;
  const Delay prompt{1, p.own_core_delay_us / 1e3, p.longest_delay_ms};
  if (spec.mode == Mode::kScp) {
    const double cores = static_cast<double>(p.cores) / spec.gpus_per_node;
    return {prompt, 0, 1 / (cores - 1)};
  }
  // A fair scheduler lets a thread run at once that has used less than its share, so one that never
  // spins does not oversleep.
  if (spec.mode == Mode::kNonblocking || spec.mode == Mode::kTopo) return {prompt, 0, 0};
  return {{p.oversleeps, p.oversleep_ms, p.longest_delay_ms}, p.spin_slowdown, 0};
}

class Step {
 public:
  Step(const RunSpec& spec, Random& random)
      : spec_(spec),
        p_(spec.parameters),
        random_(random),
        threads_(threads_of(spec)),
        synchronisation_ms_(Fabric(p_, spec.nodes()).synchronisation_ms(spec.gpus)),
        work_(draw_work(spec, threads_.longer_compute, random)),
        launches_(work_.needs_ms) {}

  StepTimes run();

 private:
  // These set launches_.
  void blocking_rounds();
  void nonblocking_rounds();
  void cycles_without_rounds();

  void count_round();
  double spin(double done, double spins_ms) const;

  const RunSpec& spec_;
  const Parameters& p_;
  Random& random_;
  const Threads threads_;
  const double synchronisation_ms_;
  const Work work_;
  std::vector<double> launches_;  // when each rank launches its data operations
  StepTimes times_;
};

void Step::count_round() {
  // The bits go up and down a binomial tree over all ranks; the root has a link for each of its
  // rounds. With `global-sleep` a number goes the same way afterwards.
  const double bits = static_cast<double>(spec_.network->tensors.size() + p_.flag_bits);
  const double words = std::ceil(bits / 64) + (spec_.mode == Mode::kGlobalSleep ? 1 : 0);
  times_.order_messages += (spec_.mode == Mode::kGlobalSleep ? 4.0 : 2.0) * (spec_.gpus - 1);
  times_.coordinator_bytes += 2.0 * rounds_of_tree(spec_.gpus) * 8 * words;
}

// Returns how much work is done after a thread has spun beside it, if so much was done before.
double Step::spin(double done, double spins_ms) const {
  const double in_window = (work_.window_ms - done) * (1 + threads_.slowdown);
  if (in_window <= 0) return done + spins_ms;
  if (spins_ms <= in_window) return done + spins_ms / (1 + threads_.slowdown);
  return work_.window_ms + spins_ms - in_window;
}

// Each thread sleeps for what its own last round has left of a cycle, wakes late, and spins in the
// all-reduce until the last thread has come. So one that was late has not spun, sleeps for a whole
// cycle, and the others, which have spun for longer than that, do not sleep at all: section III-D.
void Step::blocking_rounds() {
  const size_t ranks = launches_.size();
  std::vector<double> done(ranks, 0);
  std::vector<double> arrives(ranks);
  // Moving the last step's data took longer than a cycle, so nobody sleeps before the first round.
  // It begins anywhere in a cycle.
  std::vector<double> last_round(ranks, p_.cycle_ms);
  double now = random_.uniform() * p_.cycle_ms;
  for (double& each : done) each = now;
  const bool global = spec_.mode == Mode::kGlobalSleep;
  const double ends_after = synchronisation_ms_ * (global ? 2 : 1);
  for (bool ready = false; !ready;) {
    const double longest_round = *std::max_element(last_round.begin(), last_round.end());
    const double least_sleep = std::max(0.0, p_.cycle_ms - longest_round);
    double last = 0;
    ready = true;
    for (size_t i = 0; i < ranks; ++i) {
      const double sleep = global ? least_sleep : std::max(0.0, p_.cycle_ms - last_round[i]);
      arrives[i] = sleep > 0 ? sleep + threads_.oversleep.draw(random_) : 0;
      last = std::max(last, arrives[i]);
      done[i] += arrives[i];
      ready = ready && done[i] >= work_.needs_ms[i];
    }
    count_round();
    const double length = last + ends_after;
    for (size_t i = 0; i < ranks; ++i) {
      last_round[i] = length - arrives[i];
      done[i] = spin(done[i], last_round[i]);
    }
    now += length;
  }
  std::fill(launches_.begin(), launches_.end(), now);
}

// A round takes from the moment at which its last thread has begun it; each thread sees the end
// when it wakes next, and begins another round then.
void Step::nonblocking_rounds() {
  const double phase = random_.uniform() * p_.cycle_ms;
  for (double& each : launches_) each = phase;
  for (bool ready = false; !ready;) {
    double last = 0;
    ready = true;
    for (size_t i = 0; i < launches_.size(); ++i) {
      last = std::max(last, launches_[i]);
      ready = ready && launches_[i] >= work_.needs_ms[i];
    }
    count_round();
    for (double& wakes : launches_) {
      do {
        wakes += p_.cycle_ms + threads_.oversleep.draw(random_);
      } while (wakes < last + synchronisation_ms_);
    }
  }
}

// The order is known: each thread looks once a cycle whether its own tensors are there.
void Step::cycles_without_rounds() {
  for (size_t i = 0; i < launches_.size(); ++i) {
    double wakes = random_.uniform() * p_.cycle_ms;
    while (wakes < work_.needs_ms[i]) wakes += p_.cycle_ms + threads_.oversleep.draw(random_);
    launches_[i] = wakes;
  }
}

StepTimes Step::run() {
  if (spec_.gpus > 1) {
    switch (spec_.mode) {
      case Mode::kNonblocking: nonblocking_rounds(); break;
      case Mode::kTopo: cycles_without_rounds(); break;
      default: blocking_rounds();
    }
  }
  const DataTimes data = data_times(spec_);
  double sum = 0;
  double last = 0;
  for (const double launch : launches_) {
    sum += launch;
    last = std::max(last, launch);
  }
  const double mean = sum / spec_.gpus;
  times_.compute_ms = work_.mean_own_ms;
  times_.background_ms = mean - work_.mean_own_ms;
  times_.copy_ms = data.copy_ms;
  times_.allreduce_ms = last - mean + data.allreduce_ms;
  times_.data_ms = data.copy_ms + data.allreduce_ms;
  times_.step_ms = last + times_.data_ms;
  return times_;
}

}  // namespace

StepTimes horovod_step(const RunSpec& spec, Random& random) { return Step(spec, random).run(); }

}  // namespace rueda::scale
