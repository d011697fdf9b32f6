#include "client/src/session/handle_table.h"

namespace rueda::client {

Handle& HandleTable::take(size_t operations) {
  if (free_handles_.empty()) {
    handles_.push_back(std::make_unique<Handle>());
    handles_.back()->place = static_cast<uint32_t>(handles_.size() - 1);
    free_handles_.push_back(handles_.back().get());
  }
  Handle& handle = *free_handles_.back();
  free_handles_.pop_back();
  handle.id = ++handles_taken_ << kPlaceBits | handle.place;
  handle.is_abandoned = handle.is_staged = handle.holds_tensors = false;
  handle.copied_in_bytes = 0;
  handle.pending = operations;
  handle.error = Status::ok();
  handle.callback = {};
  handle.waiters = 0;
  handle.operations.resize(operations);
  for (Operation& operation : handle.operations) operation.begin(handle);
  return handle;
}

std::string_view HandleTable::kept_name(std::string_view name) {
  if (names_.size() >= names_swept_at_) {
    std::unordered_set<const char*> used;
    for (const auto& handle : handles_) {
      for (const Operation& operation : handle->operations) used.insert(operation.name.data());
    }
    std::erase_if(names_, [&used](const std::string& kept) { return !used.contains(kept.data()); });
    names_swept_at_ = std::max(InternCache::kMost, 2 * names_.size());
  }
  return *names_.emplace(name).first;
}

const Operation& HandleTable::first_in_flight() const {
  return **std::find_if(in_flight_.begin(), in_flight_.end(),
                        [](const Operation* operation) { return operation != nullptr; });
}

}  // namespace rueda::client
