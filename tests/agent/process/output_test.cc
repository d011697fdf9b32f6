// Tests output onto a file whose disk is full for a while.
#include "agent/process/output.h"

#include <fstream>
#include <string>
#include <thread>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mount.h>
#include <unistd.h>

#include "tests/support/temporary_folder.h"

namespace rueda::agent {
namespace {

std::string text_of(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

// The first failed write once ended all output of the stream, for the rest of the job.
TEST(Output, GoesOnWhenThereIsRoomAgainAndSaysWhatIsLost) {
  const testing_support::TemporaryFolder folder;
  if (::mount("rueda", folder.path().c_str(), "tmpfs", 0, "size=16m") != 0) {
    GTEST_SKIP() << "mounting a file system takes root";
  }
  const std::string path = folder.path() + "/out";
  const std::string filler = folder.path() + "/filler";
  const int fill = ::open(filler.c_str(), O_CREAT | O_WRONLY, 0600);
  const std::string block(1u << 20, 'x');
  while (::write(fill, block.data(), block.size()) > 0) {
  }
  ::close(fill);
  const int fd = ::open(path.c_str(), O_CREAT | O_WRONLY | O_APPEND, 0600);
  {
    OutputSink sink(fd, [] {});
    sink.write("first\n");
    // The text is longer than the queue, which may take all of it before the first failure is seen.
    const std::string line(1023, 'a');
    for (int i = 0; i < 8 * 1024; ++i) {
      sink.write(line + "\n");
      if (i % 64 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    EXPECT_FALSE(sink.is_full()) << "ranks would stand still";
    ::unlink(filler.c_str());
    for (int i = 0; i < 2000 && text_of(path).find("are lost") == std::string::npos; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    sink.write("last\n");
    EXPECT_EQ(sink.finish(std::chrono::seconds(20)), "");
  }
  ::close(fd);
  const std::string text = text_of(path);
  EXPECT_EQ(text.substr(0, 6), "first\n");
  EXPECT_NE(text.find("bytes of output are lost: No space left on device\n"), std::string::npos);
  EXPECT_EQ(text.substr(text.size() - 5), "last\n");
  ::umount(folder.path().c_str());
}

}  // namespace
}  // namespace rueda::agent
