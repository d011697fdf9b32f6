#include "daemon/service/links/control_plane.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <utility>

#include <spdlog/spdlog.h>

#include "daemon/base/limits.h"
#include "daemon/base/one_line.h"
#include "daemon/service/convert/convert.h"
#include "daemon/service/convert/convert_communicator.h"
#include "daemon/service/convert/convert_generation.h"
#include "daemon/service/convert/convert_nonfinite.h"
#include "daemon/service/convert/convert_timeline.h"
#include "daemon/service/links/acceptor.h"
#include "daemon/service/links/link_proof.h"
#include "daemon/service/links/protocol_version.h"

namespace rueda::service {
namespace {

constexpr TicksMs kFirstRedialMs = 50;
constexpr TicksMs kLastRedialMs = 1'000;
// The interval between log lines that one link does not come up.
constexpr TicksMs kTroubleEveryMs = 30'000;

std::shared_ptr<grpc::Channel> channel_to(const std::string& target,
                                          const rpc::Credentials& credentials) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(static_cast<int>(limits::kMaxControlMessageBytes));
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, static_cast<int>(kFirstRedialMs));
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, static_cast<int>(kFirstRedialMs));
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, static_cast<int>(kLastRedialMs));
  return grpc::CreateCustomChannel(target, credentials.channel(), arguments);
}
constexpr size_t kMaxVersionBytes = 63;

// Returns true for messages by which nodes agree on the order; the others are about membership.
bool is_order(const v1::JobMessage& message) {
  switch (message.body_case()) {
    case v1::JobMessage::kReady:
    case v1::JobMessage::kDecree:
    case v1::JobMessage::kLock:
    case v1::JobMessage::kUnlockRequest:
    case v1::JobMessage::kFreeze:
    case v1::JobMessage::kFrozen:
    case v1::JobMessage::kResume:
    case v1::JobMessage::kEnded: return true;
    default: return false;
  }
}

// The rate at which a stranger may send messages and bytes, and how much it may send at once.
constexpr TicksMs kStrangersMessageMs = 20;
constexpr TicksMs kStrangersBurstMs = 1'000;
constexpr size_t kStrangersBytesPerMs = 256;
constexpr size_t kMaxOfAConnection = 2;
constexpr size_t kMaxFirstWords = 2 * limits::kMaxJobs;
// The limit for a job that this daemon does not know yet.
constexpr size_t kMaxFailBytes = 16 << 10;
constexpr rpc::StreamKind kLink{"/rueda.v1.Control/Link", "control connection"};

}  // namespace

GrpcControlPlane::GrpcControlPlane(boost::asio::io_context& control_loop, observe::Metrics& metrics,
                                   ControlPlaneOptions options)
    : loop_(control_loop),
      poster_(control_loop),
      metrics_(metrics),
      options_(std::move(options)),
      timer_(control_loop) {}

GrpcControlPlane::~GrpcControlPlane() = default;

void GrpcControlPlane::stop(std::function<void()> done) {
  stopped_ = true;
  on_stopped_ = std::move(done);
  std::vector<std::shared_ptr<rpc::Stream>> closing;
  for (auto& [id, link] : links_) {
    if (!link.stream) continue;
    link.stream->close();
    closing.push_back(std::move(link.stream));
  }
  links_.clear();
  if (open_streams_ == 0) return std::exchange(on_stopped_, nullptr)();
  wait_for_streams(std::move(closing), 2);
}

// Peers that do not answer are cut off after one second, and no longer waited for after another.
void GrpcControlPlane::wait_for_streams(std::vector<std::shared_ptr<rpc::Stream>> closing,
                                        int seconds) {
  timer_.expires_after(std::chrono::seconds(1));
  timer_.async_wait(lifetime_.guard([this, closing = std::move(closing),
                                     seconds](const boost::system::error_code& error) mutable {
    if (error || !on_stopped_) return;
    if (seconds == 1) return std::exchange(on_stopped_, nullptr)();
    for (const std::shared_ptr<rpc::Stream>& stream : closing) stream->abort();
    wait_for_streams(std::move(closing), seconds - 1);
  }));
}

