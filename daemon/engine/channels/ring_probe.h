// Measures what a message between two nodes costs, by sending some round the ring before the first
// operation. This is node 0's part, and belongs to its data loop.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "daemon/core/schedules/algorithm.h"

namespace rueda::engine {

class RingProbe {
 public:
  // There must be 2 or more nodes. The large messages have `large_bytes` bytes, more than 0.
  RingProbe(int nodes, uint32_t large_bytes) : nodes_(nodes), large_bytes_(large_bytes) {}

  // Returns the bytes that the next message carries, or none if all is measured.
  std::optional<uint32_t> next_bytes() const;
  uint32_t sent() const { return static_cast<uint32_t>(small_s_.size() + large_s_.size()); }
  // The message came back after so long.
  void note_round_trip(double seconds);
  // Returns the costs of one hop. `add_s_per_byte` is what measure_additions() has found.
  core::TransferCosts costs(double add_s_per_byte) const;

 private:
  const int nodes_;
  const uint32_t large_bytes_;
  std::vector<double> small_s_;
  std::vector<double> large_s_;
};

// Returns the seconds that this machine needs to add a byte of float32 to another. The call takes
// some 0.1 ms.
double measure_additions();

}  // namespace rueda::engine
