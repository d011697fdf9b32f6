// What rueda-sim prints: rows for people, or one JSON object a line.
#pragma once

#include <string>

#include <nlohmann/json.hpp>

#include "bench/sim/run.h"

namespace rueda::scale {

// Keys in the order that docs/scale.md lists.
nlohmann::ordered_json to_json(const RunResult& result);
std::string table_head();
std::string to_row(const RunResult& result);

}  // namespace rueda::scale