// --- Dialled links -------------------------------------------------------------------------------

engine::LinkId GrpcControlPlane::acquire(const std::string& address) {
  for (auto& [id, link] : links_) {
    if (link.dialled && link.address == address) {
      ++link.users;
      return id;
    }
  }
  const engine::LinkId id = ++last_id_;
  Link& link = links_[id];
  link.address = address;
  link.dialled = true;
  link.users = 1;
  dial(id);
  return id;
}

void GrpcControlPlane::release(engine::LinkId id) {
  const auto it = links_.find(id);
  if (it == links_.end() || --it->second.users > 0) return;
  if (it->second.last_words.empty()) return forget(id);
  auto timer =
      std::make_shared<boost::asio::steady_timer>(loop_, std::chrono::milliseconds(kLastWordsMs));
  timer->async_wait(lifetime_.guard([this, id, timer](const boost::system::error_code& error) {
    if (!error && links_.contains(id) && links_.at(id).users == 0) forget(id);
  }));
}

void GrpcControlPlane::forget(engine::LinkId id) {
  const auto it = links_.find(id);
  if (it->second.stream) it->second.stream->close();
  links_.erase(it);
}

std::string GrpcControlPlane::trouble(engine::LinkId id) const {
  const auto it = links_.find(id);
  if (it == links_.end() || it->second.trouble.empty()) return {};
  return "its daemon at " + it->second.address + " cannot be reached: " + it->second.trouble;
}

void GrpcControlPlane::note_trouble(Link& link, const Status& status) {
  link.trouble = one_line(status.message());
  const TicksMs now = steady_now_ms();
  if (link.trouble_said_ms != 0 && now - link.trouble_said_ms < kTroubleEveryMs) return;
  link.trouble_said_ms = now;
  spdlog::warn("the daemon at {} cannot be reached: {}; trying again", link.address, link.trouble);
}

void GrpcControlPlane::dial(engine::LinkId id) {
  const auto it = links_.find(id);
  if (it == links_.end() || stopped_) return;
  if (it->second.channel) return open(id);
  const Result<HostPort> where = parse_dial_address(it->second.address);
  const Status may = where.is_ok() ? options_.check_dial(it->second.address) : where.status();
  // Such an address never becomes valid.
  if (!may.is_ok()) return note_trouble(it->second, may);
  auto resolved = lifetime_.guard([this, id](const Result<std::string>& target) {
    if (!links_.contains(id) || stopped_) return;
    Link& link = links_.at(id);
    if (target.is_ok()) {
      link.channel = channel_to(target.value(), *options_.credentials);
      return open(id);
    }
    note_trouble(link, target.status());
    redial_later(id);
  });
  resolver_.resolve(where.value(), [this, resolved](const Result<std::string>& target) {
    poster_.post([resolved, target]() mutable { resolved(target); });
  });
}

void GrpcControlPlane::open(engine::LinkId id) {
  Link& link = links_.at(id);
  link.stream_number = ++last_stream_;
  adopt(link, rpc::open_stream(*queue_, link.channel, kLink, events_of(id, link.stream_number)));
}

// --- Streams -------------------------------------------------------------------------------------

rpc::StreamEvents GrpcControlPlane::events_of(engine::LinkId id, uint64_t stream_number) {
  rpc::StreamEvents events;
  auto heard = lifetime_.guard([this, id, stream_number](v1::LinkMessage& message, size_t bytes) {
    on_message(id, stream_number, message, bytes);
  });
  auto closed = lifetime_.guard(
      [this, id, stream_number](const Status& status) { on_closed(id, stream_number, status); });
  events.on_message = [this, heard](grpc::ByteBuffer sent, size_t bytes) {
    // std::function must be copyable, so the message is shared; it is handed over once.
    auto message = std::make_shared<v1::LinkMessage>();
    using Traits = grpc::SerializationTraits<v1::LinkMessage>;
    if (!Traits::Deserialize(&sent, message.get()).ok()) return false;
    poster_.post([heard, message, bytes]() mutable { heard(*message, bytes); });
    return true;
  };
  events.on_closed = [this, closed](const Status& status) {
    poster_.post([closed, status]() mutable { closed(status); });
  };
  return events;
}

