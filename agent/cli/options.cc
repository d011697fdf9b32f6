#include "agent/cli/options.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <sstream>
#include <utility>

#include <CLI/CLI.hpp>
#include <unistd.h>

#include "agent/base/text.h"
#include "agent/cli/hosts.h"
#include "agent/cli/presets.h"
#include "agent/rendezvous/munge.h"
#include "agent/rendezvous/rendezvous_secret.h"
#include "daemon/base/limits.h"

namespace rueda::agent {
namespace {

constexpr int kUsageError = 2;

// CLI::Range takes "nan", which is neither below the least value nor above the most.
CLI::Validator is_number() {
  return CLI::Validator(
      [](const std::string& text) {
        return std::isnan(std::strtod(text.c_str(), nullptr)) ? text + " is no number"
                                                              : std::string();
      },
      "");
}

class UsageFormatter : public CLI::Formatter {
 public:
  std::string make_usage(const CLI::App*, std::string) const override {
    return "Usage: ruedarun [flags] [--] program [arguments]\n";
  }
};

struct SplitArguments {
  std::vector<std::string> flags;
  std::vector<std::string> command;
};

// "-np 4" and "-np=4" are mpirun's form, which CLI11 reads as "-n p"; torchrun also takes its
// flags with underscores.
std::string canonical_flag(const std::string& word) {
  const size_t equals = std::min(word.find('='), word.size());
  std::string name = word.substr(0, equals);
  if (name == "-np") name = "--np";
  if (name == "-H") name = "--hosts";
  if (name.rfind("--", 0) == 0) std::replace(name.begin(), name.end(), '_', '-');
  return name + word.substr(equals);
}

SplitArguments split_arguments(const CLI::App& app, const std::vector<std::string>& arguments) {
  SplitArguments out;
  size_t i = 0;
  for (; i < arguments.size(); ++i) {
    if (arguments[i] == "--") {
      ++i;
      break;
    }
    if (arguments[i].size() < 2 || arguments[i][0] != '-') break;
    const std::string flag = canonical_flag(arguments[i]);
    out.flags.push_back(flag);
    if (flag.find('=') != std::string::npos) continue;
    const CLI::Option* const option = app.get_option_no_throw(flag);
    const bool takes_value = option != nullptr && option->get_expected_max() > 0;
    // The flag is joined with its value ("--flag=value"), because a value may itself look like a
    // flag (--daemon-arg --x=y).
    if (takes_value && i + 1 < arguments.size()) out.flags.back() += "=" + arguments[++i];
  }
  out.command.assign(arguments.begin() + static_cast<ptrdiff_t>(i), arguments.end());
  return out;
}

ParseOutcome usage_error(const std::string& text) {
  ParseOutcome out;
  out.text = "ruedarun: " + text + " (ruedarun --help shows the flags)";
  out.is_error = true;
  out.exit_code = kUsageError;
  return out;
}

struct Flags {
  CLI::Option* np = nullptr;
  CLI::Option* hosts = nullptr;
  CLI::Option* virtual_nodes = nullptr;
  CLI::Option* nnodes = nullptr;
  CLI::Option* node_rank = nullptr;
  CLI::Option* rdzv_endpoint = nullptr;
  CLI::Option* socket = nullptr;
  CLI::Option* min_np = nullptr;
  CLI::Option* max_np = nullptr;
  CLI::Option* max_restarts = nullptr;
  CLI::Option* elastic_timeout = nullptr;
  CLI::Option* rank_timeout = nullptr;
  CLI::Option* discovery_script = nullptr;
};

constexpr double kMaxSeconds = 86400.0;
constexpr double kMinCycleTimeMs = static_cast<double>(limits::kMinCycleTimeUs) / 1000;
constexpr double kMaxCycleTimeMs = static_cast<double>(limits::kMaxCycleTimeUs) / 1000;

struct Seconds {
  double start_timeout = 60;
  double grace = 5;
  std::optional<double> stall_check;
  std::optional<double> stall_shutdown;
  double elastic = 600;
  double rank = 0;
};

std::optional<int64_t> to_ms(std::optional<double> seconds) {
  if (!seconds) return std::nullopt;
  return static_cast<int64_t>(*seconds * 1000);
}

ElasticSettings with_times(ElasticSettings elastic, const Seconds& seconds) {
  elastic.timeout_ms = static_cast<int64_t>(seconds.elastic * 1000);
  elastic.rank_timeout_ms = static_cast<int64_t>(seconds.rank * 1000);
  return elastic;
}

void take_times(const Seconds& seconds, Options& options) {
  options.stall_check_ms = to_ms(seconds.stall_check);
  options.stall_shutdown_ms = to_ms(seconds.stall_shutdown);
  if (options.elastic && options.elastic->rank_timeout_ms > 0 && !options.stall_shutdown_ms) {
    options.stall_shutdown_ms = options.elastic->rank_timeout_ms;  // It finds who stands still.
  }
  options.start_timeout_ms = static_cast<int64_t>(seconds.start_timeout * 1000);
  options.grace_ms = static_cast<int64_t>(seconds.grace * 1000);
}

struct RendezvousFlags {
  std::string auth;
  std::string secret_file;
};

Flags add_flags(CLI::App& app, Options& options, Seconds& seconds, ElasticSettings& elastic,
                std::string& hosts, bool& no_prefix, RendezvousFlags& rendezvous,
                std::string& nnodes) {
  Flags flags;
  flags.np = app.add_option("--np,--nproc-per-node", options.ranks,
                            "Training processes to start (also -np N); with --nnodes, on this node")
                 ->check(CLI::Range(1, limits::kMaxRanks));
  flags.hosts = app.add_option("--hosts", hosts,
                               "HOST:RANKS, by commas (also -H, horovodrun's form): this machine "
                               "alone, or an error that says what to run on each");
  flags.virtual_nodes =
      app.add_option("--virtual-nodes", options.virtual_nodes,
                     "Start this many private daemons here and deal the ranks out to them")
          ->check(CLI::Range(1, limits::kMaxNodes));
  flags.nnodes = app.add_option("--nnodes", nnodes,
                                "Nodes of the job; the same command runs on each of them. MIN:MAX "
                                "makes the job elastic: it begins with MIN, and others may come");
  flags.node_rank = app.add_option("--node-rank", options.node_rank,
                                   "This node's number; 0 serves the rendezvous endpoint")
                        ->check(CLI::Range(0, limits::kMaxNodes - 1));
  flags.rdzv_endpoint = app.add_option("--rdzv-endpoint", options.rdzv_endpoint,
                                       "HOST:PORT on node 0 where the nodes meet");
  app.add_option("--rdzv-id", options.rdzv_id, "Nodes with differing ids never meet");
  app.add_option("--rdzv-auth", rendezvous.auth,
                 "How nodes show each other that they are of one job: secret, munge (all have "
                 "the same MUNGE key and user), none (or $RUEDA_RDZV_AUTH; default: secret if "
                 "there is one, else none)")
      ->check(CLI::IsMember({"secret", "munge", "none"}));
  app.add_option("--rdzv-secret-file", rendezvous.secret_file,
                 "A file with what all nodes of the job know and nobody else, 16 bytes at least: "
                 "without it nobody is let in (or the secret itself in $RUEDA_RDZV_SECRET)");
  flags.socket = app.add_option("--socket", options.socket,
                                "Use the daemon that serves this socket, a path or @name "
                                "(default: $RUEDA_SOCKET, then /run/rueda/ruedad.sock, then a "
                                "private daemon)");
  app.add_option("--ruedad", options.ruedad,
                 "The daemon's program (default: next to ruedarun, then on PATH)");
  app.add_option("--daemon-arg", options.daemon_args,
                 "A flag for private daemons, such as --daemon-arg=--fusion-threshold=16MiB; may "
                 "be given again")
      ->allow_extra_args(false)
      ->take_all();
  app.add_option("--log-level", options.log_level,
                 "Of private daemons (or $RUEDA_LOG_LEVEL; default: warn; with --verbose, info)");
  app.add_option("--start-timeout", seconds.start_timeout,
                 "Seconds for daemons and nodes to come up")
      ->check(CLI::Range(0.1, kMaxSeconds))
      ->check(is_number())
      ->capture_default_str();
  app.add_option("--grace", seconds.grace,
                 "Seconds that ranks have to end by themselves, and then again after SIGTERM")
      ->check(CLI::Range(0.0, kMaxSeconds))
      ->check(is_number())
      ->capture_default_str();
  flags.min_np =
      app.add_option(
             "--min-np", elastic.min_ranks,
             "Make the job elastic: when ranks die the others go on, as long as so many are "
             "left or are started again")
          ->check(CLI::Range(1, limits::kMaxRanks));
  flags.max_np = app.add_option("--max-np", elastic.max_ranks,
                                "With --min-np: the most ranks, counting those of nodes that come "
                                "late (default: -np on each of --nnodes)")
                     ->check(CLI::Range(1, limits::kMaxRanks));
  flags.max_restarts = app.add_option("--max-restarts", elastic.max_restarts,
                                      "With --min-np: start a rank, or a daemon, again so often in "
                                      "10 minutes")
                           ->check(CLI::Range(0, 1'000'000))
                           ->capture_default_str();
  flags.elastic_timeout = app.add_option("--elastic-timeout", seconds.elastic,
                                         "With --min-np: seconds that ranks wait for others")
                              ->check(CLI::Range(0.1, kMaxSeconds))
                              ->check(is_number())
                              ->capture_default_str();
  flags.rank_timeout =
      app.add_option("--rank-timeout", seconds.rank,
                     "With --min-np: end the generation of a rank that stands still so many "
                     "seconds, and kill it if it does not move then; 0: never")
          ->check(CLI::Range(0.0, kMaxSeconds))
          ->check(is_number())
          ->capture_default_str();
  flags.discovery_script =
      app.add_option("--host-discovery-script", options.discovery_script,
                     "With --min-np: a command that prints HOST:SLOTS lines, which is run every "
                     "second; this host has as many ranks as it says");
  app.add_option("--stall-check-seconds", seconds.stall_check,
                 "Report a tensor for which ranks have waited so long for others; 0: never "
                 "(or $RUEDA_STALL_CHECK_TIME_SECONDS; default: the daemon's)")
      ->check(CLI::Range(0.0, kMaxSeconds))
      ->check(is_number());
  app.add_option("--stall-shutdown-seconds", seconds.stall_shutdown,
                 "End the job when ranks have waited so long for others; 0: never (or "
                 "$RUEDA_STALL_SHUTDOWN_TIME_SECONDS; default: the daemon's)")
      ->check(CLI::Range(0.0, kMaxSeconds))
      ->check(is_number());
  app.add_option("--timeline-filename", options.timeline,
                 "Write a timeline of the job to this file (or $RUEDA_TIMELINE)");
  app.add_flag("--timeline-chunks", options.timeline_has_chunks,
               "With a mark for each chunk that comes (or $RUEDA_TIMELINE_CHUNKS=1)");
  app.add_flag(
      "--check-finite", options.checks_finite,
      "Report the first NaN or infinity that a rank contributes to a reduction, by tensor, "
      "rank and step, on every rank (or $RUEDA_CHECK_FINITE=1)");
  app.add_flag("--bind", options.binds,
               "Give each rank cores of its own, and the node's daemon others; off, and said so, "
               "where there are too few (or $RUEDA_BIND=1)");
  app.add_flag("--no-prefix", no_prefix, "Do not put the rank before each line of output");
  app.add_flag("--for-rank", options.is_for_rank,
               "Start nothing: register the process that runs this, which mpirun or srun has "
               "started, with the daemon, and stay as long as it does (librueda does this)");
  app.add_flag("--token-in-environment", options.has_token_in_environment,
               "Give each rank its token in $RUEDA_JOB_TOKEN, where its children see it too, and "
               "not by a descriptor: for programs that are started by one that closes those");
  app.add_flag("--verbose", options.is_verbose, "Say what is done, and let daemons do so");
  return flags;
}

// Describes a flag of the job that also has an environment variable. The flag overrides the
// variable.
struct JobFlag {
  const char* flag;
  const char* variable;
};
constexpr std::array kJobFlags{
    JobFlag{"--rdzv-auth", "RUEDA_RDZV_AUTH"},
    JobFlag{"--coordination", "RUEDA_COORDINATION"},
    JobFlag{"--fusion-threshold", "RUEDA_FUSION_THRESHOLD"},
    JobFlag{"--lock-after", "RUEDA_LOCK_AFTER"},
    JobFlag{"--cache-capacity", "RUEDA_CACHE_CAPACITY"},
    JobFlag{"--cycle-time-ms", "RUEDA_CYCLE_TIME"},
    JobFlag{"--sleep-agreed-every", "RUEDA_SLEEP_AGREED_EVERY"},
    JobFlag{"--algorithm", "RUEDA_ALGORITHM"},
    JobFlag{"--servers", "RUEDA_SERVERS"},
    JobFlag{"--transport", "RUEDA_TRANSPORT"},
    JobFlag{"--data-protection", "RUEDA_DATA_PROTECTION"},
    JobFlag{"--failure-timeout", "RUEDA_FAILURE_TIMEOUT"},
    JobFlag{"--preset", "RUEDA_PRESET"},
    JobFlag{"--deterministic", "RUEDA_DETERMINISTIC"},
    JobFlag{"--log-level", "RUEDA_LOG_LEVEL"},
    JobFlag{"--reducer", "RUEDA_REDUCER"},
    JobFlag{"--inter-node", "RUEDA_INTER_NODE"},
    JobFlag{"--stall-check-seconds", "RUEDA_STALL_CHECK_TIME_SECONDS"},
    JobFlag{"--timeline-filename", "RUEDA_TIMELINE"},
    JobFlag{"--timeline-chunks", "RUEDA_TIMELINE_CHUNKS"},
    JobFlag{"--check-finite", "RUEDA_CHECK_FINITE"},
    JobFlag{"--bind", "RUEDA_BIND"},
    JobFlag{"--autotune", "RUEDA_AUTOTUNE"},
    JobFlag{"--autotune-log", "RUEDA_AUTOTUNE_LOG"},
    JobFlag{"--plan", "RUEDA_PLAN"},
    JobFlag{"--record-plan", "RUEDA_PLAN_RECORD"},
    JobFlag{"--stall-shutdown-seconds", "RUEDA_STALL_SHUTDOWN_TIME_SECONDS"},
};

// Defines what the job's daemons must have been started with.
void add_daemon_flags(CLI::App& app, AgreementSettings& settings) {
  app.add_option("--transport", settings.transport,
                 "The transport of the job's daemons, tcp, rdma or grpc: private daemons are "
                 "started with it, others must have it (or $RUEDA_TRANSPORT; default: any)")
      ->check(CLI::IsMember({"tcp", "rdma", "grpc"}));
  app.add_option("--data-protection", settings.data_protection,
                 "What protects the job's tensors between nodes, encrypt, authenticate or none: "
                 "private daemons are started with it, others must have it (or "
                 "$RUEDA_DATA_PROTECTION; default: what the daemons have, which is none for "
                 "private ones)")
      ->check(CLI::IsMember({"none", "authenticate", "encrypt"}));
  app.add_option("--failure-timeout", settings.failure_timeout_seconds,
                 "Seconds that a node may be silent before it is taken for lost: private daemons "
                 "are started with it, others must have it (or $RUEDA_FAILURE_TIMEOUT; default: "
                 "the daemon's, which is 5)")
      ->check(CLI::Range(0.1, 3600.0))
      ->check(is_number());
}

void add_agreement_flags(CLI::App& app, AgreementSettings& settings) {
  app.add_option("--coordination", settings.coordination,
                 "How nodes agree on the order of operations: negotiate, cached, global-sleep, "
                 "nonblocking, event-driven, locked (or $RUEDA_COORDINATION; default: the "
                 "daemon's)");
  CLI::Option* fusion_threshold =
      app.add_option("--fusion-threshold", settings.fusion_threshold_bytes,
                     "Tensors that are ready together are reduced as one batch of up to this many "
                     "bytes, as in 16MiB; 0: each tensor alone, but for groups (or "
                     "$RUEDA_FUSION_THRESHOLD; default: the daemon's)")
          ->transform(CLI::AsSizeValue(false))
          ->check(CLI::Range(uint64_t{0}, uint64_t{limits::kMaxTensorBytes}));
  app.add_option("--lock-after", settings.lock_after_steps,
                 "Identical steps before a schedule is locked (or $RUEDA_LOCK_AFTER; default: 3)")
      ->check(CLI::Range(1, limits::kMaxLockAfterSteps));
  app.add_option("--reducer", settings.reducer,
                 "Who is a member of the ring: node (a node adds up its ranks first) or device "
                 "(each rank) (or $RUEDA_REDUCER; default: the daemon's)");
  app.add_option("--inter-node", settings.inter_node,
                 "What carries device memory between nodes: rueda (through host memory) or nccl "
                 "(or $RUEDA_INTER_NODE; default: the daemon's)");
  app.add_option("--cache-capacity", settings.cache_capacity,
                 "Tensors in the response cache (or $RUEDA_CACHE_CAPACITY; default: 1024)")
      ->check(CLI::Range(uint64_t{1}, uint64_t{limits::kMaxTensorsPerSession}));
  app.add_option("--cycle-time-ms", settings.cycle_time_ms,
                 "With --coordination cached, global-sleep or nonblocking: milliseconds from cycle "
                 "to cycle, as in 2.5 (or $RUEDA_CYCLE_TIME; default: 1)")
      ->check(CLI::Range(kMinCycleTimeMs, kMaxCycleTimeMs))
      ->check(is_number());
  app.add_option("--sleep-agreed-every", settings.sleep_agreed_every,
                 "With --coordination global-sleep: cycles from one agreement on the sleep to the "
                 "next (or $RUEDA_SLEEP_AGREED_EVERY; default: 1)")
      ->check(CLI::Range(1, limits::kMaxSleepAgreedEvery));
  app.add_option("--algorithm", settings.algorithm,
                 "How all-reduces go between nodes: ring, recursive-doubling, halving-doubling, "
                 "direct, central; auto: by size and what the network measures; table: by size (or "
                 "$RUEDA_ALGORITHM; default: auto)");
  app.add_option("--servers", settings.servers,
                 "With --algorithm central: so many of the first nodes are parameter servers, each "
                 "of a part of every tensor (or $RUEDA_SERVERS; default: 1)")
      ->check(CLI::Range(1, static_cast<int>(limits::kMaxNodes)));
  add_daemon_flags(app, settings);
  app.add_option("--preset", settings.preset,
                 "The flags that stand for a system of the literature: baidu, horovod, "
                 "horovod-nccl, grpc-ps, grpc-mpi, grpc-verbs, mpi-opt, cambridge-1step, "
                 "cambridge-2step, rueda; flags that are given win (or $RUEDA_PRESET)");
  app.add_option("--plan", settings.plan,
                 "Replay the plan in this file, which --record-plan has written, from the first "
                 "step on (or $RUEDA_PLAN)");
  app.add_option("--record-plan", settings.record_plan,
                 "Write the plan in force to this file (or $RUEDA_PLAN_RECORD)");
  app.add_flag("--autotune", settings.autotunes,
               "Search fusion, chunk size, streams and cut-overs for the shortest steps during the "
               "first ones (or $RUEDA_AUTOTUNE=1)");
  app.add_option("--autotune-log", settings.autotune_log,
                 "Write the search to this CSV file (or $RUEDA_AUTOTUNE_LOG)");
  app.add_flag("--deterministic", settings.is_deterministic,
               "Every run gives the same bits: nothing is fused but groups, and the algorithm "
               "follows from the size alone (or $RUEDA_DETERMINISTIC=1)")
      ->excludes(fusion_threshold);
}

// Sets apart, in the help, what only a measurement or librueda changes.
void set_advanced_apart(CLI::App& app) {
  for (const char* flag :
       {"--coordination", "--reducer", "--lock-after", "--cache-capacity", "--cycle-time-ms",
        "--sleep-agreed-every", "--algorithm", "--servers", "--transport", "--preset",
        "--timeline-chunks", "--for-rank", "--token-in-environment"}) {
    app.get_option(flag)->group("Advanced");
  }
}

// Returns the flags that the environment variables stand for, followed by the flags of the command
// line.
std::vector<std::string> with_variables(const std::vector<std::string>& flags,
                                        const std::map<std::string, std::string>& environment) {
  std::vector<std::string> out;
  for (const JobFlag& item : kJobFlags) {
    const auto found = environment.find(item.variable);
    if (found == environment.end() || found->second.empty()) continue;
    const std::string start = std::string(item.flag) + "=";
    const bool is_given = std::any_of(flags.begin(), flags.end(), [&](const std::string& flag) {
      return flag.rfind(start, 0) == 0;
    });
    if (!is_given) out.push_back(start + found->second);
  }
  out.insert(out.end(), flags.begin(), flags.end());
  return out;
}

// Switches autotuning off if --deterministic or --plan is given: its choices depend on timing, and
// those flags leave nothing to timing. Makes the paths of its files absolute.
void settle_autotuning(Options& options) {
  AgreementSettings& settings = options.agreement;
  for (std::string* file : {&settings.autotune_log, &settings.plan, &settings.record_plan}) {
    if (!file->empty()) *file = std::filesystem::absolute(*file).string();
  }
  const bool is_fixed = settings.is_deterministic || !settings.plan.empty();
  if (is_fixed && std::exchange(settings.autotunes, false)) {
    options.notes.push_back(std::string("autotuning is off: ") +
                            (settings.is_deterministic ? "--deterministic" : "--plan") +
                            " leaves nothing to timing");
  }
  if (!settings.autotunes && !is_fixed && !settings.autotune_log.empty()) {
    options.notes.push_back("--autotune-log is not used: give --autotune, too");
  }
}

bool is_this_machine(const std::string& host) {
  char own[256] = "";
  ::gethostname(own, sizeof(own) - 1);
  return host == "localhost" || host == "127.0.0.1" || host == "::1" || host == own;
}

// Deals the ranks out to hosts as horovodrun does: the first host gets as many as it takes. Returns
// "" if all ranks run here, with their number in `options`; otherwise returns the text that says
// what to run where, or why the list of hosts cannot be used.
std::string use_hosts(const std::string& text, bool has_np, Options& options) {
  const Result<std::vector<HostRanks>> hosts = parse_hosts(text);
  if (!hosts.is_ok()) return hosts.status().message();
  const Result<std::vector<HostRanks>> dealt =
      deal_to_hosts(hosts.value(), has_np ? std::optional(options.ranks) : std::nullopt);
  if (!dealt.is_ok()) return dealt.status().message();
  const std::vector<HostRanks>& used = dealt.value();
  if (used.size() == 1 && is_this_machine(used.front().host)) {
    options.ranks = used.front().ranks;
    return "";
  }
  std::string out = "ranks on other machines are started there; run";
  for (size_t i = 0; i < used.size(); ++i) {
    out += "\n  on " + used[i].host + ": ruedarun -np " + std::to_string(used[i].ranks);
    if (used.size() > 1) {
      out += " --nnodes " + std::to_string(used.size()) + " --node-rank " + std::to_string(i) +
             " --rdzv-endpoint " + join_host_port(used.front().host, 29400);
    }
    out += " ...";
  }
  return out + "\n";
}

// Finds the secret of the rendezvous; the file that the flag names overrides the variable. Returns
// "" if there is no secret, or it is right; otherwise returns what is wrong with it.
std::string find_secret(const std::string& file,
                        const std::map<std::string, std::string>& environment,
                        std::string& secret) {
  if (!file.empty()) {
    const Result<std::string> read = read_secret(file);
    if (!read.is_ok()) return read.status().message();
    secret = read.value();
    return "";
  }
  const auto found = environment.find("RUEDA_RDZV_SECRET");
  if (found == environment.end() || found->second.empty()) return "";
  secret = found->second;
  return check_secret(secret, "$RUEDA_RDZV_SECRET").message();
}

// Settles how nodes know each other. Returns "" if that can be done.
std::string find_auth(const RendezvousFlags& flags,
                      const std::map<std::string, std::string>& environment, Options& options) {
  const bool is_other = flags.auth == "munge" || flags.auth == "none";
  if (is_other && !flags.secret_file.empty()) {
    return "--rdzv-auth " + flags.auth +
           " has no use for a secret, so --rdzv-secret-file cannot go with it";
  }
  if (flags.auth == "none") return "";
  if (flags.auth == "munge") {
    if (options.nnodes == 1 && !options.is_for_rank) return "";  // Nobody meets.
    Result<std::shared_ptr<const Munge>> munge = Munge::load();
    if (!munge.is_ok()) return munge.status().message();
    options.rdzv_auth = RendezvousAuth::with_munge(std::move(munge).value());
    return "";
  }
  std::string secret;
  const std::string wrong = find_secret(flags.secret_file, environment, secret);
  if (!wrong.empty()) return wrong;
  if (secret.empty() && flags.auth == "secret") {
    return "--rdzv-auth secret needs one: give all nodes the same --rdzv-secret-file, or "
           "$RUEDA_RDZV_SECRET";
  }
  if (!secret.empty()) options.rdzv_auth = RendezvousAuth::with_secret(std::move(secret));
  return "";
}

// Reads "N" or "MIN:MAX". Returns "" if that is what it is.
std::string read_nnodes(const std::string& text, Options& options) {
  const auto number = [](const std::string& part) {
    int value = 0;
    const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), value);
    return error == std::errc() && end == part.data() + part.size() ? value : 0;
  };
  const size_t colon = std::min(text.find(':'), text.size());
  const bool is_range = colon < text.size();
  options.nnodes = number(is_range ? text.substr(colon + 1) : text);
  const int least = is_range ? number(text.substr(0, colon)) : options.nnodes;
  if (least < 1 || least > options.nnodes || options.nnodes > limits::kMaxNodes) {
    return "--nnodes " + text + " is not a number from 1 to " + std::to_string(limits::kMaxNodes) +
           ", nor MIN:MAX of such numbers";
  }
  if (is_range) options.min_nodes = least;
  return "";
}

