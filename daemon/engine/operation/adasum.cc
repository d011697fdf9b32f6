#include "daemon/engine/operation/adasum.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <utility>

#include "daemon/base/check.h"
#include "daemon/reduce/adasum.h"
#include "daemon/reduce/kernels.h"
#include "daemon/reduce/weighted.h"

namespace rueda::engine {
namespace {

constexpr int64_t kStretchBytes = 128 << 10;  // It fits the cache.
// A turn is bounded, so that other jobs, and an abort, get their turns.
constexpr size_t kTurnStretches = 64;

size_t ranks_of(const Operation& operation) {
  return operation.tensors.empty() ? 0 : operation.tensors.front().ranks.size();
}

reduce::AdasumTree one_group(size_t vectors) {
  reduce::AdasumTree tree(1);
  for (size_t i = 0; i < vectors; ++i) tree.front().push_back(i);
  return tree;
}

}  // namespace

Adasum::Adasum(Operation& operation, int nodes, NodeIndex self, int64_t chunk_bytes)
    : operation_(operation),
      nodes_(nodes),
      self_(self),
      rank_pairs_(reduce::pairs_of(ranks_of(operation))),
      node_pairs_(reduce::pairs_of(static_cast<size_t>(nodes))),
      rank_products_(operation.tensors.size() * rank_pairs_) {
  cut_into_stretches();
  if (nodes == 1) return;
  const size_t tensors = operation.tensors.size();
  schedule_.emplace(nodes, operation.elements(), static_cast<int64_t>(tensors * node_pairs_),
                    chunk_bytes / operation.wire_bytes(1),
                    chunk_bytes / static_cast<int64_t>(sizeof(double)));
  squares_.resize(tensors);
  products_.resize(tensors * node_pairs_);
  met_.resize(static_cast<size_t>(schedule_->meeting_chunks()));
}

void Adasum::cut_into_stretches() {
  const int64_t most = kStretchBytes / static_cast<int64_t>(element_bytes(operation_.dtype));
  for (size_t t = 0; t < operation_.tensors.size(); ++t) {
    const int64_t end = operation_.first_element[t + 1];
    for (int64_t at = operation_.first_element[t]; at < end; at += most) {
      stretches_.push_back({t, {at, std::min(end, at + most)}});
    }
  }
}

// The stretches' products are added in their order, whichever thread was the quickest.
bool Adasum::weigh(PassThreads& threads, std::span<OperationKernels> kernels) {
  const bool is_of_ranks = state_ == State::kRanks;
  const size_t pairs = is_of_ranks ? rank_pairs_ : 1;
  const size_t first = next_stretch_;
  const size_t count = std::min(kTurnStretches, stretches_.size() - first);
  turn_.assign(count * pairs, 0.0);
  const auto pass = [&](int thread, int64_t i) {
    OperationKernels& own = kernels[static_cast<size_t>(thread)];
    const auto place = static_cast<size_t>(i);
    const Stretch& stretch = stretches_[first + place];
    const std::span<double> to = products_of(turn_, place, pairs);
    if (is_of_ranks) {
      own.add_rank_products(operation_, stretch.range, to);
    } else {
      to.front() = own.own_square(operation_, stretch.range);
    }
  };
  threads.run(static_cast<int64_t>(count), std::ref(pass));
  std::vector<double>& all = is_of_ranks ? rank_products_ : squares_;
  for (size_t i = 0; i < count; ++i) {
    const std::span<double> sums = products_of(all, stretches_[first + i].tensor, pairs);
    for (size_t pair = 0; pair < pairs; ++pair) sums[pair] += turn_[i * pairs + pair];
  }
  next_stretch_ += count;
  if (next_stretch_ < stretches_.size()) return false;
  next_stretch_ = 0;
  if (state_ == State::kRanks) {
    weigh_ranks();
    return state_ != State::kSquares;
  }
  state_ = State::kMeet;
  return true;
}

void Adasum::weigh_ranks() {
  const size_t ranks = ranks_of(operation_);
  const reduce::AdasumTree tree = one_group(ranks);
  for (size_t t = 0; t < operation_.tensors.size(); ++t) {
    const std::vector<double> weights =
        reduce::adasum_weights(products_of(rank_products_, t, rank_pairs_), tree);
    operation_.weights.insert(operation_.weights.end(), weights.begin(), weights.end());
    if (nodes_ == 1) scale(t, operation_.prescale * operation_.postscale);
  }
  if (nodes_ == 1) {
    state_ = State::kSum;
  } else if (ranks == 1 && operation_.dtype_between_nodes() == operation_.dtype) {
    squares_ = rank_products_;  // The rank's vector is the node's.
    state_ = State::kMeet;
  } else {
    state_ = State::kSquares;
  }
}

void Adasum::scale(size_t tensor, double factor) {
  const size_t ranks = ranks_of(operation_);
  for (size_t i = 0; i < ranks; ++i) operation_.weights[tensor * ranks + i] *= factor;
}

bool Adasum::may_begin(int64_t piece, int64_t first_incomplete) {
  const auto are_all_in = [&](core::AdasumStage stage) {
    return schedule_->stage_of(first_incomplete) > stage;
  };
  if (state_ == State::kMeet && are_all_in(core::AdasumStage::kMeet)) {
    gather_products();
    state_ = State::kShare;
  }
  if (state_ == State::kShare && are_all_in(core::AdasumStage::kShare)) {
    weigh_nodes();
    state_ = State::kSum;
  }
  switch (schedule_->stage_of(piece)) {
    case core::AdasumStage::kMeet: return state_ >= State::kMeet;
    case core::AdasumStage::kShare: return state_ >= State::kShare;
    case core::AdasumStage::kSum: return state_ == State::kSum;
  }
  return false;
}

void Adasum::meet(OperationKernels& kernels, int64_t chunk, const std::byte* values) {
  kernels.meet(operation_, schedule_->cut().chunk_at(chunk), values,
               met_[static_cast<size_t>(chunk)]);
}

// The products are added up in the order of the chunks, whichever chunk came first.
void Adasum::gather_products() {
  const auto self = static_cast<size_t>(self_.value);
  const size_t ranks = ranks_of(operation_);
  const size_t nodes = static_cast<size_t>(nodes_);
  for (size_t t = 0; t < operation_.tensors.size() && ranks > 0; ++t) {
    products_of(products_, t, node_pairs_)[reduce::pair_place(self, self)] = squares_[t];
  }
  for (size_t chunk = 0; chunk < met_.size(); ++chunk) {
    if (met_[chunk].empty()) continue;
    const core::ElementRange range = schedule_->cut().chunk_at(static_cast<int64_t>(chunk));
    size_t i = 0;
    operation_.for_each_tensor(range, [&](size_t tensor, core::ElementRange) {
      products_of(products_, tensor, node_pairs_)[reduce::pair_place(chunk % nodes, self)] +=
          met_[chunk][i++];
    });
  }
  met_.clear();
}

void Adasum::add_products(core::ElementRange range, const std::byte* partial,
                          std::byte* dst) const {
  const void* own[] = {products_.data() + range.begin};
  reduce::reduce({.dtype = DType::kFloat64,
                  .dst = dst,
                  .partial = partial,
                  .sources = own,
                  .count = static_cast<size_t>(range.count())});
}

void Adasum::take_products(core::ElementRange range, const std::byte* total) {
  if (range.count() == 0) return;
  std::memcpy(products_.data() + range.begin, total,
              static_cast<size_t>(range.count()) * sizeof(double));
}

void Adasum::weigh_nodes() {
  const reduce::AdasumTree tree =
      operation_.tree.empty() ? one_group(static_cast<size_t>(nodes_)) : operation_.tree;
  for (size_t t = 0; t < operation_.tensors.size(); ++t) {
    const std::vector<double> weights =
        reduce::adasum_weights(products_of(products_, t, node_pairs_), tree);
    scale(t,
          weights[static_cast<size_t>(self_.value)] * operation_.prescale * operation_.postscale);
  }
}

}  // namespace rueda::engine
