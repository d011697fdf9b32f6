// The message by which a reader gives slots back: their numbers, as many as it has bytes for.
#pragma once

#include <cstddef>
#include <cstdint>

namespace rueda::transport::rdma {

// The most slots that one message gives back, and its bytes then.
inline constexpr size_t kMaxSlotsPerCredit = 16;
inline constexpr size_t kCreditBytes = kMaxSlotsPerCredit * sizeof(uint32_t);

}  // namespace rueda::transport::rdma
