// The daemon's settings: flags, RUEDAD_* environment variables and a TOML file have one definition,
// and precedence in this order. docs/operations.md lists them.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <variant>
#include <vector>

#include "daemon/base/principal.h"
#include "daemon/core/model/coordination.h"
#include "daemon/core/model/inter_node.h"
#include "daemon/core/model/reducer.h"
#include "daemon/core/model/tree.h"
#include "daemon/session/users/ledger.h"

namespace rueda {

struct Config {
  std::string node_id;              // The default is the host's name.
  std::vector<std::string> labels;  // The labels of this node, as key=value.
  std::vector<SocketPlace> sockets = {{"/run/rueda/ruedad.sock", ""}};
  std::string listen_host = "127.0.0.1";  // Beyond the loopback certificates are needed.
  bool is_insecure = false;      // Ports beyond the loopback may be open without certificates.
  std::string tls_dir;           // The folder of certificates; empty: none are used.
  std::string sandbox = "auto";  // It is "auto", "yes" or "no" (security::SandboxOptions).
  std::string advertise_host;    // The host by which others reach this node; empty: the launcher's.
  uint16_t control_port = 28400;
  // One for each data loop; loops beyond the list take free ports.
  std::vector<uint16_t> data_ports = {28401};
  uint16_t http_port = 28402;
  std::vector<std::string> nodes;  // The static membership, as node_id=host:port.
  std::string dial = "any";        // Which nodes jobs may have: any, or "nodes", those of the list.
  int64_t fusion_threshold_bytes = int64_t{64} << 20;
  std::string coordination = core::to_string(core::kDefaultCoordination);
  std::string reducer = core::to_string(core::Reducer::kNode);
  std::string inter_node = core::to_string(core::InterNode::kRueda);
  core::TreeOptions tree;
  uint64_t chunk_bytes = 256u << 10;
  uint64_t staging_bytes = 64u << 20;
  int reduce_threads = 0;  // 0 means as many as cores, at most 4.
  std::string cpus;        // The CPUs of the daemon's threads; empty: the system chooses.
  // -1 means 1, but 0 with 2 CPUs or fewer; with 0 the control loop does the work.
  int data_loops = -1;
  // The plugin of GPU workers; empty: librueda_cuda.so, where it is looked for.
  std::string gpu_plugin;
  uint64_t gpu_staging_bytes = uint64_t{1} << 30;
  std::string gpu_adds = "no";
  std::string gpu_direct = "auto";
  // The group of which members are operators, by name or number; empty: root and the daemon's own
  // user alone.
  std::string admin_group;
  // The most that one principal of this node may have; 0 means the default of session::Quota for
  // this machine.
  session::Amounts quota;
  // The same for principals of named sockets, by name; 0 means what `quota` says.
  std::map<std::string, session::Amounts> quota_of;
  double failure_timeout_seconds = 5;
  int64_t start_timeout_ms = 60'000;
  double stall_check_seconds = 10;    // 0 means that stalls are not looked for.
  double stall_shutdown_seconds = 0;  // 0 means that a stall never ends a job.
  std::string tcp_congestion = "auto";
  uint32_t streams = 1;            // To each neighbour.
  std::string transport = "auto";  // It is "auto", "rdma", "tcp" or "grpc".
  // It is "none", "authenticate" or "encrypt"; empty: whether there are certificates decides.
  std::string data_protection;
  std::vector<std::string> rdma_devices;
  int64_t rdma_poll_us = 0;
  std::string log_level = "info";
  std::string log_format = "text";
  bool is_private = false;  // True for a launcher's daemon, which serves one job.
  // A descriptor to which one line of JSON is written when the daemon is ready; -1: none.
  int ready_fd = -1;
  // For a private daemon, a descriptor whose other end its launcher holds as long as it lives.
  int leash_fd = -1;
  // For a private daemon, a descriptor from which its certificate comes once its launcher has met
  // the others of the job; -1: none. It may be that of the leash.
  int tls_fd = -1;
};

// Returns the failure timeout in milliseconds.
int64_t failure_timeout_ms(const Config& config);

// Returns the settings, or the exit code with which the program has to end (after help, version, or
// a bad flag: the text has been printed).
std::variant<Config, int> read_config(int argc, char** argv);

}  // namespace rueda
