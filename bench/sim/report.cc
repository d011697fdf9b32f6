#include "bench/sim/report.h"

#include <cstdarg>
#include <cstdio>

namespace rueda::scale {
namespace {

// Formats like printf() into a string; rows are short.
[[gnu::format(printf, 1, 2)]] std::string format(const char* text, ...) {
  char row[256];
  va_list arguments;
  va_start(arguments, text);
  std::vsnprintf(row, sizeof row, text, arguments);
  va_end(arguments);
  return row;
}

}  // namespace

nlohmann::ordered_json to_json(const RunResult& result) {
  const RunSpec& spec = result.spec;
  return {{"mode", to_string(spec.mode)},
          {"gpus", spec.gpus},
          {"nodes", spec.nodes()},
          {"model", spec.network->name},
          {"step_ms", result.mean.step_ms},
          {"compute_ms", result.mean.compute_ms},
          {"background_ms", result.mean.background_ms},
          {"copy_ms", result.mean.copy_ms},
          {"allreduce_ms", result.mean.allreduce_ms},
          {"data_ms", result.mean.data_ms},
          {"coordination_ms", result.mean.coordination_ms()},
          {"coordination_share", result.coordination_share()},
          {"order_messages_per_step", result.mean.order_messages},
          {"coordinator_bytes_per_step", result.mean.coordinator_bytes},
          {"images_per_s", result.images_per_s},
          {"vs_linear", result.vs_linear},
          {"vs_baseline", result.vs_baseline}};
}

nlohmann::ordered_json to_json(const PaperValue& value) {
  return {{"study", "paper"},           {"figure", value.figure},        {"section", value.section},
          {"quantity", value.quantity}, {"network", value.network},      {"of_mode", value.mode},
          {"strong", value.strong},     {"over", to_string(value.over)}, {"low", value.low},
          {"high", value.high}};
}

std::string table_head() {
  return format("%-10s %-12s %7s %9s %10s %8s %8s %6s %9s %9s", "model", "mode", "gpus", "step_ms",
                "compute_ms", "data_ms", "coord_ms", "coord", "vs_linear", "vs_base");
}

std::string to_row(const RunResult& result) {
  const StepTimes& mean = result.mean;
  return format("%-10s %-12s %7d %9.2f %10.2f %8.2f %8.2f %5.1f%% %9.3f %+8.1f%%",
                result.spec.network->name.c_str(), to_string(result.spec.mode), result.spec.gpus,
                mean.step_ms, mean.compute_ms, mean.data_ms, mean.coordination_ms(),
                100 * result.coordination_share(), result.vs_linear,
                100 * (result.vs_baseline - 1));
}

}  // namespace rueda::scale
