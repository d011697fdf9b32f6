// ruedarun's command line.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "agent/cli/agreement_settings.h"
#include "agent/cli/elastic_settings.h"
#include "agent/rendezvous/rendezvous_auth.h"
#include "daemon/base/status.h"

namespace rueda::agent {

struct Options {
  // The number of ranks: on this node or, with virtual nodes, on all of them together.
  int ranks = 1;
  // The number of nodes that this machine stands for; 0 means that there are no virtual nodes.
  int virtual_nodes = 0;
  int nnodes = 1;  // The most, in an elastic job.
  // In an elastic job, the number of nodes with which it begins; otherwise 0.
  int min_nodes = 0;
  int node_rank = 0;
  std::string rdzv_endpoint;
  std::string rdzv_id;
  // By what nodes show each other that they are of one job.
  RendezvousAuth rdzv_auth;
  // The socket of a daemon that runs already. It is empty if none was named (see
  // use_default_socket() in bringup.cc).
  std::string socket;
  // The path of ruedad. If it is empty, ruedad is looked for next to ruedarun, then on PATH.
  std::string ruedad;
  std::vector<std::string> daemon_args;
  std::string log_level;
  int64_t start_timeout_ms = 60'000;
  int64_t grace_ms = 5'000;
  bool has_prefix = true;
  bool is_verbose = false;
  // If true, ranks get their token in a variable and not by a descriptor.
  bool has_token_in_environment = false;
  // If true, the process that started this one is registered, and none is started.
  bool is_for_rank = false;
  AgreementSettings agreement;
  // The time that ranks of the job may wait for others; nullopt means the daemon's default.
  std::optional<int64_t> stall_check_ms;
  std::optional<int64_t> stall_shutdown_ms;
  // The absolute path that a timeline is written to. It is empty if none is written.
  std::string timeline;
  bool timeline_has_chunks = false;
  bool checks_finite = false;
  // Present if the job is elastic, with --min-np.
  std::optional<ElasticSettings> elastic;
  // A command that says how many ranks this host has, of an elastic job. It is empty if there is
  // none; otherwise `ranks` is the number with which the job begins here, 0: any.
  std::string discovery_script;
  // If true, the node's daemon and each rank get cores of their own (binding.h).
  bool binds = false;
  // Sentences for the user about what was asked for.
  std::vector<std::string> notes;
  // The program and its arguments.
  std::vector<std::string> command;
};

// The result of parsing: either the options, or text to print before the launcher ends, which is
// help, the version, or an error in usage.
struct ParseOutcome {
  std::optional<Options> options;
  std::string text;
  bool is_error = false;
  int exit_code = 0;
};

// Parses the command line. `arguments` lacks the program's name; `environment` has the variables
// that getenv would return. Everything from the first word that is not a flag, or after "--",
// belongs to the program that is started.
ParseOutcome parse_options(const std::vector<std::string>& arguments,
                           const std::map<std::string, std::string>& environment);

// Returns whether nodes may come to the rendezvous when the others have met: in an elastic job on
// several nodes whose rendezvous lets no stranger in, or which nobody reaches from elsewhere.
bool may_come_late(const Options& options);

// Returns the mode of coordination that the command line, its preset or the variables name; "" if
// none of them does, or the command line cannot be parsed.
std::string coordination_of(const std::vector<std::string>& arguments,
                            const std::map<std::string, std::string>& environment);

}  // namespace rueda::agent
