// Starts child processes, which cannot outlive this one and are known by a pidfd.
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
// Makes a pipe, both of whose ends close on exec.
Result<Pipe> make_pipe();

// Says how a process ended.
struct ExitStatus {
  int status = 0;  // argument of exit(); meaningless if a signal killed the process
  int signal = 0;  // the signal that killed it; 0: it exited by itself

  bool is_success() const { return signal == 0 && status == 0; }
  // Returns the code that a shell would report: the status, or 128 + signal.
  int shell_code() const { return signal == 0 ? status : 128 + signal; }
  // Returns "exited with status 3", "was killed by signal 9 (Killed)" or the like.
  std::string to_string() const;

  bool operator==(const ExitStatus&) const = default;
};

struct SpawnRequest {
  // argv[0] is looked up on PATH, unless `program` names the file.
  std::vector<std::string> argv;
  std::string program;
  // Variables that are added to this process's environment, or replace variables of the same names.
  std::vector<std::pair<std::string, std::string>> environment;
  // The child's standard streams; -1 means /dev/null.
  int stdin_fd = -1;
  int stdout_fd = -1;
  int stderr_fd = -1;
  // A descriptor that stays open in the child under the same number; -1 means none. All others are
  // closed.
  int inherited_fd = -1;
  // The CPUs that the child may run on. It is empty for those of this process.
  std::vector<int> cpus;
  // The signal that the kernel sends to the child when the thread that spawned it ends; 0 means
  // none.
  int parent_death_signal = 0;
  // If true, the child gets a session of its own, which no signal of a terminal or to a group
  // reaches.
  bool has_own_session = false;
  // If true, the child begins with SIGTERM, SIGINT and SIGHUP ignored, so that there is no moment
  // in which one of them ends it before it handles them.
  bool ignores_signals = false;
};

struct Child {
  pid_t pid = -1;
  // The descriptor becomes readable when the child ends.
  UniqueFd pidfd;
};

// Starts a program in a process group of its own. kNotFound means that there is no such program,
// kPermission that it may not be executed. The calling thread must live as long as the child may.
Result<Child> spawn(const SpawnRequest& request);

// Returns true if the child has begun to end. Its sockets may be closed long before peek_exit() can
// say how it ended.
bool is_ending(const Child& child);

// Returns how an ended child ended, without reaping it: its pid, and so its process group, stays
// taken.
Result<ExitStatus> peek_exit(const Child& child);
// Releases the pid of a child that has ended.
void reap(const Child& child);

// Returns an exit code for a failure of spawn(): 127 and 126 as a shell uses them, otherwise 1.
int shell_code_of_spawn_failure(const Status& status);

}  // namespace rueda::agent
