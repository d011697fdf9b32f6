// What rueda-bench can be asked for, by the names that nccl-tests has, and what is known of each.
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
// Of several ranks; the others are one process of its own.
bool needs_job(Work work);
// A collective of buffers, measured by size.
bool has_sizes(Work work);
// Has operators.
bool reduces(Work work);
bool has_root(Work work);
// Each rank has a part of the elements to itself.
bool has_parts(Work work);
// All ranks end with the same values, whose bits can be compared.
bool ends_alike(Work work);

// What a link carries meanwhile, whatever the number of ranks; `algbw` is the larger side's bytes
// a second. As nccl-tests defines it (doc/PERFORMANCE.md there; its sources for gather and
// scatter).
double busbw_GBps(Work work, double algbw, int nranks);

}  // namespace rueda::bench
