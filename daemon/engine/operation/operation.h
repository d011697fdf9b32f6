// One operation as the data loop carries it out: a batch of tensors seen as one long row of
// elements, with the memory of every local rank behind it.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "daemon/base/dtype.h"
#include "daemon/base/ids.h"
#include "daemon/base/status.h"
#include "daemon/core/model/tuning.h"
#include "daemon/core/schedules/ring_schedule.h"
#include "daemon/engine/memory/staging.h"
#include "daemon/engine/operation/input_check.h"
#include "daemon/engine/operation/operation_trace.h"
#include "daemon/engine/operation/send_priority.h"
#include "daemon/session/session.h"

namespace rueda::reduce {
struct ReduceArgs;
}  // namespace rueda::reduce

namespace rueda::engine {

// One tensor, or part, of one local rank.
struct RankBuffers {
  const std::byte* input = nullptr;  // null: it gives nothing
  std::byte* output = nullptr;       // null: it gets nothing
};

// A tensor, or what of it is one rank's part: elements that the same ranks give and get.
struct OperationTensor {
  int64_t elements = 0;
  std::vector<RankBuffers> ranks;  // by local rank, without those that have joined
};

// A chunk has come, and what this node gives is to be added to it.
struct ChunkAddition {
  core::ElementRange range;
  std::shared_ptr<const StagingFile> staging;  // in which the partial is, and the sum is to be
  uint64_t offset = 0;
  bool is_final = false;  // with postscale and divisor
};
// Called on the data loop; `done` is called once, on any thread.
using GpuReduce = std::function<void(ChunkAddition, std::function<void(const Status&)> done)>;

// What all tensors of a batch have in common, and where their elements are. Immutable once made,
// but for the weights.
struct Operation {
  Epoch epoch;
  uint32_t process_set = 0;
  Seq seq;
  uint32_t generation = 0;  // lock generation; frames of an older one are dropped (L3)
  bool locked = false;      // launched by a plan: other nodes may be far from it
  uint64_t plan_hash = 0;
  core::DataTuning tuning;
  SendPriority urgency;  // of the tensor that is needed first
  CollectiveKind kind = CollectiveKind::kAllreduce;
  DType dtype = DType::kFloat32;
  ReduceOp op = ReduceOp::kSum;
  double prescale = 1.0;
  double postscale = 1.0;
  WireDType wire_dtype = WireDType::kSame;  // more than one node has to do with it
  int64_t divisor = 1;                      // average: the number of contributors
  NodeIndex root_node{-1};                  // where one rank is the root
  // For an Adasum: the places of each node's members in the ring, by node and in the order of the
  // ranks. If it is empty, the places of all members are ascending.
  std::vector<std::vector<size_t>> tree;

  std::vector<OperationTensor> tensors;
  std::vector<int64_t> first_element;  // by tensor, then the total: one more entry than tensors
  // Of an Adasum, by tensor and then rank of `ranks`: what it is multiplied by, so far as it is
  // known (engine/operation/adasum.h). Has prescale and postscale in it in the end.
  std::vector<double> weights;
  // The ranges of elements by round and shard (core/schedules/ring_schedule.h), in the order of the
  // tensors. If it is empty, there is one round of equal shards.
  std::vector<std::vector<core::ElementRange>> rounds;
  // So many rounds' inputs are here; the others come while it is under way. Null: all are.
  std::shared_ptr<const std::atomic<int>> rounds_here;
  GpuReduce gpu_reduce;  // null: the data loop adds
  // What is done of it here: of each shard, the index-th of so many nearly equal parts. What others
  // do, they do at the same time.
  struct Share {
    int index = 0;
    int of = 1;
  };
  Share share;
  std::vector<std::shared_ptr<session::Arena>> arenas;  // keeps the buffers mapped
  std::shared_ptr<OperationTrace> trace;                // null: no timeline is recorded
  std::shared_ptr<InputCheck> check;                    // null: inputs need not be finite

  // Behind what is there; becomes one with the last if it lies behind it in the memory of every
  // rank, and what is done to them is element by element. first_element begins with 0.
  void add(int64_t elements, const std::vector<RankBuffers>& ranks);
  // Calls visit(tensor, its part of the range) for each tensor that has elements in it.
  template <class Visit>
  void for_each_tensor(core::ElementRange range, Visit visit) const {
    size_t i = tensor_at(range.begin);
    for (int64_t at = range.begin; at < range.end; ++i) {
      const int64_t end = std::min(first_element[i + 1], range.end);
      if (end <= at) continue;
      visit(i, core::ElementRange{at, end});
      at = end;
    }
  }

