#include "daemon/gpu/worker/process.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>

#include "daemon/base/clock.h"
#include "daemon/gpu/load.h"

namespace rueda::gpu {
namespace {

constexpr int64_t kShortestPauseNs = 20'000;
constexpr int64_t kLongestPauseNs = 500'000;

std::string to_text(const std::array<uint8_t, 16>& uuid) {
  std::string text = "GPU-";
  for (size_t i = 0; i < uuid.size(); ++i) {
    char two[3];
    std::snprintf(two, sizeof two, "%02x", uuid[i]);
    text += two;
    if (i == 3 || i == 5 || i == 7 || i == 9) text += '-';
  }
  return text;
}

// Waits for a message. While work is under way the counters are also looked at, less often the
// longer nothing has happened.
void pause(const Worker& worker, int64_t quiet_ns) {
  pollfd socket{.fd = worker.fd(), .events = POLLIN, .revents = 0};
  if (!worker.is_busy()) {
    ::poll(&socket, 1, -1);
    return;
  }
  const timespec wait{.tv_sec = 0,
                      .tv_nsec = std::clamp(quiet_ns / 16, kShortestPauseNs, kLongestPauseNs)};
  ::ppoll(&socket, 1, &wait, nullptr);
}

Status refuse_exclusive(const DeviceFacts& device) {
  return {Code::kUnavailable,
          device.name + " (" + to_text(device.uuid) +
              ") is in exclusive-process mode, so that a training process and the daemon's worker "
              "cannot both have it: run MPS (nvidia-cuda-mps-control -d), or allow several "
              "processes (nvidia-smi -c DEFAULT), or hand over host memory"};
}

}  // namespace

OpenDevice devices_of_plugin(std::string plugin) {
  return
      [plugin = std::move(plugin)](const OpenBody& wanted,
                                   const AcceptDevice& accept) -> Result<std::unique_ptr<Device>> {
        const Result<const PluginTable*> table = load_plugin(plugin);
        if (!table.is_ok()) return table.status();
        const Result<std::vector<DeviceFacts>> devices = table.value()->list();
        if (!devices.is_ok()) return devices.status();
        for (const DeviceFacts& device : devices.value()) {
          if (device.uuid != wanted.uuid) continue;
          if (device.is_exclusive && !device.has_mps) return refuse_exclusive(device);
          if (Status status = accept(device); !status.is_ok()) return status;
          return table.value()->open(
              {.ordinal = device.ordinal, .memory_limit_bytes = wanted.memory_limit_bytes});
        }
        return Status(
            Code::kNotFound,
            to_text(wanted.uuid) + " is none of the " + std::to_string(devices.value().size()) +
                " GPUs that the daemon can use: if it runs in a container, give it all GPUs "
                "of its node, and no CUDA_VISIBLE_DEVICES");
      };
}

int run_worker(UniqueFd socket, OpenDevice open) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  ::prctl(PR_SET_NAME, "ruedad-gpu");
  // A signal that ends the daemon may be sent to all of its processes, but the daemon ends its jobs
  // first.
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2}) ::signal(signal, SIG_IGN);
  // Training may have set these variables for its own processes, and they are inherited: that all
  // streams share one queue, or that each launch is waited for. Here streams wait for counters, and
  // nothing may wait behind them.
  ::setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 1);
  ::unsetenv("CUDA_LAUNCH_BLOCKING");
  // The worker is never destroyed: freeing its memory would wait for streams that nobody lets go on
  // any more. The end of the process frees it.
  auto* const worker = new Worker(std::move(socket), std::move(open));
  int64_t moved_ns = steady_now_ns();
  while (worker->turn(steady_now_ms())) {
    const int64_t now_ns = steady_now_ns();
    if (worker->has_moved()) moved_ns = now_ns;
    pause(*worker, now_ns - moved_ns);
  }
  // The daemon reports the reason, too, unless it is the daemon that has gone.
  return worker->why().code() == Code::kDaemonLost ? 0 : 1;
}

}  // namespace rueda::gpu
