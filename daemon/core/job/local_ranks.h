// Keeps which ranks of this node are attached to the job. JobCore (job.h) owns it. The class is
// pure.
#pragma once

#include <cstddef>
#include <set>
#include <vector>

#include "daemon/core/model/layout.h"

namespace rueda::core {

class LocalRanks {
 public:
  // The layout outlives this object.
  LocalRanks(const Layout& layout, NodeIndex self) : layout_(layout), self_(self) {}

  // The node's ranks in the layout.
  const std::vector<Rank>& all() const { return layout_.node(self_).ranks; }
  Rank global(LocalRank rank) const { return all()[static_cast<size_t>(rank.value)]; }

  // Returns whether the rank is attached, to this epoch or early to the next one.
  bool contains(LocalRank rank) const { return attached_.contains(rank) || early_.contains(rank); }
  // Returns whether no rank is attached, early ones included.
  bool is_empty() const { return attached_.empty() && early_.empty(); }
  // Returns the number of ranks that are attached to this epoch.
  size_t count() const { return attached_.size(); }
  // These return the global ranks that are attached to this epoch, and those that are not;
  // ascending.
  std::vector<Rank> attached() const;
  std::vector<Rank> missing() const;

  void attach(LocalRank rank) { attached_.insert(rank); }
  // The rank attaches again before the epoch has finished, and takes part in the next one.
  void attach_early(LocalRank rank) { early_.insert(rank); }
  void detach(LocalRank rank) { attached_.erase(rank); }
  // Returns false if the rank was not attached early; then nothing has been done.
  bool detach_early(LocalRank rank) { return early_.erase(rank) > 0; }
  // The next epoch begins to form, with the ranks that have attached early.
  void begin_next_epoch();

 private:
  const Layout& layout_;
  const NodeIndex self_;
  std::set<LocalRank> attached_;
  std::set<LocalRank> early_;
};

}  // namespace rueda::core
