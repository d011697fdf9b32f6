// Reads an input of a fuzzer as a program: bytes from which steps, numbers and tensors are made,
// for control_fuzz.cc.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "daemon/base/dtype.h"
#include "daemon/core/model/descriptor.h"
#include "daemon/core/model/layout.h"

namespace rueda {

using core::DescriptorPtr;
using core::TensorDescriptor;

class Bytes {
 public:
  explicit Bytes(std::span<const uint8_t> rest) : rest_(rest) {}
  bool empty() const { return rest_.empty(); }
  uint8_t take() {
    if (rest_.empty()) return 0;
    const uint8_t byte = rest_.front();
    rest_ = rest_.subspan(1);
    return byte;
  }
  uint8_t below(int bound) { return static_cast<uint8_t>(take() % bound); }
  bool flip() { return (take() & 1) != 0; }
  // Returns a number that is mostly small, and huge at times.
  uint64_t number() {
    const uint8_t byte = take();
    if (byte < 240) return byte % 16;
    return uint64_t{0x7fff'ffff'ffff'fff0} + byte * uint64_t{0x0101'0101};
  }

 private:
  std::span<const uint8_t> rest_;
};

// Makes a tensor that a program may submit, and that a liar may speak of.
inline TensorDescriptor make_tensor(Bytes& bytes) {
  TensorDescriptor tensor;
  const uint8_t which = bytes.below(12);
  tensor.name = std::string(1, static_cast<char>('a' + which));
  tensor.op = ReduceOp::kSum;
  tensor.shape = {static_cast<int64_t>(1 + which)};
  if (bytes.flip()) return tensor;  // the tensor has the usual fields
  static constexpr CollectiveKind kKinds[] = {
      CollectiveKind::kAllreduce,     CollectiveKind::kAllreduce, CollectiveKind::kBroadcast,
      CollectiveKind::kBarrier,       CollectiveKind::kAllgather, CollectiveKind::kReduce,
      CollectiveKind::kReduceScatter, CollectiveKind::kAlltoall,  CollectiveKind::kGather,
      CollectiveKind::kScatter};
  static constexpr DType kTypes[] = {DType::kFloat32, DType::kUInt8, DType::kInt64,
                                     DType::kFloat16};
  tensor.kind = kKinds[bytes.below(10)];
  tensor.dtype = kTypes[bytes.below(4)];
  const uint8_t more = bytes.take();
  if (more >= 224) tensor.dtype = more & 1 ? DType::kUInt16 : DType::kComplex128;
  if (more & 1) tensor.op = ReduceOp::kAverage;
  if ((more & 2) && can_be_adasum(tensor.kind, tensor.dtype)) tensor.op = ReduceOp::kAdasum;
  if (more & 4) tensor.shape = {static_cast<int64_t>(bytes.below(200))};
  if (has_root(tensor.kind)) tensor.root = Rank{bytes.below(6)};
  if (more & 8) tensor.process_set = 1;
  if (more & 16) {
    tensor.group = "g";
    tensor.group_size = 1 + bytes.below(3);
  }
  if ((more & 32) && can_be_rounded(tensor.kind, tensor.dtype))
    tensor.wire_dtype = WireDType::kFloat16;
  if (tensor.kind == CollectiveKind::kBarrier) tensor.shape = {0};
  return tensor;
}

inline TensorDescriptor change_of_sets(Bytes& bytes) {
  TensorDescriptor tensor;
  tensor.name = core::kProcessSetsName;
  if (bytes.flip()) {
    tensor.kind = CollectiveKind::kAddProcessSet;
    tensor.shape = {0, 1 + bytes.below(4)};
  } else {
    tensor.kind = CollectiveKind::kRemoveProcessSet;
    tensor.shape = {};
    tensor.process_set = 1;
  }
  return tensor;
}

inline core::Layout make_layout(bool is_tree) {
  const std::vector<std::vector<int>> shapes =
      is_tree ? std::vector<std::vector<int>>{{0}, {1}, {2}, {3}, {4}}
              : std::vector<std::vector<int>>{{0, 1}, {2, 3}, {4}};
  std::vector<core::LayoutNode> nodes;
  for (size_t i = 0; i < shapes.size(); ++i) {
    core::LayoutNode node{"n" + std::to_string(i), "127.0.0.1:1", {}};
    for (const int rank : shapes[i]) node.ranks.push_back(Rank{rank});
    nodes.push_back(std::move(node));
  }
  return core::Layout::make(std::move(nodes)).value();
}

}  // namespace rueda