void GrpcControlPlane::adopt(Link& link, std::shared_ptr<rpc::Stream> stream) {
  link.stream = std::move(stream);
  ++open_streams_;
  if (link.is_needed()) link.stream->set_window(rpc::kPeersWindow);
  link.last_heard_ms = link.last_asked_ms = steady_now_ms();
  link.nonce = make_nonce();
  v1::LinkMessage message;
  v1::Hello& hello = *message.mutable_hello();
  hello.set_protocol_version(kProtocolVersion);
  hello.set_node_id(options_.node_id);
  hello.set_incarnation(options_.incarnation);
  hello.set_software_version(RUEDA_VERSION);
  hello.set_nonce(link.nonce);
  write(link, message);
  metrics_.daemon().membership_sent.Increment();
  arm_watch();
}

void GrpcControlPlane::accept(rpc::CallQueue& queue, std::unique_ptr<rpc::ByteArrival> arrival) {
  // It has address and port, which name one connection.
  const std::string peer_address = arrival->context.peer();
  rpc::AcceptedStream accepted = rpc::accept_stream(queue, kLink, std::move(arrival));
  std::shared_ptr<void> place = arrivals_->enter(peer_address);
  if (!place) {  // The loop has enough to do with calls that came before.
    accepted.start({[](const grpc::ByteBuffer&, size_t) { return false; }, {}});
    return accepted.stream->abort();
  }
  poster_.post([this, life = lifetime_.watch(), peer_address, accepted, place = std::move(place)] {
    if (!life.lasts() || stopped_ || links_.size() >= limits::kMaxControlLinks) {
      accepted.start({[](const grpc::ByteBuffer&, size_t) { return false; }, {}});
      accepted.stream->close();
      return;
    }
    const engine::LinkId id = ++last_id_;
    Link& link = links_[id];
    link.address = peer_address;
    link.stream_number = ++last_stream_;
    accepted.start(events_of(id, link.stream_number));
    adopt(link, accepted.stream);
    become_stranger(id, link);
  });
}

template <class Said>
std::optional<Said> GrpcControlPlane::accept_said(Link& link, Result<Said> said) {
  if (said.is_ok()) return std::move(said).value();
  accuse("closed the control connection of node {}: {}", link.peer->node_id,
         one_line(said.status().message()));
  link.stream->close();
  return std::nullopt;
}

void GrpcControlPlane::on_message(engine::LinkId id, uint64_t stream_number,
                                  const v1::LinkMessage& message, size_t bytes) {
  const auto is_of = [this, id, stream_number] {
    const auto it = links_.find(id);
    return it != links_.end() && it->second.stream_number == stream_number;
  };
  if (!is_of()) return;
  hear(id, message);
  if (!is_of()) return;
  Link& link = links_.at(id);
  const TicksMs pause_ms = link.is_needed() ? 0 : pause_of(link, bytes);
  if (pause_ms == 0) return link.stream->taken(bytes);
  auto timer =
      std::make_shared<boost::asio::steady_timer>(loop_, std::chrono::milliseconds(pause_ms));
  timer->async_wait(
      lifetime_.guard([this, id, is_of, bytes, timer](const boost::system::error_code& error) {
        if (!error && is_of()) links_.at(id).stream->taken(bytes);
      }));
}

