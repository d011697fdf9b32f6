// Strong identifiers: the compiler does not let a rank be passed where a node index is wanted.
#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <string>

namespace rueda {

// An integer that only compares with its own kind. Tag makes the type distinct.
template <class Tag, class Int>
struct StrongId {
  Int value{};

  constexpr StrongId() = default;
  constexpr explicit StrongId(Int v) : value(v) {}
  constexpr auto operator<=>(const StrongId&) const = default;
};

// The global rank of a training process, 0 to world size - 1.
using Rank = StrongId<struct RankTag, int32_t>;
// The position of a training process on its node, 0 to local size - 1.
using LocalRank = StrongId<struct LocalRankTag, int32_t>;
// The position of a node in a job's layout, 0 to node count - 1.
using NodeIndex = StrongId<struct NodeIndexTag, int32_t>;
// The number of a membership of a job; the first is 1, so that 0 means "none yet".
using Epoch = StrongId<struct EpochTag, uint32_t>;
// The position of an operation in the order of its (job, epoch); the first is 1.
using Seq = StrongId<struct SeqTag, uint64_t>;
// The number of one submission of one rank on one node; it is unique for the life of a session.
using Ticket = StrongId<struct TicketTag, uint64_t>;

// A job's name as the launcher chose it: [A-Za-z0-9._-], at most limits::kMaxJobIdBytes.
using JobId = std::string;

}  // namespace rueda

template <class Tag, class Int>
struct std::hash<rueda::StrongId<Tag, Int>> {
  size_t operator()(rueda::StrongId<Tag, Int> id) const noexcept {
    return std::hash<Int>{}(id.value);
  }
};
