#include "daemon/base/os/shared_mapping.h"

#include <cerrno>
#include <cstdint>
#include <fstream>
#include <string>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

namespace rueda {
namespace {

class File {
 public:
  explicit File(size_t bytes) : fd_(::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING)) {
    EXPECT_EQ(::ftruncate(fd_, static_cast<off_t>(bytes)), 0);
  }
  ~File() { ::close(fd_); }
  int fd() const { return fd_; }

 private:
  int fd_;
};

int count_mappings() {
  std::ifstream maps("/proc/self/maps");
  int lines = 0;
  for (std::string line; std::getline(maps, line);) ++lines;
  return lines;
}

TEST(SharedMapping, LiesWhereHugePagesCanBeMapped) {
  for (const size_t bytes : {kHugePageBytes, kHugePageBytes + 4096, 16 * kHugePageBytes}) {
    const File file(bytes);
    std::byte* one = map_shared(file.fd(), bytes);
    std::byte* other = map_shared(file.fd(), bytes);
    ASSERT_TRUE(one && other);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(one) % kHugePageBytes, 0u);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(other) % kHugePageBytes, 0u);
    one[0] = std::byte{1};
    one[bytes - 1] = std::byte{2};
    EXPECT_EQ(other[0], std::byte{1});
    EXPECT_EQ(other[bytes - 1], std::byte{2});
    unmap_guarded(one, bytes);
    unmap_guarded(other, bytes);
  }
}

TEST(SharedMapping, ASmallFileIsMappedAnywhere) {
  const File file(4096);
  std::byte* data = map_shared(file.fd(), 4096);
  ASSERT_TRUE(data);
  data[4095] = std::byte{1};
  unmap_guarded(data, 4096);
}

// Two users' arenas once lay side by side in the daemon, so that the end of one was the beginning
// of the other.
TEST(SharedMappingDeathTest, APageOnEachSideCannotBeTouched) {
  for (const size_t bytes : {size_t{100}, size_t{4096}, kHugePageBytes, kHugePageBytes + 4096}) {
    const File file(bytes);
    const size_t pages = (bytes + 4095) / 4096 * 4096;
    for (std::byte* const data : {map_shared(file.fd(), bytes), map_private(bytes)}) {
      ASSERT_TRUE(data);
      volatile std::byte* const touched = data;
      touched[0] = touched[bytes - 1] = std::byte{1};
      EXPECT_DEATH(touched[-1] = std::byte{1}, "");
      EXPECT_DEATH(touched[pages] = std::byte{1}, "");
      EXPECT_DEATH(touched[pages + 4095] = std::byte{1}, "");
      unmap_guarded(data, bytes);
    }
  }
}

TEST(SharedMapping, LeavesNothingBehind) {
  const File file(5 * kHugePageBytes);
  const int before = count_mappings();
  for (int i = 0; i < 8; ++i) {
    std::byte* data = map_shared(file.fd(), 5 * kHugePageBytes);
    ASSERT_TRUE(data);
    unmap_guarded(data, 5 * kHugePageBytes);
  }
  ASSERT_EQ(::fcntl(file.fd(), F_ADD_SEALS, F_SEAL_FUTURE_WRITE), 0);
  for (int i = 0; i < 8; ++i) {
    errno = 0;
    EXPECT_EQ(map_shared(file.fd(), 5 * kHugePageBytes), nullptr);
    EXPECT_EQ(errno, EPERM);
  }
  EXPECT_EQ(count_mappings(), before);
}

}  // namespace
}  // namespace rueda
