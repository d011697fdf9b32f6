#include "agent/process/guardian.h"

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <sstream>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/base/text.h"
#include "agent/process/leftovers.h"
#include "daemon/base/clock.h"

namespace rueda::agent {
namespace {

// The guardian is started at most this many times: somebody who kills it again and again means it.
constexpr int kMaxStarts = 4;
constexpr size_t kMaxOrderBytes = 256;
constexpr int kEndTakesMs = 2000;

// Holds what the guardian knows of the launcher's job, from the lines that the launcher has sent.
struct Orders {
  std::string launch;
  int64_t grace_ms = 0;
  pid_t launcher = 0;
  std::set<pid_t> groups;
  std::map<pid_t, UniqueFd> daemons;
  bool has_ended = false;

  void take(const std::string& line) {
    std::istringstream words(line);
    std::string what;
    words >> what;
    pid_t pid = 0;
    if (what == "launch") {
      words >> launch;
    } else if (what == "grace") {
      words >> grace_ms;
    } else if (what == "launcher") {
      words >> launcher;
    } else if (what == "group" && words >> pid && pid > 1) {
      groups.insert(pid);
    } else if (what == "daemon" && words >> pid && pid > 1) {
      daemons[pid] = UniqueFd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
    } else if (what == "forget" && words >> pid) {
      daemons.erase(pid);
    } else if (what == "end") {
      has_ended = true;
    }
  }
};

// Reads orders until the launcher has closed its end of the pipe, which it does at the latest when
// it ends.
Orders read_orders() {
  Orders orders;
  std::string text;
  char buffer[4096];
  for (;;) {
    const ssize_t got = ::read(STDIN_FILENO, buffer, sizeof(buffer));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return orders;
    text.append(buffer, static_cast<size_t>(got));
    for (size_t end = text.find('\n'); end != std::string::npos; end = text.find('\n')) {
      orders.take(text.substr(0, end));
      text.erase(0, end + 1);
    }
    if (text.size() > kMaxOrderBytes) return {};
  }
}

// Kills the daemons that are left. Private daemons end with their launcher by themselves; a daemon
// that hangs does not.
int kill_daemons(const Orders& orders) {
  const int64_t until_ms = steady_now_ms() + orders.grace_ms;
  int killed = 0;
  for (const auto& [pid, pidfd] : orders.daemons) {
    if (pidfd.get() < 0) continue;
    pollfd ended{.fd = pidfd.get(), .events = POLLIN, .revents = 0};
    const int64_t left_ms = std::max<int64_t>(until_ms - steady_now_ms(), 0);
    if (TEMP_FAILURE_RETRY(::poll(&ended, 1, static_cast<int>(left_ms))) == 1) continue;
    if (::syscall(SYS_pidfd_send_signal, pidfd.get(), SIGKILL, nullptr, 0) == 0) ++killed;
  }
  return killed;
}

// Prints a line on standard error, which belongs to the launcher: somebody who does not read it
// must not keep this process.
void tell(const std::string& line) {
  pollfd writable{.fd = STDERR_FILENO, .events = POLLOUT, .revents = 0};
  if (::poll(&writable, 1, 0) == 1 && (writable.revents & POLLOUT) != 0) {
    (void)!::write(STDERR_FILENO, line.data(), line.size());
  }
}

}  // namespace

Guardian::Guardian(boost::asio::io_context& loop, int64_t grace_ms,
                   std::function<void(const std::string&)> say)
    : loop_(loop), grace_ms_(grace_ms), say_(std::move(say)), exit_watch_(loop) {
  const Result<std::string> random = random_bytes(16);
  if (random.is_ok()) launch_ = to_hex(random.value());
}

Guardian::~Guardian() {
  if (child_.pid <= 0) return;
  send("end\n");
  orders_.reset();
  pollfd ended{.fd = child_.pidfd.get(), .events = POLLIN, .revents = 0};
  // A guardian that is stopped cannot see the end of its orders, so it is killed.
  if (TEMP_FAILURE_RETRY(::poll(&ended, 1, kEndTakesMs)) != 1) ::kill(child_.pid, SIGKILL);
  ::waitpid(child_.pid, nullptr, 0);
}

void Guardian::start() { spawn_process(); }

void Guardian::spawn_process() {
  Result<Pipe> pipe = make_pipe();
  Result<Child> child = Status(Code::kInternal, "");
  if (pipe.is_ok()) {
    orders_ = std::move(pipe.value().write_end);
    ::fcntl(orders_.get(), F_SETFL, ::fcntl(orders_.get(), F_GETFL) | O_NONBLOCK);
    // The orders are sent before the guardian starts, because this launcher may be killed in that
    // very moment.
    send(all_orders());
    SpawnRequest request;
    request.program = "/proc/self/exe";
    // The guardian has another name than the launcher, so that a command that kills launchers by
    // name does not kill both.
    request.argv = {"rueda-guardian", "--guardian"};
    // The variable is cleared because this launcher may run inside of another job, whose guardian
    // would take this guardian for a leftover.
    request.environment = {{kLaunchVariable, ""}};
    request.stdin_fd = pipe.value().read_end.get();
    request.stderr_fd = STDERR_FILENO;
    request.has_own_session = true;
    child = spawn(request);
  }
  if (!pipe.is_ok() || !child.is_ok()) {
    const Status why = pipe.is_ok() ? child.status() : pipe.status();
    orders_.reset();
    return say_("no guardian runs (" + why.message() +
                "): if this launcher is killed, what its ranks have started may be left");
  }
  ++starts_;
  child_ = std::move(child).value();
  exit_watch_.start(UniqueFd(::fcntl(child_.pidfd.get(), F_DUPFD_CLOEXEC, 3)),
                    [this] { on_exited(); });
}

std::string Guardian::all_orders() const {
  std::string orders = "launch " + launch_ + "\ngrace " + std::to_string(grace_ms_) +
                       "\nlauncher " + std::to_string(::getpid()) + "\n";
  for (const pid_t group : groups_) orders += "group " + std::to_string(group) + "\n";
  for (const pid_t pid : daemons_) orders += "daemon " + std::to_string(pid) + "\n";
  return orders;
}

void Guardian::on_exited() {
  exit_watch_.close();
  reap(child_);
  child_ = {};
  orders_.reset();
  if (starts_ < kMaxStarts) return spawn_process();
  say_("the guardian was ended " + std::to_string(starts_) +
       " times and is not started again: if this launcher is killed, what its ranks have started "
       "may be left");
}

// Sends an order. A guardian that takes nothing is stopped; a new one is then started and told
// everything.
void Guardian::send(const std::string& order) {
  if (orders_.get() < 0) return;
  const ssize_t written = ::write(orders_.get(), order.data(), order.size());
  if (written != static_cast<ssize_t>(order.size()) && child_.pid > 0) ::kill(child_.pid, SIGKILL);
}

void Guardian::add_group(pid_t group) {
  groups_.insert(group);
  send("group " + std::to_string(group) + "\n");
}

void Guardian::add_daemon(pid_t pid) {
  daemons_.insert(pid);
  send("daemon " + std::to_string(pid) + "\n");
}

void Guardian::forget_daemon(pid_t pid) {
  daemons_.erase(pid);
  send("forget " + std::to_string(pid) + "\n");
}

int run_guardian() {
  ::prctl(PR_SET_NAME, "rueda-guardian");
  // The guardian ends with the launcher, whatever signals are sent to all of the job.
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGPIPE, SIGTSTP}) {
    ::signal(signal, SIG_IGN);
  }
  const Orders orders = read_orders();
  if (orders.has_ended) return 0;
  const int ranks = kill_leftovers(orders.groups, orders.launch);
  const int daemons = kill_daemons(orders);
  if (ranks + daemons > 0) {
    tell("ruedarun: the launcher (pid " + std::to_string(orders.launcher) +
         ") was killed; killed what it left: " + std::to_string(ranks) +
         " processes of its ranks, " + std::to_string(daemons) + " daemons\n");
  }
  return 0;
}

}  // namespace rueda::agent