// Settles what an elastic job's numbers of ranks are if nothing is said.
ElasticSettings settle_sizes(ElasticSettings elastic, const Flags& flags, Options& options) {
  if (*flags.discovery_script && !*flags.np) options.ranks = 0;  // The script says how many.
  if (*flags.discovery_script && !*flags.max_np) elastic.max_ranks = limits::kMaxRanks;
  if (*flags.discovery_script) return elastic;
  if (!*flags.min_np) elastic.min_ranks = options.min_nodes * options.ranks;
  if (!*flags.max_np) elastic.max_ranks = options.nnodes * options.ranks;
  return elastic;
}

std::string conflict_of_discovery(const Flags& flags) {
  if (!*flags.discovery_script) return "";
  if (!*flags.min_np) return "--host-discovery-script is for elastic jobs: give --min-np, too";
  if (*flags.virtual_nodes || *flags.hosts) {
    return "--host-discovery-script says how many ranks this host has, so --virtual-nodes and -H "
           "cannot go with it";
  }
  return "";
}

// Checks what CLI11 does not check. Returns "" if nothing is wrong.
std::string conflict_in(const Options& options, const Flags& flags) {
  const bool is_many_nodes = options.nnodes > 1;
  if (options.is_for_rank) {
    return options.command.empty() ? "" : "--for-rank starts no program, so leave it out";
  }
  if (options.command.empty()) return "name the program to start, as in: ruedarun -np 4 ./train";
  if (options.agreement.is_deterministic && !options.agreement.plan.empty()) {
    return "--deterministic makes a plan of the tensors alone, so --plan cannot go with it";
  }
  if (options.elastic && options.elastic->min_ranks > options.elastic->max_ranks) {
    return "--min-np " + std::to_string(options.elastic->min_ranks) + " is more than the " +
           std::to_string(options.elastic->max_ranks) +
           " ranks that the job may have: lower it, or raise --max-np";
  }
  if (options.elastic && !is_many_nodes && options.elastic->max_ranks < options.ranks) {
    return "--max-np " + std::to_string(options.elastic->max_ranks) + " is less than the " +
           std::to_string(options.ranks) + " ranks that are started: raise it or lower -np";
  }
  if (*flags.min_np && !is_many_nodes && !*flags.discovery_script &&
      options.elastic->min_ranks > options.ranks) {
    return "--min-np " + std::to_string(options.elastic->min_ranks) + " is more than the " +
           std::to_string(options.ranks) + " ranks that are started: raise -np or lower --min-np";
  }
  if (!options.elastic &&
      (*flags.max_np || *flags.max_restarts || *flags.elastic_timeout || *flags.rank_timeout)) {
    return "--max-np, --max-restarts, --elastic-timeout and --rank-timeout are for elastic jobs: "
           "give --min-np, too";
  }
  if (*flags.virtual_nodes && is_many_nodes) {
    return "--virtual-nodes puts all nodes on this machine, so --nnodes cannot go with it";
  }
  if (*flags.virtual_nodes && *flags.socket) {
    return "--virtual-nodes starts daemons of its own, so --socket cannot go with it";
  }
  if (*flags.virtual_nodes && options.ranks < options.virtual_nodes) {
    return std::to_string(options.ranks) + " ranks cannot fill " +
           std::to_string(options.virtual_nodes) +
           " virtual nodes: raise -np or lower "
           "--virtual-nodes";
  }
  if (is_many_nodes && !*flags.rdzv_endpoint) {
    return "--nnodes needs --rdzv-endpoint HOST:PORT, the same on every node";
  }
  if (is_many_nodes && !*flags.node_rank) {
    return "--nnodes needs --node-rank, another one on every node";
  }
  if (options.node_rank >= options.nnodes) {
    return "--node-rank " + std::to_string(options.node_rank) + " is not one of --nnodes " +
           std::to_string(options.nnodes) + ": the first is 0";
  }
  if (is_many_nodes) {
    if (!parse_dial_address(options.rdzv_endpoint).is_ok()) {
      return "--rdzv-endpoint " + options.rdzv_endpoint + " is not HOST:PORT with a fixed port";
    }
  }
  return "";
}

