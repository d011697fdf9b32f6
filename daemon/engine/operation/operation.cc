#include "daemon/engine/operation/operation.h"

#include <algorithm>
#include <cstring>

#include "daemon/base/check.h"
#include "daemon/reduce/kernels.h"
#include "daemon/reduce/weighted.h"
#include "daemon/session/memory/arena.h"

namespace rueda::engine {

namespace {

// Returns the rank that gives the tensor, where nothing is reduced. A node is asked only for what
// it has to give.
const RankBuffers& giver_of(const OperationTensor& tensor) {
  const auto giver = std::find_if(tensor.ranks.begin(), tensor.ranks.end(),
                                  [](const RankBuffers& rank) { return rank.input; });
  RUEDA_CHECK(giver != tensor.ranks.end());
  return *giver;
}

bool lies_behind(const std::byte* last, size_t bytes, const std::byte* next) {
  return last ? last + bytes == next : !next;
}

bool follows(const OperationTensor& last, size_t bytes, const std::vector<RankBuffers>& ranks) {
  if (bytes == 0 || last.ranks.size() != ranks.size()) return false;
  for (size_t i = 0; i < ranks.size(); ++i) {
    if (!lies_behind(last.ranks[i].input, bytes, ranks[i].input) ||
        !lies_behind(last.ranks[i].output, bytes, ranks[i].output)) {
      return false;
    }
  }
  return true;
}

// More than this does not stay in a cache until somebody reads it (docs/decisions/0032).
constexpr size_t kCachedBytes = 32 << 20;

// So many bytes of each rank are looked at in one go: they are still in the first-level cache when
// they are reduced.
constexpr size_t kCheckedBytes = 8 << 10;

size_t memory_bytes(const Operation& operation) {
  const size_t ranks = operation.tensors.empty() ? 0 : operation.tensors.front().ranks.size();
  return 2 * ranks * static_cast<size_t>(operation.bytes());
}

// Flips a high bit of the mantissa, far above any rounding.
void corrupt(DType dtype, void* value) {
  static_cast<uint8_t*>(value)[std::max<size_t>(element_bytes(dtype), 2) - 2] ^= 0x08;
}

}  // namespace

void Operation::add(int64_t elements, const std::vector<RankBuffers>& ranks) {
  const int64_t end = first_element.back() + elements;
  if (!tensors.empty() && op != ReduceOp::kAdasum &&
      follows(tensors.back(), static_cast<size_t>(tensors.back().elements) * element_bytes(dtype),
              ranks)) {
    tensors.back().elements += elements;
    first_element.back() = end;
    return;
  }
  tensors.push_back({elements, ranks});
  first_element.push_back(end);
}

bool Operation::has_lost_memory() const {
  return std::any_of(arenas.begin(), arenas.end(),
                     [](const auto& arena) { return arena->is_lost(); });
}

Status lost_memory(const std::string& node_id) {
  return {Code::kRankLost,
          "the memory of a rank on node " + node_id +
              " was lost: its memory cgroup is full, or it cut its arena short",
          Origin{node_id, {}}};
}

core::RingCut Operation::cut(int nodes, int64_t max_chunk_elements) const {
  const int shards = core::shards_of(kind, nodes);
  if (share.of == 1) {
    if (!rounds.empty()) return {rounds, max_chunk_elements};
    return {elements(), shards, max_chunk_elements};
  }
  std::vector<std::vector<core::ElementRange>> mine = rounds;
  if (mine.empty()) {
    mine.emplace_back();
    for (int shard = 0; shard < shards; ++shard) {
      mine.front().push_back(core::nearly_equal_part({0, elements()}, shard, shards));
    }
  }
  for (std::vector<core::ElementRange>& round : mine) {
    for (core::ElementRange& shard : round) {
      shard = core::nearly_equal_part(shard, share.index, share.of);
    }
  }
  return {mine, max_chunk_elements};
}

bool Operation::is_in_place() const {
  return std::any_of(tensors.begin(), tensors.end(), [](const OperationTensor& tensor) {
    return std::any_of(tensor.ranks.begin(), tensor.ranks.end(),
                       [](const RankBuffers& rank) { return rank.input == rank.output; });
  });
}

const std::byte* Operation::sendable_input(core::ElementRange range) const {
  // With other kinds a node may be done before the values that it gives have left: the rank has its
  // memory back then.
  if (kind != CollectiveKind::kAllreduce) return nullptr;
  if (prescale != 1.0 || dtype == DType::kBool) return nullptr;
  return only(range, &RankBuffers::input);
}

std::byte* Operation::receivable_output(core::ElementRange range) const {
  return only(range, &RankBuffers::output);
}

template <class Byte>
Byte* Operation::only(core::ElementRange range, Byte* RankBuffers::*side) const {
  if (wire_dtype != WireDType::kSame) return nullptr;
  const size_t i = tensor_at(range.begin);
  if (i >= tensors.size() || range.end > first_element[i + 1]) return nullptr;
  Byte* only = nullptr;
  for (const RankBuffers& rank : tensors[i].ranks) {
    if (rank.*side && only) return nullptr;
    if (rank.*side) only = rank.*side;
  }
  if (!only) return nullptr;
  return only + (range.begin - first_element[i]) * static_cast<int64_t>(element_bytes(dtype));
}

size_t Operation::tensor_at(int64_t element) const {
  return static_cast<size_t>(std::upper_bound(first_element.begin(), first_element.end(), element) -
                             first_element.begin() - 1);
}

template <class Visit>
void OperationKernels::for_each_piece(const Operation& operation, core::ElementRange range,
                                      Visit visit) {
  const auto size = static_cast<int64_t>(element_bytes(operation.dtype));
  operation.for_each_tensor(range, [&](size_t i, core::ElementRange part) {
    visit(Piece{i, operation.tensors[i], (part.begin - operation.first_element[i]) * size,
                operation.wire_bytes(part.begin - range.begin), part.count(),
                static_cast<size_t>(part.count() * size)});
  });
}

void OperationKernels::look_at(const Operation& operation, const Piece& piece) {
  if (!operation.check) return;
  for (const RankBuffers& rank : piece.tensor.ranks) {
    if (rank.input) operation.check->look(rank.input + piece.offset, piece.bytes);
  }
}

// An output may be an input, so a piece is checked before it is written.
template <class Visit>
void OperationKernels::for_each_reduced_piece(const Operation& operation, core::ElementRange range,
                                              Visit visit) {
  // An Adasum reads its inputs more than once, and looks at them in add_rank_products().
  if (!operation.check || operation.op == ReduceOp::kAdasum) {
    return for_each_piece(operation, range, visit);
  }
  const auto stretch = static_cast<int64_t>(kCheckedBytes / element_bytes(operation.dtype));
  for (int64_t begin = range.begin; begin < range.end; begin += stretch) {
    const core::ElementRange part{begin, std::min(range.end, begin + stretch)};
    for_each_piece(operation, part, [&](Piece piece) {
      piece.range_offset += operation.wire_bytes(begin - range.begin);
      look_at(operation, piece);
      visit(piece);
    });
  }
}

bool OperationKernels::is_rewritten(const Piece& piece) {
  const auto& ranks = piece.tensor.ranks;
  return std::any_of(ranks.begin(), ranks.end(), [&](const RankBuffers& writer) {
    return writer.output && std::any_of(ranks.begin(), ranks.end(), [&](const RankBuffers& reader) {
             return reader.input == writer.output;
           });
  });
}

void OperationKernels::reduce_piece(const Operation& operation, const Piece& piece, DType dtype,
                                    const std::byte* partial, bool final, std::byte* dst,
                                    std::span<void* const> copies, bool streams) {
  if (operation.op == ReduceOp::kAdasum) {
    return add_weighted(operation, piece, dtype, partial, final, dst, copies);
  }
  sources_.clear();
  for (const RankBuffers& rank : piece.tensor.ranks) {
    if (rank.input) sources_.push_back(rank.input + piece.offset);
  }
  if (!partial && sources_.empty()) {
    std::memset(dst, 0, static_cast<size_t>(piece.elements) * element_bytes(dtype));
    partial = dst;
  }
  reduce::ReduceArgs args;
  args.dtype = operation.dtype;
  args.sum_dtype = dtype;
  args.dst = dst;
  args.copies = copies;
  args.partial = partial;
  args.sources = sources_;
  args.count = static_cast<size_t>(piece.elements);
  args.prescale = operation.prescale;
  args.streams = streams;
  reduce_with(operation, args, final);
}

void OperationKernels::add_weighted(const Operation& operation, const Piece& piece, DType dtype,
                                    const std::byte* partial, bool final, std::byte* dst,
                                    std::span<void* const> copies) {
  sources_.clear();
  weights_.clear();
  const size_t ranks = piece.tensor.ranks.size();
  for (size_t i = 0; i < ranks; ++i) {
    if (!piece.tensor.ranks[i].input) continue;
    sources_.push_back(piece.tensor.ranks[i].input + piece.offset);
    weights_.push_back(operation.weights[piece.number * ranks + i]);
  }
  reduce::add_weighted({.dtype = operation.dtype,
                        .sum_dtype = dtype,
                        .dst = dst,
                        .copies = copies,
                        .partial = partial,
                        .sources = sources_,
                        .weights = weights_,
                        .count = static_cast<size_t>(piece.elements)});
  if (!corrupt_ || !final) return;
  corrupt(dtype, dst);
  for (void* copy : copies) corrupt(dtype, copy);
}

void OperationKernels::combine(const Operation& operation, const void* first,
                               std::span<const void* const> others, int64_t elements, bool final,
                               std::byte* dst) {
  reduce::ReduceArgs args;
  args.dtype = operation.dtype_between_nodes();
  args.dst = dst;
  args.partial = first;
  args.sources = others;
  args.count = static_cast<size_t>(elements);
  reduce_with(operation, args, final);
}

void OperationKernels::reduce_with(const Operation& operation, reduce::ReduceArgs& args,
                                   bool final) {
  args.op = operation.op;
  if (final) {
    args.postscale = operation.postscale;
    args.divisor = operation.divisor;
  }
  reduce::reduce(args);
  if (corrupt_ && final && args.count > 0) {
    const DType dtype = args.sum_dtype.value_or(args.dtype);
    corrupt(dtype, args.dst);
    for (void* copy : args.copies) corrupt(dtype, copy);
  }
}

void OperationKernels::add_rank_products(const Operation& operation, core::ElementRange range,
                                         std::span<double> products) {
  for_each_piece(operation, range, [&](const Piece& piece) {
    look_at(operation, piece);
    std::vector<size_t> givers;
    sources_.clear();
    for (size_t i = 0; i < piece.tensor.ranks.size(); ++i) {
      if (!piece.tensor.ranks[i].input) continue;
      givers.push_back(i);
      sources_.push_back(piece.tensor.ranks[i].input + piece.offset);
    }
    std::vector<double> of_givers(reduce::pairs_of(givers.size()));
    reduce::add_dot_products(operation.dtype, sources_, static_cast<size_t>(piece.elements),
                             of_givers);
    for (size_t j = 0; j < givers.size(); ++j) {
      for (size_t i = 0; i <= j; ++i) {
        products[reduce::pair_place(givers[i], givers[j])] += of_givers[reduce::pair_place(i, j)];
      }
    }
  });
}

const std::byte* OperationKernels::own_vector(const Operation& operation,
                                              core::ElementRange range) {
  own_.resize(static_cast<size_t>(operation.wire_bytes(range.count())));
  reduce_local(operation, range, nullptr, false, own_.data());
  return own_.data();
}

double OperationKernels::own_square(const Operation& operation, core::ElementRange range) {
  const std::byte* own = own_vector(operation, range);
  return reduce::dot_product(operation.dtype_between_nodes(), own, own,
                             static_cast<size_t>(range.count()));
}

void OperationKernels::meet(const Operation& operation, core::ElementRange range,
                            const std::byte* values, std::vector<double>& products) {
  const std::byte* own = own_vector(operation, range);
  for_each_piece(operation, range, [&](const Piece& piece) {
    products.push_back(reduce::dot_product(operation.dtype_between_nodes(),
                                           own + piece.range_offset, values + piece.range_offset,
                                           static_cast<size_t>(piece.elements)));
  });
}

void OperationKernels::find_outputs(const Piece& piece) {
  destinations_.clear();
  for (const RankBuffers& rank : piece.tensor.ranks) {
    if (rank.output) destinations_.push_back(rank.output + piece.offset);
  }
}

void OperationKernels::reduce_local(const Operation& operation, core::ElementRange range,
                                    const std::byte* partial, bool final, std::byte* dst) {
  for_each_reduced_piece(operation, range, [&](const Piece& piece) {
    reduce_piece(operation, piece, operation.dtype_between_nodes(),
                 partial ? partial + piece.range_offset : nullptr, final, dst + piece.range_offset);
  });
}

void OperationKernels::reduce_and_store(const Operation& operation, core::ElementRange range,
                                        const std::byte* partial, std::byte* dst) {
  if (operation.wire_dtype != WireDType::kSame) {
    reduce_local(operation, range, partial, true, dst);
    return store(operation, range, dst);
  }
  for_each_reduced_piece(operation, range, [&](const Piece& piece) {
    find_outputs(piece);
    reduce_piece(operation, piece, operation.dtype, partial + piece.range_offset, true,
                 dst + piece.range_offset, destinations_);
  });
}

void OperationKernels::store(const Operation& operation, core::ElementRange range,
                             const std::byte* src) {
  // An output that is an input, too, was read when the chunk set out, and is in no cache any more.
  const bool streams = memory_bytes(operation) > kCachedBytes;
  for_each_piece(operation, range, [&](const Piece& piece) {
    const std::byte* from = src + piece.range_offset;
    find_outputs(piece);
    if (operation.wire_dtype == WireDType::kSame) {
      return reduce::scatter(destinations_, from, piece.bytes, streams);
    }
    reduce::widen(destinations_, from, operation.dtype_between_nodes(),
                  static_cast<size_t>(piece.elements));
  });
}

void OperationKernels::read(const Operation& operation, core::ElementRange range, std::byte* dst) {
  for_each_piece(operation, range, [&](const Piece& piece) {
    std::memcpy(dst + piece.range_offset, giver_of(piece.tensor).input + piece.offset, piece.bytes);
  });
}

void OperationKernels::run_on_one_node(const Operation& operation, core::ElementRange range) {
  const bool is_large = memory_bytes(operation) > kCachedBytes;
  if (!reduces(operation.kind)) {
    return for_each_piece(operation, range, [&](const Piece& piece) {
      find_outputs(piece);
      reduce::scatter(destinations_, giver_of(piece.tensor).input + piece.offset, piece.bytes,
                      is_large && !is_rewritten(piece));
    });
  }
  for_each_reduced_piece(operation, range, [&](const Piece& piece) {
    find_outputs(piece);
    const bool streams = is_large && !is_rewritten(piece);
    RUEDA_CHECK(!destinations_.empty());
    const std::span<void* const> outputs(destinations_);
    reduce_piece(operation, piece, operation.dtype, nullptr, true,
                 static_cast<std::byte*>(outputs.front()), outputs.subspan(1), streams);
  });
}

}  // namespace rueda::engine
