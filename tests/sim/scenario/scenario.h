// Runs stories in text files (tests/sim/scenarios): each tells, line by line, what happens to the
// nodes of a job and what they must then do. The phrases are those of the table in scenario.cc;
// docs/testing.md explains them. Nothing moves unless the story says so.
#pragma once

#include <string>
#include <vector>

namespace rueda::sim {

struct ScenarioResult {
  std::string error;  // empty if all went as told; otherwise "FILE:LINE: what"
  std::vector<std::string> trace;
};

// Runs a story; `name` stands for the file in errors.
ScenarioResult run_scenario(const std::string& name, const std::string& text);
ScenarioResult run_scenario_file(const std::string& path);

}  // namespace rueda::sim
