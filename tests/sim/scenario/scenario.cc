#include "tests/sim/scenario/scenario.h"

#include <fstream>
#include <sstream>

#include "tests/sim/scenario/scenario_runner.h"

namespace rueda::sim {
namespace {

struct Phrase {
  const char* words;
  void (ScenarioRunner::*carry_out)(const std::vector<Words>& args);
};

constexpr Phrase kPhrases[] = {
    {"ranks NAMES", &ScenarioRunner::ranks},
    {"racks NAMES", &ScenarioRunner::racks},
    {"set NUMBER has ranks NAMES", &ScenarioRunner::set},
    {"tensor WORD WORD NUMBER", &ScenarioRunner::tensor},
    {"tensor WORD WORD NUMBER in group WORD", &ScenarioRunner::grouped_tensor},
    {"tensor WORD WORD NUMBER after NAMES", &ScenarioRunner::dependent_tensor},
    {"broadcast WORD WORD NUMBER from RANKS", &ScenarioRunner::broadcast},
    {"mode WORD", &ScenarioRunner::mode},
    {"policy shrink", &ScenarioRunner::shrink},
    {"witness", &ScenarioRunner::witness},
    {"option WORD NUMBER", &ScenarioRunner::option},

    {"start", &ScenarioRunner::start},
    {"RANKS attaches", &ScenarioRunner::rank_attaches},
    {"RANKS submits NAMES with NUMBER elements", &ScenarioRunner::rank_submits_shape},
    {"RANKS submits NAMES to set NUMBER", &ScenarioRunner::rank_submits_to_set},
    {"RANKS submits NAMES", &ScenarioRunner::rank_submits},
    {"RANKS adds set NUMBER", &ScenarioRunner::rank_adds_set},
    {"RANKS declares NAMES", &ScenarioRunner::rank_declares},
    {"RANKS joins", &ScenarioRunner::rank_joins},
    {"RANKS waits for WORD", &ScenarioRunner::rank_waits},
    {"RANKS leaves", &ScenarioRunner::rank_leaves},
    {"RANKS dies", &ScenarioRunner::rank_dies},
    {"deliver WORD from NODE to NODE", &ScenarioRunner::deliver},
    {"deliver WORD from NODE to NODE again", &ScenarioRunner::deliver_again},
    {"deliver everything", &ScenarioRunner::deliver_everything},
    {"WORD from NODE to NODE is lost", &ScenarioRunner::message_is_lost},
    {"NODES completes WORD", &ScenarioRunner::node_completes},
    {"NODES completes WORD of set NUMBER", &ScenarioRunner::node_completes},
    {"everything completes", &ScenarioRunner::node_completes_everything},
    {"NUMBER steps of NAMES in set NUMBER", &ScenarioRunner::steps},
    {"NUMBER steps of NAMES", &ScenarioRunner::steps},
    {"NODE dies", &ScenarioRunner::node_dies},
    {"NODE is closed", &ScenarioRunner::node_is_closed},
    {"NODE freezes", &ScenarioRunner::node_freezes},
    {"NODE thaws", &ScenarioRunner::node_thaws},
    {"NODE loses NODE", &ScenarioRunner::node_loses},
    {"NODE sees that NODE means another batch by NUMBER in generation NUMBER",
     &ScenarioRunner::operation_diverges},
    {"NODE sees its channel to NODE break", &ScenarioRunner::channel_breaks},
    {"NODE has chunks WORD of WORD", &ScenarioRunner::node_has_chunks},
    {"NUMBER ms pass", &ScenarioRunner::time_passes},
    {"NUMBER ms pass, and all messages arrive", &ScenarioRunner::time_passes_with_messages},

    {"expect NODES launches nothing", &ScenarioRunner::expect_no_launch},
    {"expect NODES has the ring NAMES", &ScenarioRunner::expect_ring},
    {"expect NODES launches WORD as WORD", &ScenarioRunner::expect_launch},
    {"expect NODES launches WORD as WORD without RANKS", &ScenarioRunner::expect_launch_without},
    {"expect NODES launches WORD as WORD in generation NUMBER",
     &ScenarioRunner::expect_launch_in_generation},
    {"expect NODES launches WORD as WORD in generation NUMBER of set NUMBER",
     &ScenarioRunner::expect_launch_in_generation},
    {"expect RANKS gets nothing", &ScenarioRunner::expect_no_result},
    {"expect RANKS gets WORD", &ScenarioRunner::expect_result},
    {"expect RANKS gets set NUMBER", &ScenarioRunner::expect_set},
    {"expect RANKS gets WORD with WORD WORD", &ScenarioRunner::expect_error},
    {"expect RANKS comes back, and RANKS was the last to join", &ScenarioRunner::expect_joined},
    {"expect RANKS gets WORD of epoch NUMBER with NUMBER contributors",
     &ScenarioRunner::expect_contributors},
    {"expect WORD from NODE to NODE", &ScenarioRunner::expect_message},
    {"expect no message", &ScenarioRunner::expect_no_message},
    {"expect no message from NODE to NODE", &ScenarioRunner::expect_no_message_between},
    {"expect NODES is locked", &ScenarioRunner::expect_locked},
    {"expect NODES is not locked", &ScenarioRunner::expect_not_locked},
    {"expect NODES is locked in set NUMBER", &ScenarioRunner::expect_locked},
    {"expect NODES is not locked in set NUMBER", &ScenarioRunner::expect_not_locked},
    {"expect NODES cancels from NUMBER", &ScenarioRunner::expect_cancel},
    {"expect NODES cancels from NUMBER in set NUMBER", &ScenarioRunner::expect_cancel},
    {"expect NODES goes on with NAMES", &ScenarioRunner::expect_members},
    {"expect NODES repeats WORD as WORD", &ScenarioRunner::expect_repeated},
    {"expect NODES completes WORD as WORD", &ScenarioRunner::expect_fetch},
    {"expect NODES abandons the plan", &ScenarioRunner::expect_abandoned},
    {"expect NODES is WORD", &ScenarioRunner::expect_state},
    {"expect NODES in epoch NUMBER", &ScenarioRunner::expect_epoch},
    {"expect NODES fails with WORD WORD", &ScenarioRunner::expect_failure},
};

// Does what the line says. Throws an Objection if the line makes no sense, or was not fulfilled.
void tell(ScenarioRunner& runner, const Words& line) {
  for (const Phrase& phrase : kPhrases) {
    const auto args = match(phrase.words, line);
    if (!args) continue;
    (runner.*phrase.carry_out)(*args);
    runner.end_line();
    return;
  }
  throw Objection("there is no such phrase");
}

}  // namespace

ScenarioResult run_scenario(const std::string& name, const std::string& text) {
  ScenarioResult result;
  ScenarioRunner runner;
  std::istringstream lines(text);
  int number = 0;
  for (std::string line; result.error.empty() && std::getline(lines, line);) {
    ++number;
    const Words words = split_words(line);
    if (words.empty()) continue;
    try {
      tell(runner, words);
    } catch (const std::exception& objection) {
      result.error = name + ":" + std::to_string(number) + ": " + line + ": " + objection.what();
    }
  }
  result.trace = runner.trace();
  return result;
}

ScenarioResult run_scenario_file(const std::string& path) {
  std::ifstream file(path);
  if (!file) return {path + ": cannot be read", {}};
  std::ostringstream text;
  text << file.rdbuf();
  return run_scenario(path, text.str());
}

}  // namespace rueda::sim
