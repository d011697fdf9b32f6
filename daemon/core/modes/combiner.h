// Puts together what a node and those below it in the tree (tree.h) report. A tensor goes up as one
// report when all of them have reported it or have joined (L11). Reports that differ are one report
// with an objection that names both ranks and both values. A join goes up when all of them have
// joined, after everything else: to those above, they are like one node with many ranks.
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

// A tensor, and the node on which it is ready; none: it is ready on the node that says so and on
// all below it.
using TensorReport = std::pair<std::optional<NodeIndex>, ReadyTensor>;

class Combiner {
 public:
  // `nodes` is how many nodes report here, this one included.
  explicit Combiner(size_t nodes) : nodes_(nodes) {}

  // Adds a report of these nodes, which all agree on the tensor, and each of which is below this
  // node or is this node. Returns false if one of them has reported the tensor before.
  [[nodiscard]] bool add(const std::vector<NodeIndex>& from, ReadyTensor tensor);
  // Makes reports go up as they come from here on, node by node. Those that have waited go first.
  void stop();
  // Forgets what was reported of the lockable track, which is void (L4).
  void forget_lockable();
  // Forgets the tensor, which has been decreed: nodes that have not reported it will not do so.
  void forget(const std::string& tensor);
  // Returns what has to go up, in this order, and forgets it.
  std::vector<TensorReport> take_reports() { return std::exchange(reports_, {}); }

 private:
  struct Entry {
    std::set<NodeIndex> reported;
    // The reports that wait for those of other nodes, each with the nodes that made it.
    std::vector<std::pair<std::vector<NodeIndex>, ReadyTensor>> parts;
    bool is_lockable = false;
  };
  size_t missing(const Entry& entry) const;
  // Appends the tensor to what goes up. Returns false if it waits for other nodes.
  bool goes_up(const Entry& entry);
  void pass_on(Entry& entry);
  ReadyTensor combine(const Entry& entry) const;

  const size_t nodes_;
  std::map<std::string, Entry> entries_;
  // Nodes whose ranks have all joined, each with one of these ranks.
  std::map<NodeIndex, Rank> joined_;
  std::vector<TensorReport> reports_;
  bool is_stopped_ = false;
};

}  // namespace rueda::core
