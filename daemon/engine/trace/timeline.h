// A job's timeline on one node: records while it is on, and brings what all nodes record to the
// launcher of node 0, who writes the file, with times on that node's clock. Belongs to the control
// loop.
//
// Events go up the links of the job in batches, so many at a time: the next one when the node above
// has taken one. What does not fit into the bounds is dropped, counted, and said in the file.
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

// What the launcher of node 0 is told.
struct TimelineOpened {
  std::string path;
  bool is_from_elsewhere = false;  // another node of the job asks for it
};
struct TimelineClosed {
  std::vector<std::string> missing_nodes;  // whose last events have not come
};
using TimelineNews = std::variant<TimelineOpened, observe::TraceBatch, TimelineClosed>;

// The job, as its timeline uses it.
struct TimelineHost {
  virtual ~TimelineHost() = default;
  // None: this node is the one where the file is written.
  virtual std::optional<NodeIndex> timeline_parent() const = 0;
  virtual std::vector<NodeIndex> timeline_children() const = 0;
  // Whether the node is the child or stands below it in the tree of links.
  virtual bool is_below_child(NodeIndex node, NodeIndex child) const = 0;
  virtual void send_timeline(NodeIndex to, TimelineMessage message) = 0;
  // False: there is no room, or no launcher.
  virtual bool tell_launcher(TimelineNews news) = 0;
};

struct TimelineOptions {
  JobId job;
  NodeIndex self;
  std::vector<std::string> node_ids;
  std::vector<Rank> ranks;  // this node's
  int64_t clock_skew_ns = 0;
};

class Timeline {
 public:
  Timeline(boost::asio::io_context& loop, observe::JobMetrics& metrics, TimelineOptions options,
           TimelineHost& host);

  // Null: it is off.
  JobTrace* trace() { return trace_.get(); }
  // Likewise, for what is launched: a timeline that is about to end waits for what is under way,
  // and has nothing new.
  JobTrace* trace_of_launches() { return is_finishing_ ? nullptr : trace_.get(); }

  // Anybody on this node wants it to begin, or to end. An error is this node's: what goes wrong on
  // node 0, where it is not this one, is said there.
  Status request(const TimelineRequest& request) { return request_of(request, false); }
  void on_message(NodeIndex from, TimelineMessage message);
  // The links of the epoch are there.
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
  // Records no longer; what was recorded goes up. At once, or when the last operation that is under
  // way has ended: another node, which ended its part earlier, may have said that it is enough.
  void end();
  void end_when_idle();
  // Returns whether the batch is of a node whose events come over the link to `from`.
  bool is_credible(NodeIndex from, const observe::TraceBatch& batch) const;
  void arm();
  void tick();
  void ask_clock();
  // Restated on the clock of the node above.
  void restate(observe::TraceBatch& batch) const;
  observe::TraceBatch take_batch();
  // As long as there is something and it may go, or until nothing is left.
  void send_up(bool sends_all);
  void pass_on(observe::TraceBatch batch);
  // Node 0.
  void write(observe::TraceBatch batch);
  void drop(const observe::TraceBatch& batch);
  // Adds to the batch what was lost of the node's batches before it.
  void add_lost(observe::TraceBatch& batch);
  // Node 0: the file is whole once all nodes have said their last.
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

  int in_flight_ = 0;                           // batches that the node above has not taken
  std::deque<observe::TraceBatch> from_below_;  // on their way up
  // What was lost with batches that found no room, by node. It goes with the node's next batch.
  struct Lost {
    uint64_t events = 0;
    std::map<uint32_t, std::string> names;  // by track
  };
  std::map<int32_t, Lost> lost_here_;

  // Node 0.
  std::string path_;               // empty: nothing is written
  std::set<NodeIndex> recording_;  // other nodes, that have not said their last
  bool is_ending_ = false;

  boost::asio::steady_timer timer_;
  boost::asio::steady_timer end_timer_;
  Lifetime lifetime_;
};

}  // namespace rueda::engine
