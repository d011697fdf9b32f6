// The all-reduces of a data job that do not go round the ring, because exchanging messages over a
// mesh of channels is quicker for their size (core/schedules/pairwise_schedule.h). Each piece of an
// operation runs through the program by itself: its sends go as soon as what they carry is there,
// its messages are taken in the program's order, and early ones wait in their slots. The exchange
// belongs to its data loop.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include <boost/asio/io_context.hpp>

#include "daemon/base/lifetime.h"
#include "daemon/core/schedules/algorithm.h"
#include "daemon/core/schedules/pairwise_schedule.h"
#include "daemon/engine/channels/frame_stamp.h"
#include "daemon/engine/channels/mesh.h"
#include "daemon/engine/channels/pairwise_state.h"
#include "daemon/engine/data/data_host.h"
#include "daemon/engine/data/data_job_options.h"
#include "daemon/engine/memory/slots.h"
#include "daemon/observe/metrics.h"
#include "daemon/transport/transport.h"

namespace rueda::engine {

// Returns how many of staging_bytes the mesh may have; 0 where there is none.
uint64_t mesh_budget(const DataJobOptions& options);

class PairwisePath final : private MeshEvents {
 public:
  // `ring` has the lanes of operations, which the mesh has, too. The loop outlives the object.
  PairwisePath(boost::asio::io_context& loop, const WayContext& context, const FrameStamp& stamp,
               const SlotGeometry& ring);
  ~PairwisePath() override;

  // Opens the channels, if there are to be any. The error is this node's.
  [[nodiscard]] Status start(transport::Transport& transport, observe::Metrics& metrics);
  // Closes the channels. No event comes any more.
  void close() { mesh_.reset(); }
  // Returns whether all channels are open that there are to be.
  bool is_open() const { return !mesh_ || mesh_->is_open(); }
  // Returns the channels, or null if everything goes round the ring.
  Mesh* mesh() const { return mesh_.get(); }

  // Begins the operation if it is to be exchanged according to the table. Returns false if it is to
  // go round the ring; otherwise it may be done, and gone.
  bool begin(RunningOperation& running, const core::AlgorithmTable& table);
  // Forgets what has come for an operation that was begun and is cancelled, but for what is being
  // added up elsewhere.
  void drop(const RunningOperation& running);
  // Gives back the slots of early messages whose operations were cancelled.
  void drop_stale();
  // Returns the node whose message an operation waits for that was begun; or nothing.
  std::optional<NodeIndex> awaited_peer(const RunningOperation& running) const;

 private:
  PairwiseState& state_of(const Operation& operation) { return states_[ring_.lane(operation.seq)]; }
  // Does what can be done. The operation may be gone afterwards.
  void go_on(RunningOperation& running);
  void go_on(RunningOperation& running, PairwiseState& state, PairwisePiece& piece);
  void begin_piece(RunningOperation& running, PairwiseState& state, PairwisePiece& piece);
  void send(const RunningOperation& running, PairwiseState& state, PairwisePiece& piece,
            size_t index);
  // Takes what has come, up to that receive of the program.
  void receive(const RunningOperation& running, PairwiseState& state, PairwisePiece& piece,
               size_t end);
  // Returns what the receives up to `end` add up, in order; `mine` are this node's values. It is
  // valid until the next call.
  std::span<const void* const> addends(const PairwiseState& state, const PairwisePiece& piece,
                                       size_t end, const std::byte* mine);
  // Has another process add; then the piece goes on.
  void add_elsewhere(const RunningOperation& running, const PairwiseState& state,
                     PairwisePiece& piece, size_t end, ElementRange elements,
                     const std::byte* mine);
  void on_added(const PairwiseAddition& addition, const Status& status);
  // The receives up to `end` are done: their slots are free again.
  void finish_receives(const PairwiseState& state, PairwisePiece& piece, size_t end);
  // Goes on with the operation of a lane, if there is one. It may be gone afterwards.
  void go_on(const PairwiseState& state);
  // Returns the work buffer of a piece of an operation.
  uint32_t work_of(const Operation& operation, int64_t piece) const;
  // Returns what is wrong with a message of the operation, or ok.
  Status check_message(const RunningOperation& running, NodeIndex from,
                       const transport::FrameHeader& header) const;

  void on_mesh_open() override { host_.on_open(); }
  void on_mesh_frame(NodeIndex from, const transport::FrameHeader& header,
                     std::span<std::byte> payload) override;
  void on_mesh_sent(NodeIndex to, uint32_t work, int message) override;
  void on_mesh_slot_free() override;
  void on_mesh_failed(NodeIndex peer, const Status& status) override {
    host_.give_up(peer, status);
  }
  void on_mesh_closed(NodeIndex peer, const Status& status) override;

  boost::asio::io_context& loop_;
  const DataJobOptions& options_;
  OperationKernels& kernels_;
  OperationTable& operations_;
  EpochFaults& faults_;
  ProgressWatch& watch_;
  DataHost& host_;
  const FrameStamp stamp_;
  const SlotGeometry& ring_;
  std::unique_ptr<Mesh> mesh_;                                 // null without a mesh
  std::map<core::Algorithm, core::PairwiseProgram> programs_;  // of those that a table may name
  std::vector<PairwiseState> states_;                          // by lane
  std::vector<EarlyMessage> early_;   // of operations that are not launched here
  std::vector<const void*> addends_;  // scratch memory
  Lifetime lifetime_;
};

}  // namespace rueda::engine
