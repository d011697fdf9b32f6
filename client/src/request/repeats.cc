#include "client/src/request/repeats.h"

#include <algorithm>
#include <cstring>

namespace rueda::client {

// If a field is added to these structs, is() must compare it.
static_assert(sizeof(rueda_tensor) == 48);
static_assert(sizeof(rueda_reduce_options) == 40);

bool Repeats::Entry::is(const rueda_tensor& tensor, const rueda_reduce_options* options,
                        std::string_view group, size_t group_size) const {
  if (tensor.input != input_ || tensor.output != output_ || tensor.ndim != ndim_ ||
      tensor.process_set != process_set_ ||
      std::memcmp(&tensor.dtype, &dtype_, sizeof(dtype_)) != 0) {
    return false;
  }
  if (options == nullptr) {
    if (op_ != RUEDA_AVERAGE || prescale_ != 1.0 || postscale_ != 1.0 || record_.priority != 0 ||
        wire_dtype_ != RUEDA_WIRE_SAME) {
      return false;
    }
  } else if (options->struct_bytes < sizeof(rueda_reduce_options) ||
             std::memcmp(&options->op, &op_, sizeof(op_)) != 0 || options->prescale != prescale_ ||
             options->postscale != postscale_ || options->priority != record_.priority ||
             std::memcmp(&options->wire_dtype, &wire_dtype_, sizeof(wire_dtype_)) != 0) {
    return false;
  }
  if (group_size != group_size_ || (group_size > 0 && group != group_)) return false;
  if (ndim_ > 0 && (tensor.shape == nullptr ||
                    !std::equal(tensor.shape, tensor.shape + ndim_, shape_.begin()))) {
    return false;
  }
  return tensor.name != nullptr && std::strcmp(tensor.name, name_) == 0;
}

void Repeats::Entry::prefetch() const {
  const auto* bytes = reinterpret_cast<const std::byte*>(this);
  for (int line = 0; line < 5; ++line) __builtin_prefetch(bytes + line * 64);
}

const Repeats::Entry* Repeats::find(const rueda_tensor& tensor, const rueda_reduce_options* options,
                                    std::string_view group, size_t group_size) {
  Entry* entry = last_ == nullptr ? nullptr : last_->next_;
  if (entry == nullptr || !entry->is(tensor, options, group, group_size)) {
    if (tensor.name == nullptr) return nullptr;
    const auto found = entries_.find(tensor.name);
    if (found == entries_.end() || !found->second.is(tensor, options, group, group_size)) {
      return nullptr;
    }
    entry = &found->second;
    if (last_ != nullptr) last_->next_ = entry;
  }
  last_ = entry;
  fetch_ahead(*entry);
  return entry;
}

void Repeats::fetch_ahead(Entry& entry) {
  Entry*& before = recent_[found_++ % kAhead];
  if (before != nullptr) before->soon_ = &entry;
  before = &entry;
  if (entry.soon_ != nullptr) entry.soon_->prefetch();
}

std::optional<uint32_t> Repeats::remember(const TensorRequest& request,
                                          const rueda_abi_submission& record, uint64_t frees) {
  const rueda_abi_intern& asked = request.descriptor;
  const auto [place, is_new] = entries_.try_emplace(asked.name);
  Entry& entry = place->second;
  const std::optional<uint32_t> before =
      is_new ? std::nullopt : std::optional<uint32_t>(entry.record_.tensor_id);
  entry.name_bytes_ = request.name().size();
  std::memcpy(entry.name_, asked.name, sizeof(entry.name_));
  entry.record_ = record;
  entry.bytes_ = request.bytes();
  entry.frees_ = frees;
  entry.input_ = request.input;
  entry.output_ = request.output;
  entry.ndim_ = asked.ndim;
  std::copy_n(asked.dims, asked.ndim, entry.shape_.begin());
  entry.dtype_ = static_cast<rueda_dtype>(asked.dtype);
  entry.process_set_ = asked.process_set;
  entry.op_ = static_cast<rueda_op>(asked.op);
  entry.prescale_ = asked.prescale;
  entry.postscale_ = asked.postscale;
  entry.wire_dtype_ = static_cast<rueda_wire_dtype>(asked.wire_dtype);
  entry.group_ = asked.group;
  entry.group_size_ = asked.group_size;
  if (last_ != nullptr) last_->next_ = &entry;
  last_ = &entry;
  return before;
}

}  // namespace rueda::client