// A rendezvous that lasts as long as the job must not let strangers in. Returns "" if it does not.
std::string conflict_of_late_nodes(const Options& options) {
  if (options.min_nodes == 0 || options.min_nodes == options.nnodes || may_come_late(options)) {
    return "";
  }
  return "--nnodes " + std::to_string(options.min_nodes) + ":" + std::to_string(options.nnodes) +
         " lets nodes in as long as the job lasts: give all of them the same --rdzv-secret-file, "
         "or --rdzv-auth munge";
}

}  // namespace

bool may_come_late(const Options& options) {
  if (!options.elastic || options.nnodes == 1) return false;
  const auto endpoint = parse_host_port(options.rdzv_endpoint);
  return !options.rdzv_auth.is_none() || (endpoint && is_loopback(endpoint->host));
}

ParseOutcome parse_options(const std::vector<std::string>& arguments,
                           const std::map<std::string, std::string>& environment) {
  Options options;
  Seconds seconds;
  ElasticSettings elastic;
  bool no_prefix = false;
  CLI::App app{"Starts the training processes of a job, with rueda's daemon behind them.",
               "ruedarun"};
  app.formatter(std::make_shared<UsageFormatter>());
  app.set_version_flag("--version", std::string("ruedarun ") + RUEDA_VERSION);
  std::string hosts;
  RendezvousFlags rendezvous;
  std::string nnodes = "1";
  const Flags flags =
      add_flags(app, options, seconds, elastic, hosts, no_prefix, rendezvous, nnodes);
  add_agreement_flags(app, options.agreement);
  set_advanced_apart(app);

  SplitArguments split = split_arguments(app, arguments);
  options.command = std::move(split.command);
  std::vector<std::string> words = with_variables(split.flags, environment);
  if (const Status status = add_preset(words); !status.is_ok()) {
    return usage_error(status.message());
  }
  std::reverse(words.begin(), words.end());
  try {
    app.parse(words);
  } catch (const CLI::Success& request) {
    ParseOutcome out;
    std::ostringstream text;
    app.exit(request, text, text);
    out.text = text.str();
    while (!out.text.empty() && out.text.back() == '\n') out.text.pop_back();
    return out;
  } catch (const CLI::ParseError& error) {
    return usage_error(error.what());
  }

  std::string conflict = read_nnodes(nnodes, options);
  if (conflict.empty() && *flags.hosts) {
    const bool is_spread = options.nnodes > 1 || options.virtual_nodes > 0;
    conflict =
        is_spread
            ? "-H says itself where ranks run, so --nnodes and --virtual-nodes cannot go with it"
            : use_hosts(hosts, static_cast<bool>(*flags.np), options);
  }
  if (*flags.min_np || options.min_nodes > 0) {
    options.elastic = with_times(settle_sizes(elastic, flags, options), seconds);
    if (options.nnodes > 1 && options.min_nodes == 0) options.min_nodes = options.nnodes;
  }
  if (conflict.empty()) conflict = conflict_of_discovery(flags);
  if (conflict.empty()) conflict = conflict_in(options, flags);
  if (conflict.empty()) conflict = find_auth(rendezvous, environment, options);
  if (conflict.empty()) conflict = conflict_of_late_nodes(options);
  if (!conflict.empty()) return usage_error(conflict);
  take_times(seconds, options);
  options.has_prefix = !no_prefix;
  if (!options.timeline.empty()) {
    options.timeline = std::filesystem::absolute(options.timeline).string();
  }
  settle_autotuning(options);
  const auto socket = environment.find("RUEDA_SOCKET");
  if (options.socket.empty() && options.virtual_nodes == 0 && socket != environment.end()) {
    options.socket = socket->second;
  }
  ParseOutcome out;
  out.options = std::move(options);
  return out;
}

std::string coordination_of(const std::vector<std::string>& arguments,
                            const std::map<std::string, std::string>& environment) {
  const ParseOutcome parsed = parse_options(arguments, environment);
  return parsed.options ? parsed.options->agreement.coordination : "";
}

}  // namespace rueda::agent
