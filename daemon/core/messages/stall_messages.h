// The messages that the stall inspectors of a job's nodes send to each other (stall.h). All of them
// have a bounded size.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "daemon/base/clock.h"
#include "daemon/base/ids.h"

namespace rueda::core {

// The number of stalled tensors that a job looks after at a time. These are the oldest; any others
// wait for the same ranks.
inline constexpr size_t kMaxStalls = 64;
// The number of ranks that a stall names on each side; further ranks are only counted.
inline constexpr size_t kMaxStallRanks = 64;
// The number of near misses of one rank, and of all ranks of a stall together. These are the
// nearest.
inline constexpr size_t kMaxNearMissesOfRank = 3;
inline constexpr size_t kMaxNearMisses = 16;

// Tells the coordinator, from a member, everything that has been in flight for too long on the
// member. It is sent when that changes.
struct StallReport {
  struct Tensor {
    std::string name;
    TicksMs age_ms = 0;  // The time since the node's first submission of the tensor.

    bool operator==(const Tensor&) const = default;
  };
  std::vector<Tensor> tensors;
};

// Asks the members, from the coordinator, which of their ranks have submitted these tensors.
struct StallQuery {
  uint64_t round = 0;
  bool wants_near_misses = false;
  std::vector<std::string> names;
};

// A similar name that is in flight on a rank which has not submitted the tensor: a name almost like
// the tensor's in the same process set, or the very name in another set.
struct NearMiss {
  Rank rank;
  std::string name;
  uint32_t process_set = 0;  // The set in which `name` is in flight.

  auto operator<=>(const NearMiss&) const = default;
};

// The last things that a rank did in its epoch, in whichever process set. A name is empty if there
// is nothing yet.
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

// Tells the coordinator, from a member, what it asked for with a StallQuery.
struct StallAnswer {
  struct Tensor {
    std::vector<Rank> submitted;  // The node's ranks that have submitted the tensor.
    std::vector<NearMiss> near_misses;

    bool operator==(const Tensor&) const = default;
  };
  uint64_t round = 0;
  std::vector<Tensor> tensors;      // The answers are in the order of the query's names.
  std::vector<RankActivity> ranks;  // All ranks of the node.
};

// One tensor that some ranks wait for and others have not submitted.
struct Stall {
  std::string tensor;
  TicksMs age_ms = 0;
  bool is_news = false;  // The stall is to be logged: at first, and whenever its age has doubled.
  std::vector<Rank> submitted;  // The ranks ascend; there are at most kMaxStallRanks.
  std::vector<Rank> missing;
  int more_submitted = 0;  // Ranks that are not named.
  int more_missing = 0;
  std::vector<NearMiss> near_misses;

  bool operator==(const Stall&) const = default;
};

// Tells the members, from the coordinator, all that is stalled now, the oldest first. A tensor that
// was in the last notice and is not in this one is no longer stalled.
struct StallNotice {
  std::vector<Stall> stalls;
  std::vector<RankActivity> ranks;  // The ranks that some stall misses, ascending.
};

using StallMessage = std::variant<StallReport, StallQuery, StallAnswer, StallNotice>;

}  // namespace rueda::core
