#include "daemon/transport/grpc/grpc_wires.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <boost/asio/execution_context.hpp>
#include <boost/asio/post.hpp>
#include <fcntl.h>
#include <grpcpp/create_channel_posix.h>
#include <grpcpp/impl/codegen/rpc_service_method.h>
#include <sys/socket.h>
#include <unistd.h>

#include "daemon/base/check.h"
#include "daemon/rpc/calls.h"
#include "daemon/rpc/peer_name.h"
#include "daemon/transport/grpc/grpc_transport.h"
#include "daemon/transport/grpc/receive_channel.h"
#include "daemon/transport/grpc/send_channel.h"

namespace rueda::transport::grpc_data {

namespace asio = boost::asio;
using tcp::error_code;

namespace {

// Each frame has a slot, so the slots bound what waits.
constexpr rpc::StreamKind kFrameStream{"/rueda.v1.Data/Frames", "data connection", SIZE_MAX,
                                       SIZE_MAX};
// A frame has at most --chunk-bytes, which is 4 MiB at most, and its header. gRPC keeps a message
// until all of it has come, so this also bounds what each stranger may make it keep.
constexpr int kMaxMessageBytes = (4 << 20) + 4096;
// The bytes that may be under way before the reader has said that it took some.
constexpr int kAheadBytes = 4 << 20;
constexpr int kMaxHttpFrameBytes = 1 << 20;
constexpr int kMaxMetadataBytes = 8 << 10;
// The messages of a handshake are this long at most.
constexpr size_t kMaxHandshakeMessage = 4096;

// Closes the gate when the loop is destroyed, before anything that waits in it: what waits may hold
// wires, and then gRPC's thread lives until the loop has let go of them.
class GateKeeper final : public asio::execution_context::service {
 public:
  static inline asio::execution_context::id id;

  explicit GateKeeper(asio::execution_context& loop)
      : service(loop), gate_(std::make_shared<LoopGate>(static_cast<asio::io_context&>(loop))) {}
  const std::shared_ptr<LoopGate>& gate() const { return gate_; }

 private:
  void shutdown() noexcept override { gate_->close(); }

