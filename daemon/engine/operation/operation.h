// One operation as the data loop carries it out: a batch of tensors seen as one long row of
// elements, with the memory of every local rank behind it.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
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
#include "daemon/gpu/device.h"
#include "daemon/session/session.h"

namespace rueda::reduce {
struct ReduceArgs;
}  // namespace rueda::reduce

namespace rueda::engine {

// The memory of one tensor, or part, of one local rank.
struct RankBuffers {
  const std::byte* input = nullptr;  // Null if the rank gives nothing.
  std::byte* output = nullptr;       // Null if the rank gets nothing.
};

// A tensor, or one rank's part of a tensor: elements that the same ranks give and get.
struct OperationTensor {
  int64_t elements = 0;
  std::vector<RankBuffers> ranks;  // By local rank, without those that have joined.
};

// Asks the GPU for an addition of values that have come from other nodes. On the ring, a partial
// has come, and this node's values have to be added to it. In an exchange, messages have come, and
// this node's values are in the staging, too, as they go between nodes.
struct ChunkAddition {
  core::ElementRange range;
  std::shared_ptr<const StagingFile> staging;  // What has come is in it, and the sum goes there.
  uint64_t offset = 0;                         // Of the sum, and on the ring of the partial.
  std::vector<uint64_t> addends;  // Of an exchange: their offsets, in order. One may be `offset`.
  bool is_final = false;          // Postscale and divisor are applied, too.
};
// Adds on the GPU. It is called on the data loop; `done` is called once, on any thread.
using GpuReduce = std::function<void(ChunkAddition, std::function<void(const Status&)> done)>;

// Where a network card may read what this node gives by itself: a GPU's memory, which has the
// values as they are sent.
struct DeviceInput {
  std::shared_ptr<const gpu::DmaBuf> memory;
  uint64_t offset = 0;    // Of the operation's first element in the memory, in bytes.
  bool is_alone = false;  // The inputs have nothing of what this node begins to send.
  // A data job sets it once its channel has sent from the memory: from then on it always can.
  std::shared_ptr<std::atomic<bool>> is_readable;
};

// A batch as it is carried out: what all its tensors have in common, and where their elements are.
// It is immutable once made, but for the weights.
struct Operation {
  Epoch epoch;
  uint32_t process_set = 0;
  Seq seq;
  uint32_t generation = 0;  // The lock generation; frames of an older one are dropped (L3).
  bool locked = false;      // It was launched by a plan, so other nodes may be far from it.
  uint64_t plan_hash = 0;
  core::DataTuning tuning;
  SendPriority urgency;  // The urgency of the tensor that is needed first.
  CollectiveKind kind = CollectiveKind::kAllreduce;
  DType dtype = DType::kFloat32;
  ReduceOp op = ReduceOp::kSum;
  double prescale = 1.0;
  double postscale = 1.0;
  WireDType wire_dtype = WireDType::kSame;  // Set if more than one node has to do with it.
  int64_t divisor = 1;                      // For an average: the number of contributors.
  NodeIndex root_node{-1};                  // Set where one rank is the root.
  // An Adasum needs the places of each node's members in the ring, by node and in the order of the
  // ranks. If this is empty, the places of all members are ascending.
  std::vector<std::vector<size_t>> tree;

  std::vector<OperationTensor> tensors;
  std::vector<int64_t> first_element;  // By tensor, then the total: one more entry than tensors.
  // The factors of an Adasum, by tensor and then rank of `ranks`, so far as they are known
  // (engine/operation/adasum.h). In the end, prescale and postscale are in them.
  std::vector<double> weights;
  // The ranges of elements by round and shard (core/schedules/ring_schedule.h), in the order of the
  // tensors. If it is empty, there is one round of equal shards.
  std::vector<std::vector<core::ElementRange>> rounds;
  // The number of rounds whose inputs are here; the others come while the operation is under way.
  // Null if all are here.
  std::shared_ptr<const std::atomic<int>> rounds_here;
  GpuReduce gpu_reduce;  // Null if the data loop adds.
  std::optional<DeviceInput> device_input;
  // The share of the operation that this object stands for: of each shard, the index-th of so many
  // nearly equal parts. Other objects do their shares at the same time.
  struct Share {
    int index = 0;
    int of = 1;
  };
  Share share;
  std::vector<std::shared_ptr<session::Arena>> arenas;  // They keep the buffers mapped.
  std::shared_ptr<OperationTrace> trace;                // Null if no timeline is recorded.
  std::shared_ptr<InputCheck> check;                    // Null if inputs need not be finite.

  // Adds elements behind those that are there. They become one tensor with the last if they lie
  // behind it in the memory of every rank, and the work on them is element by element.
  // first_element begins with 0.
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

