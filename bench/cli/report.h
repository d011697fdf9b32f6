// Prints and writes results: a table in the manner of nccl-tests, and one JSON object a line.
#pragma once

#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

namespace rueda::bench {

// Holds one line of the table, which is about one size of one collective.
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
  // CPU seconds of all processes for 10^9 bytes of one rank's buffer; nullopt if the buffer has no
  // bytes.
  std::optional<double> cpu_s_per_GB;
  bool cpu_includes_daemons = false;
  // The busy CPUs of rank 0's machine that the job did not use, on average; nullopt if the loop was
  // too short to tell.
  std::optional<double> noise_cores;
  // The resident memory that the largest daemon shares with nobody, after the loop; nullopt if no
  // daemon is known.
  std::optional<uint64_t> daemon_memory_bytes;
  uint64_t wrong = 0;  // wrong elements of all ranks; ranks that differ only in bits count as one
};

nlohmann::ordered_json to_json(const Row& row);

// Holds the results for a model's gradient set.
struct StepRow {
  std::string set;
  uint64_t tensors = 0;
  uint64_t bytes = 0;
  std::string dtype;
  std::string op;
  std::string wire = "same";
  std::string memory;     // "arena" or "foreign"
  double compute_ms = 0;  // of a step without communication; 0: nothing was computed
  int iters = 0;
  int nranks = 1;
  int nnodes = 1;
  double time_us = 0;
  double time_us_p99 = 0;
  double pace_us = 0;  // the time of the whole loop by its steps, which is what training would see
  std::optional<double> cpu_s_per_GB;
  bool cpu_includes_daemons = false;
  std::optional<double> noise_cores;
  std::optional<double> order_messages_per_step;  // nullopt if the daemons' metrics do not tell
  // The times of the first steps of new schedules, in order: of schedules that are learned, and of
  // those that were declared ahead. They are medians over several schedules. The lists are empty if
  // nobody asked for them.
  std::vector<double> first_steps_us;
  std::vector<double> first_steps_declared_us;
  std::optional<double> declare_us;  // the time to declare a schedule, before its first step
  uint64_t wrong = 0;
};

nlohmann::ordered_json to_json(const StepRow& row);

std::string table_header();
std::string table_line(const Row& row);
std::string step_lines(const StepRow& row);

// Appends results as JSON Lines when they come. The destructor closes the file.
class JsonLines {
 public:
  JsonLines() = default;
  ~JsonLines();
  JsonLines(const JsonLines&) = delete;
  JsonLines& operator=(const JsonLines&) = delete;

  // Opens the file and truncates it. Returns false, with a sentence in `error`, if it cannot be
  // written.
  bool open(const std::string& path, std::string* error);
  // Writes a line. Does nothing before open().
  void write(const nlohmann::ordered_json& object);

 private:
  std::FILE* file_ = nullptr;
};

}  // namespace rueda::bench
