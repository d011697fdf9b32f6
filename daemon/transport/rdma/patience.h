// How long a queue pair waits for the peer's device before it takes it for gone: the whole failure
// timeout, as a TCP connection may. A device sends a packet again that nobody acknowledges, and the
// wait before each time is 4.096 µs * 2^n (InfiniBand Architecture Specification, volume 1, "Timers
// and retry counters"); a device may take up to four times as long.
#pragma once

#include <cstdint>

namespace rueda::transport::rdma {

// 7 would be for ever.
inline constexpr uint8_t kRetries = 6;

// Returns the n of that wait: the largest with which a packet that was sent once and kRetries times
// again is given up within the failure timeout. It is at least 14, which is 67 ms: a switch that is
// full, or a peer that is emulated, may take that long. It is at most 20, which is 4.3 s.
constexpr uint8_t ack_timeout_of(int64_t timeout_ms) {
  uint8_t exponent = 14;
  while (exponent < 20 &&
         (kRetries + 1) * ((int64_t{4096} << (exponent + 1)) / 1'000'000) <= timeout_ms) {
    ++exponent;
  }
  return exponent;
}

}  // namespace rueda::transport::rdma
