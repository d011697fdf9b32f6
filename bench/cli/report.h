// What is printed and written: a table in nccl-tests' manner, and one JSON object a line.
#pragma once

#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

namespace rueda::bench {

// One line of the table: one size of one collective.
struct Row {
  std::string collective;
  uint64_t bytes = 0;
  uint64_t count = 0;  // elements
  std::string dtype;
  std::string op;  // "none" where nothing is reduced
  std::string wire = "same";
  bool in_place = false;
  bool foreign = false;
  int iters = 0;
  int nranks = 1;
  int nnodes = 1;
  double time_us = 0;  // median over the iterations of the slowest rank
  double time_us_p99 = 0;
  double algbw_GBps = 0;
  double busbw_GBps = 0;
  // CPU seconds of all processes for 10^9 bytes of one rank's buffer; nothing for no bytes.
  std::optional<double> cpu_s_per_GB;
  bool cpu_includes_daemons = false;
  // Busy CPUs of rank 0's machine that the job did not use, on average; nothing if too short to
  // tell.
  std::optional<double> noise_cores;
  // Resident memory of its own of the largest daemon after the loop; nothing when none is known.
  std::optional<uint64_t> daemon_memory_bytes;
  uint64_t wrong = 0;  // elements, over all ranks; ranks that differ in bits alone count as one
};

nlohmann::ordered_json to_json(const Row& row);

// A model's gradient set.
struct StepRow {
  std::string set;
  uint64_t tensors = 0;
  uint64_t bytes = 0;
  std::string dtype;
  std::string op;
  std::string wire = "same";
  std::string memory;  // "arena" or "foreign"
  int iters = 0;
  int nranks = 1;
  int nnodes = 1;
  double time_us = 0;
  double time_us_p99 = 0;
  double pace_us = 0;  // a step of the whole loop: what training would see of it
  std::optional<double> cpu_s_per_GB;
  bool cpu_includes_daemons = false;
  std::optional<double> noise_cores;
  std::optional<double> order_messages_per_step;  // nothing when the daemons' metrics do not tell
  // Of new schedules: the first step, the second, ... as they are learned, and when they were
  // declared ahead; medians over several schedules. Empty: not asked for.
  std::vector<double> first_steps_us;
  std::vector<double> first_steps_declared_us;
  std::optional<double> declare_us;  // what declaring took, before the first step
  uint64_t wrong = 0;
};

nlohmann::ordered_json to_json(const StepRow& row);

std::string table_header();
std::string table_line(const Row& row);
std::string step_lines(const StepRow& row);

// JSON Lines, appended as results come. Closed by the destructor.
class JsonLines {
 public:
  JsonLines() = default;
  ~JsonLines();
  JsonLines(const JsonLines&) = delete;
  JsonLines& operator=(const JsonLines&) = delete;

  // Truncates. False, with a sentence in `error`, when it cannot be written.
  bool open(const std::string& path, std::string* error);
  // Does nothing before open.
  void write(const nlohmann::ordered_json& object);

 private:
  std::FILE* file_ = nullptr;
};

}  // namespace rueda::bench
