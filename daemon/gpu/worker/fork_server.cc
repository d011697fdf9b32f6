#include "daemon/gpu/worker/fork_server.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string_view>
#include <utility>

#include <signal.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

namespace rueda::gpu {

enum class ForkServer::Request : int { kSpawn, kKill, kReap };

struct ForkServer::Question {
  Request request = Request::kSpawn;
  pid_t pid = -1;  // Of the process to kill or to reap.
};

struct ForkServer::Answer {
  int error = 0;   // An errno; 0: it has been done.
  pid_t pid = -1;  // Of the process that has been started.
  int status = 0;  // Of the process that has been reaped.
};

// An answer, and the pidfd that comes with it.
struct ForkServer::Served {
  Answer answer;
  UniqueFd fd;
};

namespace {

constexpr char kName[] = "ruedad-fork";
// The descriptor at which a worker finds its socket.
constexpr int kWorkerFd = 3;
// An answer takes as long as the system takes to start a program, which is milliseconds. A fork
// server that is silent for longer was stopped by somebody.
constexpr timeval kPatience{.tv_sec = 5, .tv_usec = 0};

// Sends a message, with a descriptor unless it is -1. Returns false if the other end has gone.
template <class Body>
bool send_body(int socket, const Body& body, int passed) {
  iovec part{.iov_base = const_cast<Body*>(&body), .iov_len = sizeof body};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (passed >= 0) {
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    cmsghdr* const rights = CMSG_FIRSTHDR(&message);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(rights), &passed, sizeof passed);
  }
  ssize_t sent = -1;
  do {
    sent = ::sendmsg(socket, &message, MSG_NOSIGNAL);
  } while (sent < 0 && errno == EINTR);
  return sent == static_cast<ssize_t>(sizeof body);
}

// Receives a message and the descriptor that came with it. Returns false if the other end has gone,
// has said nothing for as long as the socket waits, or has sent something else.
template <class Body>
bool receive_body(int socket, Body& body, UniqueFd& passed) {
  iovec part{.iov_base = &body, .iov_len = sizeof body};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  ssize_t received = -1;
  do {
    received = ::recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
  } while (received < 0 && errno == EINTR);
  if (received > 0) {
    const cmsghdr* const rights = CMSG_FIRSTHDR(&message);
    if (rights != nullptr && rights->cmsg_level == SOL_SOCKET && rights->cmsg_type == SCM_RIGHTS) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(rights), sizeof fd);
      passed = UniqueFd(fd);
    }
  }
  return received == static_cast<ssize_t>(sizeof body);
}

// Starts the command with a duplicate of `socket` as its descriptor 3. Returns an errno.
int start_program(const std::vector<std::string>& command, int socket, pid_t& pid) {
  std::vector<std::string> words = command;
  words.push_back(std::to_string(kWorkerFd));
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t actions{};
  ::posix_spawn_file_actions_init(&actions);
  // The duplicate is not closed on exec; all else that this process has open is, but for the
  // standard streams.
  ::posix_spawn_file_actions_adddup2(&actions, socket, kWorkerFd);
  const int error = ::posix_spawn(&pid, arguments[0], &actions, nullptr, arguments.data(), environ);
  ::posix_spawn_file_actions_destroy(&actions);
  return error;
}

// Closes what was inherited from the daemon: a launcher that waits for the end of a pipe would wait
// for this process, too. The standard streams stay, for what a worker has to say.
void close_all_but(int kept) {
  if (kept > 3) ::syscall(SYS_close_range, 3u, static_cast<unsigned>(kept - 1), 0u);
  ::syscall(SYS_close_range, static_cast<unsigned>(std::max(kept + 1, 3)), ~0u, 0u);
}

// Shows this process under another name than the daemon's command line, which it has inherited: who
// looks for daemons would find two. The words of the command line lie one behind another.
void rename_process() {
  ::prctl(PR_SET_NAME, kName);
  std::ifstream file("/proc/self/cmdline");
  const std::string line{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  char* const words = program_invocation_name;
  if (line.size() <= sizeof kName || line.c_str() != std::string_view(words)) return;
  std::memset(words, 0, line.size());
  std::memcpy(words, kName, sizeof kName);
}

}  // namespace

