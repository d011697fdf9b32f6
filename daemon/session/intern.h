// A client's description of a tensor, checked, and the ids that stand for it in submissions.
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
#include "daemon/session/ledger.h"

namespace rueda::session {

// Every field is checked; the error names the tensor, the field and its value. `counts` came
// before.
Result<core::TensorDescriptor> descriptor_from_abi(const rueda_abi_intern& abi,
                                                   std::vector<int64_t> counts = {});
Result<core::TensorDescriptor> descriptor_from_abi(const rueda_abi_process_set& abi);

// The tensors of one session. The same descriptor gets the same id, from 0 up.
class TensorTable {
 public:
  // `memory` is charged with what the table keeps.
  explicit TensorTable(size_t capacity = limits::kMaxTensorsPerSession, Charge memory = {})
      : capacity_(capacity), memory_(std::move(memory)) {}

  struct Tensor {
    std::shared_ptr<const core::TensorDescriptor> descriptor;
    Extent extent;      // of the rank that has interned it
    int32_t place = 0;  // where each rank has a part: as it says
    int32_t places = 0;
    bool is_planned = false;  // a declared plan has it, and keeps it
  };

  // By `rank`. With the counts that were taken since the last.
  Result<uint32_t> intern(const rueda_abi_intern& abi, Rank rank);
  // Some counts of the tensor that is interned next. An error forgets those before.
  Status take_counts(const rueda_abi_counts& abi);
  Result<uint32_t> intern(const rueda_abi_process_set& abi);
  // A part of a plan: 0 until the last. An error forgets the parts before.
  Result<uint32_t> intern(const rueda_abi_plan& abi);
  // A tensor that no plan has; its id may come again. Who holds the descriptor keeps it. kNotFound
  // if there is none.
  Status forget(uint32_t id);
  // nullptr when there is none.
  const Tensor* find(uint32_t id) const;

 private:
  Result<uint32_t> add(Result<core::TensorDescriptor> tensor);
  Result<uint32_t> add(Tensor tensor);
  Result<core::TensorDescriptor> plan_of(const std::vector<uint32_t>& words);

  size_t capacity_;
  Charge memory_;
  std::vector<Tensor> tensors_;  // by id; without a descriptor: free
  std::vector<uint32_t> free_ids_;
  // Ordered, so that a hostile client cannot choose names that collide.
  std::map<std::string, uint32_t> ids_;
  std::vector<uint32_t> plan_words_;  // of the parts so far
  size_t words_of_plans_ = 0;         // of those in the table
  std::vector<int64_t> counts_;       // of the tensor to come
  size_t counts_of_tensors_ = 0;      // of those in the table
};

}  // namespace rueda::session
