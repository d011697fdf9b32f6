#include "agent/process/daemon_process.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <utility>

#include <boost/asio/buffer.hpp>
#include <fcntl.h>
#include <nlohmann/json.hpp>
#include <signal.h>
#include <unistd.h>

namespace rueda::agent {
namespace {

constexpr size_t kMaxReadyBytes = 4096;

Result<std::string> field_of(const nlohmann::json& json, const std::string& name) {
  if (json.is_object() && json.contains(name) && json[name].is_string()) {
    return json[name].get<std::string>();
  }
  return Status(Code::kVersion, "its ready line has no \"" + name +
                                    "\": is --ruedad another program, or of another version?");
}

}  // namespace

Result<DaemonReady> parse_ready_line(const std::string& line) {
  const auto json = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
  DaemonReady out;
  const std::pair<const char*, std::string*> fields[] = {{"node_id", &out.node_id},
                                                         {"control", &out.control_address},
                                                         {"data", &out.data_address},
                                                         {"http", &out.http_address},
                                                         {"socket", &out.socket}};
  for (const auto& [name, value] : fields) {
    Result<std::string> found = field_of(json, name);
    if (!found.is_ok()) return found.status();
    *value = std::move(found).value();
  }
  return out;
}

Result<std::string> parse_control_line(const std::string& line) {
  return field_of(nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false), "control");
}

Result<std::string> find_ruedad(const std::string& wanted) {
  const auto is_program = [](const std::filesystem::path& path) {
    std::error_code error;
    return std::filesystem::is_regular_file(path, error) && ::access(path.c_str(), X_OK) == 0;
  };
  if (!wanted.empty()) {
    if (is_program(wanted)) return wanted;
    return Status(Code::kNotFound, "--ruedad " + wanted + " is not a program");
  }
  std::error_code error;
  const auto self = std::filesystem::read_symlink("/proc/self/exe", error);
  const auto neighbour = self.parent_path() / "ruedad";
  if (!error && is_program(neighbour)) return neighbour.string();
  const char* const path = std::getenv("PATH");
  std::string rest = path != nullptr ? path : "";
  while (!rest.empty()) {
    const size_t colon = std::min(rest.find(':'), rest.size());
    const auto candidate = std::filesystem::path(rest.substr(0, colon)) / "ruedad";
    if (is_program(candidate)) return candidate.string();
    rest.erase(0, colon + 1);
  }
  return Status(Code::kNotFound,
                "there is no ruedad next to ruedarun or on PATH: name it with --ruedad");
}

bool has_flag(const std::vector<std::string>& arguments, const std::string& flag) {
  return std::any_of(arguments.begin(), arguments.end(), [&](const std::string& argument) {
    return argument == flag || argument.starts_with(flag + '=');
  });
}

std::vector<std::string> daemon_argv(const DaemonRequest& request, int ready_fd) {
  // clang-format off
  std::vector<std::string> out{request.program, "--private",
                               "--node-id", request.node_id,
                               "--socket", request.socket,
                               "--listen-host", request.listen_host,
                               "--control-port", std::to_string(request.control_port),
                               "--data-port", "0",
                               "--http-port", std::to_string(request.http_port),
                               "--ready-fd", std::to_string(ready_fd),
                               "--leash-fd", "0",
                               "--log-level", request.log_level};
  // clang-format on
  if (request.awaits_certificate) {
    out.insert(out.end(), {"--tls-fd", "0"});
  } else if (request.listen_host != "127.0.0.1" && !has_flag(request.extra_args, "--insecure")) {
    out.emplace_back("--insecure");
  }
  if (!request.cpus.empty()) out.insert(out.end(), {"--cpus", request.cpus});
  out.insert(out.end(), request.extra_args.begin(), request.extra_args.end());
  return out;
}

PrivateDaemon::PrivateDaemon(boost::asio::io_context& loop, DaemonRequest request, Events events)
    : loop_(loop),
      request_(std::move(request)),
      events_(std::move(events)),
      exit_watch_(loop),
      ready_pipe_(loop) {}

PrivateDaemon::~PrivateDaemon() {
  if (is_running_) send_signal(SIGKILL);
}

