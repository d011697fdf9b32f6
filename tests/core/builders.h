// Makes tensors and layouts in a short way, for the tests of core.
#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "daemon/core/messages/messages.h"
#include "daemon/core/model/layout.h"

namespace rueda::core {

inline constexpr NodeIndex n0{0}, n1{1}, n2{2}, n3{3};

// Makes an all-reduce of `elements` float32, which `change` may alter.
inline DescriptorPtr tensor(
    const std::string& name, int64_t elements = 1,
    const std::function<void(TensorDescriptor&)>& change = [](TensorDescriptor&) {}) {
  TensorDescriptor descriptor;
  descriptor.name = name;
  descriptor.shape = {elements};
  change(descriptor);
  return std::make_shared<const TensorDescriptor>(std::move(descriptor));
}

inline DescriptorPtr member_of(const std::string& group, uint32_t size, const std::string& name,
                               DType dtype = DType::kFloat32) {
  return tensor(name, 1, [&](TensorDescriptor& t) {
    t.group = group;
    t.group_size = size;
    t.dtype = dtype;
  });
}

// Makes the tensors of a plan, each with the names of those that it comes after.
inline std::vector<PlannedTensor> planned(
    const std::vector<std::pair<DescriptorPtr, std::vector<std::string>>>& list) {
  std::vector<PlannedTensor> plan;
  for (const auto& [item, names] : list) {
    std::vector<uint32_t> after;
    for (uint32_t place = 0; place < plan.size(); ++place) {
      if (std::find(names.begin(), names.end(), plan[place].tensor->name) != names.end()) {
        after.push_back(place);
      }
    }
    plan.push_back({item, std::move(after)});
  }
  return plan;
}

inline DescriptorPtr declaration_of(std::vector<PlannedTensor> plan) {
  return tensor(kPlanName, 1, [&](TensorDescriptor& t) {
    t.kind = CollectiveKind::kDeclarePlan;
    t.shape = {};
    t.plan = std::move(plan);
  });
}

inline DescriptorPtr join() {
  return tensor(kJoinName, 1, [](TensorDescriptor& t) {
    t.kind = CollectiveKind::kJoin;
    t.shape = {};
  });
}

// Makes a layout of nodes "n0", "n1", ... with so many ranks each, dealt out in order.
inline Layout layout_of(const std::vector<int>& ranks_by_node) {
  std::vector<LayoutNode> nodes;
  int32_t next_rank = 0;
  for (const int count : ranks_by_node) {
    LayoutNode node;
    node.node_id = "n" + std::to_string(nodes.size());
    for (int i = 0; i < count; ++i) node.ranks.push_back(Rank{next_rank++});
    nodes.push_back(std::move(node));
  }
  return Layout::make(std::move(nodes)).value();
}

inline std::vector<std::string> names_of(const std::vector<DescriptorPtr>& tensors) {
  std::vector<std::string> names;
  for (const DescriptorPtr& item : tensors) names.push_back(item->name);
  return names;
}

using Names = std::vector<std::string>;

}  // namespace rueda::core
