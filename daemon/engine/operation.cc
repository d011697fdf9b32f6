#include "daemon/engine/operation.h"

#include <algorithm>
#include <cstring>

#include "daemon/reduce/kernels.h"
#include "daemon/session/arena.h"

namespace rueda::engine {

bool Operation::has_lost_memory() const {
  return std::any_of(arenas.begin(), arenas.end(),
                     [](const auto& arena) { return arena->is_lost(); });
}

bool Operation::is_in_place() const {
  return std::any_of(tensors.begin(), tensors.end(), [](const OperationTensor& tensor) {
    return std::any_of(tensor.ranks.begin(), tensor.ranks.end(),
                       [](const RankBuffers& rank) { return rank.input == rank.output; });
  });
}

template <class Visit>
void OperationKernels::for_each_piece(const Operation& operation, core::ElementRange range,
                                      Visit visit) {
  const auto size = static_cast<int64_t>(element_bytes(operation.dtype));
  const std::vector<int64_t>& first = operation.first_element;
  // The last tensor that begins at or before the range; the loop skips empty ones.
  size_t i = static_cast<size_t>(std::upper_bound(first.begin(), first.end(), range.begin) -
                                 first.begin() - 1);
  for (int64_t at = range.begin; at < range.end; ++i) {
    const int64_t end = std::min(first[i + 1], range.end);
    if (end <= at) continue;
    visit(Piece{operation.tensors[i], (at - first[i]) * size, (at - range.begin) * size, end - at,
                static_cast<size_t>((end - at) * size)});
    at = end;
  }
}

void OperationKernels::reduce_piece(const Operation& operation, const Piece& piece,
                                    const std::byte* partial, bool final, std::byte* dst) {
  sources_.clear();
  for (const RankBuffers& rank : piece.tensor.ranks) sources_.push_back(rank.input + piece.offset);
  if (!partial && sources_.empty()) {
    std::memset(dst, 0, piece.bytes);
    partial = dst;
  }
  reduce::ReduceArgs args;
  args.dtype = operation.dtype;
  args.op = operation.op;
  args.dst = dst;
  args.partial = partial;
  args.sources = sources_;
  args.count = static_cast<size_t>(piece.elements);
  args.prescale = operation.prescale;
  if (final) {
    args.postscale = operation.postscale;
    args.divisor = operation.divisor;
  }
  reduce::reduce(args);
  // A high bit of the mantissa of every float, far above any rounding.
  if (corrupt_ && final) {
    const size_t second_highest = std::max<size_t>(element_bytes(operation.dtype), 2) - 2;
    reinterpret_cast<uint8_t*>(dst)[second_highest] ^= 0x08;
  }
}

void OperationKernels::store_piece(const Piece& piece, const std::byte* src, size_t first_rank) {
  destinations_.clear();
  for (size_t i = first_rank; i < piece.tensor.ranks.size(); ++i) {
    destinations_.push_back(piece.tensor.ranks[i].output + piece.offset);
  }
  reduce::scatter(destinations_, src, piece.bytes);
}

void OperationKernels::reduce_local(const Operation& operation, core::ElementRange range,
                                    const std::byte* partial, bool final, std::byte* dst) {
  for_each_piece(operation, range, [&](const Piece& piece) {
    reduce_piece(operation, piece, partial ? partial + piece.range_offset : nullptr, final,
                 dst + piece.range_offset);
  });
}

void OperationKernels::store(const Operation& operation, core::ElementRange range,
                             const std::byte* src) {
  for_each_piece(operation, range,
                 [&](const Piece& piece) { store_piece(piece, src + piece.range_offset, 0); });
}

void OperationKernels::read_root(const Operation& operation, core::ElementRange range,
                                 std::byte* dst) {
  const auto root = static_cast<size_t>(operation.root_local.value);
  for_each_piece(operation, range, [&](const Piece& piece) {
    std::memcpy(dst + piece.range_offset, piece.tensor.ranks[root].input + piece.offset,
                piece.bytes);
  });
}

void OperationKernels::run_on_one_node(const Operation& operation, core::ElementRange range) {
  for_each_piece(operation, range, [&](const Piece& piece) {
    const std::vector<RankBuffers>& ranks = piece.tensor.ranks;
    if (operation.kind == CollectiveKind::kBroadcast) {
      const auto root = static_cast<size_t>(operation.root_local.value);
      store_piece(piece, ranks[root].input + piece.offset, 0);
      return;
    }
    std::byte* first = ranks.front().output + piece.offset;
    reduce_piece(operation, piece, nullptr, true, first);
    store_piece(piece, first, 1);
  });
}

}  // namespace rueda::engine
