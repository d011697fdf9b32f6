#include "daemon/service/servers/servers.h"

#include <chrono>
#include <cstdlib>
#include <future>
#include <string_view>
#include <utility>

#include <google/protobuf/stubs/logging.h>
#include <grpc/grpc.h>
#include <grpc/support/log.h>
#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <pthread.h>
#include <spdlog/spdlog.h>

#include "daemon/base/limits.h"
#include "daemon/base/mutex.h"
#include "daemon/base/no_exception.h"
#include "daemon/base/one_line.h"
#include "daemon/rpc/peer_name.h"
#include "daemon/service/servers/local_caller.h"

namespace rueda::service {
namespace {

// Reflection is a synchronous service, with a thread that waits for its next call; at the end of
// each wait that thread wakes for nothing.
constexpr int kReflectionWaitMs = 3'600'000;

// These are limits of the control port, which strangers reach.
constexpr int kMaxCallsOfAConnection = 16;
constexpr int kMaxMetadataBytes = 8 << 10;
constexpr int kHandshakeMs = 5'000;
constexpr int kIdleMs = 60'000;  // The limit for a connection without a call.
constexpr int kLeastPingMs = 1'000;
constexpr size_t kMaxMemory = size_t{1} << 30;

// A link costs more than another call (AcceptorLimits::calls).
constexpr double kUnitsOfALink = 16;

// Returns whether a certificate says who calls.
bool is_known(const security::Caller& caller) {
  using Kind = security::Caller::Kind;
  return caller.kind == Kind::kNode || caller.kind == Kind::kRemoteOperator;
}

// Where handshakes that failed are counted. gRPC tells of them in its log alone, and not whose they
// were; there is one log for all servers of a process.
struct Handshakes {
  Mutex mutex;
  observe::Refusals* refusals RUEDA_GUARDED_BY(mutex) = nullptr;
};

Handshakes& handshakes() {
  static Handshakes shared;
  return shared;
}

// Sends gRPC's messages to the log, which delays nobody: strangers may cause many of them.
void log_of_grpc(gpr_log_func_args* said) {
  if (std::string_view(said->message).starts_with("Handshake failed with fatal error")) {
    const MutexLock lock(handshakes().mutex);
    if (handshakes().refusals) handshakes().refusals->note("a TLS handshake", said->message);
  }
  if (!spdlog::should_log(spdlog::level::debug)) return;
  spdlog::debug("gRPC ({}:{}): {}", said->file, said->line, one_line(said->message));
}

// The same for protobuf, which tells on standard error of texts that are no UTF-8. Whoever can make
// a call can send many of them.
void log_of_protobuf(google::protobuf::LogLevel, const char* file, int line,
                     const std::string& said) {
  if (!spdlog::should_log(spdlog::level::debug)) return;
  spdlog::debug("protobuf ({}:{}): {}", file, line, one_line(said));
}

// Returns the address in gRPC's name of a connection, such as "127.0.0.1" or "[::1]".
std::string address_in(const std::string& peer) {
  const std::string name = rpc::percent_decoded(peer);
  const size_t begin = name.find(':') + 1;
  const size_t end = name.rfind(':');
  return end != std::string::npos && begin < end ? name.substr(begin, end - begin) : name;
}

void bound(grpc::ServerBuilder& builder) {
  using Sync = grpc::ServerBuilder::SyncServerOption;
  builder.SetSyncServerOption(Sync::NUM_CQS, 1);
  builder.SetSyncServerOption(Sync::MIN_POLLERS, 1);
  builder.SetSyncServerOption(Sync::MAX_POLLERS, 1);
  builder.SetSyncServerOption(Sync::CQ_TIMEOUT_MSEC, kReflectionWaitMs);
  // This is off, because otherwise every heartbeat would be followed by a ping and a timer, to
  // learn how much data may be in flight.
  builder.AddChannelArgument(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  builder.SetMaxReceiveMessageSize(static_cast<int>(limits::kMaxControlMessageBytes));
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, kMaxCallsOfAConnection);
  builder.AddChannelArgument(GRPC_ARG_MAX_METADATA_SIZE, kMaxMetadataBytes);
  builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, kHandshakeMs);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_IDLE_MS, kIdleMs);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, kLeastPingMs);
  // This is far above what Acceptor allows: if it is reached, gRPC breaks off calls, whoever they
  // belong to.
  builder.SetResourceQuota(grpc::ResourceQuota("control").Resize(kMaxMemory));
}

}  // namespace

void ControlService::serve(rpc::CallQueue& queue, const security::Callers& callers) {
  rpc::await_streams<rpc::ByteArrival>(
      queue, {security::Action::kLinkDaemons, callers},
      [this, &queue](rpc::ByteArrival& arrival, void* tag) {
        service_.RequestLink(&arrival.context, &arrival.stream, queue.get(), queue.get(), tag);
      },
      [this, &queue](std::unique_ptr<rpc::ByteArrival> arrival, const security::Caller&) {
        plane_.accept(queue, std::move(arrival));
      });
}

