// Runs the fake daemon as a program, for tests in Python. It prints its socket's path and serves
// until its standard input ends. With the argument "hold" it never completes a submission.
#include <cstdio>
#include <string_view>

#include "tests/client/fake_daemon.h"

int main(int argc, char** argv) {
  rueda::client::FakeDaemon::Options options;
  options.completes = argc < 2 || std::string_view(argv[1]) != "hold";
  rueda::client::FakeDaemon daemon(options);
  std::printf("%s\n", daemon.socket_path().c_str());
  std::fflush(stdout);
  while (std::getchar() != EOF) {
  }
  return 0;
}
