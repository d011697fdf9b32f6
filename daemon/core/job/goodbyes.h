// Keeps which ranks have left the epoch, and which goodbyes are not in force yet. On the
// coordinator a goodbye waits while a plan that others follow needs the rank; on every node one
// that comes after the epoch was sealed is noted and changes nothing else. JobCore (job.h) owns it.
// The class is pure.
#pragma once

#include <set>
#include <utility>
#include <vector>

#include "daemon/core/job/process_sets.h"
#include "daemon/core/model/layout.h"

namespace rueda::core {

class Goodbyes {
 public:
  // The layout and the sets are the job's, and outlive this object.
  Goodbyes(const Layout& layout, const ProcessSets& sets) : layout_(layout), sets_(sets) {}

  // --- The coordinator's
  // The rank, which is on the node, has said goodbye.
  void add(NodeIndex node, Rank rank) { pending_.emplace_back(node, rank); }
  bool has_pending() const { return !pending_.empty(); }
  // Returns whether a pending goodbye is of one of the set's ranks.
  bool concerns(const Collectives& set) const;
  // Returns the ranks with pending goodbyes, in the order in which they came; the caller puts their
  // goodbyes in force.
  std::vector<Rank> take_pending();
  void drop_pending() { pending_.clear(); }

  // The goodbye of the rank came after the seal.
  void add_sealed(Rank rank) { sealed_.insert(rank); }

  // --- Who has left
  // Returns the ranks whose goodbyes were in force before a seal.
  const std::set<Rank>& left() const { return sets_.all_ranks().left(); }
  // Returns whether all ranks of the node have left, or will have left after pending goodbyes.
  bool has_left(NodeIndex node) const;
  // Returns whether all ranks of the job have left. Goodbyes after a seal count, pending ones do
  // not.
  bool has_everybody_left() const;

  // An epoch begins or ends: drops what was pending and what came after a seal.
  void forget();

 private:
  const Layout& layout_;
  const ProcessSets& sets_;
  std::vector<std::pair<NodeIndex, Rank>> pending_;
  std::set<Rank> sealed_;
};

}  // namespace rueda::core
