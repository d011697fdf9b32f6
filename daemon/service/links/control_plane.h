// The links between daemons over gRPC: it knows who is connected and who has gone silent, and what
// goes over which link. It belongs to the control loop; gRPC's threads reach it through the poster.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <grpcpp/grpcpp.h>

#include "daemon/base/clock.h"
#include "daemon/base/lifetime.h"
#include "daemon/base/limits.h"
#include "daemon/base/strangers/crowd.h"
#include "daemon/engine/loops/poster.h"
#include "daemon/engine/ports/control_plane.h"
#include "daemon/observe/metrics.h"
#include "daemon/rpc/credentials.h"
#include "daemon/rpc/stream.h"
#include "daemon/service/links/arrivals.h"
#include "daemon/service/links/log_budget.h"
#include "daemon/service/members/name_resolver.h"
#include "rueda/v1/control.grpc.pb.h"

namespace rueda::service {

struct ControlPlaneOptions {
  std::string node_id;
  uint64_t incarnation = 0;
  // The silence after which a link is lost. After a third of that time the peer is asked for a
  // heartbeat.
  TicksMs timeout_ms = 5'000;
  // The most links that no job needs, and the longest time that each of them stays.
  size_t max_strangers = 2 * limits::kMaxStrangers;
  TicksMs stranger_ms = 60'000;
  // Returns why the daemon does not connect to an address; ok if it may.
  std::function<Status(const std::string& address)> check_dial = [](const std::string&) {
    return Status::ok();
  };
  // With certificates a peer must be the node that its certificate names.
  std::shared_ptr<const rpc::Credentials> credentials =
      std::make_shared<rpc::Credentials>(security::Caller::Kind::kNetwork);
};

struct PeerSnapshot {
  engine::LinkId link = 0;
  bool is_needed = false;  // True if a job needs the link; otherwise anybody may be the peer.
  std::string node_id;
  std::string control_address;
  std::string state;  // It is "connected" or "connecting".
  std::string version;
  double last_heard_seconds = 0;
};

// Failures for a link that is not up yet are kept until it is: the most messages, and the longest
// time.
inline constexpr size_t kMaxLastWords = 64;
inline constexpr TicksMs kLastWordsMs = 90'000;

class GrpcControlPlane final : public engine::ControlPlane {
 public:
  GrpcControlPlane(boost::asio::io_context& control_loop, observe::Metrics& metrics,
                   ControlPlaneOptions options);
  ~GrpcControlPlane() override;

  // Must be called before anything else. The events must outlive this object.
  void set_events(engine::ControlEvents* events) { events_ = events; }
  // Must be called before a link is dialled. The queue must outlive every stream, that is stop().
  void set_queue(rpc::CallQueue& queue) { queue_ = &queue; }
  // Sets the function that is told whether a job needs an accepted connection, by gRPC's name of
  // its peer.
  void set_keeper(std::function<void(const std::string& peer, bool needed)> keeper) {
    keeper_ = std::move(keeper);
  }

  engine::LinkId acquire(const std::string& address) override;
  void release(engine::LinkId link) override;
  std::string trouble(engine::LinkId link) const override;
  std::string node_of(engine::LinkId link) const override;
  void bind(engine::LinkId link, const JobId& job) override;
  void unbind(engine::LinkId link, const JobId& job) override;
  void send(engine::LinkId link, const engine::Envelope& envelope) override;
  void send(engine::LinkId link, const engine::TimelineMessage& message) override;
  void send(engine::LinkId link, const engine::NonfiniteMessage& message) override;
  void send(engine::LinkId link, const engine::CommunicatorMessage& message) override;
  void send(engine::LinkId link, const engine::GenerationPacket& packet) override;
  std::string encode(const core::GenerationMessage& message) const override;
  Result<core::GenerationMessage> decode(const std::string& body) const override;
  std::string encode(const core::GenerationVotes& votes) const override;
  Result<core::GenerationVotes> decode_votes(const std::string& bytes) const override;

  // Takes a stream that a peer has opened to this daemon's control service. Thread-safe.
  void accept(rpc::CallQueue& queue, std::unique_ptr<rpc::ByteArrival> arrival);

  std::vector<PeerSnapshot> peers() const;
  // Returns how links are protected, and so all that the daemon serves and dials. Thread-safe.
  const rpc::Credentials& credentials() const { return *options_.credentials; }
  // Closes every link, without events. `done` is called when gRPC has released all of them, or
  // after two seconds.
  void stop(std::function<void()> done);

