#include "agent/records/tuning_log.h"

#include <cerrno>
#include <cstring>

#include "daemon/base/os/own_file.h"

namespace rueda::agent {
namespace {

constexpr int kRingAlways = -64;  // the value is explained in docs/operations.md

std::string number(double value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.3f", value);
  return text;
}

std::string or_default(uint32_t value, const char* word) {
  return value == 0 ? word : std::to_string(value);
}

std::string cutover(int32_t log2) {
  if (log2 == 0) return "measured";
  if (log2 == kRingAlways) return "ring";
  return "2^" + std::to_string(log2);
}

}  // namespace

Result<std::unique_ptr<TuningLog>> TuningLog::open(const std::string& path) {
  Result<UniqueFd> made = open_own_file(path);
  std::FILE* const file = made.is_ok() ? ::fdopen(made.value().get(), "w") : nullptr;
  if (file == nullptr) {
    return Status(Code::kInvalidArgument,
                  "cannot write the log of autotuning, " + path + ": " +
                      (made.is_ok() ? std::strerror(errno) : made.status().message()));
  }
  made.value().release();
  std::unique_ptr<TuningLog> log(new TuningLog(path, file));
  const Status status =
      log->put("step,phase,fusion_bytes,chunk_bytes,streams,cutover,step_ms,verdict\n");
  if (!status.is_ok()) return status;
  return log;
}

Status TuningLog::write(const v1::TuningLine& line) {
  const v1::DataTuning& data = line.data();
  // None of these words contains a quote or a line end, so no escaping is needed; verdicts have
  // commas.
  return put(std::to_string(line.step()) + ',' + line.phase() + ',' +
             std::to_string(line.fusion_bytes()) + ',' + or_default(data.chunk_bytes(), "default") +
             ',' + or_default(data.streams(), "all") + ',' + cutover(data.cutover_log2()) + ',' +
             number(line.step_ms()) + ",\"" + line.verdict() + "\"\n");
}

Status TuningLog::put(const std::string& text) {
  if (std::fputs(text.c_str(), file_.get()) >= 0 && std::fflush(file_.get()) == 0) {
    return Status::ok();
  }
  return Status(Code::kResourceExhausted,
                "cannot write the log of autotuning, " + path_ + ": " + std::strerror(errno));
}

std::string describe_settled(const v1::TuningLine& line) {
  const v1::DataTuning& data = line.data();
  return "autotuning has settled after " + std::to_string(line.step()) +
         " steps: " + line.verdict() + " (fusion " + std::to_string(line.fusion_bytes()) +
         " bytes, chunks " + or_default(data.chunk_bytes(), "default") + ", streams " +
         or_default(data.streams(), "all") + ", cut-over " + cutover(data.cutover_log2()) + ", " +
         number(line.step_ms()) + " ms a step)";
}

}  // namespace rueda::agent
