// Tests the hook on allocators (tests/gpu/fake_allocator.cc), whose calls end at a fake GPU. A
// process watches one allocator, and for ever: each case is a process of its own.
#include "client/src/device/allocator_hook.h"

#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "client/src/device/watched_allocations.h"

namespace rueda::client {
namespace {

using ::testing::HasSubstr;

// CMake puts what tests load into lib, beside bin.
std::string library_path(const std::string& name) {
  return std::filesystem::read_symlink("/proc/self/exe").parent_path().parent_path() / "lib" / name;
}

class Allocator {
 public:
  explicit Allocator(const std::string& name) : name_(name) {
    ::setenv("RUEDA_CUDA_LIBRARY", library_path("librueda_fake_cuda.so").c_str(), 1);
    library_ = ::dlopen(library_path(name).c_str(), RTLD_LAZY | RTLD_LOCAL);
    EXPECT_NE(library_, nullptr) << ::dlerror();
  }
  const std::string& name() const { return name_; }
  uint64_t allocate() {
    auto* const call =
        reinterpret_cast<uint64_t (*)(size_t)>(::dlsym(library_, "rueda_fake_segment_alloc"));
    return call(4096);
  }
  void free(uint64_t base) {
    auto* const call =
        reinterpret_cast<int (*)(uint64_t)>(::dlsym(library_, "rueda_fake_segment_free"));
    EXPECT_EQ(call(base), 0);
  }

 private:
  std::string name_;
  void* library_ = nullptr;
};

struct Heard final : WatchedAllocations::Listener {
  void before_free(uint64_t base) override {
    freed.push_back(base);
    serials.push_back(WatchedAllocations::of_process().serial_of(base));
  }
  std::vector<uint64_t> freed;
  std::vector<uint64_t> serials;  // what they had when they were freed
};

void see_what_is_allocated_and_freed(Allocator allocator, bool is_called_before) {
  WatchedAllocations& watched = WatchedAllocations::of_process();
  Heard heard;
  watched.add(heard);
  const uint64_t before = is_called_before ? allocator.allocate() : 0;
  for (int twice = 0; twice < 2; ++twice) {
    const Status status = watch_allocator(allocator.name());
    ASSERT_TRUE(status.is_ok()) << status.to_string();
  }
  if (is_called_before) {
    EXPECT_EQ(watched.serial_of(before), 0u) << "it was there before";
    allocator.free(before);
  }
  const uint64_t base = allocator.allocate();
  ASSERT_NE(base, 0u);
  const uint64_t serial = watched.serial_of(base);
  EXPECT_NE(serial, 0u);
  EXPECT_EQ(watched.serial_of(base + 1), 0u);
  allocator.free(base);
  EXPECT_EQ(watched.serial_of(base), 0u);
  EXPECT_EQ(allocator.allocate(), base) << "the fake GPU gives a freed address again";
  EXPECT_GT(watched.serial_of(base), serial) << "it is another allocation";
  watched.remove(heard);
  allocator.free(base);
  EXPECT_EQ(heard.freed.back(), base);
  EXPECT_EQ(heard.freed.size(), is_called_before ? 2u : 1u);
  for (const uint64_t old : heard.serials) EXPECT_EQ(old, 0u) << "nobody may trust it any more";
}

// Runs a test in a process of its own.
#define EXPECT_ALL_TRUE_IN_A_PROCESS(statement)          \
  EXPECT_EXIT(                                           \
      {                                                  \
        statement;                                       \
        std::_Exit(testing::Test::HasFailure() ? 1 : 0); \
      },                                                 \
      testing::ExitedWithCode(0), "")

TEST(AllocatorHook, SeesAnAllocatorThatIsBoundFromTheBeginning) {
  EXPECT_ALL_TRUE_IN_A_PROCESS(
      see_what_is_allocated_and_freed(Allocator("librueda_fake_allocator_now.so"), true));
}

TEST(AllocatorHook, SeesAnAllocatorThatIsBoundWhenItIsCalled) {
  EXPECT_ALL_TRUE_IN_A_PROCESS(
      see_what_is_allocated_and_freed(Allocator("librueda_fake_allocator_lazy.so"), true));
}

TEST(AllocatorHook, SeesAnAllocatorThatHasNotBeenBoundYet) {
  EXPECT_ALL_TRUE_IN_A_PROCESS(
      see_what_is_allocated_and_freed(Allocator("librueda_fake_allocator_lazy.so"), false));
}

TEST(AllocatorHook, LeavesOtherLibrariesAsTheyAre) {
  EXPECT_ALL_TRUE_IN_A_PROCESS({
    Allocator one("librueda_fake_allocator_now.so");
    Allocator other("librueda_fake_allocator_lazy.so");
    EXPECT_TRUE(watch_allocator(one.name()).is_ok());
    EXPECT_EQ(WatchedAllocations::of_process().serial_of(other.allocate()), 0u);
    const Status second = watch_allocator(other.name());
    EXPECT_EQ(second.code(), Code::kInvalidArgument);
    EXPECT_THAT(second.message(), HasSubstr(one.name() + " is watched already"));
  });
}

TEST(AllocatorHook, SaysWhyALibraryCannotBeWatched) {
  EXPECT_ALL_TRUE_IN_A_PROCESS({
    const Status absent = watch_allocator("libc10_cuda_of_nobody.so");
    EXPECT_EQ(absent.code(), Code::kUnavailable);
    EXPECT_THAT(absent.message(), HasSubstr("libc10_cuda_of_nobody.so is not loaded"));
    const Status other = watch_allocator("libc.so.6");
    EXPECT_EQ(other.code(), Code::kUnavailable);
    EXPECT_THAT(other.message(), HasSubstr("imports no cudaMalloc or no cudaFree"));
    EXPECT_EQ(watch_allocator("").code(), Code::kInvalidArgument);
    EXPECT_TRUE(watch_allocator(Allocator("librueda_fake_allocator_now.so").name()).is_ok())
        << "a failure leaves nothing behind";
  });
}

}  // namespace
}  // namespace rueda::client
