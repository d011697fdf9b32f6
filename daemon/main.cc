// ruedad: puts the rooms of the daemon together, and takes them apart in the right order
// (docs/threads.md).

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <future>
#include <iostream>
#include <limits>
#include <memory>
#include <random>
#include <string_view>
#include <thread>

#include <arpa/inet.h>
#include <boost/asio/buffer.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>
#include <fcntl.h>
#include <nlohmann/json.hpp>
#include <signal.h>
#include <spdlog/spdlog.h>
#include <sys/resource.h>
#include <systemd/sd-daemon.h>
#include <unistd.h>

#include "daemon/base/one_line.h"
#include "daemon/base/os/cpus.h"
#include "daemon/base/os/groups.h"
#include "daemon/base/os/threads.h"
#include "daemon/config.h"
#include "daemon/engine/loops/busy_poll_loop.h"
#include "daemon/engine/loops/loop_watch.h"
#include "daemon/engine/node/engine.h"
#include "daemon/faults.h"
#include "daemon/gpu/worker/fork_server.h"
#include "daemon/gpu/worker/process.h"
#include "daemon/logging.h"
#include "daemon/observe/http_server.h"
#include "daemon/observe/refusals.h"
#include "daemon/reduce/kernels.h"
#include "daemon/rpc/credentials.h"
#include "daemon/security/certificates/tls_folder.h"
#include "daemon/security/sandbox/sandbox.h"
#include "daemon/service/servers/https.h"
#include "daemon/service/servers/servers.h"
#include "daemon/transport/grpc/grpc_transport.h"
#include "daemon/transport/rdma/rdma_upgrader.h"
#include "daemon/transport/striped.h"
#include "daemon/transport/tcp/tcp_transport.h"

