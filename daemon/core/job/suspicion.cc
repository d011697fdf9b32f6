#include "daemon/core/job/suspicion.h"

#include <algorithm>

namespace rueda::core {

void Suspicion::begin(Status cause, TicksMs deadline) {
  nodes_.clear();
  missed_.clear();
  cause_ = std::move(cause);
  deadline_ = deadline;
}

void Suspicion::add(NodeIndex node, bool is_missed) {
  nodes_.insert(node);
  if (is_missed) missed_.insert(node);
}

bool Suspicion::is_refuted(const Goodbyes& goodbyes) const {
  return missed_.empty() && std::all_of(nodes_.begin(), nodes_.end(),
                                        [&](NodeIndex node) { return goodbyes.has_left(node); });
}

void Suspicion::forget() {
  nodes_.clear();
  missed_.clear();
  done_.clear();
}

}  // namespace rueda::core
