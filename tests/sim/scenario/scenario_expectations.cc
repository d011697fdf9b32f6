// Implements the phrases that begin with "expect", which say what must follow.

#include "tests/sim/scenario/scenario_runner.h"
#include "tests/sim/setup/names.h"

namespace rueda::sim {

core::Launch ScenarioRunner::take_launch(int index, const Words& names, const Words& seq,
                                         uint32_t set) {
  std::deque<core::Launch>& launches = said_[static_cast<size_t>(index)].launches[set];
  if (launches.empty()) throw Objection(name_of(index) + " launches nothing");
  core::Output first;
  first.launches = {launches.front()};
  const std::string is = describe(world().layout(), NodeIndex{index}, first).front();
  const std::string wanted = "launches " + seq[0] + " = " + names[0];
  if (is != wanted && !is.starts_with(wanted + " ")) throw Objection(name_of(index) + " " + is);
  core::Launch launch = std::move(launches.front());
  launches.pop_front();
  return launch;
}

void ScenarioRunner::expect_launch(const std::vector<Words>& args) {
  for (int index : nodes(args[0])) take_launch(index, args[1], args[2]);
}

void ScenarioRunner::expect_launch_without(const std::vector<Words>& args) {
  for (int index : nodes(args[0])) {
    const core::Launch launch = take_launch(index, args[1], args[2]);
    for (int rank : all_ranks(args[3])) {
      const auto local = static_cast<size_t>(world().local_rank(rank).value);
      if (!launch.tickets_of(0)[local]) continue;
      throw Objection(name_of(index) + " launches it with rank " + std::to_string(rank));
    }
  }
}

void ScenarioRunner::expect_launch_in_generation(const std::vector<Words>& args) {
  for (int index : nodes(args[0])) {
    const uint32_t is = take_launch(index, args[1], args[2], set_in(args, 4)).generation;
    if (std::stoul(args[3][0]) != is) {
      throw Objection(name_of(index) + " launches it in generation " + std::to_string(is));
    }
  }
}

void ScenarioRunner::expect_ring(const std::vector<Words>& args) {
  for (int index : nodes(args[0])) {
    Words is;
    for (const NodeIndex node : world().node(index).core->layout().ring()) {
      is.push_back(name_of(node.value));
    }
    if (is != args[1]) throw Objection(name_of(index) + " has another ring");
  }
}

void ScenarioRunner::expect_no_launch(const std::vector<Words>& args) {
  for (int index : nodes(args[0])) {
    for (const auto& [set, launches] : said_[static_cast<size_t>(index)].launches) {
      core::Output all;
      all.launches.assign(launches.begin(), launches.end());
      if (launches.empty()) continue;
      throw Objection(name_of(index) + " " +
                      describe(world().layout(), NodeIndex{index}, all).front());
    }
  }
}

const ScenarioRunner::Result& ScenarioRunner::take_result(int rank, const std::string& tensor) {
  std::deque<Result>& results = results_[static_cast<size_t>(rank)];
  const std::string who = "rank " + std::to_string(rank);
  if (results.empty()) throw Objection(who + " gets nothing");
  if (results.front().tensor != tensor) {
    throw Objection(who + " gets " + results.front().tensor + " first");
  }
  taken_ = std::move(results.front());
  results.pop_front();
  return taken_;
}

void ScenarioRunner::expect_result(const std::vector<Words>& args) {
  for (int rank : all_ranks(args[0])) {
    const Status& status = take_result(rank, args[1][0]).delivery.status;
    if (status.is_ok()) continue;
    throw Objection("rank " + std::to_string(rank) + " gets it with " + status.to_string());
  }
}

void ScenarioRunner::expect_set(const std::vector<Words>& args) {
  for (int rank : all_ranks(args[0])) {
    const core::Delivery& delivery = take_result(rank, core::kProcessSetsName).delivery;
    if (delivery.status.is_ok() && delivery.value == set_in(args, 1)) continue;
    throw Objection("rank " + std::to_string(rank) + " gets set " + std::to_string(delivery.value) +
                    ", " + delivery.status.to_string());
  }
}

void ScenarioRunner::expect_error(const std::vector<Words>& args) {
  for (int rank : all_ranks(args[0])) {
    const Status& status = take_result(rank, args[1][0]).delivery.status;
    if (to_string(status.code()) == args[2][0] &&
        status.message().find(args[3][0]) != std::string::npos) {
      continue;
    }
    throw Objection("rank " + std::to_string(rank) + " gets it with " + status.to_string());
  }
}

void ScenarioRunner::expect_joined(const std::vector<Words>& args) {
  for (int rank : all_ranks(args[0])) {
    const core::Delivery& delivery = take_result(rank, core::kJoinName).delivery;
    const auto last = static_cast<uint32_t>(all_ranks(args[1]).front());
    if (delivery.status.is_ok() && delivery.value == last) continue;
    throw Objection("rank " + std::to_string(rank) + " hears that rank " +
                    std::to_string(delivery.value) + " was the last, " +
                    delivery.status.to_string());
  }
}

void ScenarioRunner::expect_contributors(const std::vector<Words>& args) {
  for (int rank : all_ranks(args[0])) {
    const core::Delivery& delivery = take_result(rank, args[1][0]).delivery;
    if (delivery.status.is_ok() && delivery.epoch.value == std::stoul(args[2][0]) &&
        delivery.contributors == std::stoul(args[3][0])) {
      continue;
    }
    throw Objection("rank " + std::to_string(rank) + " gets it of epoch " +
                    std::to_string(delivery.epoch.value) + " with " +
                    std::to_string(delivery.contributors) + " contributors, " +
                    delivery.status.to_string());
  }
}

void ScenarioRunner::expect_no_result(const std::vector<Words>& args) {
  for (int rank : all_ranks(args[0])) {
    const auto& results = results_[static_cast<size_t>(rank)];
    if (results.empty()) continue;
    throw Objection("rank " + std::to_string(rank) + " gets " + results.front().tensor + " with " +
                    results.front().delivery.status.to_string());
  }
}

void ScenarioRunner::expect_message(const std::vector<Words>& args) {
  const std::deque<core::Message>& messages = stream(args[1], args[2]).messages;
  const std::string way = " from " + args[1][0] + " to " + args[2][0];
  if (messages.empty()) throw Objection("no message is on its way" + way);
  if (args[0][0] == kind_of(messages.front())) return;
  throw Objection(std::string("the next message") + way + " is " + kind_of(messages.front()) +
                  ": " + describe(messages.front()));
}

void ScenarioRunner::expect_no_message(const std::vector<Words>&) {
  for (const auto& [ends, on] : streams_) {
    if (on.messages.empty()) continue;
    throw Objection("on its way from " + name_of(ends.first) + " to " + name_of(ends.second) +
                    ": " + kind_of(on.messages.front()));
  }
}

void ScenarioRunner::expect_no_message_between(const std::vector<Words>& args) {
  const Stream& on = stream(args[0], args[1]);
  if (on.messages.empty()) return;
  throw Objection(std::string("there is a ") + kind_of(on.messages.front()));
}

void ScenarioRunner::expect_abandoned(const std::vector<Words>& args) {
  for (int index : nodes(args[0])) {
    if (std::exchange(said_[static_cast<size_t>(index)].abandoned_plans, 0) > 0) continue;
    throw Objection(name_of(index) + " abandons no plan");
  }
}

void ScenarioRunner::expect_state(const std::vector<Words>& args) {
  for (int index : nodes(args[0])) {
    const char* is = to_string(world().node(index).core->state());
    if (args[1][0] != is) throw Objection(name_of(index) + " is " + is);
  }
}

void ScenarioRunner::expect_epoch(const std::vector<Words>& args) {
  for (int index : nodes(args[0])) {
    const uint32_t is = world().node(index).core->epoch().value;
    if (std::stoul(args[1][0]) != is)
      throw Objection(name_of(index) + " is in epoch " + std::to_string(is));
  }
}

void ScenarioRunner::expect_failure(const std::vector<Words>& args) {
  for (int index : nodes(args[0])) {
    const std::optional<Status>& failure = said_[static_cast<size_t>(index)].failure;
    if (!failure) throw Objection(name_of(index) + " has not failed");
    if (to_string(failure->code()) == args[1][0] &&
        failure->message().find(args[2][0]) != std::string::npos) {
      continue;
    }
    throw Objection(name_of(index) + " fails with " + failure->to_string());
  }
}

bool ScenarioRunner::is_locked(int index, uint32_t set) {
  for (const core::Collectives* of : world().node(index).core->process_sets()) {
    if (of->id() == set) return of->is_locked();
  }
  throw Objection(name_of(index) + " has no set " + std::to_string(set));
}

void ScenarioRunner::expect_locked(const std::vector<Words>& args) {
  for (int index : nodes(args[0])) {
    if (!is_locked(index, set_in(args, 1))) throw Objection(name_of(index) + " is not locked");
  }
}

void ScenarioRunner::expect_not_locked(const std::vector<Words>& args) {
  for (int index : nodes(args[0])) {
    if (is_locked(index, set_in(args, 1))) throw Objection(name_of(index) + " is locked");
  }
}

void ScenarioRunner::expect_cancel(const std::vector<Words>& args) {
  for (int index : nodes(args[0])) {
    std::deque<core::Cancel>& cancels = said_[static_cast<size_t>(index)].cancels[set_in(args, 2)];
    if (cancels.empty()) throw Objection(name_of(index) + " cancels nothing");
    const uint64_t is = cancels.front().first.value;
    if (std::stoull(args[1][0]) != is) {
      throw Objection(name_of(index) + " cancels from " + std::to_string(is) + " on");
    }
    cancels.pop_front();
  }
}

void ScenarioRunner::expect_members(const std::vector<Words>& args) {
  for (int index : nodes(args[0])) {
    const std::optional<core::NextEpoch>& next = said_[static_cast<size_t>(index)].recovered;
    if (!next) throw Objection(name_of(index) + " has entered no other epoch");
    Words members;
    for (const NodeIndex member : next->members) members.push_back(name_of(member.value));
    if (members != args[1]) throw Objection(name_of(index) + " " + describe(*next));
  }
}

void ScenarioRunner::expect_repeated(const std::vector<Words>& args) {
  for (int index : nodes(args[0])) {
    const core::Launch launch = take_launch(index, args[1], args[2]);
    if (!launch.from_partial) throw Objection(name_of(index) + " launches it for the first time");
  }
}

void ScenarioRunner::expect_fetch(const std::vector<Words>& args) {
  for (int index : nodes(args[0])) {
    const Said& heard = said_[static_cast<size_t>(index)];
    if (!heard.recovered) throw Objection(name_of(index) + " has entered no other epoch");
    bool is_fetched = false;
    for (const core::CarriedOperation& operation : heard.recovered->operations) {
      is_fetched |= std::to_string(operation.was.value) == args[1][0] &&
                    std::to_string(operation.seq.value) == args[2][0] &&
                    operation.verdict == core::Verdict::kComplete;
    }
    if (!is_fetched) throw Objection(name_of(index) + " " + describe(*heard.recovered));
  }
}

}  // namespace rueda::sim
