#include "daemon/base/os/sealed_text.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

namespace rueda {
namespace {

TEST(SealedText, IsReadAsItWasWrittenAsOftenAsOneLikes) {
  const UniqueFd fd = make_sealed_text("test", "secret").value();
  const UniqueFd copy(::dup(fd.get()));  // as a child has it
  EXPECT_EQ(read_sealed_text(fd.get(), 6).value(), "secret");
  EXPECT_EQ(read_sealed_text(copy.get(), 6).value(), "secret");
  EXPECT_EQ(::fcntl(fd.get(), F_GETFD), FD_CLOEXEC);
}

TEST(SealedText, CannotBeChanged) {
  const UniqueFd fd = make_sealed_text("test", "secret").value();
  EXPECT_LT(::pwrite(fd.get(), "x", 1, 0), 0);
  EXPECT_LT(::ftruncate(fd.get(), 0), 0);
  EXPECT_LT(::ftruncate(fd.get(), 100), 0);
  EXPECT_EQ(::mmap(nullptr, 6, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0), MAP_FAILED);
  EXPECT_EQ(read_sealed_text(fd.get(), 6).value(), "secret");
}

// Where vm.memfd_noexec is set the kernel adds a seal of its own.
TEST(SealedText, MayHaveMoreSeals) {
  const UniqueFd fd(::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(::pwrite(fd.get(), "secret", 6, 0), 6);
  ASSERT_EQ(::fcntl(fd.get(), F_ADD_SEALS,
                    F_SEAL_FUTURE_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL),
            0);
  EXPECT_EQ(read_sealed_text(fd.get(), 6).value(), "secret");
}

TEST(SealedText, OtherFilesAreNone) {
  EXPECT_EQ(read_sealed_text(-1, 6).status().code(), Code::kNotFound);
  EXPECT_EQ(read_sealed_text(99999, 6).status().code(), Code::kNotFound);
  const UniqueFd sealed = make_sealed_text("test", "secret").value();
  EXPECT_FALSE(read_sealed_text(sealed.get(), 5).is_ok()) << "it has another size";
  EXPECT_FALSE(read_sealed_text(sealed.get(), 7).is_ok());
  const UniqueFd file(::open("/proc/self/exe", O_RDONLY | O_CLOEXEC));
  EXPECT_FALSE(read_sealed_text(file.get(), 6).is_ok());
  const UniqueFd open_memory(::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(::pwrite(open_memory.get(), "secret", 6, 0), 6);
  EXPECT_FALSE(read_sealed_text(open_memory.get(), 6).is_ok()) << "somebody may yet change it";
}

}  // namespace
}  // namespace rueda
