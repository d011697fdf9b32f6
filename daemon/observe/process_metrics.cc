#include "daemon/observe/process_metrics.h"

#include <filesystem>
#include <fstream>
#include <limits>
#include <optional>
#include <string>
#include <system_error>

#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

namespace rueda::observe {
namespace {

std::optional<double> cpu_seconds() {
  timespec used{};
  if (clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used) != 0) return std::nullopt;
  return static_cast<double>(used.tv_sec) + static_cast<double>(used.tv_nsec) * 1e-9;
}

std::optional<double> resident_bytes() {
  std::ifstream statm("/proc/self/statm");
  double total_pages = 0;
  double resident_pages = 0;
  if (!(statm >> total_pages >> resident_pages)) return std::nullopt;
  return resident_pages * static_cast<double>(sysconf(_SC_PAGESIZE));
}

std::optional<double> open_fds() {
  std::error_code error;
  std::filesystem::directory_iterator entry("/proc/self/fd", error);
  double count = 0;
  for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) ++count;
  if (error) return std::nullopt;
  return count - 1;  // One is the listing's own descriptor.
}

std::optional<double> max_fds() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return std::nullopt;
  if (limit.rlim_cur == RLIM_INFINITY) return std::numeric_limits<double>::infinity();
  return static_cast<double>(limit.rlim_cur);
}

std::optional<double> boot_time_seconds() {
  std::ifstream stat("/proc/stat");
  std::string key;
  while (stat >> key) {
    double value = 0;
    if (key == "btime" && stat >> value) return value;
    stat.ignore(std::numeric_limits<std::streamsize>::max(), '\n');
  }
  return std::nullopt;
}

std::optional<double> start_time_seconds() {
  const std::optional<double> boot = boot_time_seconds();
  std::ifstream stat("/proc/self/stat");
  std::string line;
  if (!boot || !std::getline(stat, line)) return std::nullopt;
  // The second field, the name in parentheses, may hold blanks; start time is field 22.
  const size_t name_end = line.rfind(')');
  if (name_end == std::string::npos) return std::nullopt;
  size_t at = name_end;
  for (int field = 2; field < 22; ++field) {
    at = line.find(' ', at + 1);
    if (at == std::string::npos) return std::nullopt;
  }
  const double ticks = std::strtod(line.c_str() + at, nullptr);
  return *boot + ticks / static_cast<double>(sysconf(_SC_CLK_TCK));
}

void add(std::vector<prometheus::MetricFamily>& families, const char* name, const char* help,
         prometheus::MetricType type, std::optional<double> value) {
  if (!value) return;
  prometheus::ClientMetric metric;
  if (type == prometheus::MetricType::Counter) {
    metric.counter.value = *value;
  } else {
    metric.gauge.value = *value;
  }
  prometheus::MetricFamily family;
  family.name = name;
  family.help = help;
  family.type = type;
  family.metric.push_back(metric);
  families.push_back(std::move(family));
}

}  // namespace

std::vector<prometheus::MetricFamily> collect_process_metrics() {
  using prometheus::MetricType;
  std::vector<prometheus::MetricFamily> families;
  add(families, "process_cpu_seconds_total", "User and system CPU time spent.", MetricType::Counter,
      cpu_seconds());
  add(families, "process_resident_memory_bytes", "Resident memory, shared pages included.",
      MetricType::Gauge, resident_bytes());
  add(families, "process_open_fds", "Open file descriptors.", MetricType::Gauge, open_fds());
  add(families, "process_max_fds", "Limit of open file descriptors.", MetricType::Gauge, max_fds());
  add(families, "process_start_time_seconds", "Start of the process since the Unix epoch.",
      MetricType::Gauge, start_time_seconds());
  return families;
}

}  // namespace rueda::observe
