#include "agent/process/rank_process.h"

#include <utility>

#include <fcntl.h>
#include <poll.h>
#include <signal.h>

namespace rueda::agent {
namespace {

// The end of a process is waited for at most this long, from when the process begins to end.
constexpr int kEndTakesMs = 2000;

}  // namespace

RankProcess::RankProcess(boost::asio::io_context& loop, Rank rank, Events events)
    : loop_(loop), rank_(rank), events_(std::move(events)), exit_watch_(loop) {}

RankProcess::~RankProcess() {
  if (child_.pid <= 0) return;
  send_signal(SIGKILL);
  reap(child_);
}

Status RankProcess::start(const std::vector<std::string>& command, const Environment& environment,
                          int inherited_fd, const std::vector<int>& cpus, bool has_prefix,
                          OutputSink& out, OutputSink& err) {
  Result<Pipe> out_pipe = make_pipe();
  Result<Pipe> err_pipe = make_pipe();
  if (!out_pipe.is_ok()) return out_pipe.status();
  if (!err_pipe.is_ok()) return err_pipe.status();
  SpawnRequest request;
  request.argv = command;
  request.environment = environment;
  request.stdout_fd = out_pipe.value().write_end.get();
  request.stderr_fd = err_pipe.value().write_end.get();
  request.inherited_fd = inherited_fd;
  request.cpus = cpus;
  request.parent_death_signal = SIGKILL;
  Result<Child> child = spawn(request);
  if (!child.is_ok()) return child.status();
  child_ = std::move(child).value();
  const std::string prefix = has_prefix ? "[" + std::to_string(rank_.value) + "] " : "";
  const auto on_end = [this] {
    if (is_output_ended()) events_.on_output_end();
  };
  out_ = std::make_unique<OutputPipe>(loop_, std::move(out_pipe.value().read_end), prefix, out,
                                      on_end);
  err_ = std::make_unique<OutputPipe>(loop_, std::move(err_pipe.value().read_end), prefix, err,
                                      on_end);
  out_->start();
  err_->start();
  exit_watch_.start(UniqueFd(::fcntl(child_.pidfd.get(), F_DUPFD_CLOEXEC, 3)), [this] {
    const Result<ExitStatus> status = peek_exit(child_);
    on_exited(status.is_ok() ? status.value() : ExitStatus{1, 0});
  });
  return Status::ok();
}

void RankProcess::look_if_killed() {
  if (!exit_watch_.is_open()) return;  // the end has been reported already
  if (is_ending(child_)) {
    pollfd ended{.fd = child_.pidfd.get(), .events = POLLIN, .revents = 0};
    (void)TEMP_FAILURE_RETRY(::poll(&ended, 1, kEndTakesMs));
  }
  const Result<ExitStatus> status = peek_exit(child_);
  if (status.is_ok() && status.value().signal != 0) on_exited(status.value());
}

void RankProcess::on_exited(ExitStatus status) {
  exit_watch_.close();
  // The rank's last output is passed on before its end is reported.
  out_->catch_up();
  err_->catch_up();
  events_.on_exit(status);
}

void RankProcess::send_signal(int signal) {
  if (child_.pid > 0) ::kill(-child_.pid, signal);
}

void RankProcess::resume_output() {
  out_->resume();
  err_->resume();
}

bool RankProcess::is_output_ended() const { return out_->is_ended() && err_->is_ended(); }

void RankProcess::finish_output() {
  out_->finish();
  err_->finish();
}

}  // namespace rueda::agent
