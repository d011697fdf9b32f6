// Remembers earlier submissions in the caller's words: a training step asks for the same tensors in
// the same memory again and again, and then nothing needs to be checked, looked up or translated.
// Not thread-safe: Session calls it under its lock.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>

#include "client/abi/rueda_abi.h"
#include "client/include/rueda/rueda.h"
#include "client/src/request/tensor.h"

namespace rueda::client {

class Repeats {
 public:
  // A remembered all-reduce none of whose memory is foreign. A step reads a thousand entries, so
  // the fields that are compared lie together: five cache lines, unless the name is long.
  class alignas(64) Entry {
   public:
    const rueda_abi_submission& record() const { return record_; }  // without a ticket
    size_t bytes() const { return bytes_; }
    // The number of freed blocks at the time when the memory was found to be inside a live block.
    uint64_t frees() const { return frees_; }
    // The name lives as long as the entry, which is never forgotten.
    std::string_view name() const { return {name_, name_bytes_}; }

   private:
    friend class Repeats;
    bool is(const rueda_tensor& tensor, const rueda_reduce_options* options, std::string_view group,
            size_t group_size) const;
    void prefetch() const;

    const void* input_ = nullptr;
    void* output_ = nullptr;
    Entry* next_ = nullptr;  // the entry submitted next,
    Entry* soon_ = nullptr;  // and the one submitted kAhead later
    double prescale_ = 1.0;
    double postscale_ = 1.0;
    rueda_dtype dtype_ = RUEDA_FLOAT32;
    uint32_t process_set_ = 0;
    rueda_op op_ = RUEDA_AVERAGE;
    rueda_wire_dtype wire_dtype_ = RUEDA_WIRE_SAME;
    rueda_abi_submission record_{};
    uint64_t frees_ = 0;
    size_t bytes_ = 0;
    int32_t ndim_ = -1;
    uint32_t group_size_ = 0;
    size_t name_bytes_ = 0;
    std::array<int64_t, RUEDA_ABI_MAX_DIMS> shape_{};
    char name_[RUEDA_ABI_NAME_BYTES] = {};
    std::string group_;
  };

  // Finds the entry of a request, or null if it is not remembered. The arguments need not have been
  // checked. group "" and group_size 0 mean that the tensor is not grouped.
  const Entry* find(const rueda_tensor& tensor, const rueda_reduce_options* options,
                    std::string_view group, size_t group_size);
  // Remembers a submission in place of the one that was remembered under the same name, and returns
  // the tensor id that the earlier one had.
  std::optional<uint32_t> remember(const TensorRequest& request, const rueda_abi_submission& record,
                                   uint64_t frees);

 private:
  // Memory is prefetched for the entry that is so many places ahead: a step's entries are more than
  // a cache holds.
  static constexpr size_t kAhead = 4;

  void fetch_ahead(Entry& entry);

  std::unordered_map<std::string, Entry> entries_;  // there are as many as interned names
  Entry* last_ = nullptr;
  std::array<Entry*, kAhead> recent_{};  // the entries found last
  size_t found_ = 0;
};

}  // namespace rueda::client