  // Returns true if the kernel could not provide some client's memory
  // (session/memory/sigbus_guard.h): values that were read from it are worthless and must not reach
  // anybody.
  bool has_lost_memory() const;
  // Returns how a ring of `nodes` nodes carries out its share of the operation.
  core::RingCut cut(int nodes, int64_t max_chunk_elements) const;
  // Returns whether some output is its input, too.
  bool is_in_place() const;
  // Returns where the range's values are, of the only rank of this node that gives any, if they lie
  // in one piece, are what goes to the next node, and have gone when the operation is done here;
  // null otherwise.
  const std::byte* sendable_input(core::ElementRange range) const;
  // Returns where the range's final values go in the output of the only rank of this node that gets
  // any, if they belong there in one piece and are what comes from other nodes; null otherwise.
  std::byte* receivable_output(core::ElementRange range) const;
  // Returns the last tensor that begins at the element or before; empty tensors may follow each
  // other.
  size_t tensor_at(int64_t element) const;
  int64_t elements() const { return first_element.back(); }
  int64_t bytes() const { return elements() * static_cast<int64_t>(element_bytes(dtype)); }
  // These return the type of elements, and their bytes, as nodes send them to each other, and hold
  // them for each other.
  DType dtype_between_nodes() const { return dtype_on_wire(dtype, wire_dtype); }
  int64_t wire_bytes() const { return wire_bytes(elements()); }
  int64_t wire_bytes(int64_t count) const {
    return count * static_cast<int64_t>(element_bytes(dtype_between_nodes()));
  }

 private:
  // Returns the range's place in the only buffer of that side, if there is one and it holds all of
  // the range; null otherwise.
  template <class Byte>
  Byte* only(core::ElementRange range, Byte* RankBuffers::*side) const;
};

// Returns the error of an operation that has lost memory on this node.
Status lost_memory(const std::string& node_id);

// The arithmetic of an operation on a stretch of its elements. The object holds scratch space, so
// that nothing is allocated on the path; it belongs to one loop.
class OperationKernels {
 public:
  // `corrupt` is a fault that tests plant: the first element of every stretch is wrong, so that
  // checkers can be checked.
  explicit OperationKernels(bool corrupt = false) : corrupt_(corrupt) {}

  // Values that go between nodes (partial, dst and src) are of dtype_between_nodes().
  //
  // dst = partial (op) all local ranks' elements of the range; partial may be null. With `final`,
  // postscale and divisor are applied, too. dst may equal partial. Zeros are stored where all local
  // ranks have joined.
  void reduce_local(const Operation& operation, core::ElementRange range, const std::byte* partial,
                    bool final, std::byte* dst);
  // Computes final values to dst, and in the same pass to the output of every local rank that gets
  // them.
  void reduce_and_store(const Operation& operation, core::ElementRange range,
                        const std::byte* partial, std::byte* dst);
  // dst = first (op) others[0] (op) others[1] and so on, for values from different nodes. With
  // `final`, postscale and divisor are applied, too. dst may equal any of them.
  void combine(const Operation& operation, const void* first, std::span<const void* const> others,
               int64_t elements, bool final, std::byte* dst);
  // Copies final values to the output of every local rank that gets them.
  void store(const Operation& operation, core::ElementRange range, const std::byte* src);
  // Copies the values that one local rank gives, where nothing is reduced.
  void read(const Operation& operation, core::ElementRange range, std::byte* dst);
  // Carries out the range among this node's ranks alone, in one pass: reads k, writes k. Nothing is
  // rounded.
  void run_on_one_node(const Operation& operation, core::ElementRange range);

  // --- For an Adasum. The node's vector is what reduce_local() makes of its ranks' vectors.
  //
  // Adds to `products` the products of what the ranks give (reduce/weighted.h), in a range of one
  // tensor.
  void add_rank_products(const Operation& operation, core::ElementRange range,
                         std::span<double> products);
  // Returns the product of the node's vector with itself.
  double own_square(const Operation& operation, core::ElementRange range);
  // Adds the products of the node's vector with another node's in a range, one for each tensor in
  // it.
  void meet(const Operation& operation, core::ElementRange range, const std::byte* values,
            std::vector<double>& products);

 private:
  // The part of one tensor that lies in a range of the operation's elements.
  struct Piece {
    size_t number;  // The number of the tensor.
    const OperationTensor& tensor;
    int64_t offset;        // In bytes from the tensor's beginning.
    int64_t range_offset;  // In bytes from the range's beginning, as it goes between nodes.
    int64_t elements;
    size_t bytes;  // The piece's bytes in the tensor.
  };

  template <class Visit>
  void for_each_piece(const Operation& operation, core::ElementRange range, Visit visit);
  // Visits the pieces of a reduction, and checks what is read, if the operation has a check.
  template <class Visit>
  void for_each_reduced_piece(const Operation& operation, core::ElementRange range, Visit visit);
  static void look_at(const Operation& operation, const Piece& piece);
  // Reduces with these arguments, and takes what they lack from the operation.
  void reduce_with(const Operation& operation, reduce::ReduceArgs& args, bool final);
  // Reduces a piece. partial, dst and copies are of type `dtype`.
  void reduce_piece(const Operation& operation, const Piece& piece, DType dtype,
                    const std::byte* partial, bool final, std::byte* dst,
                    std::span<void* const> copies = {}, bool streams = false);
  void add_weighted(const Operation& operation, const Piece& piece, DType dtype,
                    const std::byte* partial, bool final, std::byte* dst,
                    std::span<void* const> copies);
  // Returns the node's vector, as it goes between nodes; it is in own_.
  const std::byte* own_vector(const Operation& operation, core::ElementRange range);
  // Returns whether some output of the piece is an input, too.
  static bool is_rewritten(const Piece& piece);
  // Puts the piece's outputs into destinations_.
  void find_outputs(const Piece& piece);

  const bool corrupt_;
  std::vector<const void*> sources_;
  std::vector<void*> destinations_;
  std::vector<double> weights_;  // The index is the source.
  std::vector<std::byte> own_;
};

}  // namespace rueda::engine
