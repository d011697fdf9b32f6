// Reads the variables that mpirun, srun, torchrun and their like set for the processes that they
// start. Pure functions.
#pragma once

#include <map>
#include <string>

#include "daemon/base/status.h"

namespace rueda::agent {

struct ForeignLaunch {
  // An id that differs for each launch, and is the same for all ranks of the launch on this node.
  // It is empty if no variable has one.
  std::string id;
  int rank = 0;
  int size = 0;
  // True if all ranks are on this node.
  bool is_one_node = false;
  // The node of rank 0. It is empty if no variable names the node.
  std::string first_host;
};

// Reads a launch. kNotFound means that neither Open MPI (OMPI_*) nor a PMI launcher (PMI_*) nor
// Slurm (SLURM_*) has started this process, and that it does not have torch.distributed's variables
// (RANK, WORLD_SIZE, MASTER_ADDR). kInvalidArgument names the variable that is missing or wrong.
Result<ForeignLaunch> external_launcher(const std::map<std::string, std::string>& environment);

// Returns the place where the ranks meet: HOST:PORT, or "unix:" and a path in `folder`.
// $RUEDA_RDZV_ENDPOINT overrides what the launch says. kInvalidArgument says how to name a place.
Result<std::string> meeting_place(const ForeignLaunch& launch,
                                  const std::map<std::string, std::string>& environment,
                                  const std::string& folder);

// Returns "node003" for "node[003-007,12],other"; "" if the list has no node.
std::string first_of_node_list(const std::string& list);

}  // namespace rueda::agent
