#include "client/src/request/planned.h"

#include <algorithm>
#include <map>
#include <string>

namespace rueda::client {
namespace {

std::string group_of(const rueda_planned_tensor& planned) {
  return planned.group_name != nullptr ? planned.group_name : "";
}

Status check_order(std::span<const rueda_planned_tensor> tensors, size_t place) {
  const rueda_planned_tensor& planned = tensors[place];
  const std::string name = planned.tensor.name;
  if (planned.after_count > 0 && planned.after == nullptr) {
    return {Code::kInvalidArgument, "tensor \"" + name + "\" comes after NULL"};
  }
  for (const uint32_t before : std::span(planned.after, planned.after_count)) {
    if (before < place) continue;
    const std::string other = before < tensors.size() && tensors[before].tensor.name != nullptr
                                  ? std::string("\"") + tensors[before].tensor.name + "\""
                                  : "tensor " + std::to_string(before) + " of the plan";
    return {Code::kInvalidArgument, "tensor \"" + name + "\" comes after " + other +
                                        ", which is not listed before it; list it before, and if "
                                        "each comes after the other, one of them does not"};
  }
  return Status::ok();
}

Status set_place(const rueda_planned_tensor& planned, TensorRequest& request) {
  if (planned.is_on_device != 0 && planned.is_on_device != 1) {
    return {Code::kInvalidArgument, "tensor \"" + std::string(planned.tensor.name) +
                                        "\" is neither in host memory (is_on_device 0) nor in a "
                                        "GPU's (1)"};
  }
  if (planned.is_on_device == 0) return Status::ok();
  if (request.descriptor.op == static_cast<uint8_t>(ReduceOp::kAdasum)) {
    return {Code::kInvalidArgument, "tensor \"" + std::string(planned.tensor.name) +
                                        "\" is an Adasum in device memory: reduce it in host "
                                        "memory, and declare it so"};
  }
  request.descriptor.memory = static_cast<uint32_t>(MemorySpace::kDevice);
  return Status::ok();
}

}  // namespace

Result<std::vector<TensorRequest>> describe_plan(std::span<const rueda_planned_tensor> tensors) {
  std::map<std::string, size_t> sizes;
  for (const rueda_planned_tensor& planned : tensors) ++sizes[group_of(planned)];
  sizes[""] = 0;  // "" is no group
  std::vector<TensorRequest> requests;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const std::string group = group_of(tensors[i]);
    Result<TensorRequest> request =
        describe_allreduce(&tensors[i].tensor, tensors[i].options, group, sizes.at(group));
    if (!request.is_ok()) return request.status();
    if (Status status = check_order(tensors, i); !status.is_ok()) return status;
    if (Status status = set_place(tensors[i], request.value()); !status.is_ok()) return status;
    requests.push_back(std::move(request).value());
  }
  return requests;
}

std::vector<rueda_abi_plan> parts_of_plan(std::span<const rueda_planned_tensor> tensors,
                                          const std::vector<uint32_t>& ids) {
  std::vector<uint32_t> words;
  for (size_t i = 0; i < tensors.size(); ++i) {
    words.push_back(ids[i]);
    words.push_back(static_cast<uint32_t>(tensors[i].after_count));
    words.insert(words.end(), tensors[i].after, tensors[i].after + tensors[i].after_count);
  }
  std::vector<rueda_abi_plan> parts;
  for (size_t at = 0; at == 0 || at < words.size(); at += RUEDA_ABI_MAX_PLAN_WORDS) {
    rueda_abi_plan& part = parts.emplace_back();
    const size_t count = std::min<size_t>(words.size() - at, RUEDA_ABI_MAX_PLAN_WORDS);
    part.word_count = static_cast<uint32_t>(count);
    part.is_last = at + count == words.size() ? 1 : 0;
    std::copy_n(words.begin() + static_cast<std::ptrdiff_t>(at), count, part.words);
  }
  return parts;
}

}  // namespace rueda::client
