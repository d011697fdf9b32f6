#include "agent/launch/lone_rank.h"

#include <cstdio>
#include <cstdlib>
#include <utility>

#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "agent/base/layout.h"
#include "agent/launch/launcher.h"
#include "daemon/base/limits.h"
#include "daemon/base/os/sealed_text.h"

namespace rueda::agent {

int launch_for_lone_rank(Options options) {
  const std::string parent = std::to_string(::getppid());
  ::setsid();  // the parent answers a Ctrl-C; this process ends after the parent
  options.is_for_rank = false;
  options.ranks = 1;
  options.socket.clear();
  options.has_token_in_environment = false;  // The child looks for a descriptor.
  options.has_prefix = false;
  options.command = {"/proc/self/exe", kStandInFlag, parent};
  return Launcher(std::move(options)).run();
}

int stand_in_for(const std::string& process) {
  const auto watched = static_cast<int>(::syscall(SYS_pidfd_open, std::atoi(process.c_str()), 0));
  if (watched < 0) return 0;  // the parent has ended
  for (const char* name : {"RUEDA_SOCKET", "RUEDA_JOB_ID", "RANK", "LOCAL_RANK"}) {
    const char* value = std::getenv(name);
    std::printf("%s=%s\n", name, value == nullptr ? "" : value);
  }
  const char* const fd = std::getenv(kTokenFdVariable);
  const Result<std::string> token =
      read_sealed_text(fd == nullptr ? -1 : std::atoi(fd), 2 * limits::kTokenBytes);
  std::printf("%s=%s\n", kTokenVariable, token.is_ok() ? token.value().c_str() : "");
  std::printf("ready\n");
  std::fclose(stdout);
  pollfd end{.fd = watched, .events = POLLIN, .revents = 0};
  while (::poll(&end, 1, -1) < 0) {
  }
  return 0;
}

}  // namespace rueda::agent
