// ruedarun: starts, watches and ends the training processes of a job.
#include <cstdio>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include "agent/agent_link.h"
#include "agent/horovod_variables.h"
#include "agent/launcher.h"
#include "agent/options.h"
#include "agent/plan_file.h"
#include "agent/rank_registration.h"

namespace {

// Pipes must never get the numbers of the standard streams.
void open_standard_streams() {
  int fd = ::open("/dev/null", O_RDWR);
  while (fd >= 0 && fd <= STDERR_FILENO) fd = ::dup(fd);
  if (fd >= 0) ::close(fd);
}

std::map<std::string, std::string> environment_map() {
  std::map<std::string, std::string> out;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text(*entry);
    const size_t equals = text.find('=');
    if (equals != std::string::npos) out.emplace(text.substr(0, equals), text.substr(equals + 1));
  }
  return out;
}

}  // namespace

int main(int argc, char** argv) {
  open_standard_streams();
  // A reader of the output that goes away does not end the job.
  ::signal(SIGPIPE, SIG_IGN);
  std::map<std::string, std::string> environment = environment_map();
  const auto notes = rueda::agent::translate_horovod_variables(environment);
  rueda::agent::ParseOutcome parsed =
      rueda::agent::parse_options(std::vector<std::string>(argv + 1, argv + argc), environment);
  if (!parsed.options) {
    std::fprintf(parsed.is_error ? stderr : stdout, "%s\n", parsed.text.c_str());
    return parsed.exit_code;
  }
  if (parsed.options->is_for_rank) {
    rueda::agent::quiet_grpc();
    return rueda::agent::register_rank(*parsed.options, environment);
  }
  if (parsed.options->node_rank == 0) {
    const rueda::Status loaded = rueda::agent::load_plan(parsed.options->agreement);
    if (!loaded.is_ok()) {
      std::fprintf(stderr, "ruedarun: %s\n", loaded.message().c_str());
      return 2;
    }
  }
  for (const std::string& note : parsed.options->notes) {
    std::fprintf(stderr, "ruedarun: %s\n", note.c_str());
  }
  for (const std::string& note : notes) std::fprintf(stderr, "ruedarun: %s\n", note.c_str());
  rueda::agent::quiet_grpc();
  rueda::agent::Launcher launcher(std::move(*parsed.options));
  return launcher.run();
}
