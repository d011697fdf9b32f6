#include "daemon/core/modes/response_cache.h"

#include <algorithm>

namespace rueda::core {
namespace {

// The number of dropped tensors that are remembered, as a multiple of the capacity: steps that are
// larger than the cache by up to this factor are recognised.
constexpr size_t kRememberedTimes = 8;

}  // namespace

std::optional<uint32_t> ResponseCache::find(const TensorDescriptor& tensor) const {
  const auto it = slots_.find(tensor.name);
  if (it == slots_.end() || *it->second.tensor != tensor) return std::nullopt;
  return it->second.number;
}

DescriptorPtr ResponseCache::at(uint32_t slot, uint64_t version) const {
  if (slot >= history_.size()) return nullptr;
  const std::deque<Content>& contents = history_[slot];
  for (auto it = contents.rbegin(); it != contents.rend(); ++it) {
    if (it->since <= version) return it->tensor;
  }
  return nullptr;
}

void ResponseCache::on_decreed(const std::vector<DescriptorPtr>& batch) {
  ++version_;
  for (const DescriptorPtr& tensor : batch) insert(tensor);
}

void ResponseCache::insert(const DescriptorPtr& tensor) {
  const uint64_t use = ++uses_;
  if (const auto it = slots_.find(tensor->name); it != slots_.end()) {
    by_use_.erase(it->second.used);
    it->second.used = use;
    by_use_.emplace(use, tensor->name);
    if (*it->second.tensor != *tensor) {
      it->second.tensor = tensor;
      set_content(it->second.number, tensor);
    }
    return;
  }
  if (dropped_names_.contains(tensor->name)) {
    capacity_ *= 2;
    // The other dropped tensors would have stayed in a cache of the new size, too.
    dropped_.clear();
    dropped_names_.clear();
  }
  if (slots_.size() >= capacity_) drop_least_lately_used();
  if (free_.empty()) {
    free_.insert(static_cast<uint32_t>(history_.size()));
    history_.emplace_back();
  }
  const uint32_t number = *free_.begin();
  free_.erase(free_.begin());
  slots_.emplace(tensor->name, Slot{number, use, tensor});
  by_use_.emplace(use, tensor->name);
  set_content(number, tensor);
}

void ResponseCache::drop_least_lately_used() {
  const auto oldest = by_use_.begin();
  const auto it = slots_.find(oldest->second);
  free_.insert(it->second.number);
  set_content(it->second.number, nullptr);
  dropped_.push_back(it->first);
  dropped_names_.insert(it->first);
  if (dropped_.size() > kRememberedTimes * capacity_) {
    dropped_names_.erase(dropped_.front());
    dropped_.pop_front();
  }
  slots_.erase(it);
  by_use_.erase(oldest);
}

void ResponseCache::set_content(uint32_t slot, DescriptorPtr tensor) {
  history_[slot].push_back({version_, std::move(tensor)});
}

void ResponseCache::forget_before(uint64_t version) {
  for (std::deque<Content>& contents : history_) {
    while (contents.size() > 1 && contents[1].since <= version) contents.pop_front();
  }
}

}  // namespace rueda::core
