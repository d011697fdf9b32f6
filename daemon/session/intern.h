// A client's description of a tensor, checked, and the ids that stand for it in submissions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "client/abi/rueda_abi.h"
#include "daemon/base/limits.h"
#include "daemon/base/status.h"
#include "daemon/core/descriptor.h"

namespace rueda::session {

// Every field is checked; the error names the tensor, the field and its value.
Result<core::TensorDescriptor> descriptor_from_abi(const rueda_abi_intern& abi);
Result<core::TensorDescriptor> descriptor_from_abi(const rueda_abi_process_set& abi);

// The tensors of one session. The same descriptor gets the same id, from 0 up.
class TensorTable {
 public:
  explicit TensorTable(size_t capacity = limits::kMaxTensorsPerSession) : capacity_(capacity) {}

  Result<uint32_t> intern(const rueda_abi_intern& abi);
  Result<uint32_t> intern(const rueda_abi_process_set& abi);
  // A part of a plan: 0 until the last. An error forgets the parts before.
  Result<uint32_t> intern(const rueda_abi_plan& abi);
  // nullptr when there is none.
  const std::shared_ptr<const core::TensorDescriptor>& find(uint32_t id) const;

 private:
  Result<uint32_t> add(Result<core::TensorDescriptor> tensor);
  Result<core::TensorDescriptor> plan_of(const std::vector<uint32_t>& words) const;

  size_t capacity_;
  std::vector<std::shared_ptr<const core::TensorDescriptor>> tensors_;
  // Ordered, so that a hostile client cannot choose names that collide.
  std::map<std::string, uint32_t> ids_;
  std::vector<uint32_t> plan_words_;  // of the parts so far
  size_t words_of_plans_ = 0;         // of those in the table
};

}  // namespace rueda::session
