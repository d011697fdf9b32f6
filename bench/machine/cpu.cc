#include "bench/machine/cpu.h"

#include <charconv>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fstream>

#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "bench/values/check.h"

namespace rueda::bench {
namespace {

double seconds(const timespec& time) {
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

double seconds(const timeval& time) {
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
}

std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

}  // namespace

double process_cpu_s() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

std::optional<double> process_cpu_s(pid_t pid) {
  // /proc/PID/stat counts in ticks of 10 ms, too coarse for small operations.
  clockid_t clock{};
  timespec time{};
  if (clock_getcpuclockid(pid, &clock) != 0 || clock_gettime(clock, &time) != 0) {
    return std::nullopt;
  }
  return seconds(time);
}

std::optional<uint64_t> private_memory_bytes(pid_t pid) {
  constexpr std::string_view kKey = "RssAnon:";
  std::ifstream status("/proc/" + std::to_string(pid) + "/status");
  std::string word;
  uint64_t kilobytes = 0;
  while (status >> word) {
    if (word == kKey && status >> kilobytes) return kilobytes << 10;
  }
  return std::nullopt;
}

double machine_busy_s() {
  // Busy time is elapsed time less idle time: the kernel measures idle time, and merely samples the
  // rest.
  std::ifstream stat("/proc/stat");
  std::string label;
  uint64_t user = 0, nice = 0, system = 0, idle = 0, iowait = 0;
  stat >> label >> user >> nice >> system >> idle >> iowait;
  timespec now{};
  clock_gettime(CLOCK_BOOTTIME, &now);
  const auto ticks = static_cast<double>(sysconf(_SC_CLK_TCK));
  const auto cpus = static_cast<double>(sysconf(_SC_NPROCESSORS_ONLN));
  return seconds(now) * cpus - static_cast<double>(idle + iowait) / ticks;
}

uint64_t host_id() {
  const std::string boot = first_line("/proc/sys/kernel/random/boot_id");
  return hash_bytes(boot.data(), boot.size());
}

std::vector<pid_t> parse_pids(std::string_view text) {
  std::vector<pid_t> pids;
  while (!text.empty()) {
    const size_t comma = std::min(text.find(','), text.size());
    pid_t pid = 0;
    const auto [rest, error] = std::from_chars(text.data(), text.data() + comma, pid);
    if (error == std::errc() && rest == text.data() + comma && pid > 0) pids.push_back(pid);
    text.remove_prefix(std::min(comma + 1, text.size()));
  }
  return pids;
}

std::optional<pid_t> daemon_behind_socket(const std::string& socket_path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (socket_path.empty() || socket_path.size() >= sizeof(address.sun_path)) return std::nullopt;
  std::memcpy(address.sun_path, socket_path.data(), socket_path.size());
  const bool abstract = socket_path[0] == '@';
  if (abstract) address.sun_path[0] = '\0';
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + socket_path.size() +
                                             (abstract ? 0 : 1));
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return std::nullopt;
  ucred peer{};
  socklen_t peer_bytes = sizeof(peer);
  const bool known = connect(fd, reinterpret_cast<const sockaddr*>(&address), length) == 0 &&
                     getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &peer_bytes) == 0;
  close(fd);
  // systemd listens, and not the daemon, if the socket is activated.
  if (!known || first_line("/proc/" + std::to_string(peer.pid) + "/comm") != "ruedad") {
    return std::nullopt;
  }
  return peer.pid;
}

std::vector<pid_t> known_daemons() {
  if (const char* pids = std::getenv("RUEDA_DAEMON_PIDS")) return parse_pids(pids);
  const char* socket_path = std::getenv("RUEDA_SOCKET");
  const auto pid = daemon_behind_socket(socket_path ? socket_path : "/run/rueda/ruedad.sock");
  return pid ? std::vector<pid_t>{*pid} : std::vector<pid_t>{};
}

}  // namespace rueda::bench
