// Child processes: started so that they cannot outlive this one, known by a pidfd.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include <sys/types.h>

#include "daemon/base/fd.h"
#include "daemon/base/status.h"

namespace rueda::agent {

struct Pipe {
  UniqueFd read_end;
  UniqueFd write_end;
};
// Both ends close on exec.
Result<Pipe> make_pipe();

// How a process ended.
struct ExitStatus {
  int status = 0;  // of exit(); meaningless if a signal killed it
  int signal = 0;  // 0: it exited by itself

  bool is_success() const { return signal == 0 && status == 0; }
  // What a shell would report: the status, or 128 + signal.
  int shell_code() const { return signal == 0 ? status : 128 + signal; }
  // "exited with status 3" or "was killed by signal 9 (Killed)".
  std::string to_string() const;

  bool operator==(const ExitStatus&) const = default;
};

struct SpawnRequest {
  // argv[0] is looked up on PATH, unless `program` is the file.
  std::vector<std::string> argv;
  std::string program;
  // Added to this process's environment; same names replaced.
  std::vector<std::pair<std::string, std::string>> environment;
  // What the child gets as its standard streams; -1: /dev/null.
  int stdin_fd = -1;
  int stdout_fd = -1;
  int stderr_fd = -1;
  // Stays open in the child under the same number; -1: none. Everything else is closed.
  int inherited_fd = -1;
  // That it may run on; empty: those of this process.
  std::vector<int> cpus;
  // Sent by the kernel to the child when the thread that spawned it ends.
  int parent_death_signal = 0;
  // A session of its own, too: no signal of a terminal or to a group reaches it.
  bool has_own_session = false;
};

struct Child {
  pid_t pid = -1;
  // Becomes readable when the child ends.
  UniqueFd pidfd;
};

// Starts a program in a process group of its own. kNotFound: there is no such program;
// kPermission: it may not be executed. The calling thread must live as long as the child may.
Result<Child> spawn(const SpawnRequest& request);

// Whether the child has begun to end. Its sockets may be closed long before peek_exit() can say how
// it ended.
bool is_ending(const Child& child);

// How an ended child ended, without reaping it: its pid, and so its process group, stays taken.
Result<ExitStatus> peek_exit(const Child& child);
// Releases the pid of a child that has ended.
void reap(const Child& child);

// An exit code for a Status of spawn(): 127 and 126 as a shell has them, else 1.
int shell_code_of_spawn_failure(const Status& status);

}  // namespace rueda::agent
