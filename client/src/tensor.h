// What a caller asks for, checked and put into the form that the daemon interns.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>

#include "client/abi/rueda_abi.h"
#include "client/include/rueda/rueda.h"
#include "daemon/base/status.h"

namespace rueda::client {

// One tensor of one submission. Pointers are the caller's.
struct TensorRequest {
  rueda_abi_intern descriptor{};  // unused bytes are zero
  const std::byte* input = nullptr;
  std::byte* output = nullptr;
  size_t bytes = 0;
  size_t element_bytes = 1;
  int32_t priority = 0;
  bool reads_input = true;    // false: a broadcast, on a rank that is not the root
  bool writes_output = true;  // false: a broadcast in place, on the root

  std::string_view name() const { return descriptor.name; }
};

// group "" and group_size 0: not grouped.
Result<TensorRequest> check_allreduce(const rueda_tensor* tensor,
                                      const rueda_reduce_options* options, const std::string& group,
                                      size_t group_size);
// Without a look at the memory, which need not be there yet.
Result<TensorRequest> describe_allreduce(const rueda_tensor* tensor,
                                         const rueda_reduce_options* options,
                                         const std::string& group, size_t group_size);
Result<TensorRequest> check_broadcast(const rueda_tensor* tensor, int root_rank, int rank,
                                      int world_size);
Result<TensorRequest> check_barrier(const char* name, uint32_t process_set = 0);
Result<TensorRequest> describe_join();

// Remembers the ids that the daemon gave to descriptors, so that each is sent once. The whole
// descriptor is the key: the same name with another shape or operator is another tensor.
// Thread-safe.
class InternCache {
 public:
  using Intern = std::function<Result<uint32_t>(const rueda_abi_intern&)>;
  explicit InternCache(Intern intern) : intern_(std::move(intern)) {}
  Result<uint32_t> id_of(const rueda_abi_intern& descriptor);

 private:
  Intern intern_;
  std::mutex mutex_;  // held while the daemon is asked: two threads do not ask for the same
  std::unordered_map<std::string, uint32_t> ids_;
  std::string key_;  // kept to reuse its memory
};

}  // namespace rueda::client
