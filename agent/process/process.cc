#include "agent/process/process.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <sstream>

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/base/text.h"
#include "daemon/base/os/cpus.h"

extern char** environ;

namespace rueda::agent {
namespace {

std::vector<std::string> merged_environment(const SpawnRequest& request) {
  std::vector<std::string> out;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    const std::string_view name = text.substr(0, text.find('='));
    const bool is_replaced =
        std::any_of(request.environment.begin(), request.environment.end(),
                    [&](const auto& variable) { return variable.first == name; });
    if (!is_replaced) out.emplace_back(text);
  }
  for (const auto& [name, value] : request.environment) out.push_back(name + "=" + value);
  return out;
}

std::vector<char*> pointers_to(std::vector<std::string>& strings) {
  std::vector<char*> out;
  for (std::string& text : strings) out.push_back(text.data());
  out.push_back(nullptr);
  return out;
}

struct ChildPlan {
  const char* program;
  char** argv;
  char** environment;
  int stdin_fd;
  int stdout_fd;
  int stderr_fd;
  int inherited_fd;
  const cpu_set_t* cpus;  // null: the child keeps this process's CPUs
  int death_signal;
  int error_fd;
  pid_t parent;
  bool has_own_session;
  bool ignores_signals;
};

// Runs in the child between fork and exec. The process has threads, so only async-signal-safe calls
// are allowed.
[[noreturn]] void run_child(const ChildPlan& plan) {
  const auto fail = [&] {
    const int error = errno;
    (void)!::write(plan.error_fd, &error, sizeof(error));
    ::_exit(127);
  };
  if (plan.has_own_session) {
    ::setsid();
  } else {
    ::setpgid(0, 0);
  }
  if (plan.death_signal != 0) {
    if (::prctl(PR_SET_PDEATHSIG, plan.death_signal) != 0) fail();
    // The parent may have died before the line above took hold.
    if (::getppid() != plan.parent) ::_exit(127);
  }
  if (plan.cpus != nullptr && ::sched_setaffinity(0, sizeof(*plan.cpus), plan.cpus) != 0) fail();
  struct sigaction by_default {};
  by_default.sa_handler = SIG_DFL;
  ::sigaction(SIGPIPE, &by_default, nullptr);
  if (plan.ignores_signals) {
    for (const int signal : {SIGTERM, SIGINT, SIGHUP}) ::signal(signal, SIG_IGN);
  }
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  if (::dup2(plan.stdin_fd, 0) < 0 || ::dup2(plan.stdout_fd, 1) < 0 ||
      ::dup2(plan.stderr_fd, 2) < 0) {
    fail();
  }
  // Descriptors that this process inherited without close-on-exec are not for its children either.
  // On an old kernel, which lacks the call, they stay open.
  ::close_range(3, ~0U, CLOSE_RANGE_CLOEXEC);
  if (plan.inherited_fd >= 0 && ::fcntl(plan.inherited_fd, F_SETFD, 0) != 0) fail();
  environ = plan.environment;
  ::execvp(plan.program, plan.argv);
  fail();
  __builtin_unreachable();
}

Status system_failure(const std::string& what) {
  return Status(Code::kResourceExhausted, what + " failed: " + std::strerror(errno));
}

Status exec_failure(const std::string& program, int error) {
  if (error == ENOENT || error == ENOTDIR) {
    return Status(Code::kNotFound, "there is no program \"" + program +
                                       "\": check its name, or give its path if it is not on PATH");
  }
  if (error == EACCES) {
    return Status(Code::kPermission, "\"" + program +
                                         "\" may not be executed: give it the right to be, or "
                                         "name its interpreter before it");
  }
  return Status(Code::kInvalidArgument,
                "\"" + program + "\" cannot be started: " + std::strerror(error));
}

}  // namespace

Result<Pipe> make_pipe() {
  int fds[2];
  if (::pipe2(fds, O_CLOEXEC) != 0) return system_failure("making a pipe");
  return Pipe{UniqueFd(fds[0]), UniqueFd(fds[1])};
}

std::string ExitStatus::to_string() const {
  if (signal == 0) return "exited with status " + std::to_string(status);
  const char* const name = ::sigdescr_np(signal);
  return "was killed by signal " + std::to_string(signal) + " (" +
         (name != nullptr ? name : "unknown") + ")";
}

