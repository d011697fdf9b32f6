// What a node and those below it in the tree (tree.h) report, put together: a tensor goes up when
// all of them have reported it or have joined (L11), as one report. Reports that differ are one
// report with an objection that names both ranks and both values. A join goes up when all of them
// have joined, after everything else: to those above, they are like one node with many ranks.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "daemon/core/messages/messages.h"
#include "daemon/core/model/track.h"

namespace rueda::core {

// A tensor is ready on a node; none: on the node that says so and all below it.
using TensorReport = std::pair<std::optional<NodeIndex>, ReadyTensor>;

class Combiner {
 public:
  // `nodes`: how many report here, this one included.
  explicit Combiner(size_t nodes) : nodes_(nodes) {}

  // These nodes, which are all below this one or this one itself, have reported the tensor alike.
  // False: one of them has done so before.
  [[nodiscard]] bool add(const std::vector<NodeIndex>& from, ReadyTensor tensor);
  // From here on reports go up as they come, node by node; first those that have waited.
  void stop();
  // L4: what was reported of the lockable track is void.
  void forget_lockable();
  // The tensor has been decreed: who has not reported it does not do so any more.
  void forget(const std::string& tensor);
  // What is to go up, in this order.
  std::vector<TensorReport> take_reports() { return std::exchange(reports_, {}); }

 private:
  struct Entry {
    std::set<NodeIndex> reported;
    // What waits for others.
    std::vector<std::pair<std::vector<NodeIndex>, ReadyTensor>> parts;
    bool is_lockable = false;
  };
  size_t missing(const Entry& entry) const;
  // False: it waits for others.
  bool goes_up(const Entry& entry);
  void pass_on(Entry& entry);
  ReadyTensor combine(const Entry& entry) const;

  const size_t nodes_;
  std::map<std::string, Entry> entries_;
  std::map<NodeIndex, Rank> joined_;  // all their ranks have: one of these
  std::vector<TensorReport> reports_;
  bool is_stopped_ = false;
};

}  // namespace rueda::core
