// A plugin whose one device is a fake one.
#include "daemon/gpu/fake/fake_device.h"
#include "daemon/gpu/plugin.h"

namespace {

rueda::gpu::fake::FakeGpu& gpu() {
  static rueda::gpu::fake::FakeGpu the_gpu;
  static rueda::gpu::fake::FakeRunner runner(the_gpu);
  return the_gpu;
}

rueda::Result<std::vector<rueda::gpu::DeviceFacts>> list() {
  return std::vector{rueda::gpu::fake::FakeDevice(gpu()).facts()};
}

rueda::Result<std::unique_ptr<rueda::gpu::Device>> open(const rueda::gpu::DeviceOptions& options) {
  return std::unique_ptr<rueda::gpu::Device>(
      std::make_unique<rueda::gpu::fake::FakeDevice>(gpu(), options));
}

}  // namespace

extern "C" __attribute__((visibility("default"))) const rueda::gpu::PluginTable*
rueda_gpu_plugin() {
  static constexpr rueda::gpu::PluginTable kTable{rueda::gpu::kPluginVersion, RUEDA_VERSION, &list,
                                                  &open};
  return &kTable;
}
