// What a job's command line says about how its nodes agree on the order of operations, and carry
// them out.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace rueda::agent {

// Where nothing is said, the daemon's own word counts.
struct AgreementSettings {
  std::string coordination;  // a mode's name; the daemon knows them
  std::optional<uint64_t> fusion_threshold_bytes;
  std::optional<uint32_t> lock_after_steps;
  std::optional<uint64_t> cache_capacity;  // tensors
  std::string algorithm;                   // of all-reduces between nodes; the daemon knows them
  // Batches and algorithms follow from the tensors alone. fusion_threshold_bytes is not set then.
  bool is_deterministic = false;
  std::string reducer;     // a reducer's name; likewise
  std::string inter_node;  // what carries device memory between nodes; likewise
  // Decision 51. Files are absolute, and of the first node; empty: none.
  bool autotunes = false;
  std::string autotune_log;
  std::string plan;           // to be replayed
  std::string replayed_plan;  // what is in it, where it was read (plan_file.h)
  std::string record_plan;    // where the plan in force goes
};

}  // namespace rueda::agent
