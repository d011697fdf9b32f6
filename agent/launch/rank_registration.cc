#include "agent/launch/rank_registration.h"

#include <algorithm>
#include <cstdio>
#include <optional>
#include <utility>

#include <poll.h>
#include <pwd.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "agent/base/network.h"
#include "agent/base/text.h"
#include "agent/cli/external_launcher.h"
#include "agent/launch/agent_link.h"
#include "agent/process/process.h"
#include "agent/records/plan_file.h"
#include "agent/rendezvous/identity.h"
#include "agent/rendezvous/rendezvous.h"
#include "daemon/base/clock.h"
#include "daemon/base/mutex.h"

namespace rueda::agent {
namespace {

constexpr char kDefaultSocket[] = "/run/rueda/ruedad.sock";
constexpr int64_t kDescribeTimeoutMs = 5000;
constexpr int64_t kRetryAfterMs = 200;
// A rank stays at the meeting place for this much longer than it waits for the others. Otherwise it
// would be missing itself when the time is up, and would be blamed together with the ranks that
// never came.
constexpr int64_t kStaysMs = 1000;
constexpr int64_t kCloseTimeoutMs = 2000;
constexpr int64_t kTimelineTimeoutMs = 60'000;  // the time to write the rest of a timeline

// Holds one value that another thread gives; the waiting thread gets a descriptor for poll().
template <class T>
class Promised {
 public:
  Promised() : event_(::eventfd(0, EFD_CLOEXEC)) {}

  void give(T value) {
    const MutexLock lock(mutex_);
    if (value_) return;
    value_ = std::move(value);
    const uint64_t one = 1;
    if (::write(event_.get(), &one, sizeof(one)) < 0) std::perror("ruedarun: eventfd");
  }
  int fd() const { return event_.get(); }
  T take() {
    const MutexLock lock(mutex_);
    return std::move(*value_);
  }

 private:
  const UniqueFd event_;
  Mutex mutex_;
  std::optional<T> value_ RUEDA_GUARDED_BY(mutex_);
};

void say(const std::string& text) { std::fprintf(stderr, "ruedarun: %s\n", text.c_str()); }

// Returns a folder that only this user can look into, because what ranks exchange there includes
// the job's token.
Result<std::string> private_folder(const std::map<std::string, std::string>& environment) {
  const auto runtime = environment.find("XDG_RUNTIME_DIR");
  const bool has_runtime = runtime != environment.end() && !runtime->second.empty() &&
                           ::access(runtime->second.c_str(), W_OK) == 0;
  const std::string folder =
      (has_runtime ? runtime->second : "/tmp") + "/rueda-" + std::to_string(::geteuid());
  ::mkdir(folder.c_str(), 0700);
  struct stat found {};
  if (::lstat(folder.c_str(), &found) != 0 || !S_ISDIR(found.st_mode) ||
      found.st_uid != ::geteuid() || (found.st_mode & 077) != 0) {
    return Status(Code::kPermission, "the folder " + folder +
                                         ", in which the ranks are to meet, must be this user's "
                                         "and nobody else's (mode 0700): remove it");
  }
  return folder;
}

// Returns the launch of this process. A process that no launcher has started is the only rank of a
// job.
Result<ForeignLaunch> launch_of(const std::map<std::string, std::string>& environment) {
  Result<ForeignLaunch> found = external_launcher(environment);
  if (found.is_ok() || found.status().code() != Code::kNotFound) return found;
  ForeignLaunch alone;
  alone.id = "alone-" + std::to_string(::getppid());
  alone.size = 1;
  alone.is_one_node = true;
  return alone;
}

class RankRegistration {
 public:
  RankRegistration(const Options& options, const std::map<std::string, std::string>& environment)
      : options_(options),
        environment_(environment),
        socket_(options.socket.empty() ? kDefaultSocket : options.socket),
        deadline_ms_(steady_now_ms() + options.start_timeout_ms) {}

  // Returns OK when the parent has ended, before or after it was registered.
  Status run() {
    const pid_t parent = ::getppid();
    parent_ = UniqueFd(static_cast<int>(::syscall(SYS_pidfd_open, parent, 0)));
    if (parent_.get() < 0) return Status::ok();
    const Result<ForeignLaunch> launch = launch_of(environment_);
    if (!launch.is_ok()) return launch.status();
    launch_ = launch.value();
    Result<JobLayout> job = meet();
    if (!job.is_ok()) return job.status();
    if (has_parent_ended_) return Status::ok();
    return keep_registered(job.value());
  }

 private:
  // Waits for `fd`, or for the end of the parent. Returns false when the time is up.
  bool wait_for(int fd, int64_t until_ms) {
    pollfd waits[2] = {{.fd = parent_.get(), .events = POLLIN, .revents = 0},
                       {.fd = fd, .events = POLLIN, .revents = 0}};
    const nfds_t count = fd < 0 ? 1 : 2;
    for (;;) {
      const int64_t left_ms = until_ms < 0 ? -1 : std::max<int64_t>(until_ms - steady_now_ms(), 0);
      const int ready = ::poll(waits, count, static_cast<int>(left_ms));
      if (ready < 0) continue;
      has_parent_ended_ = waits[0].revents != 0;
      return ready > 0;
    }
  }

