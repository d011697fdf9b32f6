#include "daemon/config.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <cstdlib>
#include <istream>
#include <memory>
#include <set>
#include <string_view>

#include <CLI/CLI.hpp>
#include <unistd.h>

#include "daemon/base/limits.h"
#include "daemon/base/one_line.h"
#include "daemon/base/os/cpus.h"
#include "daemon/base/os/groups.h"
#include "daemon/session/memory/sigbus_guard.h"
#include "daemon/transport/striped.h"

namespace rueda {
namespace {

std::string host_name() {
  std::array<char, limits::kMaxNodeIdBytes + 1> name{};
  if (::gethostname(name.data(), name.size() - 1) != 0) return "node";
  return name.data();
}

// Accepts sizes as people write them: 64M is 64 * 2^20.
CLI::Validator bytes_suffix() { return CLI::AsSizeValue(false); }

// CLI::Range takes "nan", which is neither below the least value nor above the most.
CLI::Validator is_number() {
  return CLI::Validator(
      [](const std::string& text) {
        return std::isnan(std::strtod(text.c_str(), nullptr)) ? text + " is no number"
                                                              : std::string();
      },
      "");
}

CLI::Validator is_cpus() {
  return {[](std::string& text) { return text.empty() ? "" : parse_cpus(text).status().message(); },
          "CPUS"};
}

CLI::Validator is_reducer() {
  return {[](std::string& name) { return core::parse_reducer(name).status().message(); },
          "REDUCER"};
}

CLI::Validator is_inter_node() {
  return {[](std::string& name) { return core::parse_inter_node(name).status().message(); }, "WAY"};
}

CLI::Validator is_coordination() {
  return {[](std::string& name) { return core::parse_coordination(name).status().message(); },
          "MODE"};
}

bool is_word(std::string_view text) {
  const auto is_plain = [](unsigned char c) {
    return std::isalnum(c) ||
           std::string_view("._-/:").find(static_cast<char>(c)) != std::string_view::npos;
  };
  return !text.empty() && text.size() <= limits::kMaxNodeIdBytes &&
         std::all_of(text.begin(), text.end(), is_plain);
}

CLI::Validator is_label() {
  return {[](std::string& label) {
            const size_t equals = label.find('=');
            const bool is_right = equals != std::string::npos &&
                                  is_word(std::string_view(label).substr(0, equals)) &&
                                  is_word(std::string_view(label).substr(equals + 1));
            return is_right ? std::string()
                            : "\"" + label +
                                  "\" is not key=value, each 1 to 63 letters, digits, . _ - / :";
          },
          "KEY=VALUE"};
}

CLI::Validator is_socket() {
  return {[](std::string& text) { return parse_socket(text).status().message(); }, "PATH[=NAME]"};
}

// A limit on what one principal may have: --quota-KEY, and KEY under [quota] in the file.
struct QuotaKey {
  const char* key;
  const char* variable;
  session::Resource resource;
  uint64_t most;  // 0 for a number of bytes.
  const char* what;
};

constexpr uint64_t kManyConnections = 1 << 20;
constexpr std::array<QuotaKey, 9> kQuotaKeys{{
    {"jobs", "RUEDAD_QUOTA_JOBS", session::Resource::kJobs, limits::kMaxJobs,
     "Jobs that one user, or one named socket, may have here at once; 0: 64"},
    {"connections", "RUEDAD_QUOTA_CONNECTIONS", session::Resource::kConnections, kManyConnections,
     "Connections to the socket that one may have; 0: 1,024, or fewer where the limit of open "
     "files is low"},
    {"processes", "RUEDAD_QUOTA_PROCESSES", session::Resource::kSessions, limits::kMaxSessions,
     "Training processes that one may have attached; 0: 512"},
    {"arena-bytes", "RUEDAD_QUOTA_ARENA_BYTES", session::Resource::kArenaBytes, 0,
     "Arenas of one, together; 0: as much as the machine has memory"},
    {"arenas", "RUEDAD_QUOTA_ARENAS", session::Resource::kArenas, session::kMaxGuardedRanges,
     "The number of these arenas; 0: 4,096"},
    {"pinned-bytes", "RUEDAD_QUOTA_PINNED_BYTES", session::Resource::kPinnedBytes, 0,
     "Pinned host memory in place of a GPU's, of one; 0: a quarter of the memory"},
    {"tensor-bytes", "RUEDAD_QUOTA_TENSOR_BYTES", session::Resource::kTensorBytes, 0,
     "Memory of the daemon for descriptions of one's tensors; 0: 1 GiB"},
    {"staging-bytes", "RUEDAD_QUOTA_STAGING_BYTES", session::Resource::kStagingBytes, 0,
     "Staging of one's jobs, --staging-bytes for each process set; 0: 16 GiB"},
    {"gpu-workers", "RUEDAD_QUOTA_GPU_WORKERS", session::Resource::kGpuWorkers, limits::kMaxJobs,
     "GPU workers of one's jobs, one for each job with device memory; 0: 16"},
}};

CLI::Option* add_quota(CLI::App& app, const std::string& flag, const QuotaKey& key,
                       session::Amounts& amounts) {
  CLI::Option* const option = app.add_option(flag, amounts[key.resource], key.what);
  if (key.most == 0) return option->transform(bytes_suffix());
  return option->check(CLI::Range(uint64_t{0}, key.most));
}

// Reads the file. Its tables [quota] and [quota.NAME] become options, and the environment goes
// before it; by itself CLI11 puts the file before the environment.
class ConfigFile final : public CLI::ConfigTOML {
 public:
  ConfigFile(CLI::App& app, rueda::Config& config) : app_(app), config_(config) {}
  std::vector<CLI::ConfigItem> from_config(std::istream& input) const override {
    std::vector<CLI::ConfigItem> found = CLI::ConfigTOML::from_config(input);
    std::erase_if(found, [](const CLI::ConfigItem& item) {
      return is_quota(item) && (item.name == "++" || item.name == "--");
    });
    for (CLI::ConfigItem& item : found) {
      if (is_quota(item)) flatten(item);
    }
    std::erase_if(found, [&](const CLI::ConfigItem& item) {
      const CLI::Option* option = app_.get_option_no_throw("--" + item.name);
      const char* value = option ? ::getenv(option->get_envname().c_str()) : nullptr;
      return value && *value != '\0';
    });
    return found;
  }

