// ruedarun's command line.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "agent/cli/agreement_settings.h"
#include "daemon/base/status.h"

namespace rueda::agent {

struct Options {
  // Ranks: on this node, or, with virtual nodes, over all of them.
  int ranks = 1;
  // 0: none.
  int virtual_nodes = 0;
  int nnodes = 1;
  int node_rank = 0;
  std::string rdzv_endpoint;
  std::string rdzv_id;
  // From --rdzv-secret-file or $RUEDA_RDZV_SECRET; empty: none.
  std::string rdzv_secret;
  // Of a daemon that runs; empty: see use_default_socket().
  std::string socket;
  // Empty: looked for next to ruedarun, then on PATH.
  std::string ruedad;
  std::vector<std::string> daemon_args;
  std::string log_level;
  int64_t start_timeout_ms = 60'000;
  int64_t grace_ms = 5'000;
  bool has_prefix = true;
  bool is_verbose = false;
  // Registers the process that has started this one, instead of starting any.
  bool is_for_rank = false;
  AgreementSettings agreement;
  // How long ranks of the job may wait for others; none: the daemon's default.
  std::optional<int64_t> stall_check_ms;
  std::optional<int64_t> stall_shutdown_ms;
  // A timeline is written there; absolute. Empty: none.
  std::string timeline;
  bool timeline_has_chunks = false;
  bool checks_finite = false;
  // The node's daemon and each rank get cores of their own (binding.h).
  bool binds = false;
  // What people may want to know about what was asked for.
  std::vector<std::string> notes;
  // The program and its arguments.
  std::vector<std::string> command;
};

// Either the options, or text to print and end with: help, version, or an error in usage.
struct ParseOutcome {
  std::optional<Options> options;
  std::string text;
  bool is_error = false;
  int exit_code = 0;
};

// `arguments` without the program's name; `environment` is what getenv would say. Everything from
// the first word that is not a flag, or after "--", belongs to the program that is started.
ParseOutcome parse_options(const std::vector<std::string>& arguments,
                           const std::map<std::string, std::string>& environment);

}  // namespace rueda::agent
