// Watches that a data job makes progress: as long as it waits for its neighbours, something must
// come, or be acknowledged, within the timeout. It also keeps who waits for the job to be quiet.
// It belongs to its data loop.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include "daemon/base/clock.h"
#include "daemon/base/lifetime.h"
#include "daemon/engine/data/data_job_options.h"
#include "daemon/transport/transport.h"

namespace rueda::engine {

// A host is the data job, as its watch sees it. It is asked a few times in each timeout.
class ProgressHost {
 public:
  using VisitOutlet = std::function<void(NodeIndex, const transport::SendChannel&)>;

  // Returns whether something is to be waited for: an operation, a channel, or that the neighbours
  // take what was sent.
  virtual bool has_to_go_on() const = 0;
  // Returns whether the neighbours have taken everything sent to them, or nothing more is sent.
  virtual bool is_quiet() const = 0;
  // Returns the node that keeps what is under way from going on, or nothing if no node has to
  // answer for it: an application has not launched its part yet.
  virtual std::optional<NodeIndex> culprit() const = 0;
  // Says that nothing went on because of that node for the whole timeout.
  virtual std::string describe_silence(NodeIndex peer) const = 0;
  // Returns the bytes that have come over all channels, headers and parts of frames included.
  virtual uint64_t bytes_received() const = 0;
  // Visits each open channel to a neighbour.
  virtual void for_each_outlet(const VisitOutlet& visit) const = 0;
  // The node has been silent for too long. The data plane stops.
  virtual void give_up(NodeIndex peer, const Status& status) = 0;

 protected:
  ~ProgressHost() = default;
};

class ProgressWatch {
 public:
  // All of them outlive the object.
  ProgressWatch(boost::asio::io_context& loop, const DataJobOptions& options, ProgressHost& host)
      : options_(options), host_(host), timer_(loop) {}

  // Something went on.
  void note_progress() { last_progress_ms_ = steady_now_ms(); }
  // Something has begun that others have to do with: they have a whole timeout from now on.
  void expect_progress() {
    note_progress();
    watch();
  }
  // The data plane has stopped.
  void stop() { timer_.cancel(); }

  // Calls `handler` once the job is quiet. A neighbour that neither takes what was sent to it nor
  // acknowledges it is given up after the timeout.
  void when_quiet(std::function<void()> handler);
  // The job may be quiet now.
  void check_quiet() {
    if (!quiet_handlers_.empty() && host_.is_quiet()) tell_quiet();
  }
  // Calls those who wait for the job to be quiet, though it may not be.
  void tell_quiet();

 private:
  // A neighbour's machine has acknowledged so many bytes, and no more since then.
  struct Taken {
    uint64_t bytes = 0;
    TicksMs since_ms = 0;
  };

  // Watches from now on, until there is nothing to wait for. The call costs nothing if the watch is
  // on already.
  void watch();
  void set_timer();
  void look(TicksMs due_ms);
  // Gives up where what was sent is not acknowledged. Returns whether all is well.
  bool look_at_channels(TicksMs now);
  // Returns why the neighbour is to be given up, or ok.
  Status look_at(NodeIndex peer, const transport::SendChannel& channel, TicksMs now);
  TicksMs period_ms() const { return std::max<TicksMs>(options_.timeout_ms / 4, 1); }

  const DataJobOptions& options_;
  ProgressHost& host_;
  boost::asio::steady_timer timer_;
  bool is_watching_ = false;
  TicksMs last_progress_ms_ = 0;
  uint64_t seen_received_ = 0;
  std::map<const transport::SendChannel*, Taken> taken_;
  std::vector<std::function<void()>> quiet_handlers_;
  Lifetime lifetime_;
};

}  // namespace rueda::engine
