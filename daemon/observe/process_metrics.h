// Collects the process_* metrics that every Prometheus client library exports, and that dashboards
// expect: CPU time, resident memory, file descriptors, start time. They are read from the kernel at
// each call.
#pragma once

#include <vector>

#include <prometheus/metric_family.h>

namespace rueda::observe {

// Returns the metrics. A value that the kernel does not give is left out. Thread-safe.
std::vector<prometheus::MetricFamily> collect_process_metrics();

}  // namespace rueda::observe
