#include "bench/sim/service.h"

#include <algorithm>
#include <exception>
#include <future>
#include <map>
#include <numeric>
#include <tuple>
#include <vector>

#include "bench/sim/order.h"
#include "daemon/base/limits.h"
#include "daemon/base/mutex.h"

namespace rueda::scale {
namespace {

// Steps until the cache has all tensors, or until the schedule has been locked for one.
constexpr int kStepsUntilCached = 3;
constexpr int kStepsUntilLocked = 5;
// The tensors of ResNet-50 stand for those of all networks in the mode `cached`, whose messages
// have a bit for each.
constexpr int kTensorsOfResNet50 = 161;
// A locked schedule sends nothing, however many tensors it has (OrderTest), so a few say what it
// costs.
constexpr int kTensorsOfLock = 8;

// Makes each run of the shipped core once, because those of many nodes take seconds. Thread-safe.
class Agreements {
 public:
  // Returns the last step of the run. Who asks for one that another thread makes waits for it.
  OrderStep last_step(const OrderSpec& spec) RUEDA_EXCLUDES(mutex_) {
    const Parameters& p = spec.parameters;
    const Key key{spec.mode, spec.nodes, p.nic_us, p.switch_us, p.wake_us, p.message_us};
    std::promise<OrderStep> promise;
    std::shared_future<OrderStep> known;
    {
      const MutexLock lock(mutex_);
      const auto [found, is_new] = known_.emplace(key, std::shared_future<OrderStep>());
      if (is_new) found->second = promise.get_future().share();
      if (!is_new) known = found->second;
    }
    if (known.valid()) return known.get();
    try {
      promise.set_value(run_order(spec).steps.back());
    } catch (...) {
      promise.set_exception(std::current_exception());
    }
    const MutexLock lock(mutex_);
    return known_.at(key).get();
  }

 private:
  using Key = std::tuple<core::Coordination, int, double, double, double, double>;
  Mutex mutex_;
  std::map<Key, std::shared_future<OrderStep>> known_ RUEDA_GUARDED_BY(mutex_);
};

// Returns what the last of a few steps costs the shipped core.
OrderStep agree(const RunSpec& spec) {
  const Parameters& p = spec.parameters;
  const bool cached = spec.mode == Mode::kCached;
  OrderSpec order;
  order.mode = cached ? core::Coordination::kCached : core::Coordination::kLocked;
  // Beyond that the core refuses the job. A locked schedule costs each node the same.
  order.nodes = cached ? spec.nodes() : std::min(spec.nodes(), limits::kMaxNodes);
  order.tensors = cached ? kTensorsOfResNet50 : kTensorsOfLock;
  order.steps = cached ? kStepsUntilCached : kStepsUntilLocked;
  order.parameters = p;
  static Agreements agreements;
  return agreements.last_step(order);
}

// Returns when each node launches: when all of its ranks have their gradients and its daemon, on a
// core of its own, has agreed.
std::vector<double> launches_of(const RunSpec& spec, const Work& work, double agrees_ms,
                                Random& random) {
  const Delay own{1, spec.parameters.own_core_delay_us / 1e3, spec.parameters.longest_delay_ms};
  std::vector<double> launches(static_cast<size_t>(spec.nodes()), 0);
  for (size_t rank = 0; rank < work.needs_ms.size(); ++rank) {
    double& node = launches[rank / static_cast<size_t>(spec.gpus_per_node)];
    node = std::max(node, work.needs_ms[rank]);
  }
  for (double& each : launches) each += agrees_ms + own.draw(random);
  return launches;
}

}  // namespace

StepTimes service_step(const RunSpec& spec, Random& random) {
  const Parameters& p = spec.parameters;
  // The training processes lack the cores that the daemon has.
  const double fewer = static_cast<double>(p.daemon_cores) / (p.cores - p.daemon_cores);
  const Work work = draw_work(spec, fewer, random);
  const OrderStep order = agree(spec);
  const std::vector<double> launches = launches_of(spec, work, order.coordination_ms, random);
  const double last = *std::max_element(launches.begin(), launches.end());
  // With a lock each node launches by itself and waits inside the operation; otherwise none does
  // before the last is ready.
  const double mean = spec.mode == Mode::kCached
                          ? last
                          : std::accumulate(launches.begin(), launches.end(), 0.0) / spec.nodes();
  const DataTimes data = data_times(spec);
  StepTimes times;
  times.compute_ms = work.mean_own_ms;
  times.background_ms = mean - work.mean_own_ms;
  times.copy_ms = data.copy_ms;
  times.allreduce_ms = last - mean + data.allreduce_ms;
  times.data_ms = data.copy_ms + data.allreduce_ms;
  times.step_ms = last + times.data_ms;
  times.order_messages = static_cast<double>(order.messages);
  times.coordinator_bytes = static_cast<double>(order.coordinator_bytes);
  return times;
}

}  // namespace rueda::scale