 private:
  static bool is_quota(const CLI::ConfigItem& item) {
    return !item.parents.empty() && item.parents.front() == "quota";
  }

  // Gives an entry of a table the name of an option. What has none is left, and is an error.
  void flatten(CLI::ConfigItem& item) const {
    const std::vector<std::string> within(item.parents.begin() + 1, item.parents.end());
    const std::string owner = CLI::detail::join(within, ".");
    if (within.empty()) {
      item.name = "quota-" + item.name;
    } else if (is_principal_name(owner)) {
      if (!config_.quota_of.contains(owner)) define(owner);
      item.name = prefix_of(owner) + item.name;
    } else {
      return;
    }
    item.parents.clear();
  }

  void define(const std::string& owner) const {
    session::Amounts& amounts = config_.quota_of[owner];
    for (const QuotaKey& key : kQuotaKeys) {
      add_quota(app_, "--" + prefix_of(owner) + key.key, key, amounts)->group("Of named sockets");
    }
  }

  static std::string prefix_of(const std::string& owner) { return "quota." + owner + '.'; }

  CLI::App& app_;
  rueda::Config& config_;
};

// Defines where the ports are open, and to whom.
void define_doors(CLI::App& app, Config& config) {
  app.add_option("--listen-host", config.listen_host,
                 "Address to listen on. Beyond loopback it takes --tls-dir, or --insecure")
      ->envname("RUEDAD_LISTEN_HOST")
      ->capture_default_str();
  app.add_option("--tls-dir", config.tls_dir,
                 "Folder with tls.crt, tls.key, ca.crt, and crl.pem if there is one: daemons, "
                 "operators and scrapers of metrics show each other certificates, and what they "
                 "say is encrypted. Files that are replaced count at once")
      ->envname("RUEDAD_TLS_DIR");
  app.add_flag("--insecure", config.is_insecure,
               "Listen beyond loopback also without --tls-dir: whoever reaches the ports can read "
               "of all jobs, and pose as a daemon")
      ->envname("RUEDAD_INSECURE");
  app.add_option("--data-protection", config.data_protection,
                 "What protects tensors between nodes: encrypt, authenticate (who changes them on "
                 "the way is noticed), or none; the same on all nodes. Without it: encrypt with "
                 "--tls-dir, and none without")
      ->envname("RUEDAD_DATA_PROTECTION")
      ->check(CLI::IsMember({"none", "authenticate", "encrypt"}));
  app.add_option("--sandbox", config.sandbox,
                 "Whether the daemon gives up system calls and files that it does not need: auto "
                 "(by seccomp and Landlock, as far as the kernel has them), yes (it does not start "
                 "without both), or no")
      ->envname("RUEDAD_SANDBOX")
      ->check(CLI::IsMember({"auto", "yes", "no"}))
      ->capture_default_str();
}

void define_membership(CLI::App& app, Config& config) {
  app.add_option("--nodes", config.nodes,
                 "Static membership: node_id=host:port, separated by commas")
      ->envname("RUEDAD_NODES")
      ->delimiter(',');
  app.add_option("--dial", config.dial,
                 "Where the daemon connects to for jobs: any (where launchers and other nodes of a "
                 "job say), or nodes (the addresses of --nodes, and data ports of those hosts)")
      ->envname("RUEDAD_DIAL")
      ->check(CLI::IsMember({"any", "nodes"}))
      ->capture_default_str();
}

void define_network(CLI::App& app, Config& config) {
  const auto take_sockets = [&config](const std::vector<std::string>& given) {
    config.sockets.clear();
    for (const std::string& text : given) config.sockets.push_back(parse_socket(text).value());
  };
  app.add_option_function<std::vector<std::string>>(
         "--socket", take_sockets,
         "Unix socket of clients and launchers; @name is abstract. With =NAME all who connect "
         "there "
         "are one principal, whatever their users, and none is an operator. May be given several "
         "times")
      ->envname("RUEDAD_SOCKET")
      ->allow_extra_args(false)
      ->check(is_socket())
      ->default_str(config.sockets.front().path);
  app.add_option("--advertise-host", config.advertise_host,
                 "Address that other daemons reach this one by")
      ->envname("RUEDAD_ADVERTISE_HOST");
  app.add_option("--control-port", config.control_port, "gRPC; 0 takes a free one")
      ->envname("RUEDAD_CONTROL_PORT")
      ->capture_default_str();
  app.add_option("--data-port", config.data_ports,
                 "Data plane, one for each data loop, with commas between; 0 takes a free one, and "
                 "so does a loop without one")
      ->delimiter(',')
      ->envname("RUEDAD_DATA_PORT")
      ->capture_default_str();
  app.add_option("--http-port", config.http_port, "/metrics, /healthz, /readyz; 0 takes a free one")
      ->envname("RUEDAD_HTTP_PORT")
      ->capture_default_str();
  app.add_option(
         "--tcp-congestion", config.tcp_congestion,
         "Congestion control of the data plane: auto (reno towards this same host), system, "
         "or an algorithm's name")
      ->envname("RUEDAD_TCP_CONGESTION")
      ->capture_default_str();
  app.add_option("--transport", config.transport,
                 "What carries data between nodes: auto (RDMA where both ends have it, and else "
                 "TCP), rdma (nothing else), tcp, or grpc (all nodes must then say so)")
      ->envname("RUEDAD_TRANSPORT")
      ->check(CLI::IsMember({"auto", "rdma", "tcp", "grpc"}))
      ->capture_default_str();
  app.add_option(
         "--rdma-devices", config.rdma_devices,
         "RDMA devices by name, with commas between, that the streams to a neighbour use in "
         "turn, such as mlx5_0,mlx5_1 with --streams 2; on all nodes as many, in the order "
         "in which they reach each other. Without it: the device of the peer's network")
      ->envname("RUEDAD_RDMA_DEVICES")
      ->delimiter(',')
      ->expected(1, 64);
  app.add_option(
         "--rdma-poll-us", config.rdma_poll_us,
         "For so many microseconds after the last work of an RDMA device its loop looks for "
         "what has come and does not sleep, which costs a core; 0: it waits for events")
      ->envname("RUEDAD_RDMA_POLL_US")
      ->check(CLI::Range(0, 1'000'000))
      ->capture_default_str();
  app.add_option("--streams", config.streams,
                 "Streams to each neighbour, for one flow of work; the same on all nodes")
      ->envname("RUEDAD_STREAMS")
      ->check(CLI::Range(uint32_t{1}, transport::kMaxStreams))
      ->capture_default_str();
}

void define_work(CLI::App& app, Config& config) {
  app.add_option("--fusion-threshold", config.fusion_threshold_bytes,
                 "Tensors that are ready together are reduced as one batch of up to this many "
                 "bytes, such as 16M; 0: each tensor alone, but for groups. The value of the "
                 "job's coordinator counts, where its launcher does not say")
      ->envname("RUEDAD_FUSION_THRESHOLD")
      ->transform(bytes_suffix())
      ->check(CLI::Range(int64_t{0}, static_cast<int64_t>(limits::kMaxTensorBytes)))
      ->capture_default_str();
  app.add_option("--coordination", config.coordination,
                 "How the nodes of a job agree on the order of its operations, where its launcher "
                 "does not say: negotiate, cached, global-sleep, nonblocking, event-driven, "
                 "locked")
      ->envname("RUEDAD_COORDINATION")
      ->check(is_coordination())
      ->capture_default_str();
  app.add_option("--reducer", config.reducer,
                 "Who is a member of a job's ring, where its launcher does not say: node (a node "
                 "adds up its ranks first) or device (each rank by itself)")
      ->envname("RUEDAD_REDUCER")
      ->check(is_reducer())
      ->capture_default_str();
  app.add_option("--inter-node", config.inter_node,
                 "What carries device memory between the nodes of a job, where its launcher does "
                 "not say: rueda (through host memory) or nccl (from a GPU of each node)")
      ->envname("RUEDAD_INTER_NODE")
      ->check(is_inter_node())
      ->capture_default_str();
  app.add_option("--tree-threshold", config.tree.threshold,
                 "In jobs with more nodes than this, reports go up a tree of nodes and the order "
                 "comes down it; the same on all nodes")
      ->envname("RUEDAD_TREE_THRESHOLD")
      ->check(CLI::Range(1, static_cast<int>(limits::kMaxNodes)))
      ->capture_default_str();
  app.add_option("--tree-fan-in", config.tree.fan_in,
                 "Children of a node of that tree; the same on all nodes")
      ->envname("RUEDAD_TREE_FAN_IN")
      ->check(CLI::Range(2, static_cast<int>(limits::kMaxNodes)))
      ->capture_default_str();
  app.add_option("--chunk-bytes", config.chunk_bytes, "Unit that travels; the same on all nodes")
      ->envname("RUEDAD_CHUNK_BYTES")
      ->transform(bytes_suffix())
      ->check(CLI::Range(uint64_t{4096}, uint64_t{4} << 20))
      ->capture_default_str();
  app.add_option("--staging-bytes", config.staging_bytes,
                 "Bound of slots and send buffers of a job; the same on all nodes")
      ->envname("RUEDAD_STAGING_BYTES")
      ->transform(bytes_suffix())
      ->check(CLI::Range(uint64_t{1} << 20, uint64_t{64} << 30))
      ->capture_default_str();
  app.add_option(
         "--reduce-threads", config.reduce_threads,
         "Threads for a pass over the memory of a node's ranks; 0: as many as cores, at most 4")
      ->envname("RUEDAD_REDUCE_THREADS")
      ->check(CLI::Range(0, 64))
      ->capture_default_str();
  app.add_option("--cpus", config.cpus,
                 "CPUs that all threads keep to, such as 0-3,8; empty: where the system puts them")
      ->envname("RUEDAD_CPUS")
      ->check(is_cpus())
      ->capture_default_str();
  app.add_option("--data-loops", config.data_loops,
                 "Threads between memory and network; 0: the control loop's does it; -1: 1, but 0 "
                 "where there are 2 CPUs or fewer. A job has as many as each of its nodes")
      ->envname("RUEDAD_DATA_LOOPS")
      ->check(CLI::Range(-1, 16))
      ->capture_default_str();
  app.add_option(
         "--gpu-plugin", config.gpu_plugin,
         "File of the GPU plugin; default: librueda_cuda.so beside the program or where the "
         "system looks")
      ->envname("RUEDAD_GPU_PLUGIN");
  app.add_option("--gpu-staging-bytes", config.gpu_staging_bytes,
                 "Host memory, and as much of a GPU's, that a job may use for device memory on its "
                 "way between nodes (K, M and G for powers of 1024)")
      ->envname("RUEDAD_GPU_STAGING_BYTES")
      ->transform(bytes_suffix())
      ->check(CLI::Range(uint64_t{1} << 20, uint64_t{1} << 40))
      ->capture_default_str();
  app.add_option("--gpu-adds", config.gpu_adds,
                 "Whether a GPU adds up what arrives from other nodes for batches in device memory "
                 "that are large, or of jobs that always exchange (ruedarun --algorithm "
                 "halving-doubling): yes or no, which is a data loop's work then")
      ->envname("RUEDAD_GPU_ADDS")
      ->check(CLI::IsMember({"yes", "no"}))
      ->capture_default_str();
  app.add_option("--gpu-direct", config.gpu_direct,
                 "Whether a network card reads what a node begins to send from the GPU's memory, "
                 "with --gpu-adds and over RDMA: auto (where both can), or no")
      ->envname("RUEDAD_GPU_DIRECT")
      ->check(CLI::IsMember({"auto", "no"}))
      ->capture_default_str();
  app.add_option("--failure-timeout", config.failure_timeout_seconds,
                 "Seconds that a peer may be silent or make no progress; other waits derive from "
                 "it, and it is the same on all nodes of a job")
      ->envname("RUEDAD_FAILURE_TIMEOUT")
      ->check(CLI::Range(0.1, 3'600.0))
      ->check(is_number())
      ->capture_default_str();
  app.add_option("--start-timeout-ms", config.start_timeout_ms,
                 "How long the ranks of a job may take to arrive")
      ->envname("RUEDAD_START_TIMEOUT_MS")
      ->check(CLI::Range(int64_t{100}, int64_t{86'400'000}))
      ->capture_default_str();
  app.add_option(
         "--stall-check-seconds", config.stall_check_seconds,
         "How long ranks may wait for a tensor of others before it is reported; 0: for ever")
      ->envname("RUEDAD_STALL_CHECK_SECONDS")
      ->check(CLI::Range(0.0, 86'400.0))
      ->check(is_number())
      ->capture_default_str();
  app.add_option("--stall-shutdown-seconds", config.stall_shutdown_seconds,
                 "How long they may wait before the job is ended; 0: for ever")
      ->envname("RUEDAD_STALL_SHUTDOWN_SECONDS")
      ->check(CLI::Range(0.0, 86'400.0))
      ->check(is_number())
      ->capture_default_str();
}

// Defines the limits on what one principal of the node may have at once.
void define_quota(CLI::App& app, Config& config) {
  for (const QuotaKey& key : kQuotaKeys) {
    add_quota(app, std::string("--quota-") + key.key, key, config.quota)->envname(key.variable);
  }
}

void define_rest(CLI::App& app, Config& config) {
  app.add_option("--admin-group", config.admin_group,
                 "Members of this group, a name or a number, see the jobs of all users and may ask "
                 "for probes, as root may, over a socket without a name (default: nobody)")
      ->envname("RUEDAD_ADMIN_GROUP")
      ->check([](const std::string& name) {
        const Result<gid_t> group = find_group(name);
        return group.is_ok() ? std::string() : group.status().message();
      });
  app.add_option("--node-id", config.node_id, "This node's name in jobs and logs")
      ->envname("RUEDAD_NODE_ID")
      ->capture_default_str();
  app.add_option("--label", config.labels,
                 "What is to be known of this node, key=value, separated by commas; nodes with the "
                 "same rack stand next to each other in rings")
      ->envname("RUEDAD_LABEL")
      ->delimiter(',')
      ->check(is_label());
  app.add_option("--log-level", config.log_level, "trace, debug, info, warn, error")
      ->envname("RUEDAD_LOG_LEVEL")
      ->check(CLI::IsMember({"trace", "debug", "info", "warn", "error"}))
      ->capture_default_str();
  app.add_option("--log-format", config.log_format, "text or json")
      ->envname("RUEDAD_LOG_FORMAT")
      ->check(CLI::IsMember({"text", "json"}))
      ->capture_default_str();
  app.add_option("--ready-fd", config.ready_fd,
                 "Write one line of JSON with the addresses there once the daemon serves");
  app.add_option("--leash-fd", config.leash_fd,
                 "End when the other end of this pipe is closed, and not on a signal that may be "
                 "meant for all of a job");
  app.add_option("--tls-fd", config.tls_fd,
                 "With --private: say with one line of JSON to --ready-fd which control port is "
                 "open, and read from here, as another one, the certificate, key and authority to "
                 "go on with; {} is none, as with --insecure");
}

// Sets apart, in the help, what only a measurement or a launcher changes.
void set_advanced_apart(CLI::App& app) {
  for (const char* flag :
       {"--tcp-congestion", "--streams", "--coordination", "--reducer", "--tree-threshold",
        "--tree-fan-in", "--chunk-bytes", "--reduce-threads", "--data-loops", "--gpu-adds",
        "--gpu-direct", "--ready-fd", "--leash-fd", "--tls-fd"}) {
    app.get_option(flag)->group("Advanced");
  }
}

// Returns true if a flag is on the command line itself: CLI11 does not tell where a value came
// from.
bool is_given(int argc, char** argv, const std::string& flag) {
  return std::any_of(argv + 1, argv + argc, [&](const std::string& word) {
    return word == flag || word.starts_with(flag + '=');
  });
}

// Returns the first key that the labels have twice, or "" if there is none.
std::string repeated_key(const std::vector<std::string>& labels) {
  std::set<std::string> keys;
  for (const std::string& label : labels) {
    const std::string key = label.substr(0, label.find('='));
    if (!keys.insert(key).second) return key;
  }
  return "";
}

// Takes free ports for a private daemon, and no certificates: it runs beside the node's own daemon,
// and the file and the environment give that daemon's.
void stand_aside(int argc, char** argv, Config& config) {
  if (!is_given(argc, argv, "--control-port")) config.control_port = 0;
  if (!is_given(argc, argv, "--data-port")) config.data_ports = {0};
  if (!is_given(argc, argv, "--http-port")) config.http_port = 0;
  if (!is_given(argc, argv, "--tls-dir")) config.tls_dir.clear();
  if (!is_given(argc, argv, "--insecure")) config.is_insecure = false;
}

// Returns what is wrong with the sockets and their quotas, or "".
std::string flaw_of_sockets(const Config& config) {
  std::set<std::string> paths;
  std::set<std::string> principals;
  for (const SocketPlace& socket : config.sockets) {
    principals.insert(socket.principal);
    if (!paths.insert(socket.path).second) {
      return "--socket has " + one_line(socket.path) +
             " twice; give each socket once, with one name";
    }
  }
  for (const auto& [owner, amounts] : config.quota_of) {
    if (principals.contains(owner)) continue;
    return "[quota." + owner + "] is of no --socket PATH=" + owner +
           "; name the socket, or leave it out";
  }
  return "";
}

// Returns what is set that cannot protect data, or "".
std::string flaw_of_protection(const Config& config) {
  if (config.data_protection == "none") return "";
  if (config.transport == "rdma") {
    return "RDMA writes into the memory of other nodes as it is, which nothing protects; use "
           "--transport auto or tcp, or --data-protection none";
  }
  if (config.inter_node == core::to_string(core::InterNode::kNccl)) {
    return "NCCL sends in clear; use --inter-node rueda, or --data-protection none";
  }
  return "";
}

}  // namespace

int64_t failure_timeout_ms(const Config& config) {
  return std::llround(config.failure_timeout_seconds * 1000);
}

std::variant<Config, int> read_config(int argc, char** argv) {
  Config config;
  config.node_id = host_name();
  CLI::App app("ruedad: the node daemon of Rueda, gradient averaging as a service of the node",
               "ruedad");
  app.set_version_flag("--version", RUEDA_VERSION);
  app.set_config("--config", "", "TOML file with these settings, by the names of the flags");
  app.config_formatter(std::make_shared<ConfigFile>(app, config));
  app.allow_config_extras(CLI::config_extras_mode::error);
  define_doors(app, config);
  define_network(app, config);
  define_membership(app, config);
  define_work(app, config);
  define_quota(app, config);
  define_rest(app, config);
  app.add_flag("--private", config.is_private,
               "For one job on this machine: free ports, but for those given as flags");
  set_advanced_apart(app);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error);
  }
  if (config.is_private) stand_aside(argc, argv, config);
  if (config.data_protection.empty()) {
    config.data_protection = config.tls_dir.empty() ? "none" : "encrypt";
  }
  if (config.tls_fd >= 0 && (!config.is_private || !config.tls_dir.empty())) {
    std::cerr << "ruedad: --tls-fd is for a launcher's daemon: it takes --private, and no "
                 "--tls-dir\n";
    return 2;
  }
  if (const std::string flaw = flaw_of_protection(config); !flaw.empty()) {
    std::cerr << "ruedad: --data-protection " << config.data_protection << ": " << flaw << '\n';
    return 2;
  }
  if (const std::string flaw = flaw_of_sockets(config); !flaw.empty()) {
    std::cerr << "ruedad: " << flaw << '\n';
    return 2;
  }
  if (const std::string key = repeated_key(config.labels); !key.empty()) {
    std::cerr << "ruedad: --label has " << key << " twice; give each key one value\n";
    return 2;
  }
  if (config.node_id.empty() || config.node_id.size() > limits::kMaxNodeIdBytes) {
    std::cerr << "ruedad: --node-id takes 1 to " << limits::kMaxNodeIdBytes << " bytes\n";
    return 2;
  }
  return config;
}

}  // namespace rueda
