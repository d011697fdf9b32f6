// The links between daemons over gRPC: who is connected, who has gone silent, what goes over which
// link. Belongs to the control loop; gRPC's threads reach it through the poster.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <grpcpp/grpcpp.h>

#include "daemon/base/clock.h"
#include "daemon/base/crowd.h"
#include "daemon/base/limits.h"
#include "daemon/engine/loops/poster.h"
#include "daemon/engine/ports/control_plane.h"
#include "daemon/observe/metrics.h"
#include "daemon/service/links/arrivals.h"
#include "daemon/service/members/name_resolver.h"
#include "daemon/service/rpc/log_budget.h"
#include "daemon/service/rpc/stream.h"

namespace rueda::service {

struct ControlPlaneOptions {
  std::string node_id;
  uint64_t incarnation = 0;
  // Silence after which a link is lost. A link is asked for a heartbeat after a third of it.
  TicksMs timeout_ms = 10'000;
  // Of links that no job needs: how many, and for how long each.
  size_t most_strangers = 2 * limits::kMaxStrangers;
  TicksMs stranger_ms = 60'000;
};

struct PeerSnapshot {
  engine::LinkId link = 0;
  bool is_needed = false;  // by a job; else it may be anybody's
  std::string node_id;
  std::string control_address;
  std::string state;  // "connected", "connecting"
  std::string version;
  double last_heard_seconds = 0;
};

// What is kept of failures until a link is up, by link: so many, for so long.
inline constexpr size_t kMostLastWords = 64;
inline constexpr TicksMs kLastWordsMs = 90'000;

class GrpcControlPlane final : public engine::ControlPlane {
 public:
  GrpcControlPlane(boost::asio::io_context& control_loop, observe::Metrics& metrics,
                   ControlPlaneOptions options);
  ~GrpcControlPlane() override;

  // Before anything else. The events outlive this.
  void set_events(engine::ControlEvents* events) { events_ = events; }
  // Before anything is dialled. The queue outlives every stream, that is stop().
  void set_queue(CallQueue& queue) { queue_ = &queue; }
  // Is told whether a job needs a connection that was accepted, by gRPC's name of its peer.
  void set_keeper(std::function<void(const std::string& peer, bool needed)> keeper) {
    keeper_ = std::move(keeper);
  }

  engine::LinkId acquire(const std::string& address) override;
  void release(engine::LinkId link) override;
  std::string trouble(engine::LinkId link) const override;
  void bind(engine::LinkId link, const JobId& job) override;
  void unbind(engine::LinkId link, const JobId& job) override;
  void send(engine::LinkId link, const engine::Envelope& envelope) override;
  void send(engine::LinkId link, const engine::TimelineMessage& message) override;
  void send(engine::LinkId link, const engine::NonfiniteMessage& message) override;
  void send(engine::LinkId link, const engine::CommunicatorMessage& message) override;

  // Thread-safe: a peer has opened a stream to this daemon's control service.
  void accept(CallQueue& queue, std::unique_ptr<LinkArrival> arrival);

  std::vector<PeerSnapshot> peers() const;
  // Closes every link, without events; `done` is called when gRPC has let go of all of them, or
  // after two seconds.
  void stop(std::function<void()> done);

 private:
  // Who is behind a link, as it says.
  struct Peer {
    std::string node_id;
    std::string version;
  };
  struct Link {
    std::string address;  // dialled: where; accepted: where from
    bool dialled = false;
    int users = 0;         // of a dialled one
    std::set<JobId> jobs;  // of an accepted one: bound
    bool is_needed() const { return dialled || !jobs.empty(); }
    TicksMs unneeded_since_ms = 0;
    // What a stranger may say at once: it is earned by waiting.
    TicksMs messages_paid_ms = 0;
    TicksMs bytes_paid_ms = 0;
    std::shared_ptr<grpc::Channel> channel;
    std::string trouble;          // why the last dial did not get through; empty: it did
    TicksMs trouble_said_ms = 0;  // in the log; 0: never
    std::shared_ptr<Stream> stream;
    uint64_t stream_number = 0;  // events of an older stream are stale
    std::optional<Peer> peer;    // set: the link is up
    TicksMs last_heard_ms = 0;
    bool is_suspected = false;  // of being silent for too long
    TicksMs last_sent_ms = 0;
    TicksMs last_asked_ms = 0;  // by a heartbeat
    TicksMs redial_delay_ms = 0;
    std::vector<v1::LinkMessage> last_words;  // of a dialled one: that jobs failed
    // Likewise: who wants to join, by job; said as soon as the link is up, while whoever is there
    // may still take this daemon for a stranger.
    std::map<JobId, v1::LinkMessage> first_words;
  };

  StreamEvents events_of(engine::LinkId id, uint64_t stream_number);
  void adopt(Link& link, std::shared_ptr<Stream> stream);
  // Looks its host up first, unless it has a channel.
  void dial(engine::LinkId id);
  void open(engine::LinkId id);
  void redial_later(engine::LinkId id);
  void note_trouble(Link& link, const Status& status);
  void on_message(engine::LinkId id, uint64_t stream_number, const v1::LinkMessage& message,
                  size_t bytes);
  void hear(engine::LinkId id, const v1::LinkMessage& message);
  // Whether the message is of a job that the link is bound to, or asks to be.
  bool is_wanted(const Link& link, const v1::LinkMessage& message) const;
  // How long who sent that waits until more of it is read.
  static TicksMs pause_of(Link& link, size_t bytes);
  void become_stranger(engine::LinkId id, Link& link);
  void keep(Link& link, bool needed);
  // Ends a link that no job needs.
  void send_away(engine::LinkId id, const std::string& why);
  void on_closed(engine::LinkId id, uint64_t stream_number, const Status& status);
  // None: it cannot be, and the link is closed.
  template <class Said>
  std::optional<Said> accept_said(Link& link, Result<Said> said);
  // Null: there is no such link, or it is not up.
  Link* up(engine::LinkId id);
  // True if the peer may stay.
  bool greet(Link& link, const v1::Hello& hello);
  void lose(engine::LinkId id, const Status& status);
  // Nobody uses the link any more.
  void forget(engine::LinkId id);
  void wait_for_streams(std::vector<std::shared_ptr<Stream>> closing, int seconds);
  void write(Link& link, const v1::LinkMessage& message);
  void beat(Link& link);
  TicksMs beat_due_ms(const Link& link) const;
  TicksMs silence_due_ms(const Link& link) const;
  TicksMs grace_ms() const;
  void arm_watch();
  void watch();

  boost::asio::io_context& loop_;
  const engine::Poster poster_;
  observe::Metrics& metrics_;
  const ControlPlaneOptions options_;
  NameResolver resolver_;
  engine::ControlEvents* events_ = nullptr;
  CallQueue* queue_ = nullptr;
  std::function<void(const std::string& peer, bool needed)> keeper_;
  std::map<engine::LinkId, Link> links_;
  Crowd<engine::LinkId> strangers_;                // by machine
  Crowd<engine::LinkId> strangers_of_connection_;  // the same, by connection
  std::map<std::string, int> needed_connections_;  // how many links of each are needed
  LogBudget log_budget_;                           // of what strangers cause
  engine::LinkId last_id_ = 0;
  uint64_t last_stream_ = 0;
  boost::asio::steady_timer timer_;  // the watch over silent links; after stop(), over the end
  int open_streams_ = 0;
  TicksMs watch_due_ms_ = 0;
  bool stopped_ = false;
  std::function<void()> on_stopped_;
  const std::shared_ptr<Arrivals> arrivals_ = std::make_shared<Arrivals>();
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace rueda::service
