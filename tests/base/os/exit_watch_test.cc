#include "daemon/base/os/exit_watch.h"

#include <cstdint>
#include <utility>

#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <unistd.h>

namespace rueda {
namespace {

void ring(int fd) {
  const uint64_t one = 1;
  ASSERT_EQ(::write(fd, &one, sizeof(one)), static_cast<ssize_t>(sizeof(one)));
}

void silence(int fd) {
  uint64_t count = 0;
  ASSERT_EQ(::read(fd, &count, sizeof(count)), static_cast<ssize_t>(sizeof(count)));
}

// A GPU worker that lived was waited for in the daemon's loop: the loop had said that its pidfd was
// readable. Here an eventfd plays the pidfd, because it can be made ready and not ready.
TEST(ExitWatchTest, ADescriptorThatIsReportedAsReadyAndIsNotIsNoEnd) {
  boost::asio::io_context loop;
  UniqueFd process(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  const int fd = process.get();
  boost::asio::posix::stream_descriptor other(loop, ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  int ends = 0;
  other.async_wait(boost::asio::posix::descriptor_base::wait_read,
                   [fd](const boost::system::error_code&) { silence(fd); });
  ExitWatch watch(loop);
  watch.start(std::move(process), [&] { ++ends; });
  // The loop takes both at once, and the first handler takes back what the second is called for.
  ring(other.native_handle());
  ring(fd);
  loop.poll();
  EXPECT_EQ(ends, 0);
  EXPECT_TRUE(watch.is_open());
  ring(fd);
  loop.restart();
  loop.poll();
  EXPECT_EQ(ends, 1);
}

TEST(ExitWatchTest, NothingIsToldAfterItWasClosed) {
  boost::asio::io_context loop;
  UniqueFd process(::eventfd(1, EFD_CLOEXEC));
  int ends = 0;
  ExitWatch watch(loop);
  watch.start(std::move(process), [&] { ++ends; });
  watch.close();
  EXPECT_FALSE(watch.is_open());
  loop.poll();
  EXPECT_EQ(ends, 0);
}

}  // namespace
}  // namespace rueda
