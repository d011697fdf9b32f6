// Who used how much CPU time and memory: this process, the daemons, and the whole machine.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <sys/types.h>

namespace rueda::bench {

// User and system seconds of this process, all its threads.
double process_cpu_s();
// The same of another process, at the clock's full resolution; nothing once it is gone.
std::optional<double> process_cpu_s(pid_t pid);
// Resident memory that a process shares with nobody, in bytes; nothing once it is gone.
std::optional<uint64_t> private_memory_bytes(pid_t pid);
// CPU-seconds since boot in which this machine's CPUs were not idle (stolen time counts as busy).
double machine_busy_s();
// Differs between machines, and between boots of one.
uint64_t host_id();

// "12,345" -> {12, 345}; what is no positive number is left out.
std::vector<pid_t> parse_pids(std::string_view text);
// The process that listens on a unix socket ("@name" is abstract), if its name is ruedad.
std::optional<pid_t> daemon_behind_socket(const std::string& socket_path);
// The daemons that this process knows of: $RUEDA_DAEMON_PIDS (set by a launcher that started them),
// else the one behind $RUEDA_SOCKET. Empty when neither tells.
std::vector<pid_t> known_daemons();

}  // namespace rueda::bench