  const std::shared_ptr<LoopGate> gate_;
};

// Returns the address in gRPC's name of a peer.
std::optional<tcp::Endpoint> endpoint_of(const std::string& peer) {
  if (!peer.starts_with("ipv4:") && !peer.starts_with("ipv6:")) return std::nullopt;
  std::string text = rpc::percent_decoded(peer.substr(5));
  const size_t colon = text.rfind(':');
  if (colon == std::string::npos) return std::nullopt;
  const auto port = static_cast<uint16_t>(std::strtoul(text.c_str() + colon + 1, nullptr, 10));
  text.resize(colon);
  std::erase_if(text, [](char c) { return c == '[' || c == ']'; });
  error_code error;
  const asio::ip::address address = asio::ip::make_address(text, error);
  if (error) return std::nullopt;
  return tcp::Endpoint(address, port);
}

// Names a connection of IPv4 alike, whether a socket of IPv4 or of IPv6 has accepted it.
tcp::Endpoint plain(const tcp::Endpoint& peer) {
  const asio::ip::address& address = peer.address();
  if (!address.is_v6() || !address.to_v6().is_v4_mapped()) return peer;
  return {asio::ip::make_address_v4(asio::ip::v4_mapped, address.to_v6()), peer.port()};
}

// Takes the descriptor out of an Asio socket.
UniqueFd descriptor_of(tcp::Socket socket) {
  error_code error;
  UniqueFd fd(socket.release(error));
  if (!error) ::fcntl(fd.get(), F_SETFL, ::fcntl(fd.get(), F_GETFL) | O_NONBLOCK);
  return fd;
}

}  // namespace

class GrpcWire final : public tcp::Wire,
                       public LinkOwner,
                       public std::enable_shared_from_this<GrpcWire> {
 public:
  GrpcWire(std::shared_ptr<GrpcWires> wires, std::shared_ptr<StreamLink> link)
      : wires_(std::move(wires)), link_(std::move(link)) {
    link_->set_owner(this);
  }
  ~GrpcWire() override { close(); }

  // Says that the connection was accepted, and that its stream is yet to come.
  void await_stream(const tcp::Endpoint& peer, UniqueFd socket) {
    peer_ = peer;
    socket_ = std::move(socket);
  }
  StreamLink* link() const { return link_.get(); }

  void read(void* to, size_t bytes, Handler handler) override {
    reading_ = {static_cast<std::byte*>(to), bytes, std::move(handler)};
    serve_read();
  }
  void write(const void* from, size_t bytes, Handler handler) override {
    RUEDA_CHECK(!writing_);
    writing_ = std::move(handler);
    const std::span<const std::byte> part(static_cast<const std::byte*>(from), bytes);
    if (is_over_ || !link_->has_stream()) return answer(writing_, asio::error::broken_pipe);
    link_->send({&part, 1}, 0);
  }
  void wait_for_more(Handler handler) override {
    waiting_ = std::move(handler);
    if (is_over_ || has_more()) answer(waiting_, {});
  }
  void cancel_wait() override { answer(waiting_, asio::error::operation_aborted); }
  void close() override;

  std::unique_ptr<SendChannel> make_sender(const ConnectOptions& options,
                                           std::shared_ptr<const RegionTable> regions,
                                           std::string peer, const ChannelKeys& keys) override {
    return make_send_channel(give_away(), wires_, options, std::move(regions), std::move(peer),
                             keys);
  }
  std::unique_ptr<ReceiveChannel> make_receiver(const AcceptOptions& options, std::string peer,
                                                const ChannelKeys& keys) override {
    Carrier carrier = give_away();
    return make_receive_channel(std::move(carrier), wires_, options, std::move(peer), keys);
  }
  // RDMA upgrades connections of TCP, so this is never asked for.
  tcp::Socket take_socket() override { RUEDA_CHECK(false); }

 private:
  struct Reading {
    std::byte* to = nullptr;
    size_t bytes = 0;
    Handler handler;
  };

  void on_message(grpc::ByteBuffer message) override {
    // There is one at a time until the other end is trusted.
    RUEDA_CHECK(!arrived_);
    arrived_ = std::move(message);
    if (waiting_) answer(waiting_, {});
    serve_read();
  }
  void on_flushed(uint64_t /*cookie*/) override { answer(writing_, {}); }
  void on_over(const Status& /*status*/) override {
    is_over_ = true;
    if (waiting_) answer(waiting_, {});
    answer(writing_, asio::error::broken_pipe);
    serve_read();
  }

  bool has_more() const { return arrived_.has_value() || used_ < opened_.size(); }
  void serve_read();
  // Opens the message that has arrived. Returns false if it belongs to no handshake.
  bool open_message();
  Carrier give_away();
  // Calls a handler, if there is one, from a fresh turn of the loop.
  void answer(Handler& handler, const error_code& error) {
    if (!handler) return;
    asio::post(wires_->io(),
               [handler = std::exchange(handler, nullptr), error] { handler(error); });
  }

  const std::shared_ptr<GrpcWires> wires_;
  std::shared_ptr<StreamLink> link_;  // Null once closed, or given away.
  std::optional<tcp::Endpoint> peer_;
  // A descriptor of an accepted connection that is gRPC's, by which the wire can end it.
  UniqueFd socket_;
  Reading reading_;
  Handler writing_;
  Handler waiting_;
  std::optional<grpc::ByteBuffer> arrived_;
  std::vector<std::byte> opened_;  // The message that is being read, and how much of it was read.
  size_t used_ = 0;
  bool is_over_ = false;
};

bool GrpcWire::open_message() {
  if (arrived_->Length() > kMaxHandshakeMessage) return false;
  std::vector<grpc::Slice> slices;
  if (!arrived_->Dump(&slices).ok()) return false;
  opened_.clear();
  used_ = 0;
  for (const grpc::Slice& slice : slices) {
    const auto* const bytes = reinterpret_cast<const std::byte*>(slice.begin());
    opened_.insert(opened_.end(), bytes, bytes + slice.size());
  }
  link_->taken(arrived_->Length());
  arrived_.reset();
  return true;
}

void GrpcWire::serve_read() {
  while (reading_.handler && reading_.bytes > 0 && link_ != nullptr) {
    if (used_ == opened_.size()) {
      if (!arrived_) break;
      if (!open_message()) return answer(reading_.handler, asio::error::message_size);
    }
    const size_t bytes = std::min(reading_.bytes, opened_.size() - used_);
    std::memcpy(reading_.to, opened_.data() + used_, bytes);
    used_ += bytes;
    reading_.to += bytes;
    reading_.bytes -= bytes;
  }
  if (!reading_.handler) return;
  if (reading_.bytes == 0) return answer(reading_.handler, {});
  if (is_over_) answer(reading_.handler, asio::error::eof);
}

void GrpcWire::close() {
  answer(reading_.handler, asio::error::operation_aborted);
  answer(writing_, asio::error::operation_aborted);
  answer(waiting_, asio::error::operation_aborted);
  if (peer_) wires_->forget(*std::exchange(peer_, std::nullopt), this);
  if (link_ == nullptr) return;
  link_->set_owner(nullptr);
  std::exchange(link_, nullptr)->abort();
  if (socket_.is_open()) ::shutdown(socket_.get(), SHUT_RDWR);
  socket_.reset();
}

Carrier GrpcWire::give_away() {
  link_->set_owner(nullptr);
  Carrier carrier{std::exchange(link_, nullptr), std::move(socket_), is_over_, std::nullopt};
  if (arrived_) carrier.arrived = std::move(arrived_);
  return carrier;
}

namespace {

const security::Callers& everybody() {
  static const security::EverybodyIs callers(security::Caller::Kind::kNetwork);
  return callers;
}

}  // namespace

class GrpcWires::Service final : public grpc::Service {
 public:
  Service() {
    AddMethod(new grpc::internal::RpcServiceMethod(
        kFrameStream.method, grpc::internal::RpcMethod::BIDI_STREAMING, nullptr));
    MarkMethodAsync(0);
  }
  using grpc::Service::RequestAsyncBidiStreaming;
};

GrpcWires::GrpcWires(asio::io_context& io)
    : io_(io),
      gate_(asio::use_service<GateKeeper>(io).gate()),
      service_(std::make_unique<Service>()) {
  grpc::ServerBuilder builder;
  acceptor_ = builder.experimental().AddExternalConnectionAcceptor(
      grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD,
      grpc::InsecureServerCredentials());
  builder.SetMaxReceiveMessageSize(kMaxMessageBytes);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, 1);
  builder.AddChannelArgument(GRPC_ARG_MAX_METADATA_SIZE, kMaxMetadataBytes);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, kAheadBytes);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_FRAME_SIZE, kMaxHttpFrameBytes);
  builder.RegisterService(service_.get());
  queue_ = std::make_unique<rpc::CallQueue>(builder);
  server_ = builder.BuildAndStart();
  RUEDA_CHECK(server_ != nullptr);
  // Whoever comes proves that it belongs to a job before a frame is taken (docs/protocol.md).
  rpc::await_streams<rpc::ByteArrival>(
      *queue_, {security::Action::kCarryFrames, everybody()},
      [this](rpc::ByteArrival& arrival, void* tag) {
        service_->RequestAsyncBidiStreaming(0, &arrival.context, &arrival.stream, queue_->get(),
                                            queue_->get(), tag);
      },
      [this](std::unique_ptr<rpc::ByteArrival> arrival, const security::Caller&) {
        arrive(std::move(arrival));
      });
}

