// Computes which part of a collective's values each rank of the process set gives, and gets, in an
// allgather, a reduce-scatter, an alltoall, a gather or a scatter. Parts are whole rows, that is,
// what lies behind one index of the first dimension, and follow each other in the order of the
// ranks.
//
// A rank is named by its place among the set's ranks, from 0.
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

// The properties of a tensor in a collective that moves data, as far as they matter here. The
// memory is the caller's.
struct PartedTensor {
  std::string_view name;
  CollectiveKind kind = CollectiveKind::kAllreduce;
  std::span<const int64_t> shape;  // The shape of all parts one behind the other.
  // The number of rows of each part. Empty: as even as can be, and the first may have one more.
  std::span<const int64_t> counts;
};

// One rank's memory for a submission, in elements.
struct Extent {
  int64_t input = 0;   // It gives so many elements; 0: none is read.
  int64_t output = 0;  // It gets so many elements.
  // The places of its input and its output in the row of all parts. In place means that elements
  // with the same place in that row have the same address. An alltoall is never in place.
  int64_t input_at = 0;
  int64_t output_at = 0;
  bool can_be_in_place = true;

  bool operator==(const Extent&) const = default;
};

// Returns an error, which names the tensor and what is wrong, unless `ranks` ranks can have such
// parts. Collectives without parts are ok. An alltoall has a count for each pair of ranks, by
// sender, then receiver.
Status check_parts(const PartedTensor& tensor, int ranks);

// Returns a rank's memory for any collective. Its parts must have passed check_parts().
Extent extent_of(const PartedTensor& tensor, int place, int ranks, bool is_root);

// Returns the elements of each rank's part, in the row of all parts. The kind must have parts, and
// must not be an alltoall.
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
  int64_t even_;                      // The elements of a part, where there are no counts.
  std::vector<int64_t> sent_at_;      // By `from`, then `to`; empty without counts.
  std::vector<int64_t> received_at_;  // By `to`, then `from`; empty without counts.
};

}  // namespace rueda
