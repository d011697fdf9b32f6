#include "daemon/core/messages/batch_check.h"

namespace rueda::core {
namespace {

std::string quoted(const TensorDescriptor& tensor) { return "tensor \"" + tensor.name + "\""; }

std::string describe_track(Track track) {
  return track == Track::kLockable ? "may be in a plan" : "is decreed one by one";
}

}  // namespace

std::string find_flaw_of_batch(const std::vector<DescriptorPtr>& batch) {
  if (batch.empty()) return "no tensors";
  const TensorDescriptor& first = *batch.front();
  for (size_t i = 1; i < batch.size(); ++i) {
    if (can_fuse(first, *batch[i])) continue;
    return quoted(first) + " and " + quoted(*batch[i]) +
           " in one batch, which differ in more than name and shape, or are no all-reduces";
  }
  return {};
}

std::string find_flaw_of_batch(const std::vector<DescriptorPtr>& batch, Track track,
                               uint32_t process_set, const Layout& layout) {
  if (std::string flaw = find_flaw_of_batch(batch); !flaw.empty()) return flaw;
  for (const DescriptorPtr& tensor : batch) {
    if (!moves_data(tensor->kind)) {
      return quoted(*tensor) + ", a " + to_string(tensor->kind) + ", which moves no data";
    }
    if (track_of(*tensor) != track) {
      return quoted(*tensor) + " among what " + describe_track(track);
    }
    if (tensor->process_set != process_set) {
      return quoted(*tensor) + " of process set " + std::to_string(tensor->process_set) +
             " in the order of process set " + std::to_string(process_set);
    }
    if (has_root(tensor->kind) && !layout.has_rank(tensor->root)) {
      return quoted(*tensor) + " with root rank " + std::to_string(tensor->root.value) +
             ", which has no place there";
    }
  }
  return {};
}

}  // namespace rueda::core
