// A plugin whose one device is a fake one. RUEDA_FAKE_GPU is the folder of its memory, where other
// processes are to share it; RUEDA_FAKE_GPU_LOSE_AFTER: how many operations it does until it is
// lost; RUEDA_FAKE_GPU_MODE: "exclusive", "mps", or both; RUEDA_FAKE_GPU_BYTES: how much memory it
// has; RUEDA_FAKE_GPU_REFUSES: "handles", "descriptors", or both: which it does not import.
#include <cstdlib>
#include <string>

#include "daemon/gpu/fake/fake_device.h"
#include "daemon/gpu/plugin.h"

namespace {

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

rueda::gpu::fake::FakeGpu& gpu() {
  const std::string bytes = variable("RUEDA_FAKE_GPU_BYTES");
  static rueda::gpu::fake::FakeGpu the_gpu(
      {.memory_bytes = bytes.empty() ? uint64_t{4} << 30 : std::stoull(bytes),
       .folder = variable("RUEDA_FAKE_GPU"),
       .is_exclusive = variable("RUEDA_FAKE_GPU_MODE").find("exclusive") != std::string::npos,
       .has_mps = variable("RUEDA_FAKE_GPU_MODE").find("mps") != std::string::npos,
       .refuses_ipc_handles =
           variable("RUEDA_FAKE_GPU_REFUSES").find("handles") != std::string::npos,
       .refuses_descriptors =
           variable("RUEDA_FAKE_GPU_REFUSES").find("descriptors") != std::string::npos});
  static rueda::gpu::fake::FakeRunner runner(the_gpu);
  return the_gpu;
}

rueda::Result<std::vector<rueda::gpu::DeviceFacts>> list() {
  return std::vector{rueda::gpu::fake::FakeDevice(gpu()).facts()};
}

rueda::Result<std::unique_ptr<rueda::gpu::Device>> open(const rueda::gpu::DeviceOptions& options) {
  auto device = std::make_unique<rueda::gpu::fake::FakeDevice>(gpu(), options);
  if (const char* after = std::getenv("RUEDA_FAKE_GPU_LOSE_AFTER")) {
    device->lose_after(std::stoull(after),
                       {rueda::Code::kUnavailable, "the device has fallen off"});
  }
  return std::unique_ptr<rueda::gpu::Device>(std::move(device));
}

}  // namespace

extern "C" __attribute__((visibility("default"))) const rueda::gpu::PluginTable*
rueda_gpu_plugin() {
  static constexpr rueda::gpu::PluginTable kTable{rueda::gpu::kPluginVersion, RUEDA_VERSION, &list,
                                                  &open};
  return &kTable;
}
