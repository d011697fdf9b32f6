// Loads the GPU plugin at run time, so that programs need neither it nor a driver.
#pragma once

#include <string>

#include "daemon/base/status.h"
#include "daemon/gpu/plugin.h"

namespace rueda::gpu {

// The plugin's table. An empty path: beside the program (../lib), then where the system looks. The
// plugin stays loaded to the end of the process: a CUDA runtime does not bear to be unloaded.
//
// kNotFound: there is no such file. kVersion: it is of another build. kUnavailable: it cannot be
// loaded. Loading needs no driver; whether there is one, table.list() says. Thread-safe.
Result<const PluginTable*> load_plugin(const std::string& path = {});

}  // namespace rueda::gpu
