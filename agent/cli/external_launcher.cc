#include "agent/cli/external_launcher.h"

#include <algorithm>
#include <charconv>

#include "agent/base/text.h"
#include "daemon/base/hash.h"
#include "daemon/base/limits.h"

namespace rueda::agent {
namespace {

using Variables = std::map<std::string, std::string>;

// A rendezvous that nobody has given a port gets one of the kPortCount ports from here, which
// follows from the launch's id.
constexpr int kFirstPort = 28500;
constexpr int kPortCount = 1000;

std::string value_of(const Variables& variables, const std::string& name) {
  const auto found = variables.find(name);
  return found == variables.end() ? "" : found->second;
}

std::string first_value_of(const Variables& variables, std::initializer_list<const char*> names) {
  for (const char* name : names) {
    if (const std::string value = value_of(variables, name); !value.empty()) return value;
  }
  return "";
}

Result<int> number_in(const Variables& variables, const std::string& name, int least, int most) {
  const std::string text = value_of(variables, name);
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < least || value > most) {
    return Status(Code::kInvalidArgument, name + "=\"" + text + "\" is not a number from " +
                                              std::to_string(least) + " to " +
                                              std::to_string(most) +
                                              ": the program must be started by mpirun, srun or "
                                              "ruedarun");
  }
  return value;
}

Status read_place(const Variables& variables, const std::string& rank, const std::string& size,
                  ForeignLaunch& out) {
  const Result<int> count = number_in(variables, size, 1, limits::kMaxRanks);
  if (!count.is_ok()) return count.status();
  const Result<int> place = number_in(variables, rank, 0, count.value() - 1);
  if (!place.is_ok()) return place.status();
  out.rank = place.value();
  out.size = count.value();
  return Status::ok();
}

// Reads what torchrun, or a script that calls init_process_group, says. A run's id may be "none",
// but its port belongs to this run alone.
Result<ForeignLaunch> torch_launch(const Variables& variables) {
  ForeignLaunch out;
  if (Status status = read_place(variables, "RANK", "WORLD_SIZE", out); !status.is_ok()) {
    return status;
  }
  out.first_host = value_of(variables, "MASTER_ADDR");
  out.id = value_of(variables, "RUEDA_LAUNCH_ID");
  if (out.id.empty()) {
    out.id = value_of(variables, "TORCHELASTIC_RUN_ID") + "." +
             value_of(variables, "TORCHELASTIC_RESTART_COUNT") + "." +
             value_of(variables, "MASTER_PORT");
  }
  out.is_one_node =
      out.size == 1 || value_of(variables, "LOCAL_WORLD_SIZE") == value_of(variables, "WORLD_SIZE");
  return out;
}

}  // namespace

std::string first_of_node_list(const std::string& list) {
  const size_t bracket = list.find('[');
  const size_t comma = list.find(',');
  if (bracket == std::string::npos || comma < bracket) return list.substr(0, comma);
  const size_t end = list.find(']', bracket);
  if (end == std::string::npos) return "";
  const std::string inside = list.substr(bracket + 1, end - bracket - 1);
  const std::string first = inside.substr(0, inside.find_first_of("-,"));
  const std::string rest = list.substr(end + 1);
  return list.substr(0, bracket) + first + rest.substr(0, rest.find(','));
}

// An allocation by Slurm may hold an mpirun, and a step a torchrun; the launcher that Slurm started
// then has another place than its ranks have. So the innermost launcher is asked first. A batch
// script has Slurm's variables too, but no step.
Result<ForeignLaunch> external_launcher(const Variables& variables) {
  ForeignLaunch out;
  Status status;
  const std::string step = first_value_of(variables, {"SLURM_STEP_ID", "SLURM_STEPID"});
  const bool has_torch_rank = variables.contains("RANK") && variables.contains("WORLD_SIZE");
  const bool is_torchs =
      variables.contains("RUEDA_LAUNCH_ID") || variables.contains("TORCHELASTIC_RUN_ID");
  if (has_torch_rank && is_torchs) return torch_launch(variables);
  if (variables.contains("OMPI_COMM_WORLD_RANK")) {
    status = read_place(variables, "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", out);
    out.id = first_value_of(variables, {"PMIX_NAMESPACE", "OMPI_MCA_orte_ess_jobid"});
    out.is_one_node = value_of(variables, "OMPI_COMM_WORLD_LOCAL_SIZE") ==
                      value_of(variables, "OMPI_COMM_WORLD_SIZE");
  } else if (variables.contains("PMI_RANK")) {
    status = read_place(variables, "PMI_RANK", "PMI_SIZE", out);
    out.id = value_of(variables, "PMI_JOBID");
    out.is_one_node = value_of(variables, "MPI_LOCALNRANKS") == value_of(variables, "PMI_SIZE") ||
                      value_of(variables, "PMI_LOCAL_SIZE") == value_of(variables, "PMI_SIZE");
  } else if (variables.contains("SLURM_PROCID") && !step.empty()) {
    const bool has_step_size = variables.contains("SLURM_STEP_NUM_TASKS");
    status = read_place(variables, "SLURM_PROCID",
                        has_step_size ? "SLURM_STEP_NUM_TASKS" : "SLURM_NTASKS", out);
  } else if (has_torch_rank && variables.contains("MASTER_ADDR")) {
    return torch_launch(variables);
  } else {
    return Status(Code::kNotFound,
                  "neither mpirun nor srun nor torchrun has started this process: the variables "
                  "OMPI_COMM_WORLD_RANK, PMI_RANK, SLURM_PROCID with SLURM_STEP_ID, and RANK with "
                  "WORLD_SIZE and MASTER_ADDR are not set");
  }
  if (!status.is_ok()) return status;
  if (!step.empty()) {
    if (out.id.empty()) out.id = value_of(variables, "SLURM_JOB_ID") + "." + step;
    out.first_host = first_of_node_list(
        first_value_of(variables, {"SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST"}));
    out.is_one_node = out.is_one_node ||
                      first_value_of(variables, {"SLURM_STEP_NUM_NODES", "SLURM_NNODES"}) == "1";
  }
  out.is_one_node = out.is_one_node || out.size == 1;
  return out;
}

Result<std::string> meeting_place(const ForeignLaunch& launch, const Variables& variables,
                                  const std::string& folder) {
  const std::string given = value_of(variables, "RUEDA_RDZV_ENDPOINT");
  if (!given.empty()) {
    const auto endpoint = parse_host_port(given);
    if (endpoint && endpoint->port != 0) return given;
    return Status(Code::kInvalidArgument,
                  "RUEDA_RDZV_ENDPOINT=\"" + given + "\" is not HOST:PORT with a fixed port");
  }
  if (launch.is_one_node && !launch.id.empty()) {
    std::string name = launch.id;
    std::replace_if(
        name.begin(), name.end(), [](char c) { return c == '/' || c == ':'; }, '-');
    return "unix:" + folder + "/" + name;
  }
  if (!launch.first_host.empty()) {
    const uint64_t spread = Fnv1a().add(launch.id).value();
    return join_host_port(launch.first_host, kFirstPort + static_cast<int>(spread % kPortCount));
  }
  return Status(Code::kInvalidArgument,
                "where the ranks meet must be said: set RUEDA_RDZV_ENDPOINT to HOST:PORT for all "
                "of them, HOST being the node of rank 0, as in mpirun -x "
                "RUEDA_RDZV_ENDPOINT=node1:29400");
}

}  // namespace rueda::agent
