#include "tests/sim/run/shrink.h"

#include <algorithm>
#include <numeric>
#include <optional>

namespace rueda::sim {
namespace {

std::string rule_of(const std::string& violation) {
  return violation.substr(0, violation.find(':'));
}

// Takes a rank out of all sets, which must stay different from each other and from that of all
// ranks.
void drop_rank_of_sets(RunSetup& setup, int gone) {
  std::vector<std::vector<int>> kept;
  for (std::vector<int> ranks : setup.sets) {
    std::erase(ranks, gone);
    for (int& rank : ranks) rank -= rank > gone;
    const bool is_all = static_cast<int>(ranks.size()) == setup.world_size();
    const bool is_there = std::find(kept.begin(), kept.end(), ranks) != kept.end();
    if (!ranks.empty() && !is_all && !is_there) kept.push_back(std::move(ranks));
  }
  setup.sets = std::move(kept);
}

// These return the setup without one thing, or nullopt if it cannot be without.
std::optional<RunSetup> without_rank(RunSetup setup, size_t node) {
  if (setup.world_size() == 1) return std::nullopt;
  --setup.ranks[node];
  // The rank that goes is the node's last one.
  const auto upper = setup.ranks.begin() + static_cast<std::ptrdiff_t>(node) + 1;
  drop_rank_of_sets(setup, std::accumulate(setup.ranks.begin(), upper, 0));
  if (setup.ranks[node] == 0) {
    setup.ranks.erase(setup.ranks.begin() + static_cast<std::ptrdiff_t>(node));
    const int gone = static_cast<int>(node);
    if (!setup.racks.empty()) setup.racks.erase(setup.racks.begin() + gone);
    const auto renumber = [&](int& other) { other -= other > gone; };
    for (FaultSetup& fault : setup.faults) {
      renumber(fault.node);
      renumber(fault.other);
    }
  }
  // Settings that named a rank or node past the new end now name the last one.
  const int last_rank = setup.world_size() - 1;
  const int last_node = setup.voter_count() - 1;
  setup.leaver = std::min(setup.leaver, last_rank);
  if (!setup.joins.empty()) setup.joins.pop_back();
  for (TensorSetup& tensor : setup.tensors) {
    Rank& root = tensor.descriptor.root;
    root = std::min(root, Rank{last_rank});
  }
  for (StraySetup& stray : setup.strays) stray.rank = std::min(stray.rank, last_rank);
  for (FaultSetup& fault : setup.faults) {
    fault.rank = std::min(fault.rank, last_rank);
    fault.node = std::min(fault.node, last_node);
    fault.other = std::min(fault.other, last_node);
  }
  return setup;
}

std::optional<RunSetup> without_witness(RunSetup setup) {
  if (!std::exchange(setup.has_witness, false)) return std::nullopt;
  const int last_node = setup.voter_count() - 1;
  for (FaultSetup& fault : setup.faults) {
    fault.node = std::min(fault.node, last_node);
    fault.other = std::min(fault.other, last_node);
  }
  return setup;
}

std::optional<RunSetup> without_tensor(RunSetup setup, size_t gone) {
  if (setup.tensors.size() == 1) return std::nullopt;
  const std::string group = setup.tensors[gone].descriptor.group;
  setup.tensors.erase(setup.tensors.begin() + static_cast<std::ptrdiff_t>(gone));
  for (TensorSetup& tensor : setup.tensors) {
    if (!group.empty() && tensor.descriptor.group == group) --tensor.descriptor.group_size;
  }
  std::erase_if(setup.strays, [&](const StraySetup& stray) { return stray.tensor == gone; });
  for (StraySetup& stray : setup.strays) stray.tensor -= stray.tensor > gone;
  return setup;
}

class Shrinker {
 public:
  Shrinker(const RunSetup& setup, int max_runs, const Runner& runner)
      : setup_(setup), max_runs_(max_runs), runner_(runner) {
    RunOptions options;
    options.record_choices = true;
    const RunResult result = runner_(setup_, RandomChoices(setup_.seed), options);
    rule_ = rule_of(result.violation);
    choices_ = result.choices;
  }

  SmallRun shrink() {
    // Small things go first, because most choices go with the things that they were about.
    for (bool smaller = !rule_.empty(); smaller && runs_ < max_runs_;) {
      smaller = drop_things();
      smaller = simplify() || smaller;
      smaller = quieten() || smaller;
    }
    SmallRun small{setup_, choices_, {}, runs_};
    RunOptions options;
    options.keep_trace = true;
    small.result = runner_(setup_, RandomChoices(choices_), options);
    return small;
  }

 private:
  // Returns whether the rule is still broken; if so, the search goes on with this run.
  bool accept(const RunSetup& setup, const std::vector<Choice>& choices) {
    if (runs_ >= max_runs_) return false;
    ++runs_;
    RunOptions options;
    options.record_choices = true;
    RunResult result = runner_(setup, RandomChoices(choices), options);
    if (rule_of(result.violation) != rule_) return false;
    setup_ = setup;
    choices_ = std::move(result.choices);  // the choices of the script that were used
    return true;
  }
  bool accept(const std::optional<RunSetup>& setup) { return setup && accept(*setup, choices_); }

