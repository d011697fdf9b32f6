// Holds the settings of a job's command line about how its nodes agree on the order of operations,
// and how they carry them out.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace rueda::agent {

// A setting that is not given on the command line is left to the daemon.
struct AgreementSettings {
  std::string coordination;  // name of a mode; the daemon checks it
  std::optional<uint64_t> fusion_threshold_bytes;
  std::optional<uint32_t> lock_after_steps;
  std::optional<uint64_t> cache_capacity;  // tensors
  std::optional<double> cycle_time_ms;     // in modes with a cycle; it is within limits.h's bounds
  std::optional<uint32_t> sleep_agreed_every;  // cycles, in mode "global-sleep"
  std::string algorithm;                       // of all-reduces between nodes; the daemon checks it
  std::optional<uint32_t> servers;             // of algorithm "central"; the daemon checks it
  // The failure timeout that the job's daemons must have; nullopt: any.
  std::optional<double> failure_timeout_seconds;
  std::string transport;        // that the job's daemons must have; empty: any
  std::string data_protection;  // that the job's daemons must have; empty: any
  std::string preset;           // name of a preset (presets.h)
  // If true, batches and algorithms follow from the tensors alone. fusion_threshold_bytes is then
  // not set.
  bool is_deterministic = false;
  std::string reducer;     // name of a reducer; the daemon checks it
  std::string inter_node;  // the carrier of device memory between nodes; the daemon checks it
  // These fields are for autotuning and recorded plans (decision 51). Paths of files are absolute,
  // and on the first node; an empty path means that there is no such file.
  bool autotunes = false;
  std::string autotune_log;
  std::string plan;           // file of a plan to be replayed
  std::string replayed_plan;  // contents of that file, on the node where it was read (plan_file.h)
  std::string record_plan;    // file that the plan in force is written to
};

}  // namespace rueda::agent