  Result<DaemonDescription> find_daemon() {
    Result<DaemonDescription> found = describe_daemon(socket_, kDescribeTimeoutMs);
    if (found.status().code() != Code::kDaemonLost) return found;
    return Status(Code::kDaemonLost,
                  found.status().message() +
                      ": ranks that mpirun or srun starts need a daemon that runs on each node; "
                      "start one with \"ruedad --socket " +
                      socket_ +
                      "\", or set RUEDA_SOCKET to where it listens, or start the ranks with "
                      "ruedarun");
  }

  Result<JobLayout> meet() {
    const Result<DaemonDescription> daemon = find_daemon();
    if (!daemon.is_ok()) return daemon.status();
    Result<std::string> folder = std::string();
    if (launch_.is_one_node) folder = private_folder(environment_);
    if (!folder.is_ok()) return folder.status();
    const Result<std::string> place = meeting_place(launch_, environment_, folder.value());
    if (!place.is_ok()) return place.status();
    place_ = place.value();
    const auto endpoint = parse_host_port(place_);
    const bool is_here = place_.starts_with("unix:") || launch_.is_one_node;
    const Result<OwnHost> host = is_here ? Result<OwnHost>(OwnHost{"127.0.0.1", false})
                                         : own_host_towards(endpoint->host, endpoint->port);
    if (!host.is_ok()) return host.status();
    const Status checked = options_.rdzv_auth.check();
    if (!checked.is_ok()) return checked;
    if (launch_.rank == 0) {
      Result<JobIdentity> identity = make_identity(is_here ? "127.0.0.1" : endpoint->host);
      if (!identity.is_ok()) return identity.status();
      if (!is_here && options_.rdzv_auth.is_none() && !is_loopback(endpoint->host)) {
        say("the rendezvous at " + place_ +
            " gives the job's token to whoever is the first to come as a rank of it, and sends it "
            "in clear: set RUEDA_RDZV_SECRET, or RUEDA_RDZV_AUTH=munge, for all ranks");
      }
      auto server = RendezvousServer::start(
          {place_, launch_.size, launch_.id, options_.rdzv_auth, Meeting::kRanks, say},
          std::move(identity).value());
      if (!server.is_ok()) return server.status();
      server_ = std::move(server).value();
    }
    node_id_ = daemon.value().node_id;
    if (daemon.value().http_port > 0) {
      http_.push_back(join_host_port("127.0.0.1", daemon.value().http_port));
    }
    std::string control = daemon.value().advertised_control_address;
    const bool guesses_host = control.empty() && host.value().is_guess;
    if (control.empty()) control = join_host_port(host.value().host, daemon.value().control_port);
    const Result<std::string> launcher = new_launcher();
    if (!launcher.is_ok()) return launcher.status();
    return enter({launch_.rank, launch_.size, 1, node_id_, control, launch_.id, launcher.value(),
                  guesses_host});
  }

  Result<JobLayout> enter(const Arrival& arrival) {
    std::string last_error;
    for (;;) {
      Promised<Result<JobLayout>> outcome;
      const auto call = RendezvousCall::start(
          server_ ? server_->local_endpoint() : place_, arrival, options_.rdzv_auth,
          std::max<int64_t>(deadline_ms_ - steady_now_ms(), 0) + kStaysMs,
          {[&outcome](Result<JobLayout> found) { outcome.give(std::move(found)); },
           [this](const std::string& missing) {
             const MutexLock lock(missing_mutex_);
             last_missing_ = missing;
           }});
      if (!wait_for(outcome.fd(), deadline_ms_)) return overdue(last_error);
      if (has_parent_ended_) return JobLayout{};
      Result<JobLayout> found = outcome.take();
      if (found.status().code() != Code::kDaemonLost) return found;
      if (found.status().code() == Code::kTimeout) return overdue(last_error);
      last_error = found.status().message();
      if (found.status().code() == Code::kShutDown) {
        return Status(Code::kTimeout, "rank 0 has given the job up: " + last_error);
      }
      if (!found.status().is_retryable()) {
        return Status(found.status().code(), "the rendezvous at " + place_ + " refused rank " +
                                                 std::to_string(launch_.rank) + ": " + last_error);
      }
      wait_for(-1, std::min(deadline_ms_, steady_now_ms() + kRetryAfterMs));
      if (has_parent_ended_) return JobLayout{};
    }
  }

