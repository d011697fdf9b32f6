#include "bench/run/job.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

namespace rueda::bench {
namespace {

constexpr size_t kAlignment = 64;

// Throws Failure if the code is an error. It makes no text while all goes well, because that time
// would be measured.
void require(int code, const char* what, const char* name = "") {
  if (code >= 0) return;
  throw Failure(std::string(what) + name + " failed: " + rueda_last_error() + " (" +
                rueda_error_name(code) + ")");
}

}  // namespace

Job::Job(int64_t timeout_ms) : timeout_ms_(timeout_ms) {
  require(rueda_init(nullptr), "attaching to the node's daemon");
  rank_ = rueda_rank();
  nranks_ = rueda_size();
  nnodes_ = rueda_cross_size();
}

Job::~Job() { rueda_shutdown(); }

rueda_reduce_options Job::reduce_options(rueda_op op) const {
  return {.struct_bytes = sizeof(rueda_reduce_options),
          .op = op,
          .prescale = 1.0,
          .postscale = 1.0,
          .wire_dtype = wire_};
}

rueda_handle Job::allreduce_async(const rueda_tensor& tensor, rueda_op op) {
  const rueda_reduce_options options = reduce_options(op);
  rueda_handle handle = 0;
  require(rueda_allreduce_async(&tensor, &options, &handle), "allreduce ", tensor.name);
  return handle;
}

void Job::wait(rueda_handle handle, const char* name) {
  require(rueda_wait(handle, timeout_ms_, nullptr), "waiting for ", name);
}

void Job::allreduce(const rueda_tensor& tensor, rueda_op op) {
  const rueda_reduce_options options = reduce_options(op);
  require(rueda_allreduce(&tensor, &options, timeout_ms_), "allreduce ", tensor.name);
}

void Job::broadcast(const rueda_tensor& tensor, int root) {
  require(rueda_broadcast(&tensor, root, timeout_ms_), "broadcast ", tensor.name);
}

void Job::reduce(const rueda_tensor& tensor, rueda_op op, int root) {
  const rueda_reduce_options options = reduce_options(op);
  require(rueda_reduce(&tensor, root, &options, timeout_ms_), "reduce ", tensor.name);
}

void Job::allgather(const rueda_tensor& tensor) {
  require(rueda_allgather(&tensor, nullptr, timeout_ms_), "allgather ", tensor.name);
}

void Job::reduce_scatter(const rueda_tensor& tensor, rueda_op op) {
  const rueda_reduce_options options = reduce_options(op);
  require(rueda_reduce_scatter(&tensor, nullptr, &options, timeout_ms_), "reduce-scatter ",
          tensor.name);
}

void Job::alltoall(const rueda_tensor& tensor) {
  require(rueda_alltoall(&tensor, nullptr, timeout_ms_), "alltoall ", tensor.name);
}

void Job::gather(const rueda_tensor& tensor, int root) {
  require(rueda_gather(&tensor, nullptr, root, timeout_ms_), "gather ", tensor.name);
}

void Job::scatter(const rueda_tensor& tensor, int root) {
  require(rueda_scatter(&tensor, nullptr, root, timeout_ms_), "scatter ", tensor.name);
}

void Job::declare(std::span<const rueda_tensor> step, rueda_op op) {
  const rueda_reduce_options options = reduce_options(op);
  std::vector<rueda_planned_tensor> plan;
  for (const rueda_tensor& tensor : step) plan.push_back({.tensor = tensor, .options = &options});
  require(rueda_plan_declare(plan.data(), plan.size()), "declaring a plan");
}

void Job::barrier() { require(rueda_barrier("bench/barrier", timeout_ms_), "barrier"); }

void Job::synchronize() {
  int32_t value = 0;
  const int64_t one = 1;
  const rueda_tensor tensor = {.name = "bench/synchronize",
                               .input = &value,
                               .output = &value,
                               .shape = &one,
                               .ndim = 1,
                               .dtype = RUEDA_INT32};
  require(rueda_allreduce(&tensor, nullptr, timeout_ms_), "allreduce ", tensor.name);
}

std::vector<std::vector<int64_t>> Job::gather(std::span<const int64_t> row) {
  const auto count = static_cast<int64_t>(row.size());
  std::vector<std::vector<int64_t>> rows(static_cast<size_t>(nranks_));
  std::vector<std::string> names;
  std::vector<rueda_handle> handles(rows.size());
  for (int root = 0; root < nranks_; ++root) {
    names.push_back("bench/gather/" + std::to_string(root) + "/" + std::to_string(count));
  }
  for (int root = 0; root < nranks_; ++root) {
    const auto i = static_cast<size_t>(root);
    rows[i].assign(row.begin(), row.end());
    const rueda_tensor tensor = {.name = names[i].c_str(),
                                 .input = rows[i].data(),
                                 .output = rows[i].data(),
                                 .shape = &count,
                                 .ndim = 1,
                                 .dtype = RUEDA_INT64};
    require(rueda_broadcast_async(&tensor, root, &handles[i]), "broadcast ", names[i].c_str());
  }
  for (size_t i = 0; i < handles.size(); ++i) wait(handles[i], names[i].c_str());
  return rows;
}

Buffer::Buffer(size_t bytes, bool foreign) : foreign_(foreign) {
  const size_t rounded = std::max((bytes + kAlignment - 1) / kAlignment * kAlignment, kAlignment);
  data_ = foreign ? std::aligned_alloc(kAlignment, rounded) : rueda_alloc(rounded);
  if (data_ == nullptr) {
    const std::string why = foreign ? "out of memory" : rueda_last_error();
    throw Failure("cannot allocate " + std::to_string(rounded) + " bytes: " + why);
  }
  std::memset(data_, 0, rounded);
}

Buffer::~Buffer() {
  if (foreign_) {
    std::free(data_);
  } else {
    rueda_free(data_);
  }
}

}  // namespace rueda::bench
