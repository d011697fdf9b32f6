// This process's place in its job: rueda_init's options, or else the environment.
#pragma once

#include <cstdint>
#include <string>

#include "client/include/rueda/rueda.h"
#include "daemon/base/status.h"

namespace rueda::client {

struct Config {
  std::string socket_path;
  std::string job_id;
  std::string token;  // RUEDA_ABI_TOKEN_BYTES raw bytes
  int32_t rank = 0;
  int32_t local_rank = 0;
  int64_t timeout_ms = 60'000;
  // The job goes on when its parts die: a daemon that is not there is waited for, because another
  // follows it.
  bool is_elastic = false;
  // The most bytes of host memory that may be pinned for device memory that the GPU worker cannot
  // open.
  int64_t device_staging_bytes = int64_t{1} << 30;
};

// Resolves the options, which may be NULL. Ranks that mpirun, srun, torchrun or the like started
// meet in this function, which waits for all of them (launched.h). An error names the variable that
// is missing or makes no sense.
Result<Config> resolve_config(const rueda_init_options* options);

}  // namespace rueda::client
