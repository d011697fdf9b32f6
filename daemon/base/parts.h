// Which part of a collective's values each rank of the process set gives, and gets: of an
// allgather, a reduce-scatter, an alltoall, a gather or a scatter. Parts are whole rows, that is,
// what lies behind one index of the first dimension, and follow each other in the order of the
// ranks.
//
// A rank is meant by its place among the set's, from 0.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "daemon/base/dtype.h"
#include "daemon/base/status.h"

namespace rueda {

struct ElementRange {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t count() const { return end - begin; }

  bool operator==(const ElementRange&) const = default;
};

// A tensor of a collective that moves data, as far as it matters here. The memory is the caller's.
struct PartedTensor {
  std::string_view name;
  CollectiveKind kind = CollectiveKind::kAllreduce;
  std::span<const int64_t> shape;   // of all parts one behind the other
  std::span<const int64_t> counts;  // rows; empty: as even as can be, the first ones one more
};

// One rank's memory for a submission, in elements.
struct Extent {
  int64_t input = 0;   // it gives so many; 0: none is read
  int64_t output = 0;  // it gets so many
  // Where its input and its output lie in the row of all parts: in place means that what has the
  // same place there has the same address. An alltoall is never in place.
  int64_t input_at = 0;
  int64_t output_at = 0;
  bool can_be_in_place = true;

  bool operator==(const Extent&) const = default;
};

// Whether `ranks` ranks can have such parts. Ok for collectives without. Of counts by sender, then
// receiver, an alltoall has one for each pair. The error names the tensor and what is wrong.
Status check_parts(const PartedTensor& tensor, int ranks);

// Of any collective; its parts are checked.
Extent extent_of(const PartedTensor& tensor, int place, int ranks, bool is_root);

// has_parts(kind), and not an alltoall: the elements of each rank's part, in the row of all.
std::vector<ElementRange> parts_of(const PartedTensor& tensor, int ranks);

// The elements that each rank of an alltoall sends to each other rank.
class Splits {
 public:
  Splits(const PartedTensor& tensor, int ranks);

  int64_t elements(int from, int to) const { return sent_at(from, to + 1) - sent_at(from, to); }
  // These two return where the part that `from` sends to `to` begins, in elements: in the input of
  // `from`, and in the output of `to`. With the number of ranks for the other rank they return the
  // end.
  int64_t sent_at(int from, int to) const {
    return sent_at_.empty() ? to * even_ : sent_at_[at(from, to)];
  }
  int64_t received_at(int from, int to) const {
    return received_at_.empty() ? from * even_ : received_at_[at(to, from)];
  }

 private:
  size_t at(int row, int column) const {
    return static_cast<size_t>(row) * (static_cast<size_t>(ranks_) + 1) +
           static_cast<size_t>(column);
  }

  int ranks_;
  int64_t even_;                      // elements, where there are no counts
  std::vector<int64_t> sent_at_;      // by from, then to; else none
  std::vector<int64_t> received_at_;  // by to, then from
};

}  // namespace rueda
