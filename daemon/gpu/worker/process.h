// A GPU worker as a process: `ruedad --gpu-worker FD`.
#pragma once

#include <string>

#include "daemon/base/fd.h"
#include "daemon/gpu/worker/worker.h"

namespace rueda::gpu {

// Returns a function that opens devices of the plugin, which it loads then (load_plugin()).
OpenDevice devices_of_plugin(std::string plugin);

// Works until the daemon closes the socket, or the device is lost. Returns the exit code: 0 or 1.
// The process also ends with the thread that started it. The caller must end the process without
// destructors, because a device that hangs would make them wait.
int run_worker(UniqueFd socket, OpenDevice open);

}  // namespace rueda::gpu
