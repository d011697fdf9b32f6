// Lists what rueda-bench can be asked for, by the names that nccl-tests has, and what is known of
// each kind of work.
#pragma once

namespace rueda::bench {

enum class Work {
  kAllreduce,
  kBroadcast,
  kReduce,
  kAllgather,
  kReduceScatter,
  kAlltoall,
  kGather,
  kScatter,
  kBarrier,
  kStep,
  kLimits,
  kFloor,
  kModels
};
const char* to_string(Work work);
// Returns true for work of several ranks; other work needs one process alone.
bool needs_job(Work work);
// Returns true for a collective of buffers, which is measured by size.
bool has_sizes(Work work);
// Returns true for work that has operators.
bool reduces(Work work);
bool has_root(Work work);
// Returns true if each rank has a part of the elements to itself.
bool has_parts(Work work);
// Returns true if all ranks end with the same values, whose bits can be compared.
bool ends_alike(Work work);

// Returns the bandwidth that a link carries meanwhile, whatever the number of ranks; `algbw` is the
// larger side's bytes a second. It is as nccl-tests defines it (doc/PERFORMANCE.md there; its
// sources for gather and scatter).
double busbw_GBps(Work work, double algbw, int nranks);

}  // namespace rueda::bench