namespace rueda {
namespace {

// The threads that a daemon needs at most, including gRPC's, which aborts when it cannot start one,
// and its fork server, which counts as one.
constexpr int kThreads = 20;
constexpr std::chrono::seconds kDeliveringEvery{1};
constexpr std::chrono::seconds kCertificatesEvery{5};
// Metrics show at most so many principals by themselves: a user may have many uids.
constexpr size_t kMaxPrincipalsShown = 64;
constexpr size_t kMaxToldBytes = 64 << 10;  // Of a line that comes to --tls-fd.

// Returns the value of a label of this node, or "" if the node has no such label.
std::string label(const Config& config, const std::string& key) {
  for (const std::string& item : config.labels) {
    if (item.starts_with(key + '=')) return item.substr(key.size() + 1);
  }
  return "";
}

// Returns the path of this program, which is also the GPU worker.
std::string own_program() {
  std::error_code error;
  const auto path = std::filesystem::read_symlink("/proc/self/exe", error);
  return error ? "ruedad" : path.string();
}

engine::EngineOptions engine_options(const Config& config, bool uses_rdma,
                                     gpu::ForkServer* gpu_workers) {
  engine::EngineOptions options;
  options.data_protection = config.data_protection;
  options.gpu_workers = gpu_workers;
  options.transport = config.transport == "grpc" ? "grpc" : uses_rdma ? "rdma" : "tcp";
  options.node_id = config.node_id;
  options.rack = label(config, "rack");
  options.dials_control_hosts = config.dial == "nodes";
  options.fusion_threshold_bytes = config.fusion_threshold_bytes;
  options.coordination = core::parse_coordination(config.coordination).value();
  options.reducer = core::parse_reducer(config.reducer).value();
  options.inter_node = core::parse_inter_node(config.inter_node).value();
  options.chunk_bytes = config.chunk_bytes;
  options.streams = config.streams;
  options.staging_bytes = config.staging_bytes;
  options.timeout_ms = failure_timeout_ms(config);
  options.tree = config.tree;
  options.start_timeout_ms = config.start_timeout_ms;
  options.stall.check_ms = static_cast<TicksMs>(config.stall_check_seconds * 1000);
  options.stall.shutdown_ms = static_cast<TicksMs>(config.stall_shutdown_seconds * 1000);
  options.gpu_staging_bytes = config.gpu_staging_bytes;
  options.adds_on_gpu = config.gpu_adds == "yes";
  options.sends_from_gpu = config.gpu_direct == "auto";
  const Faults faults = planted_faults();
  options.corrupt_reduction = faults.corrupts_reduction;
  if (faults.at_step) options.at_step = faults.at_step;
  options.clock_skew_ns = faults.clock_skew_ns;
  return options;
}

session::Quotas quotas_of(const Config& config) {
  session::Quotas quotas;
  quotas.of_each.change(config.quota);
  for (const auto& [name, wanted] : config.quota_of) {
    session::Quota& quota = quotas.of.emplace(Principal::named(name), quotas.of_each).first->second;
    quota.change(wanted);
  }
  if (!config.admin_group.empty())
    quotas.operators += ", or a member of group " + config.admin_group;
  return quotas;
}

std::optional<gid_t> admin_group(const Config& config) {
  if (config.admin_group.empty()) return std::nullopt;
  return find_group(config.admin_group).value();  // It has been checked.
}

int reduce_threads(const Config& config) {
  if (config.reduce_threads > 0) return config.reduce_threads;
  return std::clamp(static_cast<int>(allowed_cpus().size()), 1, 4);
}

// Returns the number of data loops with threads of their own: none where another thread would only
// wait for a CPU.
int data_threads(const Config& config) {
  if (config.data_loops >= 0) return config.data_loops;
  return allowed_cpus().size() > 2 ? 1 : 0;
}

// Says whether channels are to be over RDMA where they can be.
struct RdmaChoice {
  bool is_used = false;
  bool is_required = false;
  // If it is not ok, RDMA was asked for, or a device is there, and it cannot be used.
  Status trouble;
};

RdmaChoice choose_rdma(const Config& config) {
  RdmaChoice choice;
  if (config.transport == "tcp" || config.transport == "grpc") return choice;
  if (config.data_protection != "none") return choice;  // RDMA cannot protect anything.
  choice.is_required = config.transport == "rdma";
  const Status viability = transport::rdma_viability(config.rdma_devices);
  choice.is_used = viability.is_ok();
  std::error_code error;
  const bool has_device = std::filesystem::directory_iterator("/sys/class/infiniband", error) !=
                          std::filesystem::directory_iterator();
  const bool is_expected = choice.is_required || has_device || !config.rdma_devices.empty();
  if (is_expected) choice.trouble = viability;
  return choice;
}

std::vector<std::string> socket_paths(const Config& config) {
  std::vector<std::string> paths;
  for (const SocketPlace& socket : config.sockets) paths.push_back(socket.path);
  return paths;
}

// What has to be had before a sandbox, and the sandbox itself.
struct Confinement {
  // It starts GPU workers, because the daemon starts no program in its sandbox.
  std::unique_ptr<gpu::ForkServer> gpu_workers;
  RdmaChoice rdma;  // Its libraries may lie where the sandbox lets nobody read.
  security::Sandbox sandbox;
};

// Enters the sandbox. The process must have no other threads yet.
Result<Confinement> confine(const Config& config) {
  Confinement confinement;
  Result<std::unique_ptr<gpu::ForkServer>> server =
      gpu::ForkServer::start({own_program(), "--gpu-worker", config.gpu_plugin});
  if (!server.is_ok()) return server.status();
  confinement.gpu_workers = std::move(server).value();
  confinement.rdma = choose_rdma(config);
  Result<security::Sandbox> sandbox =
      security::enter_sandbox({config.sandbox, socket_paths(config), config.tls_dir});
  if (!sandbox.is_ok()) return sandbox.status();
  confinement.sandbox = std::move(sandbox).value();
  return confinement;
}

// Makes the data loops. The first one does the work that is not shared out, so it gets the threads
// for passes. With no threads for data loops, all work is done on `host`.
std::vector<std::unique_ptr<engine::DataLoop>> make_data_loops(const Config& config,
                                                               const RdmaChoice& rdma,
                                                               observe::Metrics& metrics,
                                                               engine::BusyPollLoop& host) {
  const auto make_transport = [&](boost::asio::io_context& loop) {
    transport::TcpOptions tcp;
    tcp.congestion = config.tcp_congestion;
    tcp.protection = transport::parse_protection(config.data_protection).value();
    std::shared_ptr<transport::tcp::Upgrader> upgrader;
    if (rdma.is_used) {
      const auto count = [&metrics](bool is_rdma) {
        observe::DaemonMetrics& daemon = metrics.daemon();
        (is_rdma ? daemon.rdma_channels : daemon.rdma_fallbacks).Increment();
      };
      Status why;
      transport::RdmaOptions options{rdma.is_required, config.rdma_devices,
                                     std::chrono::microseconds(config.rdma_poll_us), count};
      upgrader = transport::make_rdma_upgrader(loop, std::move(options), why);
    }
    auto made = config.transport == "grpc"
                    ? transport::make_grpc_transport(loop, tcp)
                    : transport::make_tcp_transport(loop, tcp, std::move(upgrader));
    if (const auto wrap = planted_faults().wrap_transport) made = wrap(std::move(made));
    return transport::make_striped_transport(loop, std::move(made), config.streams);
  };
  const int threads = data_threads(config);
  std::vector<std::unique_ptr<engine::DataLoop>> loops;
  loops.push_back(std::make_unique<engine::DataLoop>(
      metrics, make_transport, reduce_threads(config), threads == 0 ? &host : nullptr));
  while (static_cast<int>(loops.size()) < threads) {
    loops.push_back(std::make_unique<engine::DataLoop>(metrics, make_transport));
  }
  return loops;
}

std::string join_address(const std::string& host, uint16_t port) {
  const bool is_v6 = host.find(':') != std::string::npos;
  return (is_v6 ? '[' + host + ']' : host) + ':' + std::to_string(port);
}

std::string port_part(const std::string& address) { return address.substr(address.rfind(':')); }

// Returns the address by which other nodes reach a bound address; "" or ":port" if only launchers
// can know the host.
std::string advertised(const Config& config, const std::string& bound) {
  const std::string& host = config.advertise_host;
  const bool lacks_brackets = host.find(':') != std::string::npos && !host.starts_with('[');
  if (!host.empty()) return (lacks_brackets ? '[' + host + ']' : host) + port_part(bound);
  if (config.listen_host == "0.0.0.0" || config.listen_host == "::") return port_part(bound);
  return bound;
}

bool is_loopback(const std::string& host) {
  in_addr address{};
  if (::inet_pton(AF_INET, host.c_str(), &address) == 1) {
    return (ntohl(address.s_addr) >> 24) == IN_LOOPBACKNET;
  }
  return host == "::1" || host == "localhost";
}

using CredentialsPtr = std::shared_ptr<const rpc::Credentials>;

// Certificates are good for the node that they name.
Result<CredentialsPtr> credentials_with(Result<std::shared_ptr<security::TlsFolder>> folder,
                                        const Config& config, const std::string& where) {
  if (!folder.is_ok()) {
    return Status(folder.status().code(), where + ": " + folder.status().message());
  }
  const security::Identity own = folder.value()->files()->own.identity;
  if (own.role == security::Role::kNode && own.name == config.node_id) {
    return CredentialsPtr(std::make_shared<rpc::Credentials>(std::move(folder).value()));
  }
  return Status(Code::kPermission, where + ' ' + config.tls_dir + ": its certificate is for " +
                                       to_uri(own) + ", and this is node " + config.node_id +
                                       ": ruedactl certs issue node " + config.node_id +
                                       ", or another --node-id");
}

// Opens --tls-dir. Without it the ports are for this machine alone, or for everybody who reaches
// them if that is asked for.
Result<CredentialsPtr> credentials_of(const Config& config) {
  using Kind = security::Caller::Kind;
  if (!config.tls_dir.empty()) {
    return credentials_with(security::TlsFolder::open(config.tls_dir), config, "--tls-dir");
  }
  const bool is_local = is_loopback(config.listen_host);
  return CredentialsPtr(std::make_shared<rpc::Credentials>(
      is_local && !config.is_insecure ? Kind::kMachine : Kind::kNetwork));
}

// Returns the next line of a descriptor without its end; "" if the other end is closed before that,
// or sends too much.
std::string read_line(int fd) {
  std::string line;
  std::array<char, 4096> part{};
  while (line.size() <= kMaxToldBytes) {
    const ssize_t bytes = ::read(fd, part.data(), part.size());
    if (bytes < 0 && errno == EINTR) continue;
    if (bytes <= 0) return "";
    line.append(part.data(), static_cast<size_t>(bytes));
    const size_t end = line.find('\n');
    if (end != std::string::npos) return line.substr(0, end);
  }
  return "";
}

// Opens the control port, tells the launcher where, and takes what credentials it then sends:
// launchers meet at ports, and know the job that the certificates are for only when they have met
// (docs/decisions/0086-certificates-of-private-daemons.md). kShutDown means that the launcher has
// ended, or needs no daemon.
Result<CredentialsPtr> await_credentials(Config& config, service::Listener& control) {
  Result<service::Listener> listener = service::listen_on(config.listen_host, config.control_port);
  if (!listener.is_ok()) return listener.status();
  control = std::move(listener).value();
  const nlohmann::json port = {{"control", join_address(config.listen_host, control.port)}};
  const std::string text = port.dump() + '\n';
  (void)!::write(config.ready_fd, text.data(), text.size());  // Who is gone sends nothing, either.
  // The launcher has this process begin with signals ignored, which end it only once it serves.
  const std::string line = read_line(config.tls_fd);
  if (line.empty()) return Status(Code::kShutDown, "the launcher has ended");
  const auto told = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (told.is_object() && told.empty()) {
    config.is_insecure = true;
    return credentials_of(config);
  }
  const auto text_of = [&told](const char* key) {
    const bool is_there = told.is_object() && told.contains(key) && told[key].is_string();
    return is_there ? told[key].get<std::string>() : "";
  };
  return credentials_with(
      security::TlsFolder::of({text_of("certificate"), text_of("key")}, text_of("authority")),
      config, "--tls-fd");
}

// Returns what is wrong with listening where the daemon is to listen; ok if nothing is.
Status check_exposure(const Config& config) {
  const bool has_certificate = !config.tls_dir.empty() || config.tls_fd >= 0;
  if (is_loopback(config.listen_host) || has_certificate || config.is_insecure) {
    return Status::ok();
  }
  return {Code::kInvalidArgument,
          "--listen-host " + config.listen_host +
              " is beyond the loopback, where certificates are needed: make them with ruedactl "
              "certs init and issue, and give --tls-dir; or, in a network in which you trust "
              "everybody, --insecure"};
}

// Raises the limit of open files: the lower limit that shells and units set is for programs that
// use select(), which this one does not.
void raise_descriptor_limit() {
  rlimit descriptors{};
  if (::getrlimit(RLIMIT_NOFILE, &descriptors) != 0) return;
  descriptors.rlim_cur = descriptors.rlim_max;
  (void)::setrlimit(RLIMIT_NOFILE, &descriptors);
}

void say_sandbox(const security::Sandbox& sandbox) {
  const char* const parts = sandbox.has_seccomp && sandbox.has_landlock ? "seccomp and Landlock"
                            : sandbox.has_seccomp                       ? "seccomp"
                            : sandbox.has_landlock                      ? "Landlock"
                                                                        : "none";
  if (sandbox.trouble.empty()) {
    spdlog::info("sandbox: {}", parts);
  } else {
    spdlog::warn("sandbox: {}; {}", parts, sandbox.trouble);
  }
}

uint64_t random_number() {
  std::random_device device;
  return (uint64_t{device()} << 32) | device();
}

// A loop that stands still for longer is not healthy: its turns take milliseconds.
constexpr std::chrono::seconds kMaxLoopStall{10};

class Daemon {
 public:
  // `control` is the control port, if that is open already.
  Daemon(Config config, Confinement confinement, CredentialsPtr credentials,
         service::Listener control)
      : config_(std::move(config)),
        confinement_(std::move(confinement)),
        credentials_(std::move(credentials)),
        control_(std::move(control)),
        options_(engine_options(config_, rdma_.is_used, confinement_.gpu_workers.get())),
        metrics_({RUEDA_VERSION, config_.node_id, reduce::simd_target()}),
        data_loops_(make_data_loops(config_, rdma_, metrics_, awake_loop_)),
        plane_(control_loop_, metrics_, control_plane_options()),
        loop_watch_(watch_loops()),
        signals_(control_loop_, SIGTERM, SIGINT),
        leash_(control_loop_),
        deliver_timer_(control_loop_),
        certificate_timer_(control_loop_) {
    awake_loop_.on_slow([this](const SlowHandler& slow) {
      metrics_.daemon().control_slow_handlers.Increment();
      engine::report_slow("control", slow);
    });
  }

