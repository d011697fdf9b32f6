// Runs a program under test, which a test starts, watches and reads.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <sys/types.h>

#include "agent/process/process.h"
#include "tests/support/paths.h"

namespace rueda::test {

inline const std::string kRuedarun = testing_support::program_path("ruedarun");
inline const std::string kRuedactl = testing_support::program_path("ruedactl");
inline const std::string kFakeRuedad = testing_support::program_path("fake_ruedad");

class Program {
 public:
  // Starts the program. Aborts the test program if that fails.
  explicit Program(std::vector<std::string> argv,
                   std::vector<std::pair<std::string, std::string>> environment = {});
  // Kills the program if it still runs.
  ~Program();

  pid_t pid() const { return child_.pid; }
  void send_signal(int signal);
  // Reads until the text has come on either stream; false after 20 s or at the end.
  bool wait_for_output(const std::string& text);
  // Waits, without reading, until half of what its output's pipe can hold has been written: a
  // program that writes without end is held up from then on. False after 20 s.
  bool wait_until_half_full();
  // Reads everything and waits for the end; 20 s at most, then the exit code is -1.
  int wait();
  // Waits for the end without reading what the program writes.
  int wait_without_reading();

  const std::string& out() const { return out_; }
  const std::string& err() const { return err_; }

 private:
  // Reads once; false at the end of both streams or after the deadline.
  bool read_some(double deadline_s);
  int wait_until(double deadline_s);

  agent::Child child_;
  UniqueFd out_fd_;
  UniqueFd err_fd_;
  std::string out_;
  std::string err_;
  bool is_reaped_ = false;
};

// Returns whether a process has gone, or goes within 20 s. A zombie counts as gone.
bool is_gone(pid_t pid);

// Returns a name "@rueda-test-..." that no other test uses.
std::string unique_socket();

// Returns the number behind the first `key` in `text`, or 0 if there is none.
int number_after(const std::string& text, const std::string& key);

}  // namespace rueda::test