Result<std::unique_ptr<ForkServer>> ForkServer::start(std::vector<std::string> command) {
  const auto failed = [](const char* what) {
    return Status(Code::kResourceExhausted, std::string("no process to start GPU workers with: ") +
                                                what + ": " + std::strerror(errno));
  };
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) {
    return failed("socketpair");
  }
  UniqueFd own(ends[0]);
  UniqueFd its(ends[1]);
  for (const int option : {SO_RCVTIMEO, SO_SNDTIMEO}) {
    ::setsockopt(own.get(), SOL_SOCKET, option, &kPatience, sizeof kPatience);
  }
  const std::string program = command.front();
  const pid_t daemon = ::getpid();
  const pid_t pid = ::fork();
  if (pid < 0) return failed("fork");
  if (pid == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != daemon) ::_exit(0);  // The daemon has gone before that.
    own.reset();
    serve(std::move(its), std::move(command));
  }
  return std::unique_ptr<ForkServer>(new ForkServer(pid, std::move(own), program));
}

void ForkServer::serve(UniqueFd socket, std::vector<std::string> command) {
  rename_process();
  // A signal that ends the daemon may be sent to all of its processes, but the daemon ends its jobs
  // first.
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2}) ::signal(signal, SIG_IGN);
  close_all_but(socket.get());
  for (;;) {
    Question question;
    UniqueFd passed;
    if (!receive_body(socket.get(), question, passed)) ::_exit(0);
    const Served served = carry_out(question, std::move(passed), command);
    if (!send_body(socket.get(), served.answer, served.fd.get())) ::_exit(0);
  }
}

ForkServer::Served ForkServer::carry_out(const Question& question, UniqueFd passed,
                                         const std::vector<std::string>& command) {
  Served served;
  Answer& answer = served.answer;
  switch (question.request) {
    case Request::kSpawn: {
      answer.error = start_program(command, passed.get(), answer.pid);
      if (answer.error != 0) break;
      // glibc's function cannot be used from C++.
      served.fd = UniqueFd(static_cast<int>(::syscall(SYS_pidfd_open, answer.pid, 0)));
      if (served.fd.is_open()) break;
      answer.error = errno;
      ::kill(answer.pid, SIGKILL);
      ::waitpid(answer.pid, nullptr, 0);
      break;
    }
    case Request::kKill:
      // The number is that of a child, or of a child that has ended, as long as waitid() finds it:
      // nobody else's process can be killed this way.
      siginfo_t ignored;
      if (question.pid <= 0 || ::waitid(P_PID, static_cast<id_t>(question.pid), &ignored,
                                        WEXITED | WNOHANG | WNOWAIT) != 0) {
        answer.error = ESRCH;
      } else if (::kill(question.pid, SIGKILL) != 0) {
        answer.error = errno;
      }
      break;
    case Request::kReap:
      if (question.pid <= 0 || ::waitpid(question.pid, &answer.status, WNOHANG) != question.pid) {
        answer.error = ESRCH;
      }
      break;
    default: answer.error = EINVAL;
  }
  return served;
}

std::optional<ForkServer::Served> ForkServer::ask(const Question& question, int passed) {
  Served served;
  if (socket_.is_open() && send_body(socket_.get(), question, passed) &&
      receive_body(socket_.get(), served.answer, served.fd)) {
    return served;
  }
  // An answer that came later would be taken for that to the next question.
  socket_.reset();
  return std::nullopt;
}

Result<ForkServer::Process> ForkServer::spawn(int socket) {
  std::optional<Served> served = ask({.request = Request::kSpawn}, socket);
  if (!served) {
    return Status(Code::kUnavailable, "the process that starts GPU workers (pid " +
                                          std::to_string(pid_) +
                                          ") has gone, or does not answer: start the daemon again");
  }
  const Answer& answer = served->answer;
  if (answer.error == 0) return Process{answer.pid, std::move(served->fd)};
  const bool is_shortage =
      answer.error == EAGAIN || answer.error == ENOMEM || answer.error == EMFILE;
  return Status(is_shortage ? Code::kResourceExhausted : Code::kInternal,
                program_ + " cannot be started as a GPU worker: " + std::strerror(answer.error));
}

void ForkServer::kill(pid_t pid) { ask({.request = Request::kKill, .pid = pid}); }

std::optional<int> ForkServer::reap(pid_t pid) {
  const std::optional<Served> served = ask({.request = Request::kReap, .pid = pid});
  if (!served || served->answer.error != 0) return std::nullopt;
  return served->answer.status;
}

}  // namespace rueda::gpu
