// The rule of which nodes of an epoch may act for all of them. Any two quorums have a node in
// common, so two of them cannot decide differently, and no split leaves two halves that both go on.
#pragma once

#include <algorithm>
#include <optional>
#include <vector>

#include "daemon/base/ids.h"
#include "daemon/core/model/mutants.h"

namespace rueda::core {

// A quorum is more than half of the members. An exact half is a quorum if it has the lowest member.
// Where there is a witness, it votes instead when the number of members is even, and the lowest
// member counts like any other.
class Quorum {
 public:
  // The members must be ascending, and at least one. The witness must not be one of them.
  explicit Quorum(std::vector<NodeIndex> members, std::optional<NodeIndex> witness = {})
      : members_(std::move(members)), voters_(members_) {
    const bool can_tie = members_.size() % 2 == 0;
    if (witness && can_tie) voters_.push_back(*witness);
    lowest_breaks_tie_ = can_tie && !witness;
  }

  const std::vector<NodeIndex>& members() const { return members_; }
  // The members, and the witness if their number is even; with an odd number nothing can tie.
  const std::vector<NodeIndex>& voters() const { return voters_; }

  // Returns whether the voters for which `votes(node)` is true are a quorum.
  template <class Votes>
  bool reached_by(Votes votes) const {
    const auto count = static_cast<size_t>(std::count_if(voters_.begin(), voters_.end(), votes));
    if (RUEDA_MUTANT(kWitnessIgnored) && voters_.size() > members_.size() &&
        2 * count + 1 >= voters_.size() && votes(voters_.front())) {
      return true;
    }
    if (2 * count == voters_.size()) return lowest_breaks_tie_ && votes(voters_.front());
    return 2 * count > voters_.size();
  }

 private:
  std::vector<NodeIndex> members_;
  std::vector<NodeIndex> voters_;
  bool lowest_breaks_tie_ = false;
};

}  // namespace rueda::core
