// A job's timeline on one node. It records while it is on, and brings what all nodes record to the
// launcher of node 0, who writes the file, with times on that node's clock. It belongs to the
// control loop.
//
// Events go up the links of the job in batches, so many at a time: the next one goes when the node
// above has taken one. Events that do not fit into the bounds are dropped, counted, and mentioned
// in the file.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include "daemon/base/lifetime.h"
#include "daemon/engine/ports/control_plane.h"
#include "daemon/engine/trace/job_trace.h"
#include "daemon/observe/clock_estimate.h"
#include "daemon/observe/metrics.h"

namespace rueda::engine {

// The news for the launcher of node 0: the timeline is opened, events have come, it is closed.
struct TimelineOpened {
  std::string path;
  bool is_from_elsewhere = false;  // Another node of the job asks for it.
};
struct TimelineClosed {
  std::vector<std::string> missing_nodes;  // Nodes whose last events have not come.
};
using TimelineNews = std::variant<TimelineOpened, observe::TraceBatch, TimelineClosed>;

// The job, as its timeline uses it.
struct TimelineHost {
  virtual ~TimelineHost() = default;
  // Returns the node above, or none if this node is the one where the file is written.
  virtual std::optional<NodeIndex> timeline_parent() const = 0;
  virtual std::vector<NodeIndex> timeline_children() const = 0;
  // Returns whether the node is the child or stands below it in the tree of links.
  virtual bool is_below_child(NodeIndex node, NodeIndex child) const = 0;
  virtual void send_timeline(NodeIndex to, TimelineMessage message) = 0;
  // Returns false if there is no room, or no launcher.
  virtual bool tell_launcher(TimelineNews news) = 0;
};

struct TimelineOptions {
  JobId job;
  NodeIndex self;
  std::vector<std::string> node_ids;
  std::vector<Rank> ranks;  // This node's ranks.
  int64_t clock_skew_ns = 0;
};

class Timeline {
 public:
  Timeline(boost::asio::io_context& loop, observe::JobMetrics& metrics, TimelineOptions options,
           TimelineHost& host);

  // Returns null if the timeline is off.
  JobTrace* trace() { return trace_.get(); }
  // Returns the trace that launches have to be told to, or null. A timeline that is about to end
  // waits for operations under way, and takes no new ones.
  JobTrace* trace_of_launches() { return is_finishing_ ? nullptr : trace_.get(); }

  // Somebody on this node wants it to begin, or to end. An error is about this node: what goes
  // wrong on node 0, if that is another node, is said there.
  Status request(const TimelineRequest& request) { return request_of(request, false); }
  void on_message(NodeIndex from, TimelineMessage message);
  // The epoch has started, and its links are there.
  void on_epoch_started();
  void on_node_lost(NodeIndex node);
  // All ranks have left the epoch, or the job ends on this node: sends what there is.
  void flush();
  void close();

 private:
  Status request_of(const TimelineRequest& wanted, bool is_from_elsewhere);
  void on(NodeIndex from, const TimelineRequest& wanted);
  void on(NodeIndex from, const TimelineBegin& begun);
  void on(NodeIndex from, const TimelineEnd& ended);
  void on(NodeIndex from, observe::TraceBatch& batch);
  void on(NodeIndex from, const TimelineTaken& taken);
  void on(NodeIndex from, const ClockAsk& ask);
  void on(NodeIndex from, const ClockAnswer& answer);

  bool is_root() const { return !host_.timeline_parent(); }
  int64_t now_ns() const { return steady_now_ns() + options_.clock_skew_ns; }
  void send(NodeIndex to, decltype(TimelineMessage::body) body);
  void begin(bool wants_chunks);
  // Stops recording, and sends up what was recorded. The first does so at once, the second when the
  // last operation that is under way has ended: another node, which ended its part earlier, may
  // have said that it is enough.
  void end();
  void end_when_idle();
  // Returns whether the batch is of a node whose events come over the link to `from`.
  bool is_credible(NodeIndex from, const observe::TraceBatch& batch) const;
  void arm();
  void tick();
  void ask_clock();
  // Restates the batch's times on the clock of the node above.
  void restate(observe::TraceBatch& batch) const;
  observe::TraceBatch take_batch();
  // Sends batches up as long as there is something and it may go, or until nothing is left.
  void send_up(bool sends_all);
  void pass_on(observe::TraceBatch batch);
  // Hands the batch to the launcher, on node 0.
  void write(observe::TraceBatch batch);
  void drop(const observe::TraceBatch& batch);
  // Adds to the batch what was lost of the node's batches before it.
  void add_lost(observe::TraceBatch& batch);
  // Closes the timeline, on node 0, if all nodes have sent their last events, so that the file is
  // whole.
  void close_if_complete();
  void tell_closed();

  observe::JobMetrics& metrics_;
  const TimelineOptions options_;
  TimelineHost& host_;

  std::unique_ptr<JobTrace> trace_;
  bool wants_chunks_ = false;
  bool is_finishing_ = false;
  bool warned_of_batch_ = false;
  uint64_t counted_dropped_ = 0;
  observe::ClockEstimate clock_;
  observe::ClockMap map_;
  int quick_asks_ = 0;
  int64_t next_ask_ns_ = 0;

  int in_flight_ = 0;                           // Batches that the node above has not taken.
  std::deque<observe::TraceBatch> from_below_;  // Batches on their way up.
  // Counts what was lost with batches that found no room, by node. It goes with the node's next
  // batch.
  struct Lost {
    uint64_t events = 0;
    std::map<uint32_t, std::string> names;  // By track.
  };
  std::map<int32_t, Lost> lost_here_;

  // These are node 0's.
  std::string path_;               // Empty: nothing is written.
  std::set<NodeIndex> recording_;  // Other nodes whose last events have not come.
  bool is_ending_ = false;

  boost::asio::steady_timer timer_;
  boost::asio::steady_timer end_timer_;
  Lifetime lifetime_;
};

}  // namespace rueda::engine