  Status overdue(const std::string& last_error) const {
    const std::string within = " within " + std::to_string(options_.start_timeout_ms) + " ms";
    std::string missing;
    {
      const MutexLock lock(missing_mutex_);
      missing = server_ ? server_->missing() : last_missing_;
    }
    if (!missing.empty()) {
      const std::string refusal = server_ ? server_->last_refusal() : "";
      Status why{Code::kTimeout,
                 "ranks " + missing + " of " + std::to_string(launch_.size) + " did not come to " +
                     place_ + within + ": do they call init(), and do they find that place?" +
                     (refusal.empty() ? "" : " Refused was one because " + refusal)};
      if (server_) server_->give_up(why.message());
      return why;
    }
    return {Code::kTimeout, "the ranks did not meet at " + place_ + within +
                                (last_error.empty() ? "" : " (" + last_error + ")") +
                                ": did rank 0 call init(), and is that place on its node?"};
  }

  Status keep_registered(const JobLayout& job) {
    const auto own = std::find_if(job.nodes.begin(), job.nodes.end(),
                                  [&](const NodeLayout& node) { return node.node_id == node_id_; });
    if (own == job.nodes.end()) return {Code::kInternal, "the layout lacks node " + node_id_};
    const auto place = std::find(own->ranks.begin(), own->ranks.end(), Rank(launch_.rank));
    if (place == own->ranks.end()) return {Code::kInternal, "the layout lacks this rank"};
    const int node_index = static_cast<int>(own - job.nodes.begin());
    const passwd* const user = ::getpwuid(::geteuid());

    Promised<Status> registered;
    Promised<Status> closed;
    AgentLink::Events events;
    events.on_registered = [&] { registered.give(Status::ok()); };
    events.on_failed = [](const JobFailure&) {};  // the daemon itself tells the rank of the failure
    events.on_note = say;
    events.on_closed = [&](Status status) {
      registered.give(status);
      closed.give(std::move(status));
    };
    AgreementSettings agreement = options_.agreement;
    if (node_index == 0) {
      if (Status status = load_plan(agreement); !status.is_ok()) return status;
    }
    const JobRegistration registration{
        job,
        node_index,
        user != nullptr ? user->pw_name : std::to_string(::geteuid()),
        std::move(agreement),
        options_.start_timeout_ms,
        options_.stall_check_ms,
        options_.stall_shutdown_ms,
        true,
        node_index == 0 ? options_.timeline : "",
        options_.timeline_has_chunks,
        options_.checks_finite};
    const auto link = AgentLink::open(socket_, registration, std::move(events));
    if (!link.is_ok()) return link.status();
    if (!wait_for(registered.fd(), deadline_ms_)) {
      return {Code::kTimeout, "the daemon of node " + node_id_ + " did not take the job in time"};
    }
    if (has_parent_ended_) return Status::ok();
    if (Status status = registered.take(); !status.is_ok()) {
      return {status.code(),
              "the daemon of node " + node_id_ + " did not take the job: " + status.message()};
    }
    for (const auto& [name, value] :
         rank_environment(job, node_index, *place, static_cast<int>(place - own->ranks.begin()),
                          socket_, http_)) {
      std::printf("%s=%s\n", name.c_str(), value.c_str());
    }
    // The rank is one process, which is told its own token alone; the job's stays in this one.
    std::printf(
        "%s=%s\n", kTokenVariable,
        token_text(job, own->node_id, *place, static_cast<int>(place - own->ranks.begin()), false)
            .c_str());
    std::printf("ready\n");
    std::fclose(stdout);
    wait_for(-1, -1);
    link.value()->close();
    pollfd end{.fd = closed.fd(), .events = POLLIN, .revents = 0};
    const bool may_write = !registration.timeline.empty();
    ::poll(&end, 1, static_cast<int>(may_write ? kTimelineTimeoutMs : kCloseTimeoutMs));
    return Status::ok();
  }

  const Options& options_;
  const std::map<std::string, std::string>& environment_;
  const std::string socket_;
  const int64_t deadline_ms_;
  UniqueFd parent_;
  bool has_parent_ended_ = false;
  ForeignLaunch launch_;
  std::string place_;
  std::string node_id_;
  std::vector<std::string> http_;
  std::unique_ptr<RendezvousServer> server_;
  mutable Mutex missing_mutex_;
  std::string last_missing_ RUEDA_GUARDED_BY(missing_mutex_);
};

}  // namespace

bool needs_own_daemon(const Options& options,
                      const std::map<std::string, std::string>& environment) {
  const Result<ForeignLaunch> launch = launch_of(environment);
  const bool is_named = !options.socket.empty() && options.socket != kDefaultSocket;
  return launch.is_ok() && launch.value().size == 1 && !is_named && !is_listening(kDefaultSocket);
}

int register_rank(const Options& options, const std::map<std::string, std::string>& environment) {
  // This process ends with its parent, and must not end before it.
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2}) ::signal(signal, SIG_IGN);
  const Status status = RankRegistration(options, environment).run();
  if (status.is_ok()) return 0;
  std::printf("error: %s\n", status.message().c_str());
  return 1;
}

}  // namespace rueda::agent
