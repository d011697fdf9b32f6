// FNV-1a, 64 bits: stable across processes and builds, which std::hash is not. It names plans
// and layouts so that two daemons can see that they differ; it is no defence against an attacker.
#pragma once

#include <cstdint>
#include <string_view>

namespace rueda {

class Fnv1a {
 public:
  Fnv1a& add_bytes(std::string_view bytes) {
    for (unsigned char byte : bytes) state_ = (state_ ^ byte) * 0x100000001b3ull;
    return *this;
  }
  // The length goes in first, so that ("ab", "c") and ("a", "bc") differ.
  Fnv1a& add(std::string_view text) { return add(text.size()).add_bytes(text); }
  Fnv1a& add(uint64_t number) {
    for (int shift = 0; shift < 64; shift += 8) {
      state_ = (state_ ^ ((number >> shift) & 0xff)) * 0x100000001b3ull;
    }
    return *this;
  }
  uint64_t value() const { return state_; }

 private:
  uint64_t state_ = 0xcbf29ce484222325ull;
};

}  // namespace rueda
