// Keeps the nodes to which a data channel broke, before it is known why: they may have died, or
// have ended the epoch first, because all of their ranks have left. Until the cause has come, or
// its time is up, what is done is kept here. JobCore (job.h) owns it. The class is pure.
#pragma once

#include <set>
#include <utility>
#include <vector>

#include "daemon/base/clock.h"
#include "daemon/base/status.h"
#include "daemon/core/job/goodbyes.h"
#include "daemon/core/job/job_events.h"

namespace rueda::core {

class Suspicion {
 public:
  // A channel broke, and `cause` says which. Nobody is suspected before add(). If the true cause
  // does not come until `deadline`, this is the cause.
  void begin(Status cause, TicksMs deadline);
  // Suspects the node. If the data plane misses it, it cannot turn out to have left in good order.
  void add(NodeIndex node, bool is_missed);
  // Returns whether all suspects have left in good order, so that nobody is missing.
  bool is_refuted(const Goodbyes& goodbyes) const;

  const std::set<NodeIndex>& nodes() const { return nodes_; }
  const Status& cause() const { return cause_; }
  TicksMs deadline() const { return deadline_; }

  // Keeps what ended meanwhile, until take_done() returns it in the same order.
  void keep(const OperationDone& done) { done_.push_back(done); }
  std::vector<OperationDone> take_done() { return std::exchange(done_, {}); }

  // Nobody is suspected any more, for the epoch is sealed or over; drops what was kept.
  void forget();

 private:
  std::set<NodeIndex> nodes_;
  std::set<NodeIndex> missed_;  // Those of nodes_ that the data plane misses.
  Status cause_;
  TicksMs deadline_ = 0;
  std::vector<OperationDone> done_;
};

}  // namespace rueda::core
