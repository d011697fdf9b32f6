// Checks a caller's request, and puts it into the form that the daemon interns.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "client/abi/rueda_abi.h"
#include "client/include/rueda/rueda.h"
#include "daemon/base/dtype.h"
#include "daemon/base/mutex.h"
#include "daemon/base/status.h"

namespace rueda::client {

// One tensor of one submission. The pointers are to the caller's memory.
struct TensorRequest {
  rueda_abi_intern descriptor{};  // unused bytes are zero
  std::vector<int64_t> counts;    // rows of each part; empty: as even as can be
  const std::byte* input = nullptr;
  std::byte* output = nullptr;
  size_t input_bytes = 0;   // 0: this rank contributes no data
  size_t output_bytes = 0;  // 0: this rank receives no data
  // These two say where input and output begin among the parts of all ranks, one behind the other.
  // A parted tensor is in place if both lie so in the same memory.
  size_t input_at_bytes = 0;
  size_t output_at_bytes = 0;
  bool can_be_in_place = true;
  size_t element_bytes = 1;
  int32_t priority = 0;
  bool writes_output = true;  // false for a broadcast in place on the root

  std::string_view name() const { return descriptor.name; }
  size_t bytes() const { return std::max(input_bytes, output_bytes); }
  // Returns true if the input would lie inside the output's memory, should the caller want the
  // operation in place.
  bool input_lies_in_output() const {
    return can_be_in_place && input_at_bytes >= output_at_bytes &&
           input_at_bytes + input_bytes <= output_at_bytes + output_bytes;
  }
};

// This rank's place among the ranks of a process set.
struct SetPlace {
  int rank = 0;    // in the job
  int place = 0;   // in the set, whose ranks are in ascending order
  int places = 1;  // number of ranks in the set
  int world_size = 1;
};

// group "" and group_size 0 mean that the tensor is not grouped.
Result<TensorRequest> check_allreduce(const rueda_tensor* tensor,
                                      const rueda_reduce_options* options, const std::string& group,
                                      size_t group_size);
// Describes an all-reduce without its memory, which need not exist yet.
Result<TensorRequest> describe_allreduce(const rueda_tensor* tensor,
                                         const rueda_reduce_options* options,
                                         const std::string& group, size_t group_size);
Result<TensorRequest> check_broadcast(const rueda_tensor* tensor, int root_rank, int rank,
                                      int world_size);
Result<TensorRequest> check_reduce(const rueda_tensor* tensor, const rueda_reduce_options* options,
                                   int root_rank, const SetPlace& self);
// Checks an all-gather or a gather. The tensor's shape is that of this rank's input. first_dims has
// one entry for each rank; NULL means that all ranks have as many rows as this rank.
Result<TensorRequest> check_gathering(CollectiveKind kind, const rueda_tensor* tensor,
                                      const int64_t* first_dims, int root_rank,
                                      const SetPlace& self);
// Checks a reduce-scatter or a scatter. The shape is that of the whole input. first_dims NULL means
// parts as even as can be. Only a reduce-scatter has options.
Result<TensorRequest> check_scattering(CollectiveKind kind, const rueda_tensor* tensor,
                                       const int64_t* first_dims,
                                       const rueda_reduce_options* options, int root_rank,
                                       const SetPlace& self);
// Checks an all-to-all. The shape is that of this rank's input. splits has places x places entries;
// NULL means equal parts.
Result<TensorRequest> check_alltoall(const rueda_tensor* tensor, const int64_t* splits,
                                     const SetPlace& self);
Result<TensorRequest> check_barrier(const char* name, uint32_t process_set = 0);
Result<TensorRequest> describe_join();

// Remembers the ids that the daemon gave to descriptors, so that each descriptor is sent once. The
// whole descriptor is the key: the same name with another shape or operator is another tensor.
// Names, shapes and counts may differ every time: when there are too many descriptors, those that
// have not been asked for for longest are forgotten on both sides. Thread-safe.
class InternCache {
 public:
  using Intern =
      std::function<Result<uint32_t>(const rueda_abi_intern&, std::span<const int64_t> counts)>;
  using Forget = std::function<Status(uint32_t id)>;
  // The most descriptors with counts, which are large, and the most others.
  static constexpr size_t kMaxWithCounts = 1024;
  static constexpr size_t kMost = 65536;

  InternCache(Intern intern, Forget forget)
      : intern_(std::move(intern)), forget_(std::move(forget)) {}
  // Returns the id of a descriptor, and asks the daemon for one if necessary. The id is held: it is
  // not forgotten before release().
  Result<uint32_t> id_of(const rueda_abi_intern& descriptor, std::span<const int64_t> counts = {});
  // Holds an id that is held already once more.
  void hold(uint32_t id);
  // Releases an id that was held, because its submission has ended.
  void release(uint32_t id);

 private:
  struct Known {
    const std::string* key = nullptr;  // the key in ids_
    uint32_t id = 0;
  };
  using Order = std::list<Known>;  // the descriptor asked for last is at the end

  bool is_held(uint32_t id);
  void forget_oldest(Order& order) RUEDA_REQUIRES(mutex_);

  Intern intern_;
  Forget forget_;
  // held while the daemon is asked, so that two threads do not ask for the same descriptor
  Mutex mutex_;
  std::unordered_map<std::string, Order::iterator> ids_ RUEDA_GUARDED_BY(mutex_);
  Order with_counts_ RUEDA_GUARDED_BY(mutex_);
  Order without_counts_ RUEDA_GUARDED_BY(mutex_);
  std::string key_ RUEDA_GUARDED_BY(mutex_);  // kept to reuse its memory
  Mutex held_mutex_;  // locked last, also by threads that hold the locks that intern_ takes
  std::vector<uint32_t> held_
      RUEDA_GUARDED_BY(held_mutex_);  // how many submissions hold an id, indexed by id
};

}  // namespace rueda::client
