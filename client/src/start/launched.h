// Finds the job of processes that ruedarun did not start, but mpirun, srun, torchrun or the like,
// or nobody. This library runs `ruedarun --for-rank` beside them, which finds the other ranks and
// registers the job with the daemon.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "daemon/base/status.h"

namespace rueda::client {

// Returns true if the environment has a rank of Open MPI's, of a PMI launcher's, of a step of
// Slurm's or of torch.distributed's.
bool is_launched_by_others();
// Returns true if the environment has nothing at all of a rank's: the program is then the only rank
// of a job. That is said once, on standard error.
bool is_launched_by_nobody();

// Returns the variables that ruedarun would have put into the environment. It waits for all ranks
// of the job, at most `timeout_ms`; `socket` is the daemon's. Once it has succeeded, later calls
// return the same, unless RUEDA_LAUNCH_ID is another one by then: the process has been given a
// place in another job, and the last one's ruedarun is ended. Not thread-safe.
Result<std::map<std::string, std::string>> join_launched(const std::string& socket,
                                                         int64_t timeout_ms);

}  // namespace rueda::client
