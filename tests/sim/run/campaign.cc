#include "tests/sim/run/campaign.h"

#include <algorithm>
#include <atomic>
#include <iterator>
#include <mutex>
#include <thread>
#include <vector>

namespace rueda::sim {

std::string CampaignResult::summary() const {
  const auto count = [](uint64_t number, const char* what) {
    return std::to_string(number) + " " + what;
  };
  return count(seeds, "seeds, ") + count(lethal, "with a lethal fault: ") +
         count(events, "events, ") + count(operations, "operations, ") +
         count(locked_launches, "launches by a plan, ") + count(cancels, "unlocks, ") +
         count(recovered, "epochs recovered, ") +
         count(completed_by_decision, "operations completed by decision, ") +
         count(repeated, "repeated, ") + count(delivered_ok, "submissions delivered, ") +
         count(delivered_error, "ended with an error");
}

CampaignResult run_campaign(uint64_t first, uint64_t count, const Limits& limits, bool keep_going) {
  CampaignResult total;
  std::mutex mutex;
  std::atomic<uint64_t> next{0};
  std::atomic<bool> failed{false};
  const auto work = [&] {
    CampaignResult mine;
    // Seeds are handed out in order, so that the lowest seed that fails is always among the
    // failures.
    for (uint64_t i = next++; i < count && !failed; i = next++) {
      const RunSetup setup = draw_setup(first + i, limits);
      const RunResult run = Simulator(setup, RandomChoices(setup.seed), {}).run();
      ++mine.seeds;
      mine.lethal += setup.is_lethal();
      mine.events += run.events;
      mine.operations += run.operations;
      mine.locked_launches += run.locked_launches;
      mine.cancels += run.cancels;
      mine.recovered += run.recovered;
      mine.completed_by_decision += run.completed_by_decision;
      mine.repeated += run.repeated;
      mine.delivered_ok += run.delivered_ok;
      mine.delivered_error += run.delivered_error;
      if (run.violation.empty()) continue;
      failed = !keep_going;
      mine.failures.push_back({setup.seed, run.violation});
    }
    const std::lock_guard lock(mutex);
    total.seeds += mine.seeds;
    total.lethal += mine.lethal;
    total.events += mine.events;
    total.operations += mine.operations;
    total.locked_launches += mine.locked_launches;
    total.cancels += mine.cancels;
    total.recovered += mine.recovered;
    total.completed_by_decision += mine.completed_by_decision;
    total.repeated += mine.repeated;
    total.delivered_ok += mine.delivered_ok;
    total.delivered_error += mine.delivered_error;
    std::move(mine.failures.begin(), mine.failures.end(), std::back_inserter(total.failures));
  };
  std::vector<std::jthread> threads(std::max(1u, std::thread::hardware_concurrency()));
  for (std::jthread& thread : threads) thread = std::jthread(work);
  threads.clear();
  std::sort(total.failures.begin(), total.failures.end(),
            [](const Failure& a, const Failure& b) { return a.seed < b.seed; });
  return total;
}

}  // namespace rueda::sim
