// A plugin of another release.
#include "daemon/gpu/plugin.h"

extern "C" __attribute__((visibility("default"))) const rueda::gpu::PluginTable*
rueda_gpu_plugin() {
  static constexpr rueda::gpu::PluginTable kTable{rueda::gpu::kPluginVersion, "0.0.0"};
  return &kTable;
}
