// Sets up control planes with their servers, and a peer that the test plays.
#pragma once

#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "daemon/service/convert/convert.h"
#include "daemon/service/links/control_plane.h"
#include "daemon/service/links/link_proof.h"
#include "daemon/service/links/protocol_version.h"
#include "daemon/service/servers/servers.h"
#include "tests/service/loop.h"

namespace rueda::service::testing {

using engine::Envelope;
using engine::LinkId;

struct RecordedEvents final : engine::ControlEvents {
  std::vector<std::pair<engine::LinkId, engine::GenerationPacket>> packets;
  bool knows(const JobId&) const override { return true; }
  void on_envelope(LinkId link, Envelope envelope) override {
    envelopes.emplace_back(link, std::move(envelope));
  }
  void on_timeline(LinkId link, engine::TimelineMessage message) override {
    timelines.emplace_back(link, std::move(message));
  }
  void on_nonfinite(LinkId link, engine::NonfiniteMessage message) override {
    nonfinites.emplace_back(link, std::move(message));
  }
  void on_generation(engine::LinkId link, const engine::GenerationPacket& packet) override {
    packets.emplace_back(link, packet);
  }
  void on_communicator(LinkId link, const engine::CommunicatorMessage& message) override {
    communicators.emplace_back(link, message);
  }
  void on_link_lost(LinkId link, const Status& status, TicksMs) override {
    lost.emplace_back(link, status);
  }
  std::vector<std::pair<LinkId, Envelope>> envelopes;
  std::vector<std::pair<LinkId, engine::TimelineMessage>> timelines;
  std::vector<std::pair<LinkId, engine::NonfiniteMessage>> nonfinites;
  std::vector<std::pair<LinkId, engine::CommunicatorMessage>> communicators;
  std::vector<std::pair<LinkId, Status>> lost;
};

// A daemon's control plane, with its server.
class Daemon {
 public:
  Daemon(testing::Loop& loop, const std::string& node_id, TicksMs timeout_ms = 60'000, int port = 0)
      : Daemon(loop, {node_id, 1, timeout_ms}, port) {}
  Daemon(testing::Loop& loop, ControlPlaneOptions options, int port = 0)
      : loop_(loop), plane(loop.io(), metrics, std::move(options)), service_(plane) {
    plane.set_events(&events);
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:" + std::to_string(port), plane.credentials().server(),
                             &port_);
    builder.RegisterService(&service_.grpc_service());
    queue_ = std::make_unique<rpc::CallQueue>(builder);
    server_ = builder.BuildAndStart();
    plane.set_queue(*queue_);
    service_.serve(*queue_, plane.credentials().callers());
  }
  ~Daemon() {
    stop();
    loop_.beside([this] {
      server_->Shutdown(std::chrono::system_clock::now());
      queue_->stop();
      return true;
    });
  }
  // Returns whether the plane said that it has stopped.
  bool stop() {
    if (stopped_) return true;
    plane.stop([this] { stopped_ = true; });
    return loop_.run_until([this] { return stopped_; });
  }
  int port() const { return port_; }
  // Binds the link to the job, as the engine does when the peer has proved that it belongs to the
  // job.
  void bind(const JobId& job) {
    for (const PeerSnapshot& peer : plane.peers()) plane.bind(peer.link, job);
  }
  std::string address() const { return "127.0.0.1:" + std::to_string(port_); }
  bool is_up(size_t links = 1) const {
    const std::vector<PeerSnapshot> peers = plane.peers();
    return peers.size() == links && std::all_of(peers.begin(), peers.end(), [](const auto& peer) {
             return peer.state == "connected";
           });
  }

 private:
  testing::Loop& loop_;

 public:
  observe::Metrics metrics{{"0", "test", "none"}};
  RecordedEvents events;
  GrpcControlPlane plane;

 private:
  ControlService service_;
  int port_ = 0;
  std::unique_ptr<rpc::CallQueue> queue_;
  std::unique_ptr<grpc::Server> server_;
  bool stopped_ = false;
};

inline Envelope leave_of(const std::string& job, int rank) {
  return {job, {NodeIndex{1}, Epoch{1}, 1, core::Leave{Rank{rank}}}, {}};
}

// A peer whose messages the test writes; the messages that it reads are counted.
class RawPeer {
 public:
  explicit RawPeer(const std::string& address)
      : stub_(v1::Control::NewStub(own_channel(address))),
        stream_(stub_->Link(&context_)),
        reader_([this] {
          v1::LinkMessage message;
          while (stream_->Read(&message)) {
            if (message.has_hello()) {
              const std::lock_guard lock(mutex_);
              daemon_ = {message.hello().node_id(), message.hello().nonce()};
            }
            hellos += message.has_hello();
            heartbeats += message.has_heartbeat();
          }
          closed = true;
        }) {}
  ~RawPeer() {
    context_.TryCancel();
    reader_.join();
    (void)stream_->Finish();
  }
  void write(const v1::LinkMessage& message) { stream_->Write(message); }
  void say(const Envelope& envelope) {
    v1::LinkMessage message;
    *message.mutable_job() = to_proto(envelope);
    write(message);
  }
  void say_hello(uint32_t version = kProtocolVersion) {
    v1::LinkMessage message;
    message.mutable_hello()->set_protocol_version(version);
    message.mutable_hello()->set_node_id("raw");
    message.mutable_hello()->set_nonce(nonce_);
    write(message);
  }
  // Returns the hash that a proof with the message is of, on this link. The daemon has said hello.
  std::string digest(const v1::LinkMessage& message) {
    const std::lock_guard lock(mutex_);
    return digest_of({"raw", nonce_}, daemon_, message);
  }

  std::atomic<int> hellos{0};
  std::atomic<int> heartbeats{0};
  std::atomic<bool> closed{false};

 private:
  // Returns a channel with a connection of its own, because strangers do not share theirs.
  static std::shared_ptr<grpc::Channel> own_channel(const std::string& address) {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    return grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments);
  }

  const std::string nonce_ = make_nonce();
  std::mutex mutex_;
  LinkEnd daemon_;  // As it has introduced itself; guarded by mutex_.
  grpc::ClientContext context_;
  std::unique_ptr<v1::Control::Stub> stub_;
  std::unique_ptr<grpc::ClientReaderWriter<v1::LinkMessage, v1::LinkMessage>> stream_;
  std::thread reader_;
};

}  // namespace rueda::service::testing
