#include "daemon/engine/operation/add_parts.h"

#include <algorithm>
#include <optional>

#include "daemon/base/check.h"
#include "daemon/base/parts.h"

namespace rueda::engine {
namespace {

class Adder {
 public:
  Adder(const core::TensorDescriptor& tensor, const core::Layout& layout, NodeIndex self,
        const std::vector<RankBuffers>& buffers, const std::vector<Reach>& reaches,
        Operation& operation)
      : tensor_(tensor),
        layout_(layout),
        locals_(layout.node(self).ranks),
        buffers_(buffers),
        reaches_(reaches),
        ranks_(layout.ranks()),
        operation_(operation),
        element_bytes_(static_cast<int64_t>(element_bytes(tensor.dtype))) {
    RUEDA_CHECK(buffers.size() == locals_.size() && reaches.size() == locals_.size());
  }

  std::string add_all() {
    const auto nodes = static_cast<int>(layout_.members().size());
    if (tensor_.kind == CollectiveKind::kAlltoall) {
      splits_.emplace(tensor_.parted(), static_cast<int>(ranks_.size()));
    } else {
      parts_ = parts_of(tensor_.parted(), static_cast<int>(ranks_.size()));
    }
    for (int round = 0; round < core::rounds_of(tensor_.kind, nodes); ++round) {
      std::vector<core::ElementRange>& shards = operation_.rounds.emplace_back();
      for (int shard = 0; shard < core::shards_of(tensor_.kind, nodes); ++shard) {
        const core::Route route =
            core::route_of(tensor_.kind, nodes, operation_.root_node, round, shard);
        const int64_t begin = operation_.elements();
        add_shard(ranks_at(route.origin), ranks_at(route.last(nodes)));
        shards.push_back({begin, operation_.elements()});
      }
    }
    return std::move(flaw_);
  }

 private:
  const std::vector<Rank>& ranks_at(NodeIndex ring_index) const {
    return layout_.node(layout_.ring()[static_cast<size_t>(ring_index.value)]).ranks;
  }
  int place_of(Rank rank) const {
    return static_cast<int>(std::lower_bound(ranks_.begin(), ranks_.end(), rank) - ranks_.begin());
  }
  bool is_root(Rank rank) const { return rank == tensor_.root; }

  // Adds the parts that go from the ranks of one node to the ranks of another, or round from there
  // to there.
  void add_shard(const std::vector<Rank>& from, const std::vector<Rank>& to) {
    switch (tensor_.kind) {
      case CollectiveKind::kAllgather:
      case CollectiveKind::kGather:
        for (const Rank giver : from) add_given(giver);
        return;
      case CollectiveKind::kReduceScatter:
      case CollectiveKind::kScatter:
        for (const Rank getter : to) add_got(getter);
        return;
      default:
        for (const Rank giver : from) {
          for (const Rank getter : to) add_sent(giver, getter);
        }
    }
  }

  void add_given(Rank giver) {
    const core::ElementRange part = parts_[static_cast<size_t>(place_of(giver))];
    const bool all_get = tensor_.kind == CollectiveKind::kAllgather;
    add(
        part.count(), [&](Rank rank) { return rank == giver; }, 0,
        [&](Rank rank) { return all_get || is_root(rank); }, part.begin);
  }

  void add_got(Rank getter) {
    const core::ElementRange part = parts_[static_cast<size_t>(place_of(getter))];
    const bool all_give = tensor_.kind == CollectiveKind::kReduceScatter;
    add(
        part.count(), [&](Rank rank) { return all_give || is_root(rank); }, part.begin,
        [&](Rank rank) { return rank == getter; }, 0);
  }

  void add_sent(Rank giver, Rank getter) {
    const Splits& splits = *splits_;
    const int from = place_of(giver);
    const int to = place_of(getter);
    add(
        splits.elements(from, to), [&](Rank rank) { return rank == giver; },
        splits.sent_at(from, to), [&](Rank rank) { return rank == getter; },
        splits.received_at(from, to));
  }

  // Adds elements of these local ranks' inputs and outputs, which begin at `input_at` and
  // `output_at`.
  template <class Gives, class Gets>
  void add(int64_t elements, Gives gives, int64_t input_at, Gets gets, int64_t output_at) {
    if (elements == 0) return;
    stretch_.clear();
    for (size_t i = 0; i < locals_.size(); ++i) {
      const RankBuffers& all = buffers_[i];
      RankBuffers part;
      if (gives(locals_[i]) && may_reach(i, input_at + elements, &Reach::input)) {
        part.input = all.input + input_at * element_bytes_;
      }
      if (gets(locals_[i]) && may_reach(i, output_at + elements, &Reach::output)) {
        part.output = all.output + output_at * element_bytes_;
      }
      if (part.input || part.output) stretch_.push_back(part);
    }
    operation_.add(elements, stretch_);
  }

  bool may_reach(size_t local, int64_t end, size_t Reach::*side) {
    const size_t wanted = static_cast<size_t>(end * element_bytes_);
    const size_t there = reaches_[local].*side;
    if (wanted <= there) return true;
    flaw_ = "goes to byte " + std::to_string(wanted) + " of what rank " +
            std::to_string(locals_[local].value) + " has given, which are " + std::to_string(there);
    return false;
  }

  const core::TensorDescriptor& tensor_;
  const core::Layout& layout_;
  const std::vector<Rank>& locals_;
  const std::vector<RankBuffers>& buffers_;  // The index is the local rank.
  const std::vector<Reach>& reaches_;        // The index is the local rank.
  const std::vector<Rank> ranks_;
  Operation& operation_;
  const int64_t element_bytes_;
  std::vector<core::ElementRange> parts_;  // The index is the rank's place.
  std::optional<Splits> splits_;           // Set for an alltoall.
  std::vector<RankBuffers> stretch_;
  std::string flaw_;
};

}  // namespace

std::string add_parts(const core::TensorDescriptor& tensor, const core::Layout& layout,
                      NodeIndex self, const std::vector<RankBuffers>& buffers,
                      const std::vector<Reach>& reaches, Operation& operation) {
  return Adder(tensor, layout, self, buffers, reaches, operation).add_all();
}

}  // namespace rueda::engine
