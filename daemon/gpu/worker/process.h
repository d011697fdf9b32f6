// A GPU worker as a process: `ruedad --gpu-worker FD`.
#pragma once

#include <string>

#include "daemon/base/fd.h"
#include "daemon/gpu/worker/worker.h"

namespace rueda::gpu {

// Opens devices of the plugin (load_plugin()), which it loads then.
OpenDevice devices_of_plugin(std::string plugin);

// Works until the daemon closes the socket, or the device is lost. The exit code: 0 or 1. It ends
// with the thread that started it, too. The caller ends the process without destructors: a device
// that hangs would have them wait.
int run_worker(UniqueFd socket, OpenDevice open);

}  // namespace rueda::gpu
