#include "daemon/core/messages/fusion.h"

#include <algorithm>

#include "daemon/base/hash.h"

namespace rueda::core {
namespace {

int64_t unit_bytes(const FusionUnit& unit) {
  int64_t bytes = 0;
  for (const DescriptorPtr& tensor : unit.tensors) bytes += tensor->bytes();
  return bytes;
}

}  // namespace

bool can_fuse(const TensorDescriptor& a, const TensorDescriptor& b) {
  return a.kind == CollectiveKind::kAllreduce && b.kind == CollectiveKind::kAllreduce &&
         a.dtype == b.dtype && a.op == b.op && a.process_set == b.process_set &&
         a.prescale == b.prescale && a.postscale == b.postscale && a.wire_dtype == b.wire_dtype &&
         a.memory == b.memory;
}

std::vector<DescriptorPtr> take_batch(std::deque<FusionUnit>& queue, const FusionOptions& options) {
  RUEDA_CHECK(!queue.empty());
  std::vector<DescriptorPtr> batch = std::move(queue.front().tensors);
  queue.pop_front();
  int64_t bytes = 0;
  for (const DescriptorPtr& tensor : batch) bytes += tensor->bytes();

  // Units that fit are moved out; the survivors of the inspected stretch slide to its end, so that
  // one erase at the front closes the gap.
  const size_t inspected = std::min(queue.size(), options.look_ahead_units);
  std::vector<FusionUnit> kept;
  for (size_t i = 0; i < inspected; ++i) {
    FusionUnit& unit = queue[i];
    const int64_t more = unit_bytes(unit);
    if (can_fuse(*batch.front(), *unit.tensors.front()) &&
        bytes + more <= options.threshold_bytes) {
      bytes += more;
      batch.insert(batch.end(), unit.tensors.begin(), unit.tensors.end());
    } else {
      kept.push_back(std::move(unit));
    }
  }
  const size_t taken = inspected - kept.size();
  std::move(kept.begin(), kept.end(), queue.begin() + static_cast<std::ptrdiff_t>(taken));
  queue.erase(queue.begin(), queue.begin() + static_cast<std::ptrdiff_t>(taken));
  return batch;
}

uint64_t plan_hash(const std::vector<DescriptorPtr>& batch) {
  Fnv1a h;
  h.add(batch.size());
  for (const DescriptorPtr& tensor : batch) h.add(tensor->hash());
  return h.value();
}

}  // namespace rueda::core
