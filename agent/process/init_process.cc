#include "agent/process/init_process.h"

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

namespace rueda::agent {
namespace {

[[noreturn]] void serve_as_init(pid_t child, const sigset_t& all) {
  for (;;) {
    int signal = 0;
    if (::sigwait(&all, &signal) != 0) continue;
    if (signal != SIGCHLD) {
      ::kill(child, signal);
      continue;
    }
    int status = 0;
    for (pid_t ended = 0; (ended = ::waitpid(-1, &status, WNOHANG)) > 0;) {
      if (ended != child) continue;
      ::_exit(WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
    }
  }
}

}  // namespace

void be_init_if_first() {
  if (::getpid() != 1) return;
  sigset_t all;
  sigset_t before;
  ::sigfillset(&all);
  // Signals of faults that this process makes itself are not passed on to the child.
  for (const int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP, SIGSYS}) {
    ::sigdelset(&all, signal);
  }
  ::sigprocmask(SIG_SETMASK, &all, &before);
  const pid_t child = ::fork();
  if (child > 0) serve_as_init(child, all);
  if (child < 0) {
    std::fprintf(stderr,
                 "ruedarun: as process 1 it cannot fork (%s), so orphans stay zombies; raise the "
                 "limit of processes\n",
                 std::strerror(errno));
  } else {
    // The child gets a group of its own, because a terminal's signals would reach it twice
    // otherwise.
    ::setpgid(0, 0);
    if (::isatty(STDIN_FILENO) != 0) ::tcsetpgrp(STDIN_FILENO, ::getpid());  // SIGTTOU is blocked
  }
  ::sigprocmask(SIG_SETMASK, &before, nullptr);
}

}  // namespace rueda::agent
