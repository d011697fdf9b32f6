// The response cache (as in Horovod; docs/protocol.md): tensors seen before have a number, so that
// a report is a bit and a decree a list of small numbers. All nodes of an epoch feed theirs the
// same decreed operations in the same order, and so hold the same tensors in the same slots.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "daemon/core/messages/messages.h"

namespace rueda::core {

class ResponseCache {
 public:
  // Holds `capacity` tensors and drops those not decreed for longest; a tensor that comes back soon
  // after it was dropped shows that a step has more, and doubles the capacity.
  explicit ResponseCache(size_t capacity) : capacity_(capacity) {}

  // Returns the slot that holds exactly this tensor, if there is one.
  std::optional<uint32_t> find(const TensorDescriptor& tensor) const;
  // Returns the tensor that was in the slot after `version` operations, or null if none was, or
  // that is too long ago.
  DescriptorPtr at(uint32_t slot, uint64_t version) const;
  // Takes in the next decreed operation that is not an error.
  void on_decreed(const std::vector<DescriptorPtr>& batch);
  // Returns how many operations on_decreed() was told of.
  uint64_t version() const { return version_; }
  // Nobody asks for versions before this one any more, so they are forgotten.
  void forget_before(uint64_t version);

  size_t size() const { return slots_.size(); }
  size_t capacity() const { return capacity_; }

 private:
  struct Slot {
    uint32_t number;
    uint64_t used;  // The count of decreed tensors at its last use.
    DescriptorPtr tensor;
  };
  struct Content {
    uint64_t since;  // The version from which on the tensor was there.
    DescriptorPtr tensor;
  };

  void insert(const DescriptorPtr& tensor);
  void drop_least_lately_used();
  void set_content(uint32_t slot, DescriptorPtr tensor);

  size_t capacity_;
  uint64_t version_ = 0;
  uint64_t uses_ = 0;
  std::map<std::string, Slot> slots_;       // The key is the tensor's name.
  std::map<uint64_t, std::string> by_use_;  // The tensors by their last use, the oldest first.
  std::set<uint32_t> free_;
  std::vector<std::deque<Content>> history_;  // The index is the slot.
  std::deque<std::string> dropped_;           // Tensors dropped lately, the oldest first.
  std::set<std::string> dropped_names_;       // The same tensors as in dropped_.
};

}  // namespace rueda::core
