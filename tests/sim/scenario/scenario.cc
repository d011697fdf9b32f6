#include "tests/sim/scenario/scenario.h"

#include <fstream>
#include <sstream>

#include "tests/sim/scenario/scenario_runner.h"

namespace rueda::sim {
namespace {

struct Phrase {
  const char* words;
  void (Teller::*carry_out)(const std::vector<Words>& said);
};

constexpr Phrase kPhrases[] = {
    {"ranks NAMES", &Teller::ranks},
    {"racks NAMES", &Teller::racks},
    {"set NUMBER has ranks NAMES", &Teller::set},
    {"tensor WORD WORD NUMBER", &Teller::tensor},
    {"tensor WORD WORD NUMBER in group WORD", &Teller::grouped_tensor},
    {"tensor WORD WORD NUMBER after NAMES", &Teller::dependent_tensor},
    {"broadcast WORD WORD NUMBER from RANKS", &Teller::broadcast},
    {"mode WORD", &Teller::mode},
    {"policy shrink", &Teller::shrink},
    {"witness", &Teller::witness},
    {"option WORD NUMBER", &Teller::option},

    {"start", &Teller::start},
    {"RANKS attaches", &Teller::rank_attaches},
    {"RANKS submits NAMES with NUMBER elements", &Teller::rank_submits_shape},
    {"RANKS submits NAMES to set NUMBER", &Teller::rank_submits_to_set},
    {"RANKS submits NAMES", &Teller::rank_submits},
    {"RANKS adds set NUMBER", &Teller::rank_adds_set},
    {"RANKS declares NAMES", &Teller::rank_declares},
    {"RANKS joins", &Teller::rank_joins},
    {"RANKS waits for WORD", &Teller::rank_waits},
    {"RANKS leaves", &Teller::rank_leaves},
    {"RANKS dies", &Teller::rank_dies},
    {"deliver WORD from NODE to NODE", &Teller::deliver},
    {"deliver WORD from NODE to NODE again", &Teller::deliver_again},
    {"deliver everything", &Teller::deliver_everything},
    {"WORD from NODE to NODE is lost", &Teller::message_is_lost},
    {"NODES completes WORD", &Teller::node_completes},
    {"NODES completes WORD of set NUMBER", &Teller::node_completes},
    {"everything completes", &Teller::node_completes_everything},
    {"NUMBER steps of NAMES in set NUMBER", &Teller::steps},
    {"NUMBER steps of NAMES", &Teller::steps},
    {"NODE dies", &Teller::node_dies},
    {"NODE is closed", &Teller::node_is_closed},
    {"NODE freezes", &Teller::node_freezes},
    {"NODE thaws", &Teller::node_thaws},
    {"NODE loses NODE", &Teller::node_loses},
    {"NODE sees that NODE means another batch by NUMBER in generation NUMBER",
     &Teller::operation_diverges},
    {"NODE sees its channel to NODE break", &Teller::channel_breaks},
    {"NODE has chunks WORD of WORD", &Teller::node_has_chunks},
    {"NUMBER ms pass", &Teller::time_passes},
    {"NUMBER ms pass, and all messages arrive", &Teller::time_passes_with_messages},

    {"expect NODES launches nothing", &Teller::expect_no_launch},
    {"expect NODES has the ring NAMES", &Teller::expect_ring},
    {"expect NODES launches WORD as WORD", &Teller::expect_launch},
    {"expect NODES launches WORD as WORD without RANKS", &Teller::expect_launch_without},
    {"expect NODES launches WORD as WORD in generation NUMBER",
     &Teller::expect_launch_in_generation},
    {"expect NODES launches WORD as WORD in generation NUMBER of set NUMBER",
     &Teller::expect_launch_in_generation},
    {"expect RANKS gets nothing", &Teller::expect_no_result},
    {"expect RANKS gets WORD", &Teller::expect_result},
    {"expect RANKS gets set NUMBER", &Teller::expect_set},
    {"expect RANKS gets WORD with WORD WORD", &Teller::expect_error},
    {"expect RANKS comes back, and RANKS was the last to join", &Teller::expect_joined},
    {"expect RANKS gets WORD of epoch NUMBER with NUMBER contributors",
     &Teller::expect_contributors},
    {"expect WORD from NODE to NODE", &Teller::expect_message},
    {"expect no message", &Teller::expect_no_message},
    {"expect no message from NODE to NODE", &Teller::expect_no_message_between},
    {"expect NODES is locked", &Teller::expect_locked},
    {"expect NODES is not locked", &Teller::expect_not_locked},
    {"expect NODES is locked in set NUMBER", &Teller::expect_locked},
    {"expect NODES is not locked in set NUMBER", &Teller::expect_not_locked},
    {"expect NODES cancels from NUMBER", &Teller::expect_cancel},
    {"expect NODES cancels from NUMBER in set NUMBER", &Teller::expect_cancel},
    {"expect NODES goes on with NAMES", &Teller::expect_members},
    {"expect NODES repeats WORD as WORD", &Teller::expect_repeated},
    {"expect NODES completes WORD as WORD", &Teller::expect_fetch},
    {"expect NODES abandons the plan", &Teller::expect_abandoned},
    {"expect NODES is WORD", &Teller::expect_state},
    {"expect NODES in epoch NUMBER", &Teller::expect_epoch},
    {"expect NODES fails with WORD WORD", &Teller::expect_failure},
};

// Does what the line says. Throws an Objection if it makes no sense, or was not fulfilled.
void tell(Teller& teller, const Words& line) {
  for (const Phrase& phrase : kPhrases) {
    const auto said = match(phrase.words, line);
    if (!said) continue;
    (teller.*phrase.carry_out)(*said);
    teller.end_line();
    return;
  }
  throw Objection("there is no such phrase");
}

}  // namespace

ScenarioResult run_scenario(const std::string& name, const std::string& text) {
  ScenarioResult result;
  Teller teller;
  std::istringstream lines(text);
  int number = 0;
  for (std::string line; result.error.empty() && std::getline(lines, line);) {
    ++number;
    const Words words = split_words(line);
    if (words.empty()) continue;
    try {
      tell(teller, words);
    } catch (const std::exception& objection) {
      result.error = name + ":" + std::to_string(number) + ": " + line + ": " + objection.what();
    }
  }
  result.trace = teller.trace();
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
