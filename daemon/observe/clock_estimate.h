// Estimates how far another node's clock is from this one's, from questions and answers over the
// control plane (the way of NTP), and restates times on the other clock. It is pure: told what the
// clocks said.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>

namespace rueda::observe {

// One exchange. `asked_ns` and `answered_ns` are on this node's clock, `heard_ns` and `replied_ns`
// on the other's.
struct ClockExchange {
  int64_t asked_ns = 0;
  int64_t heard_ns = 0;
  int64_t replied_ns = 0;
  int64_t answered_ns = 0;
};

struct ClockOffset {
  int64_t offset_ns = 0;  // The other's clock less this one's.
  int64_t error_ns = 0;   // The offset is wrong by no more than this.
};

class ClockEstimate {
 public:
  // Two clocks drift apart by no more than this, in parts of a million.
  static constexpr int64_t kDriftPpm = 100;
  static constexpr size_t kKept = 32;  // The number of exchanges that are kept.

  // Adds an exchange. It is ignored if its times are impossible.
  void add(const ClockExchange& exchange);
  uint32_t exchanges() const { return exchanges_; }
  // Returns the estimate for this time, or none if there was no exchange. The exchange that was the
  // quickest says the most: half of what it took, and what the clocks may have drifted since,
  // bounds the error.
  std::optional<ClockOffset> at(int64_t now_ns) const;

 private:
  struct Sample {
    int64_t at_ns;
    int64_t offset_ns;
    int64_t round_trip_ns;
  };
  std::deque<Sample> samples_;
  uint32_t exchanges_ = 0;
};

// Restates times on the other clock. A time that is later here is later there: a better estimate is
// approached slowly, so that no track runs backwards.
class ClockMap {
 public:
  static constexpr int64_t kSlewPpm = 500;
  static constexpr size_t kKnots = 512;

  // Sets the estimate at this time. The first one holds for all earlier times, too.
  void set(int64_t now_ns, const ClockOffset& estimate);
  bool is_known() const { return !knots_.empty(); }
  int64_t restate(int64_t local_ns) const { return local_ns + offset_at(local_ns); }
  // Returns the offset in force at that time, with a bound of what may be wrong with it.
  ClockOffset at(int64_t local_ns) const;

 private:
  struct Knot {
    int64_t local_ns;
    int64_t offset_ns;
  };
  int64_t offset_at(int64_t local_ns) const;

  std::deque<Knot> knots_;  // The offset is linear between knots, and constant outside.
  ClockOffset target_;
};

}  // namespace rueda::observe
