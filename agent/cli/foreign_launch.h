// What mpirun, srun, torchrun and their like tell the processes that they start. Pure functions.
#pragma once

#include <map>
#include <string>

#include "daemon/base/status.h"

namespace rueda::agent {

struct ForeignLaunch {
  // Another one for each launch, the same for all of its ranks on this node; empty: nothing says
  // so.
  std::string id;
  int rank = 0;
  int size = 0;
  // All ranks are on this node.
  bool is_one_node = false;
  // The node of rank 0; empty: nothing says so.
  std::string first_host;
};

// kNotFound: neither Open MPI (OMPI_*) nor a PMI launcher (PMI_*) nor Slurm (SLURM_*) has started
// this process, nor does it have torch.distributed's variables (RANK, WORLD_SIZE, MASTER_ADDR).
// kInvalidArgument names the variable that is missing or wrong.
Result<ForeignLaunch> foreign_launch(const std::map<std::string, std::string>& environment);

// Where the ranks meet: HOST:PORT, or "unix:" and a path in `folder`. $RUEDA_RDZV_ENDPOINT goes
// before what is known. kInvalidArgument says how to name a place.
Result<std::string> meeting_place(const ForeignLaunch& launch,
                                  const std::map<std::string, std::string>& environment,
                                  const std::string& folder);

// "node003" for "node[003-007,12],other"; empty if there is none.
std::string first_of_node_list(const std::string& list);

}  // namespace rueda::agent
