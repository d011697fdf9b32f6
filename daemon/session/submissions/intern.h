// Interning checks a client's description of a tensor and gives it an id, which stands for the
// tensor in submissions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "client/abi/rueda_abi.h"
#include "daemon/base/limits.h"
#include "daemon/base/parts.h"
#include "daemon/base/status.h"
#include "daemon/core/model/descriptor.h"
#include "daemon/session/users/ledger.h"

namespace rueda::session {

// Checks every field; the error names the tensor, the field and its value. `counts` are the counts
// that the client sent before this message.
Result<core::TensorDescriptor> descriptor_from_abi(const rueda_abi_intern& abi,
                                                   std::vector<int64_t> counts = {});
Result<core::TensorDescriptor> descriptor_from_abi(const rueda_abi_process_set& abi);

// The tensors of one session. Equal descriptors at equal places get the same id; the first id is 0.
class TensorTable {
 public:
  // `memory` is charged for what the table keeps.
  explicit TensorTable(size_t capacity = limits::kMaxTensorsPerSession, Charge memory = {})
      : capacity_(capacity), memory_(std::move(memory)) {}

  struct Tensor {
    std::shared_ptr<const core::TensorDescriptor> descriptor;
    Extent extent;      // The elements that the rank that has interned the tensor gives and gets.
    int32_t place = 0;  // The client's own place, for kinds in which each rank has a part.
    int32_t places = 0;
    bool is_planned = false;  // True if a declared plan contains the tensor, which is then kept.
  };

  // Interns a tensor for `rank`, with the counts that have been taken since the last tensor.
  Result<uint32_t> intern(const rueda_abi_intern& abi, Rank rank);
  // Takes some of the counts of the tensor that is interned next. An error drops the counts that
  // were taken before.
  Status take_counts(const rueda_abi_counts& abi);
  Result<uint32_t> intern(const rueda_abi_process_set& abi);
  // Takes one part of a plan, and returns the plan's id with the last part and 0 before. An error
  // drops the parts that were taken before.
  Result<uint32_t> intern(const rueda_abi_plan& abi);
  // Removes a tensor; its id may be given to another one later. Whoever holds the descriptor keeps
  // it. Returns kNotFound if there is no such tensor, and kInvalidArgument if a declared plan
  // contains it or if the id is not a tensor's.
  Status forget(uint32_t id);
  // Returns nullptr if no tensor has this id.
  const Tensor* find(uint32_t id) const;

 private:
  Result<uint32_t> add(Result<core::TensorDescriptor> tensor);
  Result<uint32_t> add(Tensor tensor);
  Result<core::TensorDescriptor> plan_of(const std::vector<uint32_t>& words);

  size_t capacity_;
  Charge memory_;
  std::vector<Tensor> tensors_;  // The index is the id; an entry without a descriptor is free.
  std::vector<uint32_t> free_ids_;
  // The map is ordered, so that a hostile client cannot choose names that collide.
  std::map<std::string, uint32_t> ids_;
  std::vector<uint32_t> plan_words_;  // The parts so far of a plan that is not complete.
  size_t words_of_plans_ = 0;         // The words of all plans in the table.
  std::vector<int64_t> counts_;       // The counts of the tensor that is interned next.
  size_t counts_of_tensors_ = 0;      // The counts of all tensors in the table.
};

}  // namespace rueda::session