  // Tries the change for each index, the last first, as long as there is one.
  template <class Count, class Change>
  bool for_each_last_first(Count count, Change change) {
    bool smaller = false;
    for (size_t i = count(); i-- > 0;) {
      if (i < count() && accept(change(i))) smaller = true;
    }
    return smaller;
  }

  bool drop_things() {
    bool smaller = for_each_last_first(
        [&] { return setup_.faults.size(); },
        [&](size_t i) -> std::optional<RunSetup> {
          RunSetup next = setup_;
          next.faults.erase(next.faults.begin() + static_cast<std::ptrdiff_t>(i));
          return next;
        });
    smaller |= for_each_last_first(
        [&] { return setup_.strays.size(); },
        [&](size_t i) -> std::optional<RunSetup> {
          RunSetup next = setup_;
          next.strays.erase(next.strays.begin() + static_cast<std::ptrdiff_t>(i));
          return next;
        });
    smaller |=
        for_each_last_first([&] { return setup_.sets.size(); },
                            [&](size_t i) -> std::optional<RunSetup> {
                              RunSetup next = setup_;
                              next.sets.erase(next.sets.begin() + static_cast<std::ptrdiff_t>(i));
                              return next;
                            });
    for (int again = 0; again < 3; ++again) {
      smaller |= for_each_last_first([&] { return setup_.ranks.size(); },
                                     [&](size_t i) { return without_rank(setup_, i); });
    }
    smaller |= for_each_last_first([&] { return setup_.tensors.size(); },
                                   [&](size_t i) { return without_tensor(setup_, i); });
    while (setup_.steps > 1) {
      RunSetup next = setup_;
      --next.steps;
      for (StraySetup& stray : next.strays) stray.step = std::min(stray.step, next.steps - 1);
      for (int& join : next.joins) join = std::min(join, next.steps);
      if (!accept(next)) break;
      smaller = true;
    }
    return smaller;
  }

  template <class Field, class Value>
  bool try_value(Field RunSetup::*field, Value value) {
    if (setup_.*field == static_cast<Field>(value)) return false;
    RunSetup next = setup_;
    next.*field = static_cast<Field>(value);
    return accept(next);
  }

  bool simplify() {
    bool smaller = try_value(&RunSetup::epochs, 1);
    smaller |= accept(without_witness(setup_));
    smaller |= try_value(&RunSetup::reordered, false);
    smaller |= try_value(&RunSetup::eager, false);
    smaller |= try_value(&RunSetup::leaver, -1);
    smaller |= try_value(&RunSetup::declares, Declares::kNothing);
    smaller |= try_value(&RunSetup::autotunes, false);
    smaller |= try_value(&RunSetup::replays, false);
    smaller |= try_value(&RunSetup::joins, std::vector<int>());
    smaller |= try_value(&RunSetup::fusion_threshold_bytes, 0);
    smaller |= try_value(&RunSetup::look_ahead_units, 0);
    for (size_t i = 0; i < setup_.tensors.size(); ++i) {
      RunSetup next = setup_;
      TensorSetup& tensor = next.tensors[i];
      const std::string name = tensor.descriptor.name;
      if (tensor.descriptor.group.empty()) tensor = TensorSetup{};
      tensor.descriptor.name = name;
      tensor.descriptor.shape = {1};
      if (tensor.kinds == setup_.tensors[i].kinds && tensor.after == setup_.tensors[i].after &&
          tensor.descriptor == setup_.tensors[i].descriptor) {
        continue;
      }
      smaller |= accept(next);
    }
    // A fault that comes sooner needs fewer steps before it.
    for (size_t i = 0; i < setup_.faults.size(); ++i) {
      for (bool sooner = true; sooner && setup_.faults[i].at > 1;) {
        RunSetup next = setup_;
        next.faults[i].at /= 2;
        sooner = accept(next);
        smaller |= sooner;
      }
    }
    return smaller;
  }

  // Leaves out ever smaller stretches of the choices.
  bool quieten() {
    bool smaller = false;
    for (size_t stretch = choices_.size(); stretch > 0; stretch /= 2) {
      for (size_t begin = 0; begin < choices_.size();) {
        std::vector<Choice> next = choices_;
        const size_t end = std::min(begin + stretch, next.size());
        next.erase(next.begin() + static_cast<std::ptrdiff_t>(begin),
                   next.begin() + static_cast<std::ptrdiff_t>(end));
        if (accept(setup_, next)) {
          smaller = true;
        } else {
          begin += stretch;
        }
      }
    }
    return smaller;
  }

  RunSetup setup_;
  std::vector<Choice> choices_;
  std::string rule_;
  const int max_runs_;
  int runs_ = 0;
  const Runner& runner_;
};

}  // namespace

RunResult simulate(const RunSetup& setup, RandomChoices choices, const RunOptions& options) {
  return Simulator(setup, std::move(choices), options).run();
}

SmallRun shrink(const RunSetup& setup, int max_runs, const Runner& runner) {
  return Shrinker(setup, max_runs, runner).shrink();
}

std::vector<std::string> report(const SmallRun& run) {
  std::vector<std::string> lines = run.setup.lines();
  for (const Choice& choice : run.choices) {
    lines.push_back("choice " + choice.key.text() + " = " + std::to_string(choice.value));
  }
  lines.insert(lines.end(), run.result.trace.begin(), run.result.trace.end());
  return lines;
}

}  // namespace rueda::sim