Servers::Servers(const engine::LoopPoster& control_loop, engine::Engine& engine,
                 GrpcControlPlane& plane, const Membership& membership, observe::Metrics& metrics,
                 const DaemonInfo& info, const std::function<bool()>& is_well,
                 std::optional<gid_t> admin_group)
    : at_network_("control port", metrics.daemon().refused_at_control),
      at_socket_("unix socket", metrics.daemon().refused_at_socket),
      plane_(plane),
      admin_group_(admin_group),
      prober_(membership, info, plane.credentials()),
      control_(plane),
      agent_(control_loop, engine, membership, info),
      probe_(control_loop, engine, membership, info, plane.credentials(), prober_),
      admin_(control_loop, engine, plane, metrics, info, prober_),
      health_(is_well) {
  if (std::getenv("GRPC_VERBOSITY") == nullptr) ::gpr_set_log_function(log_of_grpc);
  static const auto before = google::protobuf::SetLogHandler(log_of_protobuf);
  (void)before;  // It is set once, because that is not thread-safe.
  {
    const MutexLock lock(handshakes().mutex);
    handshakes().refusals = &at_network_;
  }
  // gRPC is held for good: whoever releases it last joins its threads, and that may be one of these
  // threads, where a stream ends.
  ::grpc_init();
  local_.set_on_refused([this](const security::Caller& caller, const std::string& why) {
    at_socket_.note(caller.principal.to_string(), why);
  });
  agent_.serve(local_);
  admin_.serve(local_);
}

Servers::~Servers() {
  stop();
  const MutexLock lock(handshakes().mutex);
  if (handshakes().refusals == &at_network_) handshakes().refusals = nullptr;
}

Result<std::string> Servers::bind(const std::string& host, int port, Listener open) {
  grpc::reflection::InitProtoReflectionServerBuilderPlugin();

  const Result<uint16_t> port_bound = open.socket.is_open()
                                          ? acceptor_.take(std::move(open))
                                          : acceptor_.bind(host, static_cast<uint16_t>(port));
  if (!port_bound.is_ok()) return port_bound.status();
  grpc::ServerBuilder network;
  to_network_ = network.experimental().AddExternalConnectionAcceptor(
      grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD,
      plane_.credentials().server());
  bound(network);
  network.RegisterService(&control_.grpc_service());
  network.RegisterService(&probe_.grpc_service());
  network.RegisterService(&admin_.grpc_service());
  network.RegisterService(&health_.grpc_service());
  queue_ = std::make_unique<rpc::CallQueue>(network);
  server_ = network.BuildAndStart();
  if (!server_) {
    return Status(Code::kInternal, "the gRPC server of the control port did not start");
  }
  plane_.set_queue(*queue_);
  plane_.set_keeper([this](const std::string& peer, bool needed) { acceptor_.keep(peer, needed); });
  const std::string shown = host.find(':') == std::string::npos ? host : '[' + host + ']';
  return shown + ':' + std::to_string(port_bound.value());
}

void Servers::serve() {
  queue_->set_on_refused([this](const security::Caller& caller,
                                const security::Connection& connection, const std::string& why) {
    const std::string node = caller.name.empty() ? "" : ", " + caller.name;
    at_network_.note(address_in(connection.peer) + node, why);
  });
  queue_->set_gate([this](const security::Connection& connection, security::Action action,
                          const security::Caller& caller) {
    if (is_known(caller)) return true;
    const double units = action == security::Action::kLinkDaemons ? kUnitsOfALink : 1;
    if (acceptor_.may_call(connection.peer, units)) return true;
    at_network_.note(address_in(connection.peer), "calls come too fast over one connection");
    return false;
  });
  const security::Callers& from_network = plane_.credentials().callers();
  control_.serve(*queue_, from_network);
  probe_.serve(*queue_, from_network);
  admin_.serve(*queue_, from_network);
  health_.serve(*queue_, from_network);
  acceptor_.start([this](UniqueFd socket) {
    grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters connection;
    connection.fd = socket.release();
    to_network_->HandleNewConnection(&connection);
  });
  local_thread_ = std::thread([this] { run_local(); });
}

void Servers::adopt(UniqueFd socket, const session::Credentials& peer,
                    const std::vector<gid_t>& groups) {
  local_.adopt(std::move(socket), local_caller(peer, groups, admin_group_));
}

void Servers::run_local() {
  ::pthread_setname_np(::pthread_self(), "rueda-calls");
  while (!local_loop_.stopped()) {
    without_exception([this] { local_loop_.run(); },
                      [](const char* what) { spdlog::error("a call has failed: {}", what); });
  }
}

void Servers::set_serving(bool serving) { health_.set_serving(serving); }

void Servers::stop() {
  acceptor_.stop();
  prober_.stop();  // An operator's call waits for the prober.
  probe_.stop();
  stop_local();
  const auto deadline = std::chrono::system_clock::now() + std::chrono::seconds(1);
  if (server_) server_->Shutdown(deadline);
  if (queue_) queue_->stop();
  server_.reset();
}

void Servers::stop_local() {
  if (!local_thread_.joinable()) return;
  std::promise<void> stopped;
  local_.stop([&stopped] { stopped.set_value(); });
  stopped.get_future().wait();
  local_work_.reset();
  local_loop_.stop();
  local_thread_.join();
}

}  // namespace rueda::service