 private:
  // The peer behind a link, as it describes itself.
  struct Peer {
    std::string node_id;
    std::string version;
    std::string nonce;
  };
  // What is to be said once a link is up, and the key of its proof.
  struct Word {
    v1::LinkMessage message;
    std::string proof_key;
  };
  struct Link {
    // The address of the peer of a dialled link, or the one that an accepted link came from.
    std::string address;
    bool dialled = false;
    int users = 0;  // The number of users of a dialled link.
    // The jobs that an accepted link is bound to, and how often.
    std::map<JobId, int> jobs;
    bool is_needed() const { return dialled || !jobs.empty(); }
    TicksMs unneeded_since_ms = 0;
    // The times up to which a stranger's messages and bytes are paid for: time that passes earns it
    // more.
    TicksMs messages_paid_ms = 0;
    TicksMs bytes_paid_ms = 0;
    std::shared_ptr<grpc::Channel> channel;
    std::string trouble;  // The reason why the last dial failed; empty if it succeeded.
    // Of the peer's certificate, if it has any.
    std::string serial;
    security::WallTime certificate_end;
    std::string refused;          // Why the peer that answered the last dial may not stay.
    TicksMs trouble_said_ms = 0;  // The time of the last log line about it; 0: never.
    std::shared_ptr<rpc::Stream> stream;
    uint64_t stream_number = 0;  // Events of an older stream are stale.
    std::string nonce;           // Of this side's hello.
    std::optional<Peer> peer;    // Set while the link is up.
    TicksMs last_heard_ms = 0;
    bool is_suspected = false;  // The peer has been silent for too long.
    TicksMs last_sent_ms = 0;
    TicksMs last_asked_ms = 0;  // The time of the last heartbeat that asks for an answer.
    TicksMs redial_delay_ms = 0;
    std::vector<Word> last_words;  // Failures of jobs, for a dialled link.
    // A dialled link's requests to join (kind 0), and the newest packet about generations of each
    // kind, by job. They are sent as soon as the link is up, while the peer may still take this
    // daemon for a stranger.
    std::map<std::pair<JobId, int>, Word> first_words;
  };

  rpc::StreamEvents events_of(engine::LinkId id, uint64_t stream_number);
  void adopt(Link& link, std::shared_ptr<rpc::Stream> stream);
  // Dials a link. Its host is resolved first, unless the link has a channel.
  void dial(engine::LinkId id);
  void open(engine::LinkId id);
  void redial_later(engine::LinkId id);
  void note_trouble(Link& link, const Status& status);
  void on_message(engine::LinkId id, uint64_t stream_number, const v1::LinkMessage& message,
                  size_t bytes);
  void hear(engine::LinkId id, const v1::LinkMessage& message);
  // Returns true if the message is of a job that the link is bound to, or asks to be bound to.
  bool is_wanted(const Link& link, const v1::LinkMessage& message) const;
  // Returns how long to wait before more is read from a stranger that has sent so many bytes.
  static TicksMs pause_of(Link& link, size_t bytes);
  void become_stranger(engine::LinkId id, Link& link);
  void keep(Link& link, bool needed);
  // Ends a link that no job needs.
  void send_away(engine::LinkId id, const std::string& why);
  void on_closed(engine::LinkId id, uint64_t stream_number, const Status& status);
  // Unwraps what a peer has said. If it is an error, closes the link and returns nullopt.
  template <class Said>
  std::optional<Said> accept_said(Link& link, Result<Said> said);
  // Returns the link, or null if there is no such link or it is not up.
  Link* up(engine::LinkId id);
  // Returns true if the peer may stay.
  bool greet(Link& link, const v1::Hello& hello);
  // Returns what is wrong with a hello that names this node; "" if nothing is. Notes the peer's
  // certificate.
  std::string doubt(Link& link, const std::string& node_id) const;
  // Ends links with peers whose certificates have been revoked, and those that no job needs with
  // peers whose certificates have ended.
  void drop_unvouched();
  void lose(engine::LinkId id, const Status& status);
  // Forgets a link that has no users any more.
  void forget(engine::LinkId id);
  void wait_for_streams(std::vector<std::shared_ptr<rpc::Stream>> closing, int seconds);
  void write(Link& link, const v1::LinkMessage& message);
  // Writes to a link that is up, with a proof if there is a key.
  void write_proven(Link& link, Word word);
  // Returns what came as a proof with a message.
  engine::Proof proof_of(const Link& link, const v1::LinkMessage& message) const;
  // Keeps what is to be said once a dialled link is up, in place of what was kept of that kind.
  void keep_first_word(Link& link, const std::pair<JobId, int>& kind, Word word);
  void beat(Link& link);
  TicksMs beat_due_ms(const Link& link) const;
  TicksMs silence_due_ms(const Link& link) const;
  TicksMs grace_ms() const;
  void arm_watch();
  void watch();
  // Counts a link that is closed for what came over it, and logs why.
  template <class... Args>
  void accuse(spdlog::format_string_t<Args...> format, Args&&... args) {
    metrics_.daemon().refused_at_control.Increment();
    log_budget_.warn(format, std::forward<Args>(args)...);
  }

  boost::asio::io_context& loop_;
  const engine::LoopPoster poster_;
  observe::Metrics& metrics_;
  const ControlPlaneOptions options_;
  NameResolver resolver_;
  engine::ControlEvents* events_ = nullptr;
  rpc::CallQueue* queue_ = nullptr;
  std::function<void(const std::string& peer, bool needed)> keeper_;
  std::map<engine::LinkId, Link> links_;
  Crowd<engine::LinkId> strangers_;                // By machine.
  Crowd<engine::LinkId> strangers_of_connection_;  // The same links, by connection.
  // The number of links that a job needs, by connection.
  std::map<std::string, int> needed_connections_;
  LogBudget log_budget_;  // The budget for log lines that strangers cause.
  engine::LinkId last_id_ = 0;
  uint64_t last_stream_ = 0;
  // It watches for silent links; after stop(), for the end of streams.
  boost::asio::steady_timer timer_;
  int open_streams_ = 0;
  TicksMs watch_due_ms_ = 0;
  bool stopped_ = false;
  std::function<void()> on_stopped_;
  const std::shared_ptr<Arrivals> arrivals_ = std::make_shared<Arrivals>();
  Lifetime lifetime_;
};

}  // namespace rueda::service
