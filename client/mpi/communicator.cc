#include "client/mpi/communicator.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <numeric>
#include <utility>

#include "client/jax/large_pages.h"
#include "client/mpi/constants.h"
#include "client/mpi/errors.h"

namespace rueda::mpi {
namespace {

// Waits for an operation that has been submitted with this result, and returns an MPI code.
int finish(int submitted, rueda_handle handle) {
  if (submitted < 0) return error_of_rueda(submitted);
  const int ended = rueda_wait(handle, -1, nullptr);
  return ended < 0 ? error_of_rueda(ended) : MPIABI_SUCCESS;
}

rueda_reduce_options options_of(const Operator& op) {
  rueda_reduce_options options{};
  options.struct_bytes = sizeof(options);
  options.op = op.op;
  options.prescale = 1.0;
  options.postscale = 1.0;
  return options;
}

}  // namespace

Communicator::Communicator(uint32_t number, std::vector<int32_t> ranks, uint32_t process_set)
    : number_(number),
      ranks_(std::move(ranks)),
      process_set_(process_set),
      by_rank_(ranks_.size()) {
  const auto mine = std::find(ranks_.begin(), ranks_.end(), rueda_rank());
  mine_ = static_cast<int>(mine - ranks_.begin());
  std::iota(by_rank_.begin(), by_rank_.end(), size_t{0});
  std::sort(by_rank_.begin(), by_rank_.end(),
            [this](size_t a, size_t b) { return ranks_[a] < ranks_[b]; });
  is_ascending_ = std::is_sorted(by_rank_.begin(), by_rank_.end());
}

Communicator::Communicator(std::string problem) : problem_(std::move(problem)), ranks_(1) {}

int Communicator::check() const {
  return problem_.empty() ? MPIABI_SUCCESS : error_of(MPIABI_ERR_COMM, problem_);
}

// What XLA calls again and again has the same name each time, so that librueda and the daemon know
// it (docs/decisions/0097-jaxlib-through-mpi.md).
std::string Communicator::name_of(const char* what, const Type& type, const char* op,
                                  int64_t count) const {
  return "mpi." + std::to_string(number_) + "." + what + "." + type.name + op + "." +
         std::to_string(count);
}

int Communicator::allreduce(const void* input, void* output, int64_t count, Type type,
                            Operator op) const {
  if (const int problem = check(); problem != MPIABI_SUCCESS) return problem;
  const size_t bytes = static_cast<size_t>(count) * type.bytes;
  if (ranks_.size() == 1) {
    if (input != output && bytes > 0) std::memcpy(output, input, bytes);
    return MPIABI_SUCCESS;
  }
  jax::prefer_large_pages(output, bytes);
  const std::string name = name_of("allreduce", type, op.name, count);
  const rueda_tensor tensor{name.c_str(), input, output, &count, 1, type.dtype, process_set_};
  const rueda_reduce_options options = options_of(op);
  rueda_handle handle = 0;
  const int submitted = rueda_allreduce_async(&tensor, &options, &handle);
  return finish(submitted, handle);
}

int Communicator::allgather(const void* input, void* output, int64_t count, Type type) const {
  if (const int problem = check(); problem != MPIABI_SUCCESS) return problem;
  const size_t bytes = static_cast<size_t>(count) * type.bytes;
  if (ranks_.size() == 1) {
    if (bytes > 0) std::memcpy(output, input, bytes);
    return MPIABI_SUCCESS;
  }
  jax::prefer_large_pages(output, bytes * ranks_.size());
  // librueda has the parts in the order of ranks.
  std::unique_ptr<char[]> parts(is_ascending_ ? nullptr : new char[bytes * ranks_.size()]);
  const std::string name = name_of("allgather", type, "", count);
  const rueda_tensor tensor{name.c_str(), input,       parts ? parts.get() : output, &count, 1,
                            type.dtype,   process_set_};
  rueda_handle handle = 0;
  const int submitted = rueda_allgather_async(&tensor, nullptr, &handle);
  const int code = finish(submitted, handle);
  if (code == MPIABI_SUCCESS && parts && bytes > 0) {
    for (size_t i = 0; i < by_rank_.size(); ++i) {
      std::memcpy(static_cast<char*>(output) + by_rank_[i] * bytes, parts.get() + i * bytes, bytes);
    }
  }
  return code;
}

int Communicator::reduce_scatter(const void* input, void* output, const int* counts, Type type,
                                 Operator op) const {
  if (const int problem = check(); problem != MPIABI_SUCCESS) return problem;
  std::vector<size_t> begins(ranks_.size());  // of the places' parts, in elements
  int64_t total = 0;
  for (size_t place = 0; place < ranks_.size(); ++place) {
    begins[place] = static_cast<size_t>(total);
    total += counts[place];
  }
  if (ranks_.size() == 1) {
    if (total > 0) std::memcpy(output, input, static_cast<size_t>(total) * type.bytes);
    return MPIABI_SUCCESS;
  }
  std::vector<int64_t> rows;
  std::unique_ptr<char[]> parts(is_ascending_ ? nullptr
                                              : new char[static_cast<size_t>(total) * type.bytes]);
  char* end = parts.get();
  for (const size_t place : by_rank_) {
    rows.push_back(counts[place]);
    const size_t bytes = static_cast<size_t>(counts[place]) * type.bytes;
    if (!parts || bytes == 0) continue;
    std::memcpy(end, static_cast<const char*>(input) + begins[place] * type.bytes, bytes);
    end += bytes;
  }
  jax::prefer_large_pages(output, static_cast<size_t>(counts[mine_]) * type.bytes);
  const std::string name = name_of("reduce_scatter", type, op.name, total);
  const rueda_tensor tensor{
      name.c_str(), parts ? parts.get() : input, output, &total, 1, type.dtype, process_set_};
  const rueda_reduce_options options = options_of(op);
  rueda_handle handle = 0;
  const int submitted = rueda_reduce_scatter_async(&tensor, rows.data(), &options, &handle);
  return finish(submitted, handle);
}

int Communicator::send(const void* data, int64_t count, Type type, int place, int tag,
                       rueda_handle* handle) const {
  if (const int problem = check_place(place); problem != MPIABI_SUCCESS) return problem;
  const int submitted = rueda_send_async(
      data, count, type.dtype, ranks_[static_cast<size_t>(place)], tag_of(tag), 0, handle);
  return submitted < 0 ? error_of_rueda(submitted) : MPIABI_SUCCESS;
}

int Communicator::receive(void* data, int64_t count, Type type, int place, int tag,
                          rueda_handle* handle) const {
  if (const int problem = check_place(place); problem != MPIABI_SUCCESS) return problem;
  const int submitted = rueda_recv_async(
      data, count, type.dtype, ranks_[static_cast<size_t>(place)], tag_of(tag), 0, handle);
  return submitted < 0 ? error_of_rueda(submitted) : MPIABI_SUCCESS;
}

// Messages of different communicators never match, though librueda sends them all among all ranks.
int64_t Communicator::tag_of(int tag) const {
  return static_cast<int64_t>(number_) << 32 | static_cast<uint32_t>(tag);
}

int Communicator::check_place(int place) const {
  if (const int problem = check(); problem != MPIABI_SUCCESS) return problem;
  if (place >= 0 && place < size()) return MPIABI_SUCCESS;
  return error_of(MPIABI_ERR_RANK, "the communicator has ranks 0 to " + std::to_string(size() - 1) +
                                       ", and " + std::to_string(place) + " is none of them");
}

}  // namespace rueda::mpi