void GrpcControlPlane::hear(engine::LinkId id, const v1::LinkMessage& message) {
  Link& link = links_.at(id);
  link.last_heard_ms = steady_now_ms();
  link.is_suspected = false;
  observe::DaemonMetrics& metrics = metrics_.daemon();
  if (message.has_hello()) {
    metrics.membership_received.Increment();
    if (!greet(link, message.hello())) link.stream->close();
    if (link.dialled && link.users == 0 && link.last_words.empty()) forget(id);
    return;
  }
  if (!link.peer) {
    accuse("closed the control connection of {}: it did not say hello", link.address);
    link.stream->close();
    return;
  }
  if (message.has_heartbeat()) {
    metrics.heartbeat_received.Increment();
    if (!link.dialled) beat(link);
    return;
  }
  if (!is_wanted(link, message)) {
    metrics.unwanted_received.Increment();
    return;
  }
  if (message.has_timeline()) {
    metrics.timeline_received.Increment();
    auto said = accept_said(link, from_proto(message.timeline()));
    if (said) events_->on_timeline(id, *std::move(said));
  } else if (message.has_nonfinite()) {
    metrics.nonfinite_received.Increment();
    auto said = accept_said(link, from_proto(message.nonfinite()));
    if (said) events_->on_nonfinite(id, *std::move(said));
  } else if (message.has_communicator()) {
    metrics.membership_received.Increment();
    const auto said = accept_said(link, from_proto(message.communicator()));
    if (said) events_->on_communicator(id, *said);
  } else if (message.has_generation()) {
    metrics.membership_received.Increment();
    const v1::GenerationPacket& said = message.generation();
    events_->on_generation(id, {said.job_id(), said.body(), proof_of(link, message)});
  } else {
    (is_order(message.job()) ? metrics.order_received : metrics.membership_received).Increment();
    auto envelope = accept_said(link, from_proto(message.job()));
    if (!envelope) return;
    envelope->proof = proof_of(link, message);
    events_->on_envelope(id, *std::move(envelope));
  }
}

engine::Proof GrpcControlPlane::proof_of(const Link& link, const v1::LinkMessage& message) const {
  if (message.proof().empty()) return {};
  const LinkEnd own{options_.node_id, link.nonce};
  const LinkEnd peer{link.peer->node_id, link.peer->nonce};
  return {{}, digest_of(peer, own, message), message.proof()};
}

bool GrpcControlPlane::greet(Link& link, const v1::Hello& hello) {
  const size_t bytes = hello.ByteSizeLong();
  const bool is_sound =
      bytes <= limits::kMaxHelloBytes && !hello.node_id().empty() &&
      hello.node_id().size() <= limits::kMaxNodeIdBytes && is_one_line(hello.node_id()) &&
      hello.software_version().size() <= kMaxVersionBytes && is_one_line(hello.software_version());
  if (!is_sound || link.peer) {
    accuse("closed the control connection of {}: {}", link.address,
           link.peer ? "it said hello twice"
                     : "its hello, of " + std::to_string(bytes) +
                           " bytes, names no node by 1 to 63 printable bytes, or says more");
    return false;
  }
  if (const std::string why = doubt(link, hello.node_id()); !why.empty()) {
    accuse("closed the control connection of {}: {}", link.address, why);
    link.refused = why;
    return false;
  }
  if (hello.protocol_version() != kProtocolVersion) {
    accuse(
        "node {} at {} speaks version {} of the control protocol (it runs {}), and this "
        "daemon speaks {} ({}): install the same version on both",
        hello.node_id(), link.address, hello.protocol_version(), hello.software_version(),
        kProtocolVersion, RUEDA_VERSION);
    link.refused = "it speaks another version of the control protocol, that of " +
                   hello.software_version() + ": install the same version on both";
    return false;
  }
  if (hello.nonce().size() != kNonceBytes) {
    accuse("closed the control connection of {}: its hello has no nonce of {} bytes", link.address,
           kNonceBytes);
    return false;
  }
  link.peer = Peer{hello.node_id(), hello.software_version(), hello.nonce()};
  link.redial_delay_ms = 0;
  link.trouble.clear();
  link.trouble_said_ms = 0;
  arm_watch();
  // An accepted link is logged when a job needs it.
  if (link.dialled) {
    spdlog::info("control connection with node {} ({}) is up", link.peer->node_id, link.address);
  }
  for (auto& [kind, word] : std::exchange(link.first_words, {})) {
    metrics_.daemon().membership_sent.Increment();
    write_proven(link, std::move(word));
  }
  for (Word& word : std::exchange(link.last_words, {})) {
    metrics_.daemon().membership_sent.Increment();
    write_proven(link, std::move(word));
  }
  return true;
}

