// Sets up spdlog's default logger: text for people or one JSON object a line, on standard error.
// Who logs never waits for who reads: a thread writes, and what finds no room is lost, counted, and
// told of in the log once there is room again.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace rueda {

// What waits for its reader at most; a line that has no room is lost.
inline constexpr size_t kMostLogBytes = size_t{1} << 20;

// level: spdlog's names. format: "text" or "json".
void set_up_logging(const std::string& level, const std::string& format);

// So many lines are lost so far.
uint64_t log_lines_lost();

// Waits until what was logged is written, or the time is over: whoever reads may have stopped.
void flush_log(std::chrono::milliseconds patience = std::chrono::seconds(2));

}  // namespace rueda
