// What a caller asks for, checked and put into the form that the daemon interns.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "client/abi/rueda_abi.h"
#include "client/include/rueda/rueda.h"
#include "daemon/base/dtype.h"
#include "daemon/base/status.h"

namespace rueda::client {

// One tensor of one submission. Pointers are the caller's.
struct TensorRequest {
  rueda_abi_intern descriptor{};  // unused bytes are zero
  std::vector<int64_t> counts;    // of the parts; empty: as even as can be
  const std::byte* input = nullptr;
  std::byte* output = nullptr;
  size_t input_bytes = 0;   // 0: this rank gives nothing
  size_t output_bytes = 0;  // 0: it gets nothing
  // Where they lie in the row of all parts. In place means: in it.
  size_t input_at_bytes = 0;
  size_t output_at_bytes = 0;
  bool can_be_in_place = true;
  size_t element_bytes = 1;
  int32_t priority = 0;
  bool writes_output = true;  // false: a broadcast in place, on the root

  std::string_view name() const { return descriptor.name; }
  size_t bytes() const { return std::max(input_bytes, output_bytes); }
  // The input is that stretch of the output's memory, if the caller wants it.
  bool input_lies_in_output() const {
    return can_be_in_place && input_at_bytes >= output_at_bytes &&
           input_at_bytes + input_bytes <= output_at_bytes + output_bytes;
  }
};

// This rank among those of a process set.
struct SetPlace {
  int rank = 0;    // in the job
  int place = 0;   // in the set; its ranks ascending
  int places = 1;  // the set's ranks
  int world_size = 1;
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
Result<TensorRequest> check_reduce(const rueda_tensor* tensor, const rueda_reduce_options* options,
                                   int root_rank, const SetPlace& self);
// Allgather, or gather: the tensor's shape is that of this rank's input. first_dims NULL: as here
// on all ranks; else one for each rank.
Result<TensorRequest> check_gathering(CollectiveKind kind, const rueda_tensor* tensor,
                                      const int64_t* first_dims, int root_rank,
                                      const SetPlace& self);
// Reduce-scatter, or scatter: the shape is that of the whole input. first_dims NULL: as even as can
// be. options of the former.
Result<TensorRequest> check_scattering(CollectiveKind kind, const rueda_tensor* tensor,
                                       const int64_t* first_dims,
                                       const rueda_reduce_options* options, int root_rank,
                                       const SetPlace& self);
// The shape is that of this rank's input. splits NULL: equal ones; else places x places of them.
Result<TensorRequest> check_alltoall(const rueda_tensor* tensor, const int64_t* splits,
                                     const SetPlace& self);
Result<TensorRequest> check_barrier(const char* name, uint32_t process_set = 0);
Result<TensorRequest> describe_join();

// Remembers the ids that the daemon gave to descriptors, so that each is sent once. The whole
// descriptor is the key: the same name with another shape or operator is another tensor. Names,
// shapes and counts may be others every time: those not asked for for longest are forgotten on both
// sides when there are too many. Thread-safe.
class InternCache {
 public:
  using Intern =
      std::function<Result<uint32_t>(const rueda_abi_intern&, std::span<const int64_t> counts)>;
  using Forget = std::function<Status(uint32_t id)>;
  // Of those with counts, which are large, and of the others.
  static constexpr size_t kMostWithCounts = 1024;
  static constexpr size_t kMost = 65536;

  InternCache(Intern intern, Forget forget)
      : intern_(std::move(intern)), forget_(std::move(forget)) {}
  // It is not forgotten before release().
  Result<uint32_t> id_of(const rueda_abi_intern& descriptor, std::span<const int64_t> counts = {});
  // Once more: of one that is not released yet.
  void hold(uint32_t id);
  // Its submission has ended.
  void release(uint32_t id);

 private:
  struct Known {
    const std::string* key = nullptr;  // of ids_
    uint32_t id = 0;
  };
  using Order = std::list<Known>;  // the one asked for last is the last

  bool is_held(uint32_t id);
  void forget_oldest(Order& order);

  Intern intern_;
  Forget forget_;
  std::mutex mutex_;  // held while the daemon is asked: two threads do not ask for the same
  std::unordered_map<std::string, Order::iterator> ids_;
  Order with_counts_;
  Order without_counts_;
  std::string key_;             // kept to reuse its memory
  std::mutex held_mutex_;       // taken last, also by those who hold what intern_ takes
  std::vector<uint32_t> held_;  // how many hold it, by id
};

}  // namespace rueda::client
