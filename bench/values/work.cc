#include "bench/values/work.h"

namespace rueda::bench {

const char* to_string(Work work) {
  switch (work) {
    case Work::kAllreduce: return "allreduce";
    case Work::kBroadcast: return "broadcast";
    case Work::kReduce: return "reduce";
    case Work::kAllgather: return "allgather";
    case Work::kReduceScatter: return "reduce_scatter";
    case Work::kAlltoall: return "alltoall";
    case Work::kGather: return "gather";
    case Work::kScatter: return "scatter";
    case Work::kBarrier: return "barrier";
    case Work::kStep: return "step";
    case Work::kLimits: return "limits";
    case Work::kFloor: return "floor";
    case Work::kModels: return "models";
  }
  return "unknown";
}

bool needs_job(Work work) {
  return work != Work::kLimits && work != Work::kFloor && work != Work::kModels;
}

bool has_sizes(Work work) {
  return needs_job(work) && work != Work::kBarrier && work != Work::kStep;
}

bool reduces(Work work) {
  return work == Work::kAllreduce || work == Work::kReduce || work == Work::kReduceScatter;
}

bool has_root(Work work) {
  return work == Work::kBroadcast || work == Work::kReduce || work == Work::kGather ||
         work == Work::kScatter;
}

bool has_parts(Work work) {
  return work == Work::kAllgather || work == Work::kReduceScatter || work == Work::kAlltoall ||
         work == Work::kGather || work == Work::kScatter;
}

bool ends_alike(Work work) {
  return work == Work::kAllreduce || work == Work::kBroadcast || work == Work::kAllgather;
}

double busbw_GBps(Work work, double algbw, int nranks) {
  const double others = static_cast<double>(nranks - 1) / nranks;
  if (work == Work::kAllreduce) return algbw * 2 * others;
  return has_parts(work) ? algbw * others : algbw;
}

}  // namespace rueda::bench
