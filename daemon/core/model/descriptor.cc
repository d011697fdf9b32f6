#include "daemon/core/model/descriptor.h"

#include <algorithm>
#include <bit>
#include <cstdio>

#include "daemon/base/hash.h"

namespace rueda::core {
namespace {

std::string number_to_string(double value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.17g", value);
  return text;
}

std::string describe_after(const std::vector<PlannedTensor>& plan, size_t place) {
  std::string text;
  for (const uint32_t before : plan[place].after) {
    text += (text.empty() ? "\"" : ", \"") + plan[before].tensor->name + '"';
  }
  return text.empty() ? "nothing" : text;
}

std::optional<Difference> find_difference(const std::vector<PlannedTensor>& left,
                                          const std::vector<PlannedTensor>& right) {
  for (size_t i = 0; i < std::min(left.size(), right.size()); ++i) {
    const TensorDescriptor& one = *left[i].tensor;
    const TensorDescriptor& other = *right[i].tensor;
    if (one.name != other.name) {
      return Difference{"tensor " + std::to_string(i + 1) + " of the plan", '"' + one.name + '"',
                        '"' + other.name + '"'};
    }
    if (auto difference = find_difference(one, other)) {
      difference->field += " of \"" + one.name + '"';
      return difference;
    }
    if (left[i].after == right[i].after) continue;
    return Difference{"what \"" + one.name + "\" comes after", describe_after(left, i),
                      describe_after(right, i)};
  }
  if (left.size() == right.size()) return std::nullopt;
  return Difference{"the number of the plan's tensors", std::to_string(left.size()),
                    std::to_string(right.size())};
}

}  // namespace

int64_t TensorDescriptor::elements() const {
  if (kind == CollectiveKind::kBarrier || !moves_data(kind)) return 0;
  int64_t product = 1;
  for (int64_t dim : shape) product *= dim;
  return product;
}

uint64_t TensorDescriptor::hash() const {
  Fnv1a h;
  h.add(name).add(static_cast<uint64_t>(kind)).add(static_cast<uint64_t>(dtype));
  h.add(static_cast<uint64_t>(op)).add(shape.size());
  for (int64_t dim : shape) h.add(static_cast<uint64_t>(dim));
  h.add(counts.size());
  for (int64_t count : counts) h.add(static_cast<uint64_t>(count));
  h.add(static_cast<uint64_t>(root.value)).add(process_set);
  h.add(static_cast<uint64_t>(peer.value)).add(static_cast<uint64_t>(tag));
  // Adding +0 makes one zero of two: descriptors that compare equal must hash alike.
  h.add(std::bit_cast<uint64_t>(prescale + 0.0)).add(std::bit_cast<uint64_t>(postscale + 0.0));
  h.add(static_cast<uint64_t>(wire_dtype)).add(static_cast<uint64_t>(memory));
  h.add(group).add(group_size).add(plan.size());
  for (const PlannedTensor& planned : plan) {
    h.add(planned.tensor->hash()).add(planned.after.size());
    for (const uint32_t before : planned.after) h.add(before);
  }
  return h.value();
}

bool PlannedTensor::operator==(const PlannedTensor& other) const {
  return after == other.after && *tensor == *other.tensor;
}

std::string shape_to_string(const std::vector<int64_t>& shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i) {
    if (i > 0) text += ", ";
    text += std::to_string(shape[i]);
  }
  return text + "]";
}

std::optional<Difference> find_difference(const TensorDescriptor& left,
                                          const TensorDescriptor& right) {
  const auto text = [](auto value) { return std::to_string(value); };
  if (left.kind != right.kind) {
    return Difference{"collective", to_string(left.kind), to_string(right.kind)};
  }
  if (left.dtype != right.dtype) {
    return Difference{"dtype", to_string(left.dtype), to_string(right.dtype)};
  }
  if (left.shape != right.shape) {
    const bool is_set = left.kind == CollectiveKind::kAddProcessSet;
    return Difference{is_set ? "the list of ranks" : "shape", shape_to_string(left.shape),
                      shape_to_string(right.shape)};
  }
  if (left.counts.size() != right.counts.size()) {
    return Difference{"the number of counts", text(left.counts.size()), text(right.counts.size())};
  }
  for (size_t i = 0; i < left.counts.size(); ++i) {
    if (left.counts[i] == right.counts[i]) continue;
    return Difference{"count " + text(i), text(left.counts[i]), text(right.counts[i])};
  }
  if (left.op != right.op) return Difference{"op", to_string(left.op), to_string(right.op)};
  if (left.root != right.root) {
    return Difference{"root rank", text(left.root.value), text(right.root.value)};
  }
  if (left.process_set != right.process_set) {
    return Difference{"process set", text(left.process_set), text(right.process_set)};
  }
  if (left.prescale != right.prescale) {
    return Difference{"prescale factor", number_to_string(left.prescale),
                      number_to_string(right.prescale)};
  }
  if (left.postscale != right.postscale) {
    return Difference{"postscale factor", number_to_string(left.postscale),
                      number_to_string(right.postscale)};
  }
  if (left.wire_dtype != right.wire_dtype) {
    return Difference{"wire dtype", to_string(left.wire_dtype), to_string(right.wire_dtype)};
  }
  if (left.memory != right.memory) {
    return Difference{"memory", to_string(left.memory), to_string(right.memory)};
  }
  if (left.group != right.group) {
    return Difference{"group", '"' + left.group + '"', '"' + right.group + '"'};
  }
  if (left.group_size != right.group_size) {
    return Difference{"group size", text(left.group_size), text(right.group_size)};
  }
  return find_difference(left.plan, right.plan);
}

std::string describe_mismatch(const TensorDescriptor& left, Rank left_rank,
                              const TensorDescriptor& right, Rank right_rank) {
  const std::optional<Difference> difference = find_difference(left, right);
  if (!difference) return {};
  return "ranks disagree on tensor \"" + left.name + "\": " + difference->field + " is " +
         difference->left + " on rank " + std::to_string(left_rank.value) + " and " +
         difference->right + " on rank " + std::to_string(right_rank.value) +
         "; submit the same on every rank";
}

}  // namespace rueda::core
