// The exported symbol of librueda_cuda.so (daemon/gpu/plugin.h).
#include "daemon/gpu/plugin.h"

#include "daemon/gpu/cuda/cuda_device.h"

extern "C" __attribute__((visibility("default"))) const rueda::gpu::PluginTable*
rueda_gpu_plugin() {
  static constexpr rueda::gpu::PluginTable kTable{
      .version = rueda::gpu::kPluginVersion,
      .release = RUEDA_VERSION,
      .list = &rueda::gpu::cuda::list_devices,
      .open = &rueda::gpu::cuda::CudaDevice::open,
  };
  return &kTable;
}
