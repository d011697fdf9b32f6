#include "client/src/start/launched.h"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <utility>
#include <vector>

#include <dlfcn.h>
#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon/base/fd.h"

namespace rueda::client {
namespace {

constexpr char kReady[] = "ready";
constexpr char kError[] = "error: ";

bool is_set(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr && *value != '\0';
}

// Finds ruedarun: $RUEDA_RUEDARUN, or else the program that belongs to this library in a build, an
// installation or a wheel, or else the first on PATH.
std::string find_ruedarun() {
  if (is_set("RUEDA_RUEDARUN")) return std::getenv("RUEDA_RUEDARUN");
  Dl_info info{};
  if (::dladdr(reinterpret_cast<const void*>(&is_launched_by_others), &info) != 0) {
    const std::string library = info.dli_fname;
    const size_t slash = library.rfind('/');
    const std::string beside =
        (slash == std::string::npos ? "." : library.substr(0, slash)) + "/../bin/ruedarun";
    if (::access(beside.c_str(), X_OK) == 0) return beside;
  }
  return "ruedarun";
}

// Starts a child that writes to the pipe `output` and goes on running; its standard error is this
// process's.
Result<pid_t> spawn(const std::vector<std::string>& command, int output) {
  std::vector<char*> words;
  for (const std::string& word : command) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  ::posix_spawn_file_actions_adddup2(&actions, output, STDOUT_FILENO);
  pid_t pid = -1;
  const int error = ::posix_spawnp(&pid, words[0], &actions, nullptr, words.data(), environ);
  ::posix_spawn_file_actions_destroy(&actions);
  if (error != 0) {
    return Status{Code::kNotFound,
                  errno_text("ruedarun, which registers ranks that others have started, cannot "
                             "be run as \"" +
                                 command[0] + "\"",
                             error) +
                      "; put it on PATH, or set RUEDA_RUEDARUN to its path"};
  }
  return pid;
}

// Formats a time within the range that ruedarun takes. std::to_string of a fraction would write the
// locale's decimal point.
std::string seconds_text(int64_t ms) {
  const int64_t allowed_ms = std::clamp<int64_t>(ms, 100, 86'400'000);
  return std::to_string(allowed_ms / 1000) + "." +
         std::to_string(allowed_ms % 1000 + 1000).substr(1);
}

// Reads to the end of the stream, or to the line that is the last.
std::string read_all(int fd) {
  std::string text;
  char bytes[4096];
  const std::string last = std::string("\n") + kReady + '\n';
  while (!text.ends_with(last)) {
    const ssize_t n = ::read(fd, bytes, sizeof(bytes));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return text;
    text.append(bytes, static_cast<size_t>(n));
  }
  return text;
}

Result<std::map<std::string, std::string>> parse(const std::string& text) {
  std::map<std::string, std::string> variables;
  size_t begin = 0;
  while (begin < text.size()) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const std::string line = text.substr(begin, end - begin);
    begin = end + 1;
    if (line == kReady) return variables;
    if (line.starts_with(kError))
      return Status{Code::kUnavailable, line.substr(sizeof(kError) - 1)};
    const size_t equals = line.find('=');
    if (equals != std::string::npos) variables[line.substr(0, equals)] = line.substr(equals + 1);
  }
  return Status{Code::kUnavailable,
                "ruedarun ended without registering this rank; its messages are above"};
}

void reap(pid_t helper) {
  while (::waitpid(helper, nullptr, 0) < 0 && errno == EINTR) {
  }
}

}  // namespace

bool is_launched_by_others() {
  const bool is_in_step = is_set("SLURM_STEP_ID") || is_set("SLURM_STEPID");
  const bool has_torch_rank = is_set("RANK") && is_set("WORLD_SIZE");
  const bool has_torch_launch =
      is_set("RUEDA_LAUNCH_ID") || is_set("TORCHELASTIC_RUN_ID") || is_set("MASTER_ADDR");
  return is_set("OMPI_COMM_WORLD_RANK") || is_set("PMI_RANK") ||
         (is_set("SLURM_PROCID") && is_in_step) || (has_torch_rank && has_torch_launch);
}

bool is_launched_by_nobody() {
  for (const char* name : {"RUEDA_JOB_ID", "RUEDA_JOB_TOKEN", "RUEDA_JOB_TOKEN_FD", "RANK",
                           "LOCAL_RANK", "WORLD_SIZE"}) {
    if (is_set(name)) return false;
  }
  if (is_launched_by_others()) return false;
  static const bool is_said = [] {
    std::fprintf(
        stderr,
        "rueda: nobody has started this program as one of several ranks, so it is a job of "
        "one; for more of them: ruedarun -np 4 PROGRAM\n");
    return true;
  }();
  return is_said;
}

Result<std::map<std::string, std::string>> join_launched(const std::string& socket,
                                                         int64_t timeout_ms) {
  static std::map<std::string, std::string> joined;
  static std::string joined_launch;
  static pid_t joined_helper = -1;
  const std::string launch = is_set("RUEDA_LAUNCH_ID") ? std::getenv("RUEDA_LAUNCH_ID") : "";
  if (!joined.empty() && (launch.empty() || launch == joined_launch)) return joined;
  if (joined_helper > 0) {
    ::kill(joined_helper,
           SIGKILL);  // it ignores what a terminal sends; its registration ends with it
    reap(std::exchange(joined_helper, -1));
    joined.clear();
  }
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) {
    return Status{Code::kResourceExhausted, errno_text("cannot make a pipe", errno)};
  }
  const UniqueFd read_end(ends[0]);
  UniqueFd write_end(ends[1]);
  const Result<pid_t> helper = spawn({find_ruedarun(), "--for-rank", "--socket", socket,
                                      "--start-timeout", seconds_text(timeout_ms)},
                                     write_end.get());
  if (!helper.is_ok()) return helper.status();
  write_end.reset();
  // The helper keeps its own deadline, and closes its end of the pipe when it is done or exits.
  Result<std::map<std::string, std::string>> found = parse(read_all(read_end.get()));
  if (found.is_ok()) {
    joined = found.value();
    joined_launch = launch;
    joined_helper = helper.value();
  } else {
    reap(helper.value());
  }
  return found;
}

}  // namespace rueda::client
