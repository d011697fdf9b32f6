// Prints what rueda-sim has found: rows for people, or one JSON object a line.
#pragma once

#include <string>

#include <nlohmann/json.hpp>

#include "bench/sim/paper.h"
#include "bench/sim/run.h"

namespace rueda::scale {

// Returns a result as JSON; its keys are in the order that docs/scale.md lists.
nlohmann::ordered_json to_json(const RunResult& result);
// Gives a value of the paper, for scale.py to compare with.
nlohmann::ordered_json to_json(const PaperValue& value);
std::string table_head();
std::string to_row(const RunResult& result);

}  // namespace rueda::scale
