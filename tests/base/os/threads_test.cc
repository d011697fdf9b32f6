#include "daemon/base/os/threads.h"

#include <system_error>
#include <thread>

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

namespace rueda {
namespace {

[[noreturn]] void look_where_there_is_no_room() {
  // A limit of address space bounds the threads of every user, root included.
  constexpr rlim_t kLittle = 256u << 20;
  const rlimit little{kLittle, kLittle};
  if (::setrlimit(RLIMIT_AS, &little) != 0) ::_exit(2);
  const std::string text = check_thread_limit(100'000).message() + "\n";
  (void)!::write(STDERR_FILENO, text.data(), text.size());
  ::_exit(0);
}

[[noreturn]] void fail_where_nobody_catches() {
  say_why_it_terminates("program");
  std::thread([] {
    throw std::system_error(std::make_error_code(std::errc::resource_unavailable_try_again));
  }).join();
  ::_exit(0);
}

TEST(Threads, ALimitIsSeenBeforeLibrariesAbort) {
  EXPECT_TRUE(check_thread_limit(4).is_ok());
  // This file is not instrumented, but the code that it is linked with may be.
  if (::dlsym(RTLD_DEFAULT, "__asan_init") != nullptr) {
    GTEST_SKIP() << "the sanitizer's own memory takes more address space than that";
  }
  EXPECT_EXIT(look_where_there_is_no_room(), testing::ExitedWithCode(0),
              "only [0-9]+ of 100000 threads can be started .*TasksMax");
}

TEST(Threads, AThreadThatCannotBeStartedAbortsNothing) {
  EXPECT_EXIT(fail_where_nobody_catches(), testing::ExitedWithCode(1),
              "program: a thread cannot be started .*TasksMax");
}

}  // namespace
}  // namespace rueda