Result<Child> spawn(const SpawnRequest& request) {
  Result<Pipe> errors = make_pipe();
  if (!errors.is_ok()) return errors.status();
  const UniqueFd null(::open("/dev/null", O_RDWR | O_CLOEXEC));
  if (null.get() < 0) return system_failure("opening /dev/null");
  std::vector<std::string> arguments = request.argv;
  std::vector<std::string> variables = merged_environment(request);
  std::vector<char*> argument_pointers = pointers_to(arguments);
  std::vector<char*> variable_pointers = pointers_to(variables);
  const cpu_set_t cpus = set_of(request.cpus);
  const ChildPlan plan{request.program.empty() ? arguments[0].c_str() : request.program.c_str(),
                       argument_pointers.data(),
                       variable_pointers.data(),
                       request.stdin_fd >= 0 ? request.stdin_fd : null.get(),
                       request.stdout_fd >= 0 ? request.stdout_fd : null.get(),
                       request.stderr_fd >= 0 ? request.stderr_fd : null.get(),
                       request.inherited_fd,
                       request.cpus.empty() ? nullptr : &cpus,
                       request.parent_death_signal,
                       errors.value().write_end.get(),
                       ::getpid(),
                       request.has_own_session,
                       request.ignores_signals};
  const pid_t pid = ::fork();
  if (pid < 0) return system_failure("starting \"" + request.argv[0] + "\"");
  if (pid == 0) run_child(plan);

  Child child;
  child.pid = pid;
  // The child does the same itself; it is done here too, so that a signal to the group cannot come
  // too early.
  if (!request.has_own_session) ::setpgid(pid, pid);
  // glibc 2.36 declares pidfd_open() without C linkage.
  child.pidfd = UniqueFd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  const int pidfd_error = errno;
  errors.value().write_end.reset();
  int error = 0;
  ssize_t got = 0;
  do {
    got = ::read(errors.value().read_end.get(), &error, sizeof(error));
  } while (got < 0 && errno == EINTR);
  if (got == static_cast<ssize_t>(sizeof(error))) {
    ::waitpid(pid, nullptr, 0);
    return exec_failure(request.argv[0], error);
  }
  if (child.pidfd.get() < 0) {
    ::kill(pid, SIGKILL);
    ::waitpid(pid, nullptr, 0);
    errno = pidfd_error;
    return system_failure("watching \"" + request.argv[0] + "\" by a pidfd");
  }
  return child;
}

bool is_ending(const Child& child) {
  constexpr unsigned long kExiting = 0x4;  // PF_EXITING of the kernel
  const std::string line = contents_of("/proc/" + std::to_string(child.pid) + "/stat");
  // The line is (proc(5)): the name, which may hold anything, in brackets; then the state, five
  // numbers, and the flags.
  const size_t name_end = line.rfind(')');
  if (name_end == std::string::npos) return false;
  std::istringstream fields(line.substr(name_end + 1));
  std::string skipped;
  for (int i = 0; i < 6; ++i) fields >> skipped;
  unsigned long flags = 0;
  fields >> flags;
  return (flags & kExiting) != 0;
}

Result<ExitStatus> peek_exit(const Child& child) {
  siginfo_t info{};
  if (::waitid(P_PIDFD, static_cast<id_t>(child.pidfd.get()), &info, WEXITED | WNOHANG | WNOWAIT) !=
      0) {
    return system_failure("waiting for process " + std::to_string(child.pid));
  }
  if (info.si_pid == 0) {
    return Status(Code::kUnavailable,
                  "process " + std::to_string(child.pid) + " has not ended yet");
  }
  ExitStatus out;
  (info.si_code == CLD_EXITED ? out.status : out.signal) = info.si_status;
  return out;
}

void reap(const Child& child) { ::waitpid(child.pid, nullptr, WNOHANG); }

int shell_code_of_spawn_failure(const Status& status) {
  if (status.code() == Code::kNotFound) return 127;
  if (status.code() == Code::kPermission) return 126;
  return 1;
}

}  // namespace rueda::agent
