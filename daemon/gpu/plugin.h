// The export of librueda_cuda.so: one C symbol, which says what it was built for before anything
// else of it is used. Plugin and program come from one build, because C++ types cross here.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "daemon/base/status.h"
#include "daemon/gpu/device.h"

namespace rueda::gpu {

// The version must change with this file, device.h, communicator.h and batch.h.
inline constexpr uint32_t kPluginVersion = 6;
inline constexpr char kPluginSymbol[] = "rueda_gpu_plugin";
inline constexpr char kPluginFile[] = "librueda_cuda.so";

// The first two members are the same in every version.
struct PluginTable {
  uint32_t version = 0;
  const char* release = nullptr;  // RUEDA_VERSION
  // Lists devices. kUnavailable means that there is no driver, or too old a driver, or no device.
  Result<std::vector<DeviceFacts>> (*list)() = nullptr;
  Result<std::unique_ptr<Device>> (*open)(const DeviceOptions& options) = nullptr;
};

// The type of the symbol. The table lives as long as the plugin.
using PluginEntry = const PluginTable* (*)();

}  // namespace rueda::gpu
