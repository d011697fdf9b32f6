// A job's check for NaN and infinity on one node: what the local operations have found becomes one
// report that all ranks of all nodes are told alike. It belongs to the control loop.
//
// What a node has found goes up the links of the job; the coordinator collects for a moment and
// tells all nodes what comes before all others. From then on a value is only counted, until the
// step has doubled: a report that was harmless (a loss scale that is still too high) does not hide
// what goes wrong later, and there are few reports, however long it goes wrong.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include "daemon/base/lifetime.h"
#include "daemon/core/model/layout.h"
#include "daemon/engine/operation/input_check.h"
#include "daemon/engine/ports/control_plane.h"
#include "daemon/observe/metrics.h"
#include "daemon/session/session.h"

namespace rueda::engine {

// The job, as the finite check uses it.
struct FiniteHost {
  virtual ~FiniteHost() = default;
  // Returns the node to which findings go, or nothing if this node decides.
  virtual std::optional<NodeIndex> finite_parent() const = 0;
  virtual std::vector<NodeIndex> finite_children() const = 0;
  virtual void send_nonfinite(NodeIndex to, NonfiniteMessage message) = 0;
  // Tells the rank the news; null: there is none. A rank that is not attached is not told.
  virtual void tell_rank(LocalRank rank, const session::NonfiniteNews* news) = 0;
};

struct FiniteOptions {
  JobId job;
  const core::Layout& layout;
  NodeIndex self;
  bool is_on = false;  // If false, this node's ranks are only told what other nodes have found.
};

class FiniteWatch {
 public:
  FiniteWatch(boost::asio::io_context& loop, observe::JobMetrics& metrics,
              const FiniteOptions& options, FiniteHost& host);

  // Returns the count of how often the rank has contributed to reductions of this name, which the
  // caller increments. It is valid until the next epoch. Returns null if there are too many names;
  // then each of them is in its first step.
  uint64_t* steps_of(LocalRank rank, const core::TensorDescriptor& tensor);
  // An operation of this node has ended, and everything that had to be read was read.
  void on_ended(const InputCheck& check);
  // A rank is about to go and wants to know: it is told now, or when it is known.
  void on_asked(LocalRank rank);
  void on_message(NodeIndex from, const NonfiniteMessage& message);
  // An epoch has started: forgets everything.
  void on_epoch_started();
  // The job or its epoch ends: whatever would be told in a moment is told now.
  void flush();

 private:
  void on(NodeIndex from, const FoundNonfinite& found);
  void on(NodeIndex from, const FirstNonfinite& first);
  void on(NodeIndex from, const AskNonfinite& ask);
  void on(NodeIndex from, const NoNonfinite& none);

  bool is_root() const { return !host_.finite_parent(); }
  bool is_news(const Nonfinite& value) const { return !told_ || value.step / 2 >= told_->step; }
  void send(NodeIndex to, decltype(NonfiniteMessage::body) body);
  void consider(const Nonfinite& value);
  // Sees to it, on the node that decides, that it decides in a moment.
  void arm();
  void decide();
  void tell(const Nonfinite& first);
  void answer_none();

  observe::JobMetrics& metrics_;
  const FiniteOptions options_;
  const size_t ranks_;  // The number of this node's ranks.
  FiniteHost& host_;
  std::vector<std::unordered_map<std::string, uint64_t>> steps_;  // The index is the local rank.
  std::optional<Nonfinite> told_;                                 // What was told last.
  // What is told next, unless something that comes before it is found.
  std::optional<Nonfinite> candidate_;
  int sent_up_ = 0;  // How many findings were sent up since then.
  std::set<LocalRank> asking_;
  std::set<NodeIndex> asking_nodes_;
  bool is_armed_ = false;
  boost::asio::steady_timer timer_;
  Lifetime lifetime_;
};

}  // namespace rueda::engine