std::string GrpcControlPlane::doubt(Link& link, const std::string& node_id) const {
  if (!options_.credentials->has_tls()) return "";
  const std::string pem = link.stream->peers_certificate();
  const Result<security::Identity> peer = options_.credentials->folder()->recognise(pem);
  if (!peer.is_ok()) return peer.status().message();
  const security::CertificateFacts facts = security::read_certificate(pem).value();
  link.serial = facts.serial;
  link.certificate_end = facts.not_after;
  if (peer.value().role == security::Role::kNode && peer.value().name == node_id) return "";
  return "it says that it is node " + node_id + ", and its certificate is for " +
         to_uri(peer.value()) + "; give each daemon its own node's certificate";
}

void GrpcControlPlane::drop_unvouched() {
  if (!options_.credentials->has_tls()) return;
  const std::shared_ptr<const security::TlsFiles> files = options_.credentials->folder()->files();
  const security::WallTime now = security::wall_now();
  std::vector<std::pair<engine::LinkId, std::string>> unvouched;
  for (const auto& [id, link] : links_) {
    if (!link.peer) continue;
    const bool is_revoked = files->revoked.has(link.serial);
    // A job does not end because a certificate does that has been replaced since.
    if (!is_revoked && (link.certificate_end > now || link.is_needed())) continue;
    unvouched.emplace_back(id, "its certificate, serial " + link.serial +
                                   (is_revoked ? ", has been revoked" : ", has ended"));
  }
  for (const auto& [id, why] : unvouched) {
    if (links_.contains(id)) lose(id, Status(Code::kPermission, why));
  }
}

std::string GrpcControlPlane::node_of(engine::LinkId id) const {
  const auto it = links_.find(id);
  const bool is_known = it != links_.end() && it->second.peer && options_.credentials->has_tls();
  return is_known ? it->second.peer->node_id : "";
}

void GrpcControlPlane::on_closed(engine::LinkId id, uint64_t stream_number, const Status& status) {
  if (--open_streams_ == 0 && on_stopped_) std::exchange(on_stopped_, nullptr)();
  const auto it = links_.find(id);
  if (it == links_.end() || it->second.stream_number != stream_number) return;
  lose(id, status);
}

void GrpcControlPlane::lose(engine::LinkId id, const Status& status) {
  Link& link = links_.at(id);
  const bool was_up = link.peer.has_value();
  const TicksMs quiet_ms = steady_now_ms() - link.last_heard_ms;
  if (was_up && link.is_needed()) {
    // Whether that is bad news is up to the jobs that need the link.
    spdlog::info("lost the control connection with node {}: {}", link.peer->node_id,
                 one_line(status.message()));
  }
  link.peer.reset();
  link.stream_number = 0;
  if (link.stream) link.stream->abort();
  link.stream.reset();
  const bool redial = link.dialled;
  if (redial) {
    const std::string refused = std::exchange(link.refused, {});
    if (!was_up) note_trouble(link, refused.empty() ? status : Status(Code::kPermission, refused));
    // A host name may mean another address at the next dial, and certificates may have changed.
    const Result<HostPort> where = parse_dial_address(link.address);
    const bool is_numeric = where.is_ok() && is_numeric_host(where.value().host);
    if (!is_numeric || options_.credentials->has_tls()) link.channel.reset();
    redial_later(id);
  } else {
    if (!link.jobs.empty()) keep(link, false);
    strangers_.remove(id);
    strangers_of_connection_.remove(id);
    links_.erase(id);
  }
  if (was_up) events_->on_link_lost(id, status, quiet_ms);
}

void GrpcControlPlane::redial_later(engine::LinkId id) {
  Link& link = links_.at(id);
  link.redial_delay_ms = std::clamp(link.redial_delay_ms * 2, kFirstRedialMs, kLastRedialMs);
  auto timer = std::make_shared<boost::asio::steady_timer>(
      loop_, std::chrono::milliseconds(link.redial_delay_ms));
  timer->async_wait(lifetime_.guard([this, id, timer](const boost::system::error_code& error) {
    if (!error) dial(id);
  }));
}

