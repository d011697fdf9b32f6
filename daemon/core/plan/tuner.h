// Searches for the setting with which the steps of a plan take least time.
//
// The search is successive halving (Karnin, Koren and Somekh 2013, algorithm 2; Jamieson and
// Talwalkar 2016): in each rung every candidate that is left is measured equally often, then the
// slower half goes, and the next rung measures the rest twice as often. After the first rung, which
// has seen each value by itself, the best values of all dimensions join as one more candidate. A
// rung goes through its candidates forth and back, so that what changes slowly changes all of them
// alike. The best of the end is then measured against the defaults in pairs, and is taken only if
// it wins by a margin and by a sign test: otherwise the defaults are kept.
//
// It is pure, and equal times lead to an equal search: candidates are drawn from a fixed seed.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "daemon/core/model/tuning.h"

namespace rueda::core {

class Tuner {
 public:
  // The best setting must take less time than the defaults by this fraction.
  static constexpr double kLeastGain = 0.02;
  // The number of pairs of windows, and how many of them the best setting must win: by chance it
  // does so in 3.5 % of all searches.
  static constexpr int kPairs = 8;
  static constexpr int kLeastWins = 7;
  // The number of windows that may be broken off, by steps unlike the others, before the search
  // ends.
  static constexpr int kMaxLost = 64;

  explicit Tuner(const TuningOptions& options);

  // Returns what plans have to be made with from now on.
  const TunedSetting& setting() const { return settings_[current_]; }
  bool is_settled() const { return is_settled_; }
  // A round of a plan with setting() begins. Returns true if setting() has changed.
  bool on_round(TicksMs now);
  // The plan was given up, and not for the tuner's sake.
  void on_lost();
  // The plan with setting() is in force.
  void on_locked();
  // Ends the search with the defaults. `why` is for the log.
  void keep_defaults(const std::string& why);
  // Returns the lines that were said since the last call.
  std::vector<TuningLine> take_lines();

 private:
  void finish_window(double round_ms);
  void next_window();
  void finish_rung();
  void begin_rung();
  std::optional<size_t> cross();
  void begin_confirming(size_t best);
  void finish_confirming();
  void settle(size_t chosen, const std::string& verdict);
  double median_ms(size_t candidate) const;
  void say(const std::string& phase, size_t candidate, double round_ms, std::string verdict);

  const TuningOptions options_;
  std::vector<TunedSetting> settings_;  // The candidates; the first is the defaults.
  // The milliseconds of a round, by the candidate's index and then its window's.
  std::vector<std::vector<double>> times_;
  std::vector<size_t> left_;   // Candidates that are still in the running, ascending.
  std::vector<size_t> turns_;  // Candidates whose windows are still to come in this rung.
  size_t current_ = 0;
  int repetitions_ = 1;  // How many windows each candidate has in the rung.
  bool is_confirming_ = false;
  bool is_settled_ = false;
  int lost_ = 0;
  uint64_t rounds_ = 0;
  int skip_ = 0;                  // Rounds until the window begins.
  std::optional<TicksMs> since_;  // When the window began.
  int window_rounds_ = 0;
  std::vector<TuningLine> lines_;
};

// Returns at most `most` candidates: the defaults, then what differs from them in one dimension,
// then settings drawn from those that differ in several.
std::vector<TunedSetting> candidates_of(const TuningSpace& space, size_t most);

}  // namespace rueda::core
