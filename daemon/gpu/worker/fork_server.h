// Starts GPU workers for a daemon that may start no program itself: its sandbox lets it neither
// fork nor execute (docs/decisions/0084-the-daemons-sandbox.md).
//
// The fork server is a child of the daemon, forked before the sandbox is entered and before there
// are threads. It runs one command line, which was fixed then, however often it is asked; it ends
// with the daemon, and its workers with it. What a driver needs of the system is more than the
// sandbox gives, so neither it nor the workers are in it.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <sys/types.h>

#include "daemon/base/fd.h"
#include "daemon/base/status.h"

namespace rueda::gpu {

// The daemon's end. Its methods wait for the answer of the fork server, for five seconds at most;
// when none comes the fork server is given up, and each call fails. It belongs to one thread.
class ForkServer {
 public:
  struct Process {
    pid_t pid = -1;
    UniqueFd pidfd;  // It is readable once the process has ended.
  };

  // Forks the fork server for `command`, a program's path and its arguments. The calling process
  // must have no other threads.
  static Result<std::unique_ptr<ForkServer>> start(std::vector<std::string> command);
  // The fork server ends by itself when it sees its socket closed. Nobody waits for it, because
  // this is the end of the daemon, too, and its sandbox would not let it.
  ~ForkServer() = default;
  ForkServer(const ForkServer&) = delete;
  ForkServer& operator=(const ForkServer&) = delete;

  // Starts the command, with one more argument: the number of the descriptor at which the program
  // finds a duplicate of `socket`. The error is kResourceExhausted if there is no room for a
  // process, kInternal if the program cannot be run, and kUnavailable if the fork server has gone.
  Result<Process> spawn(int socket);
  // Sends SIGKILL to a process that spawn() returned and reap() has not taken yet.
  void kill(pid_t pid);
  // Takes a process that has ended, and returns its status in the form of waitpid(); nullopt if it
  // has not ended, or is not known.
  std::optional<int> reap(pid_t pid);
  pid_t pid() const { return pid_; }

 private:
  enum class Request : int;
  struct Question;
  struct Answer;
  struct Served;

  ForkServer(pid_t pid, UniqueFd socket, std::string program)
      : pid_(pid), socket_(std::move(socket)), program_(std::move(program)) {}
  // Asks, and hands `passed` over unless it is -1. Returns nullopt if no answer comes.
  std::optional<Served> ask(const Question& question, int passed = -1);
  [[noreturn]] static void serve(UniqueFd socket, std::vector<std::string> command);
  static Served carry_out(const Question& question, UniqueFd passed,
                          const std::vector<std::string>& command);

  const pid_t pid_;
  UniqueFd socket_;  // It is closed once the fork server has been given up.
  const std::string program_;
};

}  // namespace rueda::gpu