void GrpcControlPlane::send(engine::LinkId id, const engine::Envelope& envelope) {
  const auto it = links_.find(id);
  if (it == links_.end()) return;
  Word word{{}, envelope.proof.key};
  *word.message.mutable_job() = to_proto(envelope);
  if (!it->second.peer || !it->second.stream) {
    // A failure is sent only once, so it is kept.
    const bool is_last_word = std::holds_alternative<core::Fail>(envelope.message.body);
    const bool is_first_word = std::holds_alternative<core::Join>(envelope.message.body);
    if (is_first_word) return keep_first_word(it->second, {envelope.job, 0}, std::move(word));
    std::vector<Word>& last_words = it->second.last_words;
    if (it->second.dialled && is_last_word && last_words.size() < kMaxLastWords) {
      last_words.push_back(std::move(word));
    }
    return;
  }
  observe::DaemonMetrics& metrics = metrics_.daemon();
  (is_order(word.message.job()) ? metrics.order_sent : metrics.membership_sent).Increment();
  write_proven(it->second, std::move(word));
}

GrpcControlPlane::Link* GrpcControlPlane::up(engine::LinkId id) {
  const auto it = links_.find(id);
  return it == links_.end() || !it->second.peer || !it->second.stream ? nullptr : &it->second;
}

void GrpcControlPlane::send(engine::LinkId id, const engine::TimelineMessage& said) {
  Link* const link = up(id);
  if (!link) return;
  v1::LinkMessage message;
  *message.mutable_timeline() = to_proto(said);
  metrics_.daemon().timeline_sent.Increment();
  write(*link, message);
}

void GrpcControlPlane::send(engine::LinkId id, const engine::NonfiniteMessage& said) {
  Link* const link = up(id);
  if (!link) return;
  v1::LinkMessage message;
  *message.mutable_nonfinite() = to_proto(said);
  metrics_.daemon().nonfinite_sent.Increment();
  write(*link, message);
}

void GrpcControlPlane::send(engine::LinkId id, const engine::CommunicatorMessage& said) {
  Link* const link = up(id);
  if (!link) return;
  v1::LinkMessage message;
  *message.mutable_communicator() = to_proto(said);
  metrics_.daemon().membership_sent.Increment();
  write(*link, message);
}

void GrpcControlPlane::send(engine::LinkId id, const engine::GenerationPacket& packet) {
  const auto it = links_.find(id);
  if (it == links_.end()) return;
  Word word{{}, packet.proof.key};
  v1::GenerationPacket& said = *word.message.mutable_generation();
  said.set_job_id(packet.job);
  said.set_body(packet.body);
  if (up(id)) {
    metrics_.daemon().membership_sent.Increment();
    return write_proven(it->second, std::move(word));
  }
  v1::GenerationMessage body;
  if (!body.ParseFromString(packet.body)) return;
  keep_first_word(it->second, {packet.job, static_cast<int>(body.body_case())}, std::move(word));
}

void GrpcControlPlane::keep_first_word(Link& link, const std::pair<JobId, int>& kind, Word word) {
  if (link.dialled && link.first_words.size() < kMaxFirstWords) {
    link.first_words[kind] = std::move(word);
  }
}

std::string GrpcControlPlane::encode(const core::GenerationMessage& message) const {
  return service::encode(message);
}

Result<core::GenerationMessage> GrpcControlPlane::decode(const std::string& body) const {
  return decode_generation_message(body);
}

std::string GrpcControlPlane::encode(const core::GenerationVotes& votes) const {
  return service::encode(votes);
}

Result<core::GenerationVotes> GrpcControlPlane::decode_votes(const std::string& bytes) const {
  return decode_generation_votes(bytes);
}

void GrpcControlPlane::write_proven(Link& link, Word word) {
  if (!word.proof_key.empty()) {
    const LinkEnd own{options_.node_id, link.nonce};
    const LinkEnd peer{link.peer->node_id, link.peer->nonce};
    word.message.set_proof(engine::make_proof(word.proof_key, digest_of(own, peer, word.message)));
  }
  write(link, word.message);
}

void GrpcControlPlane::write(Link& link, const v1::LinkMessage& message) {
  link.last_sent_ms = steady_now_ms();
  grpc::ByteBuffer bytes;
  bool own = false;
  (void)grpc::SerializationTraits<v1::LinkMessage>::Serialize(message, &bytes, &own);
  link.stream->send(std::move(bytes));
}

