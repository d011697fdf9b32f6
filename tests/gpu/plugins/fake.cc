// A plugin whose devices are fake. These variables set it up: RUEDA_FAKE_GPU is the folder of the
// devices' memory, where other processes are to share it; RUEDA_FAKE_GPU_COUNT is the number of
// devices (1); RUEDA_FAKE_GPU_PEERS is "none" where they have no peer access;
// RUEDA_FAKE_GPU_LOSE_AFTER is the number of operations after which one is lost;
// RUEDA_FAKE_GPU_MODE is "exclusive", "mps", or both; RUEDA_FAKE_GPU_BYTES is the memory of each;
// RUEDA_FAKE_GPU_REFUSES is "handles", "descriptors", or both, which they then do not import;
// RUEDA_FAKE_NCCL is "none" where there are no communicators.
#include <cstdlib>
#include <list>
#include <string>

#include "daemon/gpu/plugin.h"
#include "tests/gpu/fake/fake_device.h"

namespace {

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

struct Gpu {
  explicit Gpu(const rueda::gpu::fake::FakeOptions& options) : gpu(options), runner(gpu) {}
  rueda::gpu::fake::FakeGpu gpu;
  rueda::gpu::fake::FakeRunner runner;
};

std::list<Gpu> make_gpus() {
  const std::string bytes = variable("RUEDA_FAKE_GPU_BYTES");
  const std::string count = variable("RUEDA_FAKE_GPU_COUNT");
  const std::string refused = variable("RUEDA_FAKE_GPU_REFUSES");
  const std::string mode = variable("RUEDA_FAKE_GPU_MODE");
  rueda::gpu::fake::FakeOptions options{
      .has_peer_access = variable("RUEDA_FAKE_GPU_PEERS") != "none",
      .memory_bytes = bytes.empty() ? uint64_t{4} << 30 : std::stoull(bytes),
      .folder = variable("RUEDA_FAKE_GPU"),
      .is_exclusive = mode.find("exclusive") != std::string::npos,
      .has_mps = mode.find("mps") != std::string::npos,
      .refuses_ipc_handles = refused.find("handles") != std::string::npos,
      .refuses_descriptors = refused.find("descriptors") != std::string::npos,
      .has_communicators = variable("RUEDA_FAKE_NCCL") != "none"};
  std::list<Gpu> gpus;
  for (int i = 0; i < (count.empty() ? 1 : std::stoi(count)); ++i) {
    options.ordinal = i;
    gpus.emplace_back(options);
  }
  return gpus;
}

std::list<Gpu>& all() {
  static std::list<Gpu> gpus = make_gpus();
  return gpus;
}

rueda::Result<std::vector<rueda::gpu::DeviceFacts>> list() {
  std::vector<rueda::gpu::DeviceFacts> facts;
  for (Gpu& gpu : all()) facts.push_back(rueda::gpu::fake::FakeDevice(gpu.gpu).facts());
  return facts;
}

rueda::Result<std::unique_ptr<rueda::gpu::Device>> open(const rueda::gpu::DeviceOptions& options) {
  auto gpu = all().begin();
  std::advance(gpu, options.ordinal);
  auto device = std::make_unique<rueda::gpu::fake::FakeDevice>(gpu->gpu, options);
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
