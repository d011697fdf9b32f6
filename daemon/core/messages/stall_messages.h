// What the stall inspectors of a job's nodes say to each other (stall.h). All are bounded.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "daemon/base/clock.h"
#include "daemon/base/ids.h"

namespace rueda::core {

// Stalled tensors that a job looks after at a time; the oldest. More wait for the same ranks.
inline constexpr size_t kMaxStalls = 64;
// Ranks that a stall names on each side; more are counted.
inline constexpr size_t kMaxStallRanks = 64;
// Near misses of one rank, and of all ranks of a stall together; the nearest.
inline constexpr size_t kMaxNearMissesOfRank = 3;
inline constexpr size_t kMaxNearMisses = 16;

// Member to coordinator: what waits too long here, and nothing else does. Sent when that changes.
struct StallReport {
  struct Tensor {
    std::string name;
    TicksMs age_ms = 0;  // since the node's first submission of it

    bool operator==(const Tensor&) const = default;
  };
  std::vector<Tensor> tensors;
};

// Coordinator to members: which of your ranks have submitted these?
struct StallQuery {
  uint64_t round = 0;
  bool wants_near_misses = false;
  std::vector<std::string> names;
};

// A rank that has not submitted the tensor has a similar name in flight in the same process set, or
// the same name in another one.
struct NearMiss {
  Rank rank;
  std::string name;
  uint32_t process_set = 0;  // where `name` is in flight

  auto operator<=>(const NearMiss&) const = default;
};

// What a rank did last, in its epoch, in whichever process set. Empty names: nothing yet.
struct RankActivity {
  Rank rank;
  bool has_left = false;
  std::string last_submitted;
  uint32_t submitted_set = 0;
  TicksMs submitted_ago_ms = 0;
  std::string last_completed;
  uint32_t completed_set = 0;
  TicksMs completed_ago_ms = 0;

  bool operator==(const RankActivity&) const = default;
};

struct StallAnswer {
  struct Tensor {
    std::vector<Rank> submitted;  // of the node's ranks; the others have not
    std::vector<NearMiss> near_misses;

    bool operator==(const Tensor&) const = default;
  };
  uint64_t round = 0;
  std::vector<Tensor> tensors;      // in the order of the query
  std::vector<RankActivity> ranks;  // all of the node
};

// One tensor that some ranks wait for and others have not submitted.
struct Stall {
  std::string tensor;
  TicksMs age_ms = 0;
  bool is_news = false;  // to be logged: the first time, and then whenever the age has doubled
  std::vector<Rank> submitted;  // ascending; the first kMaxStallRanks
  std::vector<Rank> missing;
  int more_submitted = 0;  // not named
  int more_missing = 0;
  std::vector<NearMiss> near_misses;

  bool operator==(const Stall&) const = default;
};

// Coordinator to members: all that is stalled now, the oldest first. What is no longer here goes
// on.
struct StallNotice {
  std::vector<Stall> stalls;
  std::vector<RankActivity> ranks;  // of those that are missing somewhere; ascending
};

using StallMessage = std::variant<StallReport, StallQuery, StallAnswer, StallNotice>;

}  // namespace rueda::core
