// This keeps what has gone wrong in a data job: whether its data plane has stopped, and whether a
// neighbour has left. It tells the owner of lost neighbours and of lost memory. It belongs to its
// data loop.
#pragma once

#include <optional>
#include <utility>

#include <boost/asio/io_context.hpp>

#include "daemon/base/lifetime.h"
#include "daemon/engine/data/data_job_options.h"
#include "daemon/engine/operation/operation.h"

namespace rueda::engine {

class EpochFaults {
 public:
  // Both outlive the object.
  EpochFaults(boost::asio::io_context& loop, const DataJobOptions& options)
      : loop_(loop), options_(options) {}

  // Returns whether no frame is handled or sent any more, because the epoch is about to end.
  bool is_stopped() const { return is_stopped_; }
  // Stops the data plane. Returns whether it had not stopped before.
  bool stop() { return !std::exchange(is_stopped_, true); }
  // An operation has failed here: the data plane stops, and the owner is told.
  void fail(Seq seq, const Status& why);
  // Is called after the operation's inputs were read. Returns false if the data plane has stopped,
  // or if what was read is worthless, because a client's memory is lost: then the operation fails.
  bool inputs_hold(const Operation& operation) {
    if (!is_stopped_ && operation.has_lost_memory()) fail_for_memory(operation);
    return !is_stopped_;
  }

  // Tells the owner, from a fresh turn, that a node is lost.
  void report_loss(NodeIndex peer, const Status& status, bool is_missed);
  // Keeps a loss that is missed only if another operation comes.
  void keep_loss(NodeIndex peer, const Status& status) { kept_.emplace(peer, status); }
  // An operation has come: reports what was kept, once.
  void report_kept();
  // A peer has closed a channel.
  void note_closed_peer() { has_closed_peer_ = true; }
  bool has_closed_peer() const { return has_closed_peer_; }

 private:
  void fail_for_memory(const Operation& operation);

  boost::asio::io_context& loop_;
  const DataJobOptions& options_;
  bool is_stopped_ = false;
  bool has_closed_peer_ = false;
  std::optional<std::pair<NodeIndex, Status>> kept_;
  Lifetime lifetime_;
};

}  // namespace rueda::engine