Status PrivateDaemon::start(OutputSink& sink) {
  Result<Pipe> output = make_pipe();
  Result<Pipe> ready = make_pipe();
  Result<Pipe> leash = make_pipe();
  if (!leash.is_ok()) return leash.status();
  if (!output.is_ok()) return output.status();
  if (!ready.is_ok()) return ready.status();
  SpawnRequest spawn_request;
  spawn_request.inherited_fd = ready.value().write_end.get();
  spawn_request.argv = daemon_argv(request_, spawn_request.inherited_fd);
  if (request_.is_virtual) spawn_request.environment = {{"NCCL_HOSTID", request_.node_id}};
  spawn_request.stdout_fd = output.value().write_end.get();
  spawn_request.stderr_fd = output.value().write_end.get();
  // The daemon's standard input is a leash, a pipe that ends when the launcher dies; the kernel
  // sends the daemon no signal then. It is also by this pipe that the daemon is told its
  // certificate.
  spawn_request.stdin_fd = leash.value().read_end.get();
  // Batch systems send signals to all processes of a job; a daemon that has no certificate yet ends
  // with its launcher only.
  spawn_request.ignores_signals = request_.awaits_certificate;
  Result<Child> child = spawn(spawn_request);
  if (!child.is_ok()) return child.status();
  child_ = std::move(child).value();
  leash_ = std::move(leash.value().write_end);
  is_running_ = true;
  awaits_control_port_ = request_.awaits_certificate;
  output_ = std::make_unique<OutputPipe>(loop_, std::move(output.value().read_end),
                                         "[" + request_.node_id + "] ", sink, [] {});
  output_->start();
  ready_pipe_.assign(ready.value().read_end.release());
  read_ready();
  exit_watch_.start(UniqueFd(::fcntl(child_.pidfd.get(), F_DUPFD_CLOEXEC, 3)),
                    [this] { on_exited(); });
  return Status::ok();
}

void PrivateDaemon::read_ready() {
  ready_pipe_.async_read_some(boost::asio::buffer(ready_buffer_),
                              [this](const boost::system::error_code& error, size_t count_bytes) {
                                if (error == boost::asio::error::operation_aborted) return;
                                on_ready_bytes(count_bytes, static_cast<bool>(error));
                              });
}

void PrivateDaemon::on_ready_bytes(size_t count_bytes, bool is_end) {
  if (has_reported_) {
    if (is_end) {
      boost::system::error_code ignored;
      ready_pipe_.close(ignored);
      return;
    }
    read_ready();
    if (events_.on_delivering) events_.on_delivering();
    return;
  }
  ready_line_.append(ready_buffer_, count_bytes);
  const size_t newline = ready_line_.find('\n');
  if (newline != std::string::npos) {
    const std::string line = ready_line_.substr(0, newline);
    ready_line_.erase(0, newline + 1);
    read_ready();
    on_line(line);
  } else if (is_end) {
    // The daemon has ended, or is about to; on_exited() can say how.
    boost::system::error_code ignored;
    ready_pipe_.close(ignored);
  } else if (ready_line_.size() > kMaxReadyBytes) {
    be_ready(Status(Code::kVersion, "its ready line does not end"));
  } else {
    read_ready();
  }
}

void PrivateDaemon::on_line(const std::string& line) {
  if (!std::exchange(awaits_control_port_, false)) return be_ready(parse_ready_line(line));
  const Result<std::string> address = parse_control_line(line);
  if (!address.is_ok()) return be_ready(address.status());
  events_.on_control_port(address.value());
}

void PrivateDaemon::tell_certificate(const std::string& line) {
  // A pipe takes as much as the line has, if nothing else is in it.
  for (size_t sent = 0; leash_.is_open() && sent < line.size();) {
    const ssize_t bytes = ::write(leash_.get(), line.data() + sent, line.size() - sent);
    if (bytes < 0 && errno == EINTR) continue;
    if (bytes <= 0) return;
    sent += static_cast<size_t>(bytes);
  }
}

void PrivateDaemon::be_ready(Result<DaemonReady> outcome) {
  if (has_reported_) return;
  has_reported_ = true;
  events_.on_ready(std::move(outcome));
}

void PrivateDaemon::on_exited() {
  const Result<ExitStatus> status = peek_exit(child_);
  exit_watch_.close();
  is_running_ = false;
  finish_output();
  reap(child_);
  const ExitStatus ended = status.is_ok() ? status.value() : ExitStatus{};
  be_ready(Status(Code::kDaemonLost, "it " + ended.to_string() + "; its messages are above"));
  events_.on_exit(ended);
}

void PrivateDaemon::send_signal(int signal) {
  leash_.reset();
  if (is_running_ && signal != SIGTERM) ::kill(child_.pid, signal);
}

void PrivateDaemon::resume_output() {
  if (output_) output_->resume();
}

void PrivateDaemon::finish_output() {
  if (output_) output_->finish();
}

}  // namespace rueda::agent
