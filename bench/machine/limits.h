// Measures what this machine can do at most, by a bare program. Results are put beside these
// numbers.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "bench/machine/link.h"

namespace rueda::bench {

// Returns the bytes copied a second, in 10^9, by `threads` threads that each copy a buffer of
// `bytes`; it is the median of several passes.
double memcpy_GBps(int threads, size_t bytes);

// Returns the bytes read and written a second, in 10^9, by `threads` threads that each add
// `sources` buffers of `bytes` of float32 in one pass into another buffer.
double sum_GBps(int sources, int threads, size_t bytes);

struct TcpLimit {
  double one_way_GBps = 0;  // one stream, with a thread on each end
  double two_way_GBps = 0;  // one stream each way at once: the sum of both
  std::string congestion;   // the congestion control that the kernel reports
};
// Measures TCP between two places. An empty `congestion` means the system's default. Throws Failure
// when a socket call fails.
TcpLimit tcp_limit(const Place& from, const Place& to, const std::string& congestion);
// Measures only TcpLimit::two_way_GBps.
double tcp_two_way_GBps(const Place& from, const Place& to, const std::string& congestion);

// Returns how long a cache line takes from one CPU to another and back; nullopt when this process
// may use only one CPU.
std::optional<double> cache_line_round_trip_ns();

}  // namespace rueda::bench