// No wire and no channel is left, so nothing that is still under way matters to anybody.
GrpcWires::~GrpcWires() {
  server_->Shutdown(std::chrono::system_clock::now());
  queue_->stop();
}

std::shared_ptr<tcp::Wire> GrpcWires::connected(tcp::Socket socket) {
  UniqueFd fd = descriptor_of(std::move(socket));
  auto link = std::make_shared<StreamLink>(gate_);
  auto wire = std::make_shared<GrpcWire>(shared_from_this(), link);
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(kMaxHandshakeMessage * 256);
  arguments.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_FRAME_SIZE, kMaxHttpFrameBytes);
  arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
  const std::shared_ptr<grpc::Channel> channel =
      grpc::CreateCustomInsecureChannelFromFd("rueda", fd.release(), arguments);
  link->adopt(rpc::open_stream(*queue_, channel, kFrameStream, link->events()));
  return wire;
}

std::shared_ptr<tcp::Wire> GrpcWires::accepted(tcp::Socket socket, const tcp::Endpoint& peer) {
  UniqueFd fd = descriptor_of(std::move(socket));
  auto wire = std::make_shared<GrpcWire>(shared_from_this(), std::make_shared<StreamLink>(gate_));
  const tcp::Endpoint name = plain(peer);
  wire->await_stream(name, UniqueFd(::fcntl(fd.get(), F_DUPFD_CLOEXEC, 0)));
  waiting_[name] = wire;
  grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters connection;
  connection.fd = fd.release();
  acceptor_->HandleNewConnection(&connection);
  return wire;
}

void GrpcWires::forget(const tcp::Endpoint& peer, const GrpcWire* wire) {
  const auto found = waiting_.find(peer);
  if (found == waiting_.end()) return;
  const std::shared_ptr<GrpcWire> other = found->second.lock();
  if (other == nullptr || other.get() == wire) waiting_.erase(found);
}

void GrpcWires::arrive(std::unique_ptr<rpc::ByteArrival> arrival) {
  const std::string peer = arrival->context.peer();
  const rpc::AcceptedStream stream = rpc::accept_stream(*queue_, kFrameStream, std::move(arrival));
  gate_->post([weak = weak_from_this(), peer, stream] {
    const std::shared_ptr<GrpcWires> self = weak.lock();
    if (self) return self->deliver(peer, stream);
    stream.start({[](const grpc::ByteBuffer&, size_t) { return false; }, {}});
    stream.stream->abort();
  });
}

void GrpcWires::deliver(const std::string& peer, const rpc::AcceptedStream& stream) {
  const std::optional<tcp::Endpoint> endpoint = endpoint_of(peer);
  const auto found = endpoint ? waiting_.find(*endpoint) : waiting_.end();
  const std::shared_ptr<GrpcWire> wire = found == waiting_.end() ? nullptr : found->second.lock();
  // A connection has one stream, which is its first.
  if (wire == nullptr || wire->link() == nullptr || wire->link()->has_stream()) {
    stream.start({[](const grpc::ByteBuffer&, size_t) { return false; }, {}});
    return stream.stream->abort();
  }
  waiting_.erase(found);
  wire->link()->adopt(stream.stream);
  stream.start(wire->link()->events());
}

}  // namespace rueda::transport::grpc_data

namespace rueda::transport {

std::unique_ptr<Transport> make_grpc_transport(boost::asio::io_context& io, TcpOptions options) {
  return make_tcp_transport(io, std::move(options), nullptr,
                            std::make_shared<grpc_data::GrpcWires>(io));
}

}  // namespace rueda::transport
