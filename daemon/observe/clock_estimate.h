// How far another node's clock is from this one's, from questions and answers over the control
// plane (the way of NTP), and times restated on the other clock. Pure: told what the clocks said.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>

namespace rueda::observe {

// One exchange: asked and answered on this node's clock, heard and replied on the other's.
struct ClockExchange {
  int64_t asked_ns = 0;
  int64_t heard_ns = 0;
  int64_t replied_ns = 0;
  int64_t answered_ns = 0;
};

struct ClockOffset {
  int64_t offset_ns = 0;  // the other's clock less this one's
  int64_t error_ns = 0;   // it is wrong by no more
};

class ClockEstimate {
 public:
  // Two clocks drift apart by no more than this, in parts of a million.
  static constexpr int64_t kDriftPpm = 100;
  static constexpr size_t kKept = 32;  // exchanges

  // Ignored if its times cannot be.
  void add(const ClockExchange& exchange);
  uint32_t exchanges() const { return exchanges_; }
  // The exchange that was the quickest says the most: half of what it took, and what the clocks may
  // have drifted since, bounds the error. None: there was no exchange.
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

// Restates times on the other clock. What is later here is later there: a better estimate is
// approached slowly, so that no track runs backwards.
class ClockMap {
 public:
  static constexpr int64_t kSlewPpm = 500;
  static constexpr size_t kKnots = 512;

  // The first estimate holds from ever.
  void set(int64_t now_ns, const ClockOffset& estimate);
  bool is_known() const { return !knots_.empty(); }
  int64_t restate(int64_t local_ns) const { return local_ns + offset_at(local_ns); }
  // In force at that time, with a bound of what may be wrong with it.
  ClockOffset at(int64_t local_ns) const;

 private:
  struct Knot {
    int64_t local_ns;
    int64_t offset_ns;
  };
  int64_t offset_at(int64_t local_ns) const;

  std::deque<Knot> knots_;  // linear in between, constant outside
  ClockOffset target_;
};

}  // namespace rueda::observe