  Status start();
  void run() { awake_loop_.run(); }
  // Ends, after run(), the parts that run on other threads before the parts that they use.
  void tear_down();

 private:
  service::ControlPlaneOptions control_plane_options() const;
  Status start_services();
  void tell_protection();
  void refresh_session_metrics();
  std::vector<observe::PrincipalUse> principal_uses() const;  // Of any thread.
  void refresh_certificate_metrics();
  void watch_certificates();
  std::string render_metrics();
  engine::LoopWatch watch_loops();
  void await_signal();
  // Returns true if a signal was sent to all processes of a job, and is not meant for this one.
  bool passes_over(int signal);
  void await_launchers_end();
  void say_ready();
  void stop(const char* why);
  void say_delivering();

  const Config config_;
  const Confinement confinement_;
  const RdmaChoice& rdma_ = confinement_.rdma;
  const CredentialsPtr credentials_;
  service::Listener control_;
  const engine::EngineOptions options_;
  observe::Metrics metrics_;
  boost::asio::io_context control_loop_{1};
  engine::BusyPollLoop awake_loop_{control_loop_};
  const engine::LoopPoster poster_{control_loop_};
  engine::DataLoops data_loops_;
  service::GrpcControlPlane plane_;
  const std::shared_ptr<session::Ledger> ledger_ =
      std::make_shared<session::Ledger>(quotas_of(config_));
  std::optional<engine::Engine> engine_;
  std::optional<service::StaticMembership> membership_;
  std::unique_ptr<session::SessionServer> sessions_;
  uint64_t counted_rejected_ = 0;
  uint64_t counted_abandoned_ = 0;
  uint64_t counted_lost_lines_ = 0;  // It belongs to the HTTP thread, and so does the next.
  std::string said_trouble_;
  engine::LoopWatch loop_watch_;
  service::DaemonInfo info_;
  std::optional<service::Servers> servers_;
  std::unique_ptr<observe::HttpServer> http_;
  boost::asio::signal_set signals_;
  boost::asio::posix::stream_descriptor leash_;
  char leash_byte_ = 0;
  bool has_passed_over_ = false;
  boost::asio::steady_timer deliver_timer_;
  boost::asio::steady_timer certificate_timer_;
  std::atomic<bool> ready_{false};
  std::thread stopper_;
  bool stopping_ = false;
};

service::ControlPlaneOptions Daemon::control_plane_options() const {
  service::ControlPlaneOptions options;
  options.node_id = config_.node_id;
  options.incarnation = random_number();
  options.timeout_ms = failure_timeout_ms(config_);
  options.credentials = credentials_;
  options.check_dial = [this](const std::string& address) {
    return membership_->check_dial(address);
  };
  return options;
}

Status Daemon::start() {
  Result<service::StaticMembership> membership =
      service::StaticMembership::parse(config_.nodes, /*is_binding=*/config_.dial == "nodes");
  if (!membership.is_ok()) return membership.status();
  membership_ = std::move(membership).value();
  if (rdma_.is_required && !rdma_.is_used) {
    return Status(rdma_.trouble.code(), "--transport rdma: " + rdma_.trouble.message() +
                                            "; use auto or tcp to do without");
  }
  if (!rdma_.trouble.is_ok()) {
    spdlog::warn("RDMA is not used: {}", rdma_.trouble.message());
  }

  if (config_.data_ports.size() > data_loops_.size()) {
    return Status(Code::kInvalidArgument, "--data-port has " +
                                              std::to_string(config_.data_ports.size()) +
                                              " ports for " + std::to_string(data_loops_.size()) +
                                              " data loops: raise --data-loops, or name fewer");
  }
  std::vector<std::string> wanted;
  for (size_t i = 0; i < data_loops_.size(); ++i) {
    const uint16_t port = i < config_.data_ports.size() ? config_.data_ports[i] : 0;
    wanted.push_back(join_address(config_.listen_host, port));
  }
  Result<std::vector<std::string>> data = data_loops_.start(wanted);
  if (!data.is_ok()) {
    return Status(data.status().code(), "--data-port: " + data.status().message());
  }
  info_.data_address = data.value().front();
  std::vector<std::string> told;
  for (const std::string& bound : data.value()) told.push_back(advertised(config_, bound));
  engine_.emplace(engine::EngineContext{control_loop_, data_loops_, plane_, metrics_, options_,
                                        engine::join_addresses(told),
                                        [this] { awake_loop_.stay_awake(); }, ledger_});
  plane_.set_events(&*engine_);
  info_.node_id = config_.node_id;
  info_.socket = config_.sockets.front().path;
  info_.cpus = config_.cpus;
  info_.simd = reduce::simd_target();
  info_.labels = config_.labels;
  tell_protection();
  info_.transport = options_.transport;
  info_.data_protection = options_.data_protection;
  if (!rdma_.trouble.is_ok()) info_.rdma_trouble = rdma_.trouble.message();
  info_.started_ms = steady_now_ms();
  return start_services();
}

// Fills in how the ports and the process are protected.
void Daemon::tell_protection() {
  info_.protection = credentials_->has_tls() ? "tls" : config_.is_insecure ? "nothing" : "loopback";
  observe::DaemonMetrics& metrics = metrics_.daemon();
  metrics.insecure.Set(info_.protection == "nothing" ? 1 : 0);
  const security::Sandbox& sandbox = confinement_.sandbox;
  metrics.sandbox_seccomp.Set(sandbox.has_seccomp ? 1 : 0);
  metrics.sandbox_landlock.Set(sandbox.has_landlock ? 1 : 0);
  if (sandbox.has_seccomp) info_.sandbox.emplace_back("seccomp");
  if (sandbox.has_landlock) info_.sandbox.emplace_back("landlock");
  info_.sandbox_trouble = sandbox.trouble;
}

Status Daemon::start_services() {
  const auto ailment = [this] { return loop_watch_.find_stalled(kMaxLoopStall); };
  servers_.emplace(
      poster_, *engine_, plane_, *membership_, metrics_, info_,
      [ailment] { return ailment().empty(); }, admin_group(config_));
  Result<std::string> control =
      servers_->bind(config_.listen_host, config_.control_port, std::move(control_));
  if (!control.is_ok()) return control.status();
  info_.control_address = control.value();
  const std::string shown = advertised(config_, control.value());
  if (!shown.starts_with(':')) info_.advertised_address = shown;

  session::ServerOptions session_options;
  session_options.sockets = config_.sockets;
  session_options.ledger = ledger_;
  sessions_ = session::SessionServer::create(
      control_loop_, session_options, *engine_,
      [this](UniqueFd socket, const session::Credentials& peer, const std::vector<gid_t>& groups) {
        servers_->adopt(std::move(socket), peer, groups);
      });
  awake_loop_.watch(*sessions_);
  if (Status listening = sessions_->listen(); !listening.is_ok()) return listening;

  observe::HttpHandlers handlers;
  handlers.metrics = [this] { return render_metrics(); };
  handlers.ready = [this] { return ready_.load(); };
  handlers.ailment = ailment;
  auto refusals =
      std::make_shared<observe::Refusals>("HTTP port", metrics_.daemon().refused_at_http);
  handlers.refused = [refusals](const std::string& who, const std::string& why) {
    refusals->note(who, why);
  };
  std::optional<observe::HttpTls> tls;
  // A job's own authority has no certificate for whoever reads metrics, so they are for this
  // machine, as they are where there are no certificates.
  const bool is_of_job = credentials_->has_tls() && config_.tls_fd >= 0;
  if (credentials_->has_tls() && !is_of_job) {
    Result<observe::HttpTls> https = service::https_of(credentials_->shared_folder());
    if (!https.is_ok()) {
      return Status(https.status().code(),
                    "--tls-dir " + config_.tls_dir + ": " + https.status().message());
    }
    tls = std::move(https).value();
  }
  http_ = observe::HttpServer::create(std::move(handlers), {}, std::move(tls));
  const std::string http_host = is_of_job ? "127.0.0.1" : config_.listen_host;
  Result<std::string> http = http_->start(join_address(http_host, config_.http_port));
  if (!http.is_ok()) return http.status();
  info_.http_address = http.value();

  await_signal();
  if (config_.leash_fd >= 0) await_launchers_end();
  servers_->serve();  // They tell callers the addresses, all of which are known by now.
  servers_->set_serving(true);
  ready_ = true;
  if (credentials_->has_tls() && !is_of_job) watch_certificates();
  say_ready();
  return Status::ok();
}

// The control loop comes first, then the data loops.
engine::LoopWatch Daemon::watch_loops() {
  std::vector<engine::LoopWatch::Loop> loops;
  loops.push_back({"control", [this](auto work) { poster_.post(std::move(work)); }});
  for (size_t i = 0; i < data_loops_.size(); ++i) {
    loops.push_back({"data", [this, i](auto work) { data_loops_.at(i).post(std::move(work)); }});
  }
  return engine::LoopWatch(std::move(loops));
}

// This runs on the HTTP thread.
std::string Daemon::render_metrics() {
  const auto owed = loop_watch_.ask();
  observe::DaemonMetrics& metrics = metrics_.daemon();
  metrics.control_loop_stall.Set(owed.front().count());
  metrics.data_loop_stall.Set(std::max_element(owed.begin() + 1, owed.end())->count());
  const uint64_t lost = log_lines_lost();
  metrics.log_lines_lost.Increment(
      static_cast<double>(lost - std::exchange(counted_lost_lines_, lost)));
  refresh_certificate_metrics();
  data_loops_.refresh_metrics();
  refresh_session_metrics();
  return metrics_.render(principal_uses());
}

// This runs on the HTTP thread.
void Daemon::refresh_certificate_metrics() {
  observe::DaemonMetrics& metrics = metrics_.daemon();
  security::TlsFolder* const folder = credentials_->folder();
  if (folder == nullptr) {
    return metrics.certificate_expiry.Set(std::numeric_limits<double>::infinity());
  }
  metrics.certificate_expiry.Set(
      static_cast<double>(folder->files()->own.not_after.time_since_epoch().count()));
  const std::string trouble = folder->trouble();
  metrics.certificate_trouble.Set(trouble.empty() ? 0 : 1);
  if (!trouble.empty() && trouble != said_trouble_) {
    spdlog::warn("the files in --tls-dir are not used, but older ones: {}", one_line(trouble));
  }
  said_trouble_ = trouble;
}

std::vector<observe::PrincipalUse> Daemon::principal_uses() const {
  std::vector<observe::PrincipalUse> uses;
  for (const session::Ledger::Use& use : ledger_->snapshot(kMaxPrincipalsShown)) {
    for (size_t i = 0; i < session::kResources; ++i) {
      const auto resource = static_cast<session::Resource>(i);
      uses.push_back({use.principal, session::name_of(resource), use.has[resource],
                      use.most[resource], use.refused[resource]});
    }
  }
  return uses;
}

// This runs on the HTTP thread, but the numbers belong to the control loop. The wait for them is
// bounded, because a loop that is stopping does not answer: old numbers are better than a wait
// without end.
void Daemon::refresh_session_metrics() {
  auto done = std::make_shared<std::promise<void>>();
  poster_.post([this, done] {
    const session::ServerStats now = sessions_->stats();
    metrics_.daemon().arena_bytes.Set(static_cast<double>(now.arena_bytes));
    metrics_.daemon().rejected_clients.Increment(
        static_cast<double>(now.rejected - std::exchange(counted_rejected_, now.rejected)));
    metrics_.daemon().abandoned_doors.Increment(static_cast<double>(
        now.abandoned_doors - std::exchange(counted_abandoned_, now.abandoned_doors)));
    done->set_value();
  });
  done->get_future().wait_for(std::chrono::milliseconds(200));
}

void Daemon::await_signal() {
  signals_.async_wait([this](const boost::system::error_code& error, int signal) {
    if (error) return;
    if (passes_over(signal)) return await_signal();
    if (stopping_) {
      spdlog::warn("stopping at once, on a second signal");
      flush_log(std::chrono::milliseconds(100));
      std::_Exit(1);
    }
    stop(signal == SIGTERM ? "SIGTERM" : "SIGINT");
    await_signal();
  });
}

bool Daemon::passes_over(int signal) {
  if (config_.leash_fd < 0) return false;
  if (signal != SIGHUP && std::exchange(has_passed_over_, true)) return false;
  if (!stopping_) {
    spdlog::info(
        "got {}: this daemon ends with its launcher, whose ranks may still save what they "
        "have; SIGTERM once more stops it",
        ::sigabbrev_np(signal));
  }
  return true;
}

void Daemon::await_launchers_end() {
  signals_.add(SIGHUP);
  boost::system::error_code error;
  leash_.assign(config_.leash_fd, error);
  if (error) spdlog::warn("--leash-fd {}: {}", config_.leash_fd, error.message());
  if (error) return;
  leash_.async_read_some(boost::asio::buffer(&leash_byte_, 1),
                         [this](const boost::system::error_code& closed, size_t) {
                           if (closed == boost::asio::error::operation_aborted) return;
                           if (!stopping_) stop("its launcher has ended, or ended it");
                         });
}

// Has the folder look at its files also while nobody connects: whoever is shown a certificate that
// has ended goes away before this daemon would look.
void Daemon::watch_certificates() {
  certificate_timer_.expires_after(kCertificatesEvery);
  certificate_timer_.async_wait([this](const boost::system::error_code& error) {
    if (error) return;
    (void)credentials_->folder()->files();
    watch_certificates();
  });
}

void Daemon::say_ready() {
  spdlog::info("node {} serves: control {}, data {}, http {}, socket {} ({} kernels)",
               info_.node_id, info_.control_address, info_.data_address, info_.http_address,
               info_.socket, info_.simd);
  for (const SocketPlace& socket : config_.sockets) {
    if (config_.sockets.size() == 1 && socket.principal.empty()) break;
    spdlog::info("socket {}: who connects is {}", socket.path,
                 socket.principal.empty() ? "its user" : "principal " + socket.principal);
  }
  if (info_.protection == "nothing" && !config_.is_private) {
    spdlog::warn(
        "listens on {} without certificates (--insecure): whoever reaches its ports can read of "
        "all jobs and tensors, and pose as a daemon; let nobody but this cluster's nodes reach "
        "them, or give --tls-dir",
        config_.listen_host);
  }
  say_sandbox(confinement_.sandbox);
  ::sd_notify(0, "READY=1");
  if (config_.ready_fd < 0) return;
  const nlohmann::json line = {{"node_id", info_.node_id},
                               {"control", info_.control_address},
                               {"data", info_.data_address},
                               {"http", info_.http_address},
                               {"socket", info_.socket}};
  const std::string text = line.dump() + '\n';
  if (::write(config_.ready_fd, text.data(), text.size()) != static_cast<ssize_t>(text.size())) {
    spdlog::warn("could not report to descriptor {} of --ready-fd", config_.ready_fd);
  }
  if (!config_.is_private) {
    ::close(config_.ready_fd);
    return;
  }
  // Later bytes on this descriptor tell the launcher, which waits for the daemon's end, that it is
  // not stuck.
  ::fcntl(config_.ready_fd, F_SETFD, FD_CLOEXEC);
  ::fcntl(config_.ready_fd, F_SETFL, O_NONBLOCK);
}

// Reports that the daemon is still working while jobs are being closed: data that their ranks left
// behind goes on to the other nodes, for as long as these take it.
void Daemon::say_delivering() {
  deliver_timer_.expires_after(kDeliveringEvery);
  deliver_timer_.async_wait([this](const boost::system::error_code& error) {
    if (error) return;
    spdlog::info("node {} still hands on data that other nodes wait for", config_.node_id);
    if (config_.is_private && config_.ready_fd >= 0) {
      (void)!::write(config_.ready_fd, ".", 1);  // A launcher that is gone does not read it.
    }
    say_delivering();
  });
}

// Stops the jobs first, whose ranks are told why, then the links, then the servers, and the loop
// last.
void Daemon::stop(const char* why) {
  stopping_ = true;
  spdlog::info("stopping on {}", why);
  ::sd_notify(0, "STOPPING=1");
  ready_ = false;
  servers_->set_serving(false);
  const Status reason(Code::kShutDown,
                      "the daemon on node " + config_.node_id + " was stopped (" + why + ")",
                      Origin{config_.node_id, {}});
  say_delivering();
  engine_->close_all(reason, [this] {
    deliver_timer_.cancel();
    plane_.stop([this] {
      // Calls under way may still need the control loop, so the servers stop on another thread.
      stopper_ = std::thread([this] {
        servers_->stop();
        poster_.post([this] { control_loop_.stop(); });
      });
    });
  });
}

void Daemon::tear_down() {
  if (stopper_.joinable()) stopper_.join();
  if (http_) http_->stop();
  if (sessions_) sessions_->stop();
  data_loops_.stop();
}

}  // namespace
}  // namespace rueda

