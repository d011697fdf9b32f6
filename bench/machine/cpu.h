// Measures who used how much CPU time and memory: this process, the daemons, and the whole machine.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <sys/types.h>

namespace rueda::bench {

// Returns the user and system seconds of this process with all its threads.
double process_cpu_s();
// Returns the user and system seconds of another process, at the clock's full resolution, or
// nullopt if it is gone.
std::optional<double> process_cpu_s(pid_t pid);
// Returns the resident memory that a process shares with nobody, in bytes, or nullopt if it is
// gone.
std::optional<uint64_t> private_memory_bytes(pid_t pid);
// Returns the CPU-seconds since boot in which this machine's CPUs were not idle (stolen time counts
// as busy).
double machine_busy_s();
// Returns a number that differs between machines, and between boots of one.
uint64_t host_id();

// Parses a list of pids, such as "12,345". Everything that is no positive number is left out.
std::vector<pid_t> parse_pids(std::string_view text);
// Returns the pid of the process that listens on a unix socket ("@name" is abstract), if its name
// is ruedad.
std::optional<pid_t> daemon_behind_socket(const std::string& socket_path);
// Returns the daemons that this process knows of: those of $RUEDA_DAEMON_PIDS (set by a launcher
// that started them), or else the one behind $RUEDA_SOCKET. The list is empty if neither tells.
std::vector<pid_t> known_daemons();

}  // namespace rueda::bench
