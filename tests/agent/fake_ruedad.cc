// A program that ruedarun can start in ruedad's place. It has the same flags and ready lines, and a
// fake service behind them, and says whether it was told a certificate. With --fake=fail it ends at
// once; with --fake=silent it never gets ready; with --fake=deaf it ends without its certificate.
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>

#include <signal.h>
#include <unistd.h>

#include "fake_daemon.h"

namespace {

// Says which port is open, and waits for the certificate. Returns false if none comes.
bool await_certificate(std::map<std::string, std::string>& flags, const std::string& port) {
  const std::string line = R"({"control":"0.0.0.0:)" + port + "\"}\n";
  if (::write(std::stoi(flags["--ready-fd"]), line.data(), line.size()) < 0) return false;
  if (flags["--fake"] == "deaf") return false;
  std::string told;
  char byte = 0;
  while (byte != '\n') {
    if (::read(std::stoi(flags["--tls-fd"]), &byte, 1) <= 0) return false;
    told += byte;
  }
  const bool has_one = told.find("BEGIN CERTIFICATE") != std::string::npos;
  std::fprintf(stderr, "told %s\n", has_one ? "a certificate" : told.c_str());
  return true;
}

}  // namespace

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
  const std::string port = flags["--node-id"].substr(4) == "0" ? "9000" : "9001";
  if (!flags["--tls-fd"].empty() && !await_certificate(flags, port)) return 4;
  if (flags["--fake"] != "silent") {
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
