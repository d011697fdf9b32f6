// A plugin of another version.
#include "daemon/gpu/plugin.h"

extern "C" __attribute__((visibility("default"))) const rueda::gpu::PluginTable*
rueda_gpu_plugin() {
  static constexpr rueda::gpu::PluginTable kTable{rueda::gpu::kPluginVersion + 1, RUEDA_VERSION};
  return &kTable;
}
