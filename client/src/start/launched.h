// Processes that mpirun, srun, torchrun or the like have started, or nobody, without ruedarun:
// `ruedarun
// --for-rank`, which this library runs beside them, finds the other ranks and registers the job
// with the daemon.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "daemon/base/status.h"

namespace rueda::client {

// Whether the environment has a rank of Open MPI's, of a PMI launcher's, of a step of Slurm's or of
// torch.distributed's.
bool is_launched_by_others();
// Whether the environment has nothing at all of a rank's: the program is the only rank of a job,
// and that is said once, on standard error.
bool is_launched_by_nobody();

// What ruedarun would have put into the environment. Waits for all ranks of the job, `timeout_ms`
// at most; `socket` is the daemon's. Once it has worked, later calls give the same. Not
// thread-safe.
Result<std::map<std::string, std::string>> join_launched(const std::string& socket,
                                                         int64_t timeout_ms);

}  // namespace rueda::client
