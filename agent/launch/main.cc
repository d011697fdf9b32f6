// ruedarun: starts, watches and ends the training processes of a job.
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include "agent/base/layout.h"
#include "agent/cli/horovod_variables.h"
#include "agent/cli/options.h"
#include "agent/launch/launcher.h"
#include "agent/launch/lone_rank.h"
#include "agent/launch/rank_registration.h"
#include "agent/process/guardian.h"
#include "agent/process/init_process.h"
#include "agent/records/plan_file.h"
#include "agent/rendezvous/rendezvous.h"
#include "daemon/base/os/threads.h"

namespace {

// A launcher comes to at most this many threads, including those of gRPC, which aborts if it cannot
// start one.
constexpr int kThreads = 16;

// Opens missing standard streams, because pipes must never get the streams' numbers.
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
  if (argc == 2 && std::string_view(argv[1]) == "--guardian") return rueda::agent::run_guardian();
  rueda::agent::be_init_if_first();
  // A reader of the output that goes away does not end the job.
  ::signal(SIGPIPE, SIG_IGN);
  if (argc == 3 && argv[1] == std::string_view(rueda::agent::kStandInFlag)) {
    return rueda::agent::stand_in_for(argv[2]);
  }
  std::map<std::string, std::string> environment = environment_map();
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  const auto notes = rueda::agent::translate_horovod_variables(
      environment, rueda::agent::coordination_of(arguments, environment));
  rueda::agent::ParseOutcome parsed = rueda::agent::parse_options(arguments, environment);
  if (!parsed.options) {
    std::fprintf(parsed.is_error ? stderr : stdout, "%s\n", parsed.text.c_str());
    return parsed.exit_code;
  }
  rueda::say_why_it_terminates("ruedarun");
  rueda::agent::quiet_grpc();
  if (parsed.options->is_for_rank) {
    if (rueda::agent::needs_own_daemon(*parsed.options, environment)) {
      return rueda::agent::launch_for_lone_rank(std::move(*parsed.options));
    }
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
  // The secret may protect more jobs than this one. The tokens are those of another job, if this
  // program is a part of one. What is started here needs the token of its own rank alone.
  for (const char* name :
       {"RUEDA_RDZV_SECRET", rueda::agent::kTokenVariable, rueda::agent::kTokenFdVariable}) {
    ::unsetenv(name);
  }
  const rueda::Status has_threads = rueda::check_thread_limit(kThreads);
  if (!has_threads.is_ok()) {
    std::fprintf(stderr, "ruedarun: %s\n", has_threads.message().c_str());
    return 1;
  }
  rueda::agent::Launcher launcher(std::move(*parsed.options));
  return launcher.run();
}
