// How many elements one rank gives to a collective and gets from it, where they lie when one buffer
// has both, and what the result must be.
#pragma once

#include <cstddef>

#include "bench/values/check.h"
#include "bench/values/work.h"

namespace rueda::bench {

struct Layout {
  Work work = Work::kAllreduce;  // one that has sizes
  size_t count = 0;              // elements of the larger side; of parts all have equally many
  int nranks = 1;
  int rank = 0;
  int root = 0;

  size_t part() const { return count / static_cast<size_t>(nranks); }
  // Elements; none where the library takes no buffer.
  size_t input() const;
  size_t output() const;
  // Elements, as the library wants to know them: a gather's own input, else the larger side.
  size_t shape() const;
  // In place the smaller side is this rank's part of the larger one: where it begins, in elements.
  size_t input_begin() const { return input() < output() ? own_begin() : 0; }
  size_t output_begin() const { return output() < input() ? own_begin() : 0; }

 private:
  size_t own_begin() const { return static_cast<size_t>(rank) * part(); }
};

// `result` is the output of `layout.rank`. Indices are those of the output, but of a reduction
// those of the elements that were reduced.
Verdict check_result(const Layout& layout, const Scenario& scenario, const void* result);

}  // namespace rueda::bench
