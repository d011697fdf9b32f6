// What this machine can do at most, measured by a bare program: the numbers to put beside a result.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

namespace rueda::bench {

// Bytes copied a second, in 10^9, by `threads` threads that each copy a buffer of `bytes`; the
// median of several passes.
double memcpy_GBps(int threads, size_t bytes);

struct TcpLimit {
  double one_way_GBps = 0;
  std::string congestion;  // what the kernel says the connection ran under
};
// One stream over 127.0.0.1, one thread on each end. `congestion` empty: the system's default.
// Nothing, with the reason in `error`, when a socket call fails.
std::optional<TcpLimit> loopback_tcp_GBps(const std::string& congestion, std::string* error);

}  // namespace rueda::bench
