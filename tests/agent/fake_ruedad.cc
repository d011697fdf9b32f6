// A program that ruedarun can start in ruedad's place. It has the same flags and ready line, and a
// fake service behind them. With --fake=fail it ends at once; with --fake=silent it never gets
// ready.
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>

#include <signal.h>
#include <unistd.h>

#include "fake_daemon.h"

int main(int argc, char** argv) {
  std::map<std::string, std::string> flags;
  for (int i = 1; i < argc; ++i) {
    std::string name = argv[i];
    const size_t equals = name.find('=');
    if (equals != std::string::npos) {
      flags[name.substr(0, equals)] = name.substr(equals + 1);
    } else if (name == "--private" || name == "--insecure") {
      flags[name] = "yes";
    } else if (i + 1 < argc) {
      flags[name] = argv[++i];
    }
  }
  std::fprintf(stderr, "fake daemon pid %d listens on %s\n", ::getpid(),
               flags["--listen-host"].c_str());
  if (const char* host = std::getenv("NCCL_HOSTID")) {
    std::fprintf(stderr, "NCCL takes this host for %s\n", host);
  }
  if (!flags["--cpus"].empty()) std::fprintf(stderr, "keeps to %s\n", flags["--cpus"].c_str());
  if (flags["--fake"] == "fail") {
    std::fprintf(stderr, "port taken\n");
    return 3;
  }
  // The signal is blocked before any thread starts, so that all threads leave it to sigwait().
  sigset_t ends;
  ::sigemptyset(&ends);
  ::sigaddset(&ends, SIGTERM);
  ::sigprocmask(SIG_BLOCK, &ends, nullptr);
  rueda::test::FakeDaemon daemon(flags["--socket"], flags["--node-id"]);
  if (flags["--fake"] != "silent") {
    const std::string port = flags["--node-id"].substr(4) == "0" ? "9000" : "9001";
    const std::string line = R"({"node_id":")" + flags["--node-id"] + R"(","control":"0.0.0.0:)" +
                             port + R"(","data":"0.0.0.0:1","http":"0.0.0.0:)" + port +
                             R"(","socket":")" + flags["--socket"] + "\"}\n";
    const int fd = std::stoi(flags["--ready-fd"]);
    if (::write(fd, line.data(), line.size()) < 0) return 1;
    ::close(fd);
  }
  if (!flags["--leash-fd"].empty()) {
    // The program ends with its launcher and not by a signal, as a real daemon does.
    char byte = 0;
    while (::read(std::stoi(flags["--leash-fd"]), &byte, 1) > 0) {
    }
    return 0;
  }
  int signal = 0;
  ::sigwait(&ends, &signal);
  return 0;
}