  // True if the kernel could not provide some client's memory (session/memory/sigbus_guard.h): what
  // was read from it is worthless and must not reach anybody.
  bool has_lost_memory() const;
  // Returns how a ring of `nodes` nodes carries out its share of the operation.
  core::RingCut cut(int nodes, int64_t max_chunk_elements) const;
  // Some output is its input, too.
  bool is_in_place() const;
  // Where the range's values are, of the only rank of this node that gives any, if they lie in one
  // piece, are what goes to the next node, and have gone when the operation is done here; null
  // otherwise.
  const std::byte* sendable_input(core::ElementRange range) const;
  // Returns where the range's final values go in the output of the only rank of this node that gets
  // any, if they belong there in one piece and are what comes from other nodes; null otherwise.
  std::byte* receivable_output(core::ElementRange range) const;
  // The last one that begins there or before; empty ones may follow each other.
  size_t tensor_at(int64_t element) const;
  int64_t elements() const { return first_element.back(); }
  int64_t bytes() const { return elements() * static_cast<int64_t>(element_bytes(dtype)); }
  // Elements as nodes send them to each other, and hold them for each other.
  DType dtype_between_nodes() const { return dtype_on_wire(dtype, wire_dtype); }
  int64_t wire_bytes() const { return wire_bytes(elements()); }
  int64_t wire_bytes(int64_t count) const {
    return count * static_cast<int64_t>(element_bytes(dtype_between_nodes()));
  }

 private:
  // The range's place in the only buffer of that side, if there is one and holds all of it.
  template <class Byte>
  Byte* only(core::ElementRange range, Byte* RankBuffers::*side) const;
};

// Why an operation fails that has lost memory on this node.
Status lost_memory(const std::string& node_id);

// The arithmetic of an operation on a stretch of its elements. Holds scratch space, so that nothing
// is allocated on the path; belongs to one loop.
class OperationKernels {
 public:
  // A fault that tests plant: the first element of every stretch is wrong, so that checkers can be
  // checked.
  explicit OperationKernels(bool corrupt = false) : corrupt_(corrupt) {}

  // What goes between nodes: partial, dst and src are of dtype_between_nodes().
  //
  // dst = partial (op) all local ranks' elements of the range; partial may be null. With `final`,
  // also postscale and divisor. dst may equal partial. Zeros where all local ranks have joined.
  void reduce_local(const Operation& operation, core::ElementRange range, const std::byte* partial,
                    bool final, std::byte* dst);
  // Final values to dst, and in the same pass to the output of every local rank that gets them.
  void reduce_and_store(const Operation& operation, core::ElementRange range,
                        const std::byte* partial, std::byte* dst);
  // dst = first (op) others[0] (op) others[1] and so on: so many values from different nodes; with
  // `final` as above. dst may equal any of them.
  void combine(const Operation& operation, const void* first, std::span<const void* const> others,
               int64_t elements, bool final, std::byte* dst);
  // Copies final values to the output of every local rank that gets them.
  void store(const Operation& operation, core::ElementRange range, const std::byte* src);
  // Copies what one local rank gives, where nothing is reduced.
  void read(const Operation& operation, core::ElementRange range, std::byte* dst);
  // All of it among this node's ranks, in one pass: reads k, writes k. Nothing is rounded.
  void run_on_one_node(const Operation& operation, core::ElementRange range);

  // --- Of an Adasum. The node's vector is what reduce_local() makes of its ranks'.
  //
  // Adds to `products` those of what the ranks give (reduce/weighted.h), in a range of one tensor.
  void add_rank_products(const Operation& operation, core::ElementRange range,
                         std::span<double> products);
  // The node's vector's product with itself.
  double own_square(const Operation& operation, core::ElementRange range);
  // Its products with another node's in a range, one for each tensor in it.
  void meet(const Operation& operation, core::ElementRange range, const std::byte* values,
            std::vector<double>& products);

 private:
  // The part of one tensor that lies in a range of the operation's elements.
  struct Piece {
    size_t number;  // of the tensor
    const OperationTensor& tensor;
    int64_t offset;        // bytes into the tensor
    int64_t range_offset;  // bytes into the range, as it goes between nodes
    int64_t elements;
    size_t bytes;  // of the tensor
  };

  template <class Visit>
  void for_each_piece(const Operation& operation, core::ElementRange range, Visit visit);
  // Of a reduction: checks what is read, if it is to be.
  template <class Visit>
  void for_each_reduced_piece(const Operation& operation, core::ElementRange range, Visit visit);
  static void look_at(const Operation& operation, const Piece& piece);
  // What the arguments lack is the operation's.
  void reduce_with(const Operation& operation, reduce::ReduceArgs& args, bool final);
  // partial, dst and copies are of this type.
  void reduce_piece(const Operation& operation, const Piece& piece, DType dtype,
                    const std::byte* partial, bool final, std::byte* dst,
                    std::span<void* const> copies = {}, bool streams = false);
  void add_weighted(const Operation& operation, const Piece& piece, DType dtype,
                    const std::byte* partial, bool final, std::byte* dst,
                    std::span<void* const> copies);
  // The node's vector, as it goes between nodes; in own_.
  const std::byte* own_vector(const Operation& operation, core::ElementRange range);
  // Some output of the piece is an input, too.
  static bool is_rewritten(const Piece& piece);
  // Into destinations_.
  void find_outputs(const Piece& piece);

  const bool corrupt_;
  std::vector<const void*> sources_;
  std::vector<void*> destinations_;
  std::vector<double> weights_;  // by source
  std::vector<std::byte> own_;
};

}  // namespace rueda::engine
