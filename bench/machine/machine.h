// Runs the commands that need no job: what the machine can do, and what the models look like.
#pragma once

#include "bench/cli/options.h"
#include "bench/cli/report.h"

namespace rueda::bench {

// Each function prints a table and writes JSON lines. Errors are thrown as Failure.
void report_limits(const Options& options, JsonLines* json);
void report_floor(const Options& options, JsonLines* json);
void report_models(const Options& options, JsonLines* json);

}  // namespace rueda::bench
