// Says how many elements one rank gives to a collective and gets from it, where they lie when one
// buffer has both, and what the result must be.
#pragma once

#include <cstddef>

#include "bench/values/check.h"
#include "bench/values/work.h"

namespace rueda::bench {

struct Layout {
  Work work = Work::kAllreduce;  // a collective that has sizes
  size_t count = 0;              // elements of the larger side; all parts have equally many
  int nranks = 1;
  int rank = 0;
  int root = 0;

  size_t part() const { return count / static_cast<size_t>(nranks); }
  // These return the numbers of elements; 0 where the library takes no buffer.
  size_t input() const;
  size_t output() const;
  // Returns the number of elements that the library is given as the shape: a gather's own input,
  // and otherwise the larger side.
  size_t shape() const;
  // These return where a side begins in a shared buffer, in elements: in place, the smaller side is
  // this rank's part of the larger one.
  size_t input_begin() const { return input() < output() ? own_begin() : 0; }
  size_t output_begin() const { return output() < input() ? own_begin() : 0; }

 private:
  size_t own_begin() const { return static_cast<size_t>(rank) * part(); }
};

// Checks `result`, which is the output of `layout.rank`. The index in the verdict is that of the
// output's element; for a reduction it is that of the element that was reduced.
Verdict check_result(const Layout& layout, const Scenario& scenario, const void* result);

}  // namespace rueda::bench
