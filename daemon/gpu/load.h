// Loads the GPU plugin at run time, so that programs need neither the plugin nor a driver.
#pragma once

#include <string>

#include "daemon/base/status.h"
#include "daemon/gpu/plugin.h"

namespace rueda::gpu {

// Returns the plugin's table. With an empty path the plugin is looked for beside the program
// (../lib), then where the system looks. It stays loaded to the end of the process: a CUDA runtime
// does not survive unloading.
//
// kNotFound means that there is no such file, kVersion that it is of another build, kUnavailable
// that it cannot be loaded. Loading needs no driver; table.list() says whether there is one.
// Thread-safe.
Result<const PluginTable*> load_plugin(const std::string& path = {});

}  // namespace rueda::gpu
