// What this machine can do at most, measured by a bare program: the numbers to put beside a result.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "bench/machine/link.h"

namespace rueda::bench {

// Bytes copied a second, in 10^9, by `threads` threads that each copy a buffer of `bytes`; the
// median of several passes.
double memcpy_GBps(int threads, size_t bytes);

// Bytes read and written a second, in 10^9, by `threads` threads that each add `sources` buffers of
// `bytes` of float32 in one pass into another one.
double sum_GBps(int sources, int threads, size_t bytes);

struct TcpLimit {
  double one_way_GBps = 0;  // one stream, a thread on each end
  double two_way_GBps = 0;  // a stream each way at once: the sum of both
  std::string congestion;   // what the kernel says the connections ran under
};
// `congestion` empty: the system's default. Throws Failure when a socket call fails.
TcpLimit tcp_limit(const Place& from, const Place& to, const std::string& congestion);
// Of it, the two_way_GBps.
double tcp_two_way_GBps(const Place& from, const Place& to, const std::string& congestion);

// How long a cache line takes from one CPU to another and back; nothing when this process may use
// one CPU alone.
std::optional<double> cache_line_round_trip_ns();

}  // namespace rueda::bench
