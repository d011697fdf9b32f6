#include "bench/cli/report.h"

#include <cerrno>
#include <cstring>

namespace rueda::bench {
namespace {

template <class Number>
nlohmann::ordered_json number_or_null(const std::optional<Number>& value) {
  return value ? nlohmann::ordered_json(*value) : nlohmann::ordered_json(nullptr);
}

std::string number_or_dash(const std::optional<double>& value) {
  if (!value) return "-";
  char text[32];
  std::snprintf(text, sizeof(text), "%.3f", *value);
  return text;
}

std::string first_steps_line(const StepRow& row) {
  if (!row.declare_us) return "";
  std::string line = "# first steps (us):";
  const auto append = [&](const std::vector<double>& times_us) {
    char text[32];
    for (double time_us : times_us) {
      std::snprintf(text, sizeof(text), " %.1f", time_us);
      line += text;
    }
  };
  append(row.first_steps_us);
  line += "; of a plan declared ahead:";
  append(row.first_steps_declared_us);
  line += ", and to declare it";
  append({*row.declare_us});
  return line + "\n";
}

}  // namespace

nlohmann::ordered_json to_json(const Row& row) {
  return {
      {"collective", row.collective},
      {"bytes", row.bytes},
      {"dtype", row.dtype},
      {"op", row.op},
      {"wire", row.wire},
      {"nranks", row.nranks},
      {"nnodes", row.nnodes},
      {"time_us", row.time_us},
      {"time_us_p99", row.time_us_p99},
      {"algbw_GBps", row.algbw_GBps},
      {"busbw_GBps", row.busbw_GBps},
      {"cpu_s_per_GB", number_or_null(row.cpu_s_per_GB)},
      {"wrong", row.wrong},
      {"count", row.count},
      {"inplace", row.in_place},
      {"memory", row.foreign ? "foreign" : "arena"},
      {"iters", row.iters},
      {"cpu_includes_daemons", row.cpu_includes_daemons},
      {"daemon_memory_bytes", number_or_null(row.daemon_memory_bytes)},
      {"noise_cores", number_or_null(row.noise_cores)},
  };
}

nlohmann::ordered_json to_json(const StepRow& row) {
  return {
      {"set", row.set},
      {"tensors", row.tensors},
      {"bytes", row.bytes},
      {"dtype", row.dtype},
      {"op", row.op},
      {"wire", row.wire},
      {"nranks", row.nranks},
      {"nnodes", row.nnodes},
      {"memory", row.memory},
      {"compute_ms", row.compute_ms},
      {"time_us", row.time_us},
      {"time_us_p99", row.time_us_p99},
      {"pace_us", row.pace_us},
      {"cpu_s_per_GB", number_or_null(row.cpu_s_per_GB)},
      {"wrong", row.wrong},
      {"order_messages_per_step", number_or_null(row.order_messages_per_step)},
      {"first_steps_us", row.first_steps_us},
      {"first_steps_declared_us", row.first_steps_declared_us},
      {"declare_us", number_or_null(row.declare_us)},
      {"iters", row.iters},
      {"cpu_includes_daemons", row.cpu_includes_daemons},
      {"noise_cores", number_or_null(row.noise_cores)},
  };
}

std::string table_header() {
  char text[200];
  std::snprintf(text, sizeof(text), "#%11s %11s %9s %8s %12s %12s %9s %9s %9s %8s\n", "bytes",
                "count", "dtype", "op", "time_us", "p99_us", "algbw", "busbw", "cpu", "wrong");
  std::string header = text;
  std::snprintf(text, sizeof(text), "#%11s %11s %9s %8s %12s %12s %9s %9s %9s %8s\n", "(B)",
                "(elements)", "", "", "(median)", "", "(GB/s)", "(GB/s)", "(s/GB)", "");
  return header + text;
}

std::string table_line(const Row& row) {
  char text[240];
  std::snprintf(text, sizeof(text), "%12llu %11llu %9s %8s %12.1f %12.1f %9.3f %9.3f %9s %8llu\n",
                static_cast<unsigned long long>(row.bytes),
                static_cast<unsigned long long>(row.count), row.dtype.c_str(), row.op.c_str(),
                row.time_us, row.time_us_p99, row.algbw_GBps, row.busbw_GBps,
                number_or_dash(row.cpu_s_per_GB).c_str(),
                static_cast<unsigned long long>(row.wrong));
  return text;
}

std::string step_lines(const StepRow& row) {
  char text[600];
  std::snprintf(text, sizeof(text),
                "%14s %8s %12s %8s %12s %12s %12s %9s %15s %8s\n"
                "%14s %8llu %12llu %8s %12.1f %12.1f %12.1f %9s %15s %8llu\n",
                "#          set", "tensors", "bytes", "memory", "time_us", "p99_us", "pace_us",
                "cpu(s/GB)", "order_msgs/step", "wrong", row.set.c_str(),
                static_cast<unsigned long long>(row.tensors),
                static_cast<unsigned long long>(row.bytes), row.memory.c_str(), row.time_us,
                row.time_us_p99, row.pace_us, number_or_dash(row.cpu_s_per_GB).c_str(),
                number_or_dash(row.order_messages_per_step).c_str(),
                static_cast<unsigned long long>(row.wrong));
  return text + first_steps_line(row);
}

JsonLines::~JsonLines() {
  if (file_ != nullptr) std::fclose(file_);
}

bool JsonLines::open(const std::string& path, std::string* error) {
  file_ = std::fopen(path.c_str(), "w");
  if (file_ != nullptr) return true;
  *error = "cannot write " + path + ": " + std::strerror(errno) +
           "; give --json a path in a directory that exists and is writable";
  return false;
}

void JsonLines::write(const nlohmann::ordered_json& object) {
  if (file_ == nullptr) return;
  std::fprintf(file_, "%s\n", object.dump().c_str());
  std::fflush(file_);
}

}  // namespace rueda::bench
