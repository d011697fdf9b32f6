// Tests which memory large pages are asked for: whole ones within a large result.
#include "client/jax/large_pages.h"

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include <gtest/gtest.h>
#include <sys/mman.h>

namespace rueda::jax {
namespace {

constexpr size_t kLarge = size_t{2} << 20;

// Returns whether large pages have been asked for at this address (hg in /proc/self/smaps).
bool is_advised(const char* address) {
  std::ifstream maps("/proc/self/smaps");
  bool is_here = false;
  for (std::string line; std::getline(maps, line);) {
    uintptr_t begin = 0, end = 0;
    char dash = 0;
    if (std::istringstream(line) >> std::hex >> begin >> dash >> end && dash == '-') {
      const auto wanted = reinterpret_cast<uintptr_t>(address);
      is_here = begin <= wanted && wanted < end;
    } else if (is_here && line.starts_with("VmFlags:")) {
      return (line + " ").find(" hg ") != std::string::npos;
    }
  }
  return false;
}

class LargePages : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists("/sys/kernel/mm/transparent_hugepage")) {
      GTEST_SKIP() << "this kernel has no transparent large pages";
    }
    void* memory =
        ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(memory, MAP_FAILED);
    mapped_ = static_cast<char*>(memory);
    first_ = mapped_ + (kLarge - reinterpret_cast<uintptr_t>(mapped_) % kLarge);
  }
  void TearDown() override {
    if (mapped_ != nullptr) ::munmap(mapped_, kBytes);
  }

  static constexpr size_t kBytes = 16 * kLarge;
  char* mapped_ = nullptr;
  char* first_ = nullptr;  // the first address of a large page, behind the beginning
};

TEST_F(LargePages, WholePagesWithinTheResultAreAdvisedAndNothingElse) {
  std::memset(mapped_, 7, kBytes);
  prefer_large_pages(first_ + 64, 4 * kLarge);
  EXPECT_FALSE(is_advised(first_ + 128));
  EXPECT_TRUE(is_advised(first_ + kLarge));
  EXPECT_TRUE(is_advised(first_ + 4 * kLarge - 1));
  EXPECT_FALSE(is_advised(first_ + 4 * kLarge));
  for (size_t i = 0; i < kBytes; i += 4096) EXPECT_EQ(mapped_[i], 7);
}

TEST_F(LargePages, SmallResultsAreLeftAlone) {
  prefer_large_pages(first_, kLeastBytesForLargePages - 1);
  EXPECT_FALSE(is_advised(first_));
}

}  // namespace
}  // namespace rueda::jax
