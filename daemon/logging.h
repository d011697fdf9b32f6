// Sets up spdlog's default logger: text for people or one JSON object a line, on standard error. A
// thread that logs never waits for the reader: another thread writes, and lines that find no room
// are dropped, counted, and reported in the log once there is room again.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace rueda {

// The most bytes that wait for the reader; a line that finds no room is dropped.
inline constexpr size_t kMaxLogBytes = size_t{1} << 20;

// `level` is one of spdlog's names, `format` is "text" or "json".
void set_up_logging(const std::string& level, const std::string& format);

// Returns the number of lines dropped so far.
uint64_t log_lines_lost();

// Waits until everything logged has been written, but no longer than `patience`: the reader may
// have stopped.
void flush_log(std::chrono::milliseconds patience = std::chrono::seconds(2));

}  // namespace rueda
