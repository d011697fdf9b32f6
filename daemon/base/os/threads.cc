#include "daemon/base/os/threads.h"

#include <cstdlib>
#include <exception>
#include <future>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include <unistd.h>

namespace rueda {
namespace {

constexpr char kRemedy[] =
    "raise the limit of processes and threads: ulimit -u, TasksMax= of the unit, or the pids limit "
    "of the container";

// It is written before main() starts threads.
const char* terminating_program = "";

void say(const std::string& line) { (void)!::write(STDERR_FILENO, line.data(), line.size()); }

[[noreturn]] void terminate_with_a_word() {
  const std::string start = std::string(terminating_program) + ": ";
  const std::exception_ptr thrown = std::current_exception();
  if (thrown == nullptr) std::abort();
  try {
    std::rethrow_exception(thrown);
  } catch (const std::system_error& error) {
    const bool is_limit = error.code() == std::errc::resource_unavailable_try_again;
    say(start + (is_limit ? "a thread cannot be started (" : "a call of the system failed (") +
        error.what() + ")" + (is_limit ? std::string("; ") + kRemedy : "") + "\n");
  } catch (const std::exception& error) {
    say(start + error.what() + "\n");
    std::abort();  // This is our own mistake, so a core dump is wanted.
  } catch (...) {
    std::abort();
  }
  std::_Exit(1);
}

}  // namespace

Status check_thread_limit(int count) {
  std::promise<void> end;
  const std::shared_future<void> ended = end.get_future().share();
  std::vector<std::thread> threads;
  Status status;
  try {
    for (int i = 0; i < count; ++i) threads.emplace_back([ended] { ended.wait(); });
  } catch (const std::system_error& error) {
    status = Status(Code::kResourceExhausted,
                    "only " + std::to_string(threads.size()) + " of " + std::to_string(count) +
                        " threads can be started (" + error.code().message() + "); " + kRemedy);
  }
  end.set_value();
  for (std::thread& thread : threads) thread.join();
  return status;
}

void say_why_it_terminates(const char* program) {
  terminating_program = program;
  std::set_terminate(terminate_with_a_word);
}

}  // namespace rueda
