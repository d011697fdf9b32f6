// Tests which plugins are loaded, and the errors when they cannot be.
#include "daemon/gpu/load.h"

#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>
#include <unistd.h>

namespace rueda::gpu {
namespace {

// CMake puts what tests load into lib, beside bin.
std::filesystem::path library_dir() {
  return std::filesystem::read_symlink("/proc/self/exe").parent_path().parent_path() / "lib";
}

std::string test_plugin(const std::string& name) {
  return library_dir() / ("librueda_gpu_test_" + name + ".so");
}

TEST(LoadPlugin, OpensADeviceOfIt) {
  const auto table = load_plugin(test_plugin("fake"));
  ASSERT_TRUE(table.is_ok()) << table.status().to_string();
  const auto devices = table.value()->list();
  ASSERT_TRUE(devices.is_ok());
  ASSERT_EQ(devices.value().size(), 1u);
  const auto device = table.value()->open({.ordinal = 0});
  ASSERT_TRUE(device.is_ok());
  EXPECT_EQ(device.value()->facts().name, devices.value()[0].name);
  EXPECT_TRUE(device.value()->allocate(100, Sharing::kIpc).is_ok());
}

TEST(LoadPlugin, SaysThatThereIsNone) {
  for (const std::string path : {"/nowhere/librueda_cuda.so", "librueda_of_nobody.so"}) {
    const Status status = load_plugin(path).status();
    EXPECT_EQ(status.code(), Code::kNotFound) << status.to_string();
    EXPECT_NE(status.message().find(path), std::string::npos) << status.message();
  }
}

TEST(LoadPlugin, SaysThatItCannotBeLoaded) {
  const auto path = std::filesystem::temp_directory_path() /
                    ("rueda-not-a-library-" + std::to_string(::getpid()) + ".so");
  std::ofstream(path) << "not a library";
  const Status status = load_plugin(path).status();
  std::filesystem::remove(path);
  EXPECT_EQ(status.code(), Code::kUnavailable) << status.to_string();
}

TEST(LoadPlugin, RefusesWhatIsNoPlugin) {
  const Status status = load_plugin(test_plugin("no_symbol")).status();
  EXPECT_EQ(status.code(), Code::kVersion) << status.to_string();
  EXPECT_NE(status.message().find(kPluginSymbol), std::string::npos);
}

TEST(LoadPlugin, RefusesAnotherBuilds) {
  for (const std::string name : {"other_version", "other_release"}) {
    const Status status = load_plugin(test_plugin(name)).status();
    EXPECT_EQ(status.code(), Code::kVersion) << status.to_string();
    EXPECT_NE(status.message().find(RUEDA_VERSION), std::string::npos) << status.message();
  }
}

// The real plugin, where it is built, loads anywhere, and says that there is no driver if that is
// so.
TEST(LoadPlugin, TheCudaPluginLoadsWithoutADriver) {
  if (!std::filesystem::exists(library_dir() / kPluginFile)) {
    GTEST_SKIP() << "this build has no " << kPluginFile;
  }
  const auto table = load_plugin();
  ASSERT_TRUE(table.is_ok()) << table.status().to_string();
  const auto devices = table.value()->list();
  if (devices.is_ok()) GTEST_SKIP() << "there is a GPU";
  EXPECT_EQ(devices.status().code(), Code::kUnavailable);
  EXPECT_NE(devices.status().message().find("no GPU"), std::string::npos)
      << devices.status().message();
  EXPECT_EQ(table.value()->open({}).status(), devices.status());
}

}  // namespace
}  // namespace rueda::gpu