// --- Silence -------------------------------------------------------------------------------------

// The dialling side asks for a heartbeat when nothing has been sent or received for a third of the
// timeout, and the other side answers at once: a heartbeat wakes each side once, and a link with
// traffic needs none.

void GrpcControlPlane::beat(Link& link) {
  v1::LinkMessage message;
  message.mutable_heartbeat();
  write(link, message);
  metrics_.daemon().heartbeat_sent.Increment();
}

TicksMs GrpcControlPlane::beat_due_ms(const Link& link) const {
  if (!link.dialled || !link.peer) return std::numeric_limits<TicksMs>::max();
  const TicksMs quiet_since = std::min(link.last_sent_ms, link.last_heard_ms);
  return std::max(quiet_since, link.last_asked_ms) + std::max<TicksMs>(options_.timeout_ms / 3, 1);
}

// A suspected peer gets some grace, because its messages may still be on their way through gRPC and
// the loop's queue.
TicksMs GrpcControlPlane::silence_due_ms(const Link& link) const {
  return link.last_heard_ms + options_.timeout_ms + 1 + (link.is_suspected ? grace_ms() : 0);
}

TicksMs GrpcControlPlane::grace_ms() const {
  return std::clamp<TicksMs>(options_.timeout_ms / 10, 20, 1'000);
}

void GrpcControlPlane::arm_watch() {
  if (stopped_) return;
  TicksMs due = std::numeric_limits<TicksMs>::max();
  for (const auto& [id, link] : links_) {
    if (!link.stream) continue;
    due = std::min({due, beat_due_ms(link), silence_due_ms(link)});
    if (!link.is_needed()) due = std::min(due, link.unneeded_since_ms + options_.stranger_ms);
  }
  if (due == std::numeric_limits<TicksMs>::max()) return;
  watch_due_ms_ = due;
  timer_.expires_after(std::chrono::milliseconds(std::max<TicksMs>(due - steady_now_ms(), 0)));
  timer_.async_wait(lifetime_.guard([this](const boost::system::error_code& error) {
    if (!error && !stopped_) watch();
  }));
}

void GrpcControlPlane::watch() {
  const TicksMs now = steady_now_ms();
  // This daemon itself did not run: messages that came meanwhile have not been read, and peers that
  // were stopped with it could send none.
  const TicksMs late_ms = now - watch_due_ms_;
  if (late_ms > std::max<TicksMs>(grace_ms(), options_.timeout_ms / 4)) {
    spdlog::warn("this daemon did not run for {} ms; everybody gets another {} ms to be heard of",
                 late_ms, options_.timeout_ms);
    for (auto& [id, link] : links_) link.last_heard_ms = link.last_asked_ms = now;
  }
  drop_unvouched();
  std::vector<engine::LinkId> silent;
  std::vector<engine::LinkId> unneeded;
  for (auto& [id, link] : links_) {
    if (!link.stream) continue;
    if (now >= silence_due_ms(link)) {
      if (std::exchange(link.is_suspected, true)) silent.push_back(id);
    } else if (now >= beat_due_ms(link)) {
      link.last_asked_ms = now;
      beat(link);
    }
    if (!link.is_needed() && now >= link.unneeded_since_ms + options_.stranger_ms)
      unneeded.push_back(id);
  }
  for (engine::LinkId id : silent) {
    lose(id, Status(Code::kNodeLost,
                    "nothing was heard of it for " + std::to_string(options_.timeout_ms) + " ms"));
  }
  for (engine::LinkId id : unneeded) {
    if (links_.contains(id)) send_away(id, "no job has needed it for a while");
  }
  arm_watch();
}

std::vector<PeerSnapshot> GrpcControlPlane::peers() const {
  std::vector<PeerSnapshot> peers;
  for (const auto& [id, link] : links_) {
    PeerSnapshot peer;
    peer.link = id;
    peer.is_needed = link.is_needed();
    peer.control_address = link.address;
    peer.state = link.peer ? "connected" : "connecting";
    if (link.peer) {
      peer.node_id = link.peer->node_id;
      peer.version = link.peer->version;
    }
    peer.last_heard_seconds = static_cast<double>(steady_now_ms() - link.last_heard_ms) / 1000.0;
    peers.push_back(std::move(peer));
  }
  return peers;
}

// --- Links that no job needs: what they may say, and how long they stay --------------------------

void GrpcControlPlane::become_stranger(engine::LinkId id, Link& link) {
  link.unneeded_since_ms = steady_now_ms();
  link.stream->set_window(rpc::kStrangersWindow);
  const std::string connection = link.address;
  strangers_.add(id, machine_of(connection));
  strangers_of_connection_.add(id, connection);
  // A daemon needs one link; a peer that opens many displaces its own.
  while (strangers_of_connection_.size_of(connection) > kMaxOfAConnection) {
    send_away(*strangers_of_connection_.oldest_of(connection), "another link has taken its place");
  }
  while (strangers_.size() > options_.max_strangers) {
    send_away(*strangers_.next_to_go(), "too many strangers have come");
  }
  arm_watch();
}

void GrpcControlPlane::send_away(engine::LinkId id, const std::string& why) {
  metrics_.daemon().strangers_sent_away.Increment();
  lose(id, Status(Code::kNodeLost, why));
}

void GrpcControlPlane::keep(Link& link, bool needed) {
  int& links = needed_connections_[link.address];
  links += needed ? 1 : -1;
  if (keeper_ && links == (needed ? 1 : 0)) keeper_(link.address, needed);
  if (links == 0) needed_connections_.erase(link.address);
}

void GrpcControlPlane::bind(engine::LinkId id, const JobId& job) {
  const auto it = links_.find(id);
  if (it == links_.end() || it->second.dialled) return;
  Link& link = it->second;
  const bool was_needed = link.is_needed();
  ++link.jobs[job];
  if (was_needed) return;
  strangers_.remove(id);
  strangers_of_connection_.remove(id);
  link.stream->set_window(rpc::kPeersWindow);
  keep(link, true);
  spdlog::info("control connection with node {} ({}) is up", link.peer->node_id, link.address);
}

void GrpcControlPlane::unbind(engine::LinkId id, const JobId& job) {
  const auto it = links_.find(id);
  if (it == links_.end() || !it->second.jobs.contains(job)) return;
  if (--it->second.jobs[job] > 0) return;
  it->second.jobs.erase(job);
  if (it->second.is_needed()) return;
  keep(it->second, false);
  become_stranger(id, it->second);
}

bool GrpcControlPlane::is_wanted(const Link& link, const v1::LinkMessage& message) const {
  if (link.dialled) return true;
  switch (message.body_case()) {
    case v1::LinkMessage::kTimeline: return link.jobs.contains(message.timeline().job_id());
    case v1::LinkMessage::kNonfinite: return link.jobs.contains(message.nonfinite().job_id());
    case v1::LinkMessage::kCommunicator: return link.jobs.contains(message.communicator().job_id());
    case v1::LinkMessage::kGeneration: return events_->knows(message.generation().job_id());
    default: break;
  }
  const v1::JobMessage& said = message.job();
  if (link.jobs.contains(said.job_id())) return true;
  switch (said.body_case()) {
    case v1::JobMessage::kJoin:
    case v1::JobMessage::kHandover: return events_->knows(said.job_id());
    case v1::JobMessage::kFail: return said.ByteSizeLong() <= kMaxFailBytes;
    // Whoever reads the message says what is wrong with it.
    case v1::JobMessage::BODY_NOT_SET: return true;
    default: return false;
  }
}

TicksMs GrpcControlPlane::pause_of(Link& link, size_t bytes) {
  const TicksMs now = steady_now_ms();
  const auto pay = [now](TicksMs& paid_ms, TicksMs price_ms) {
    paid_ms = std::max(paid_ms, now) + price_ms;
    return paid_ms - now - kStrangersBurstMs;
  };
  const auto bytes_ms = static_cast<TicksMs>(bytes / kStrangersBytesPerMs);
  return std::max({pay(link.messages_paid_ms, kStrangersMessageMs),
                   pay(link.bytes_paid_ms, bytes_ms), TicksMs{0}});
}

}  // namespace rueda::service