int main(int argc, char** argv) {
  ::signal(SIGPIPE, SIG_IGN);
  // The fork server starts this program as a GPU worker with two arguments: the plugin's file (may
  // be empty) and a descriptor.
  if (argc == 4 && std::string_view(argv[1]) == "--gpu-worker") {
    rueda::UniqueFd socket(std::atoi(argv[3]));
    std::_Exit(rueda::gpu::run_worker(std::move(socket), rueda::gpu::devices_of_plugin(argv[2])));
  }
  auto read = rueda::read_config(argc, argv);
  if (const int* code = std::get_if<int>(&read)) return *code;
  rueda::Config config = std::move(std::get<rueda::Config>(read));
  rueda::say_why_it_terminates("ruedad");
  // Batch systems may send these signals to all processes of a job.
  ::signal(SIGUSR1, SIG_IGN);
  ::signal(SIGUSR2, SIG_IGN);
  const auto fail = [](int code, const std::string& why) {
    std::cerr << "ruedad: " << why << '\n';
    return code;
  };
  if (const rueda::Status room = rueda::check_thread_limit(rueda::kThreads); !room.is_ok()) {
    return fail(1, room.message());
  }
  rueda::raise_descriptor_limit();
  if (!config.cpus.empty()) {
    const rueda::Status kept = rueda::keep_to_cpus(rueda::parse_cpus(config.cpus).value());
    if (!kept.is_ok()) return fail(1, "--cpus " + config.cpus + ": " + kept.message());
  }
  if (const rueda::Status exposed = rueda::check_exposure(config); !exposed.is_ok()) {
    return fail(2, exposed.message());
  }
  rueda::Result<rueda::Confinement> confinement = rueda::confine(config);
  if (!confinement.is_ok()) {
    // A kernel that lacks what was asked for will lack it at the next start, too.
    const bool is_setting = confinement.status().code() == rueda::Code::kUnavailable;
    return fail(is_setting ? 2 : 1, confinement.status().message());
  }
  rueda::set_up_logging(config.log_level, config.log_format);
  rueda::service::Listener control;
  rueda::Result<rueda::CredentialsPtr> credentials = config.tls_fd >= 0
                                                         ? rueda::await_credentials(config, control)
                                                         : rueda::credentials_of(config);
  if (credentials.status().code() == rueda::Code::kShutDown) return 0;
  if (!credentials.is_ok()) return fail(1, credentials.status().message());
  const std::string node_id = config.node_id;
  rueda::Daemon daemon(std::move(config), std::move(confinement).value(),
                       std::move(credentials).value(), std::move(control));
  if (rueda::Status started = daemon.start(); !started.is_ok()) {
    rueda::flush_log();
    const int code = fail(1, started.message());
    daemon.tear_down();
    return code;
  }
  daemon.run();
  daemon.tear_down();
  spdlog::info("node {} stopped", node_id);
  rueda::flush_log();
  return 0;
}
