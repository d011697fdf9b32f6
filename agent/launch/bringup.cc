#include "agent/launch/bringup.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include <signal.h>

#include "agent/base/text.h"
#include "agent/launch/agent_link.h"
#include "agent/launch/job_certificates.h"
#include "daemon/base/os/cpus.h"

namespace rueda::agent {
namespace {

constexpr char kDefaultSocket[] = "/run/rueda/ruedad.sock";
constexpr int64_t kDescribeTimeoutMs = 5000;
constexpr std::chrono::milliseconds kFirstRetryAfter{200};
constexpr std::chrono::milliseconds kMaxRetryAfter{2000};
// All whose job runs have tried to reach a new node 0 by then.
constexpr std::chrono::milliseconds kLastCall{3000};

std::string seconds_text(int64_t ms) {
  std::string out = std::to_string(ms / 1000);
  if (ms % 1000 != 0) out += "." + std::to_string(ms % 1000 + 1000).substr(1);
  return out + " s";
}

// Returns whether the user has said where daemons are to run.
bool says_cpus(const std::vector<std::string>& daemon_args) {
  return ::getenv("RUEDAD_CPUS") != nullptr || has_flag(daemon_args, "--cpus");
}

int port_of(const std::string& address) {
  const auto parsed = parse_host_port(address);
  return parsed ? parsed->port : 0;
}

}  // namespace

Bringup::Bringup(boost::asio::io_context& loop, std::shared_ptr<LoopGate> gate,
                 const Options& options, OutputSink& sink, Events events)
    : loop_(loop),
      gate_(std::move(gate)),
      options_(options),
      sink_(sink),
      events_(std::move(events)),
      retry_timer_(loop),
      retry_after_(kFirstRetryAfter) {}

void Bringup::fail(const std::string& text) {
  if (is_over_) return;
  is_over_ = true;
  events_.on_failed(text);
}

void Bringup::cancel() {
  is_over_ = true;
  running_.reset();
  retry_timer_.cancel();
  rendezvous_call_.reset();
  rendezvous_server_.reset();
}

void Bringup::start() {
  if (!options_.socket.empty()) {
    use_running_daemon(options_.socket);
  } else if (options_.virtual_nodes == 0 && is_listening(kDefaultSocket)) {
    use_running_daemon(kDefaultSocket);
  } else {
    start_daemons();
  }
}

void Bringup::use_running_daemon(const std::string& socket) {
  const Result<DaemonDescription> found = describe_daemon(socket, kDescribeTimeoutMs);
  if (found.status().code() == Code::kDaemonLost) {
    return fail(found.status().message() + ": start one with \"ruedad --socket " + socket +
                "\", or leave out --socket and $RUEDA_SOCKET for a private one");
  }
  if (!found.is_ok()) return fail(found.status().message());
  const DaemonDescription& daemon = found.value();
  events_.on_progress("using the daemon " + daemon.node_id + " (" + daemon.version + ") at " +
                      socket);
  LocalNode node{
      options_.node_rank, daemon.node_id, socket, daemon.advertised_control_address, "", {}};
  if (options_.binds) bind_beside(daemon, node);
  if (daemon.http_port > 0) node.http_address = join_host_port("127.0.0.1", daemon.http_port);
  if (node.control_address.empty()) {
    const Result<OwnHost> host = own_host();
    if (!host.is_ok()) return fail(host.status().message());
    guesses_host_ = host.value().is_guess;
    node.control_address = join_host_port(host.value().host, daemon.control_port);
  }
  const auto control = parse_host_port(node.control_address);
  const auto meeting = parse_host_port(options_.rdzv_endpoint);
  if (options_.nnodes > 1 && control && is_loopback(control->host) && meeting &&
      !is_loopback(meeting->host)) {
    return fail("the daemon at " + socket + " listens on " + control->host +
                ", where other nodes do not reach it: start it with --listen-host, and "
                "with --tls-dir or --insecure");
  }
  local_nodes_.push_back(std::move(node));
  on_nodes_known();
}

void Bringup::bind_beside(const DaemonDescription& daemon, LocalNode& node) {
  const Result<std::vector<int>> cpus = parse_cpus(daemon.cpus);
  if (!cpus.is_ok()) {
    events_.on_note("--bind: the daemon at " + node.socket +
                    " is left to the system, so ranks are, too; start it with --cpus");
  } else if (const auto bound = bind_node(allowed_cpus(), cpus.value(), options_.ranks)) {
    node.rank_cpus = bound->ranks;
  }
}

std::optional<Binding> Bringup::bind_node(const std::vector<int>& share,
                                          const std::vector<int>& daemon, int ranks) {
  if (!options_.binds) return std::nullopt;
  const Result<Topology> topology = Topology::of_machine();
  const Result<Binding> bound = topology.is_ok()
                                    ? bind_cores(topology.value(), share, daemon, ranks)
                                    : Result<Binding>(topology.status());
  if (bound.is_ok()) return bound.value();
  events_.on_note("--bind: " + bound.status().message() + ", so nothing is bound");
  return std::nullopt;
}

void Bringup::start_daemons() {
  const Result<std::string> program = find_ruedad(options_.ruedad);
  const Result<std::string> random = random_bytes(8);
  const Result<OwnHost> host = own_host();
  if (!program.is_ok()) return fail(program.status().message());
  if (!random.is_ok()) return fail(random.status().message());
  if (!host.is_ok()) return fail(host.status().message());
  private_host_ = host.value();
  guesses_host_ = private_host_.is_guess;
  const bool is_v6 = private_host_.host.find(':') != std::string::npos;
  if (options_.binds && says_cpus(options_.daemon_args)) {
    return fail("--bind chooses the daemon's CPUs: leave out --daemon-arg=--cpus and $RUEDAD_CPUS");
  }
  const int count = std::max(1, options_.virtual_nodes);
  const Result<std::vector<std::vector<Rank>>> blocks = deal_evenly(options_.ranks, count);
  if (!blocks.is_ok()) return fail(blocks.status().message());
  is_daemon_ready_.assign(static_cast<size_t>(count), false);
  overdue_.assign(static_cast<size_t>(count), "");
  awaits_certificate_ = options_.nnodes > 1 && !has_flag(options_.daemon_args, "--tls-dir") &&
                        !has_flag(options_.daemon_args, "--insecure");
  for (int i = 0; i < count; ++i) {
    const int node_index = options_.node_rank + i;
    DaemonRequest request;
    request.program = program.value();
    request.node_id = "node" + std::to_string(node_index);
    request.socket = "@rueda-" + to_hex(random.value()) + "-" + std::to_string(i);
    request.listen_host = options_.nnodes == 1 ? "127.0.0.1" : is_v6 ? "::" : "0.0.0.0";
    request.log_level = !options_.log_level.empty() ? options_.log_level
                        : options_.is_verbose       ? "info"
                                                    : "warn";
    // Each daemon stands for a machine, and gets CPUs of its own: daemons on the same CPUs would
    // wait for each other.
    std::vector<int> cpus;
    if (count > 1 && !says_cpus(options_.daemon_args)) cpus = share_of(allowed_cpus(), i, count);
    const auto local_ranks = blocks.value()[static_cast<size_t>(i)].size();
    LocalNode node{node_index, request.node_id, request.socket, "", "", {}};
    if (const auto bound =
            bind_node(cpus.empty() ? allowed_cpus() : cpus, {}, static_cast<int>(local_ranks))) {
      cpus = bound->daemon;
      node.rank_cpus = bound->ranks;
    } else {
      node.rank_cpus.assign(local_ranks, cpus);
    }
    request.cpus = to_string(cpus);
    request.is_virtual = count > 1;
    request.awaits_certificate = awaits_certificate_;
    request.extra_args = options_.daemon_args;
    if (const std::string& transport = options_.agreement.transport; !transport.empty()) {
      request.extra_args.push_back("--transport=" + transport);
    }
    if (const std::string& wanted = options_.agreement.data_protection; !wanted.empty()) {
      request.extra_args.push_back("--data-protection=" + wanted);
    }
    if (const auto& timeout = options_.agreement.failure_timeout_seconds) {
      request.extra_args.push_back("--failure-timeout=" + std::to_string(*timeout));
    }
    local_nodes_.push_back(std::move(node));
    requests_.push_back(std::move(request));
    daemons_.push_back(make_daemon(static_cast<size_t>(i)));
    const Status started = daemons_.back()->start(sink_);
    if (!started.is_ok()) return fail("the daemon cannot be started: " + started.message());
    events_.on_daemon_started(*daemons_.back());
  }
}

std::unique_ptr<PrivateDaemon> Bringup::make_daemon(size_t index) {
  PrivateDaemon::Events events;
  events.on_control_port = [this, index](const std::string& address) {
    on_control_port(index, address);
  };
  events.on_ready = [this, index](Result<DaemonReady> outcome) {
    on_daemon_ready(index, std::move(outcome));
  };
  events.on_delivering = [this, index] { events_.on_daemon_delivering(*daemons_[index]); };
  events.on_exit = [this, index](ExitStatus status) {
    events_.on_daemon_exit(*daemons_[index], status, is_daemon_ready_[index]);
  };
  return std::make_unique<PrivateDaemon>(loop_, requests_[index], std::move(events));
}

void Bringup::revive(size_t index, std::function<void(Status)> done) {
  if (daemons_.empty()) return done(Status::ok());
  if (daemons_[index]->is_running()) {
    daemons_[index]->send_signal(SIGKILL);
    const std::string& why = overdue_[index];
    return done({Code::kUnavailable, why.empty() ? "the daemon of before has not ended yet" : why});
  }
  overdue_[index].clear();
  requests_[index].control_port = port_of(local_nodes_[index].control_address);
  requests_[index].http_port = port_of(local_nodes_[index].http_address);
  is_daemon_ready_[index] = false;
  daemons_[index] = make_daemon(index);
  const Status started = daemons_[index]->start(sink_);
  if (!started.is_ok()) return done(started);
  revivals_[index] = std::move(done);
  events_.on_daemon_started(*daemons_[index]);
}

void Bringup::give_up_daemon(size_t index, const std::string& why) {
  if (daemons_.empty()) return;
  overdue_[index] = why;
  daemons_[index]->send_signal(SIGKILL);
}

// The launchers meet as soon as their daemons can be reached, which serve when they have met.
void Bringup::on_control_port(size_t index, const std::string& address) {
  if (revivals_.contains(index)) return certify(index);
  if (is_over_) return;
  local_nodes_[index].control_address = join_host_port(private_host_.host, port_of(address));
  on_nodes_known();
}

Status Bringup::prepare_certificates() {
  if (!layout_->has_certificates) {
    events_.on_note(
        "another node of this job has a daemon of its own (or --daemon-arg=--insecure or "
        "--tls-dir), so this node's private one goes without a certificate, as with --insecure: "
        "control messages are in clear");
    return Status::ok();
  }
  Result<security::KeyPair> authority = job_authority(*layout_);
  if (!authority.is_ok()) return authority.status();
  authority_ = std::move(authority).value();
  events_.on_progress("made certificates of " + layout_->job_id + " for its private daemons");
  return Status::ok();
}

void Bringup::certify(size_t index) {
  const Result<std::string> line =
      authority_ ? certificate_line(*authority_, layout_->job_id, local_nodes_[index].node_id)
                 : Result<std::string>(kNoCertificateLine);
  if (!line.is_ok()) return on_daemon_ready(index, line.status());
  daemons_[index]->tell_certificate(line.value());
}

void Bringup::on_daemon_ready(size_t index, Result<DaemonReady> outcome) {
  LocalNode& node = local_nodes_[index];
  if (const auto revival = revivals_.extract(index)) {
    is_daemon_ready_[index] = outcome.is_ok();
    return revival.mapped()(outcome.status());
  }
  if (!outcome.is_ok()) {
    return fail("the daemon of " + node.node_id + " did not start: " + outcome.status().message());
  }
  is_daemon_ready_[index] = true;
  if (is_over_) return;
  const DaemonReady& ready = outcome.value();
  node.control_address = join_host_port(private_host_.host, port_of(ready.control_address));
  node.http_address = join_host_port("127.0.0.1", port_of(ready.http_address));
  node.socket = ready.socket;
  events_.on_progress("the daemon of " + node.node_id + " serves (control " + node.control_address +
                      ", http " + node.http_address + ")");
  if (layout_) return conclude();
  if (std::all_of(is_daemon_ready_.begin(), is_daemon_ready_.end(), [](bool is) { return is; })) {
    on_nodes_known();
  }
}

Result<OwnHost> Bringup::own_host() const {
  if (options_.nnodes == 1) return OwnHost{"127.0.0.1", false};
  const auto endpoint = parse_host_port(options_.rdzv_endpoint);
  return own_host_towards(endpoint->host, endpoint->port);
}

void Bringup::on_nodes_known() {
  if (options_.nnodes > 1) {
    meet();
  } else {
    lay_out_here();
  }
}

void Bringup::lay_out_here() {
  const Result<std::vector<std::vector<Rank>>> blocks =
      deal_evenly(options_.ranks, static_cast<int>(local_nodes_.size()));
  const Result<JobIdentity> identity = make_identity("127.0.0.1");
  if (!blocks.is_ok()) return fail(blocks.status().message());
  if (!identity.is_ok()) return fail(identity.status().message());
  const JobIdentity& made = identity.value();
  JobLayout job{made.job_id, made.token, {}, made.master_addr, made.master_port};
  for (size_t i = 0; i < local_nodes_.size(); ++i) {
    job.nodes.push_back({local_nodes_[i].node_id, local_nodes_[i].control_address,
                         blocks.value()[i], new_incarnation()});
  }
  is_over_ = true;
  events_.on_ready(std::move(job));
}

void Bringup::meet() {
  const Status checked = options_.rdzv_auth.check();
  if (!checked.is_ok()) return fail(checked.message());
  if (options_.node_rank == 0) {
    Result<JobIdentity> identity = make_identity(parse_host_port(options_.rdzv_endpoint)->host);
    if (!identity.is_ok()) return fail(identity.status().message());
    auto server = RendezvousServer::start(rendezvous_setting(), std::move(identity).value());
    if (!server.is_ok()) return fail(server.status().message());
    rendezvous_server_ = std::move(server).value();
  }
  Result<std::string> launcher = new_launcher();
  if (!launcher.is_ok()) return fail(launcher.status().message());
  launcher_ = std::move(launcher).value();
  events_.on_progress("meeting the other nodes at " + options_.rdzv_endpoint + ", reached at " +
                      local_nodes_.front().control_address + (guesses_host_ ? " (a guess)" : ""));
  if (!awaits_last_call()) return enter();
  retry_timer_.expires_after(kLastCall);
  retry_timer_.async_wait([this](const boost::system::error_code& error) {
    if (!error && !is_over_) enter();
  });
}

// Fewer nodes than there may be could begin a job while another one runs, whose nodes look for this
// one.
bool Bringup::awaits_last_call() const {
  return options_.node_rank == 0 && options_.min_nodes > 0 &&
         options_.min_nodes < options_.nnodes && !options_.rdzv_auth.is_none();
}

RendezvousSetting Bringup::rendezvous_setting() {
  const std::string host = parse_host_port(options_.rdzv_endpoint)->host;
  if (options_.rdzv_auth.is_none() && !is_loopback(host)) {
    events_.on_note("the rendezvous at " + options_.rdzv_endpoint +
                    " gives the job's token to whoever is the first to come as a node of it, and "
                    "sends it in clear: give all nodes the same --rdzv-secret-file, or --rdzv-auth "
                    "munge");
  }
  return {options_.rdzv_endpoint,
          options_.nnodes,
          options_.rdzv_id,
          options_.rdzv_auth,
          Meeting::kNodes,
          [this, gate = gate_](const std::string& text) {
            gate->post([this, text] { events_.on_note(text); });
          },
          options_.min_nodes,
          may_come_late(options_)};
}

void Bringup::enter() {
  const LocalNode& node = local_nodes_.front();
  std::string endpoint = options_.rdzv_endpoint;
  if (options_.node_rank == 0) endpoint = rendezvous_server_->local_endpoint();
  rendezvous_call_ = RendezvousCall::start(
      endpoint,
      {options_.node_rank, options_.nnodes, options_.ranks, node.node_id, node.control_address,
       options_.rdzv_id, launcher_, guesses_host_, incarnation_, options_.min_nodes,
       awaits_certificate_},
      options_.rdzv_auth, options_.start_timeout_ms,
      {[this, gate = gate_](Result<JobLayout> outcome) {
         gate->post([this, outcome = std::move(outcome)] {
           running_ ? on_entered_again(outcome.status()) : on_entered(outcome);
         });
       },
       [this, gate = gate_](std::string missing) {
         gate->post([this, missing = std::move(missing)] { last_missing_ = missing; });
       },
       [this, gate = gate_] { gate->post([this] { enter_again(); }); }},
      running_);
}

void Bringup::enter_again() {
  if (!running_) return;
  retry_timer_.expires_after(retry_after_);
  retry_after_ = std::min(retry_after_ * 2, kMaxRetryAfter);
  retry_timer_.async_wait([this](const boost::system::error_code& error) {
    if (!error && running_) enter();
  });
}

void Bringup::on_entered_again(const Status& status) {
  if (!running_) return;
  if (status.is_ok()) {
    retry_after_ = kFirstRetryAfter;
    return events_.on_progress("node 0 is at " + options_.rdzv_endpoint + " again");
  }
  const bool may_try_again =
      status.is_retryable() || status.code() == Code::kTimeout || status.code() == Code::kShutDown;
  if (may_try_again) return enter_again();
  events_.on_note("nobody can come to " + running_->job_id + " any more: the rendezvous at " +
                  options_.rdzv_endpoint + " refused this node: " + status.message());
  running_.reset();
}

void Bringup::on_entered(Result<JobLayout> outcome) {
  if (is_over_) return;
  if (outcome.is_ok()) {
    retry_after_ = kFirstRetryAfter;
    const JobLayout& job = layout_.emplace(std::move(outcome).value());
    if (options_.elastic && options_.node_rank != 0 && !options_.rdzv_auth.is_none()) {
      running_ = JobIdentity{job.job_id, job.token, job.master_addr, job.master_port,
                             job.has_certificates};
    }
    if (!awaits_certificate_) return conclude();
    const Status prepared = prepare_certificates();
    return prepared.is_ok() ? certify(0) : fail("its certificates: " + prepared.message());
  }
  last_rendezvous_error_ = outcome.status().message();
  last_missing_.clear();
  if (outcome.status().code() == Code::kTimeout) return;
  if (outcome.status().code() == Code::kShutDown) {
    return fail("node 0 has given the job up: " + last_rendezvous_error_);
  }
  if (!outcome.status().is_retryable()) {
    return fail("the rendezvous at " + options_.rdzv_endpoint +
                " refused this node: " + last_rendezvous_error_);
  }
  retry_timer_.expires_after(retry_after_);
  retry_after_ = std::min(retry_after_ * 2, kMaxRetryAfter);
  retry_timer_.async_wait([this](const boost::system::error_code& error) {
    if (!error && !is_over_) enter();
  });
}

void Bringup::conclude() {
  is_over_ = true;
  events_.on_ready(*layout_);
}

std::string Bringup::missing_text(const std::string& missing) const {
  return "node rank " + missing + " of " + std::to_string(options_.nnodes) + " did not come to " +
         options_.rdzv_endpoint + " within " + seconds_text(options_.start_timeout_ms) +
         ": run the same command there with its --node-rank";
}

void Bringup::give_up(const std::string& why) {
  if (rendezvous_server_ && !is_over_) rendezvous_server_->give_up(why);
}

std::string Bringup::overdue_text() const {
  const std::string within = " within " + seconds_text(options_.start_timeout_ms);
  // Daemons that await their certificates serve after the meeting.
  const bool is_meeting = !launcher_.empty() && !layout_;
  for (size_t i = 0; i < is_daemon_ready_.size(); ++i) {
    if (!is_daemon_ready_[i] && !is_meeting) {
      return "the daemon of " + local_nodes_[i].node_id + " did not serve" + within +
             ": --log-level debug says what it does, --start-timeout gives it more time";
    }
  }
  if (is_over_) {
    return "the daemons did not accept the job" + within + ": --start-timeout gives them more time";
  }
  if (rendezvous_server_) {
    const std::string refusal = rendezvous_server_->last_refusal();
    return missing_text(rendezvous_server_->missing()) +
           (refusal.empty() ? "" : "; refused was one because " + refusal);
  }
  if (!last_missing_.empty()) return missing_text(last_missing_);
  return "the nodes did not meet at " + options_.rdzv_endpoint + within +
         (last_rendezvous_error_.empty() ? "" : " (" + last_rendezvous_error_ + ")") +
         ": is the same command running with --node-rank 0, and does its port answer?";
}

void Bringup::signal_daemons(int signal) {
  for (const auto& daemon : daemons_) daemon->send_signal(signal);
}

bool Bringup::has_running_daemons() const {
  return std::any_of(daemons_.begin(), daemons_.end(),
                     [](const auto& daemon) { return daemon->is_running(); });
}

void Bringup::resume_output() {
  for (const auto& daemon : daemons_) daemon->resume_output();
}

}  // namespace rueda::agent
