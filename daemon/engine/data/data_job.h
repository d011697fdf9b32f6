// The data plane of one process set in one epoch of a job on this node: its channels, its slots,
// its operations. Belongs to one data loop.
//
// Chunks travel as core/schedules/ring_schedule.h says. A received chunk is worked on in its slot
// and sent on from there: sums never leave the cache on their way. Frames of an operation that this
// node has not launched yet wait in their slots.
//
// All-reduces that another way is quicker for do not go round the ring: their nodes exchange
// messages over a mesh of channels (data_job_exchange.cc).
//
// Where the job is to outlive a node (policy `shrink`), the final values stay here until they are
// stable (held_finals.h), and can be taken over by the data plane of the next epoch.
#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include "daemon/base/clock.h"
#include "daemon/core/order/agreement.h"
#include "daemon/core/recovery/decision.h"
#include "daemon/core/schedules/algorithm.h"
#include "daemon/core/schedules/exchange_schedule.h"
#include "daemon/engine/channels/exchange_state.h"
#include "daemon/engine/channels/held_finals.h"
#include "daemon/engine/channels/lent_memory.h"
#include "daemon/engine/channels/mesh.h"
#include "daemon/engine/channels/outbox.h"
#include "daemon/engine/channels/ring_probe.h"
#include "daemon/engine/memory/pass_threads.h"
#include "daemon/engine/memory/slots.h"
#include "daemon/engine/memory/staging.h"
#include "daemon/engine/operation/adasum.h"
#include "daemon/engine/operation/operation.h"
#include "daemon/observe/metrics.h"
#include "daemon/transport/transport.h"

namespace rueda::engine {

// What a data job tells its owner, on the data loop.
struct DataEvents {
  std::function<void(Seq, double seconds)> on_done;
  std::function<void(Seq, const Status&)> on_failed;
  // Of a plan: the neighbour means another batch by this name (L9). It is to be cancelled.
  std::function<void(Seq, uint32_t generation, NodeIndex peer)> on_diverged;
  // `is_missed`: what is under way here cannot end without the node, though it may be that its
  // ranks have left.
  std::function<void(NodeIndex, const Status&, bool is_missed)> on_channel_lost;
  // Of a share of an operation whose inputs come round by round: so many are done, but not all.
  std::function<void(Seq, uint32_t generation, int share, int rounds)> on_rounds_done =
      [](Seq, uint32_t, int, int) {};
  // A small operation goes on: what comes next is microseconds away.
  std::function<void()> on_small = [] {};
};

struct DataJobOptions {
  JobId job;
  Epoch epoch;
  uint32_t process_set = 0;
  uint32_t part = 0;  // of the process set's data jobs on this node (data_parts.h)
  transport::JobToken token{};
  // The nodes are the members of the ring, in its order: those of the process set, or its ranks. Of
  // ranks on one node the ids and addresses are the same.
  NodeIndex self;
  std::vector<std::string> node_ids;
  std::vector<std::string> data_addresses;
  int lanes = 4;
  uint64_t chunk_bytes = 256 * 1024;
  uint64_t widest_chunk_bytes = 0;     // if larger: what an operation may be tuned to
  uint64_t staging_bytes = 64u << 20;  // bound of slots and send buffers, and of held values
  TicksMs timeout_ms = 10'000;         // to connect, and without progress
  bool corrupt = false;                // --fault reduce
  bool shares_staging = false;         // with whoever adds elsewhere (Operation::add_elsewhere)
  // kFail: nothing is held beyond what the ring needs. The same on all nodes, as is the next.
  core::DeathPolicy policy = core::DeathPolicy::kFail;
  core::AlgorithmChoice algorithm = core::AlgorithmChoice::kAuto;  // under kShrink: the ring
  DataEvents events;
  // Do the passes over memory of a job on one node. Outlive the job.
  PassThreads* pass_threads = nullptr;
};

// What a neighbour did that cannot be.
Status broken_frame(const transport::FrameHeader& header, const std::string& what);

// What the mesh may have of staging_bytes; 0 where there is none.
uint64_t mesh_budget(const DataJobOptions& options);

// A chunk's frame while it is in this phase.
constexpr transport::FrameKind kind_of(core::RingPhase phase) {
  return phase == core::RingPhase::kReduce ? transport::FrameKind::kReduce
                                           : transport::FrameKind::kGather;
}

class DataJob final : private MeshEvents {
 public:
  DataJob(boost::asio::io_context& loop, transport::Transport& transport, observe::Metrics& metrics,
          DataJobOptions options);
  ~DataJob() override;

  // Opens the channels. Operations may be given before they are open.
  void start();
  // Gives the epoch up on this node: nothing goes on, and the owner is told that the node is lost.
  void fail(const Status& status);
  // Whether an operation has been given, and has not ended.
  bool has_work() const { return !running_.empty() || !waiting_.empty() || !completing_.empty(); }
  // An operation for whose values there is no room waits until earlier ones are stable.
  void run(std::unique_ptr<Operation> operation);
  // More of its inputs are here (Operation::rounds_here). It may not be there yet, or no more.
  void rounds_came(Seq seq);
  // L7: forgets the lockable operations from `first` on. Their frames, here and under way, are
  // dropped, and their slots given back.
  void cancel(const core::Cancel& cancelled);
  // Calls back once the neighbours have taken everything sent to them, or nothing more is sent. For
  // as long as they take something, or say by their acknowledgements that they have it, that may
  // take any time; one that does neither is lost after timeout_ms.
  void when_quiet(std::function<void()> handler);
  // Brings the neighbours' traffic counters up to date: the last frames of an operation go out
  // after its end here.
  void count_traffic();

  // --- Recovery, policy `shrink` on more than one node (docs/protocol.md, R1 to R4)
  //
  // Nothing is sent, received, launched or handed back any more.
  void seal();
  // R3, of a sealed epoch. `delivered`: the owner was told; whether it told the clients, it knows.
  core::Report report(core::Track track) const { return held_of(track)->report(); }
  // The final values of a chunk that is held (checked), for a node that lacks them.
  std::span<const std::byte> final_chunk(Seq seq, uint32_t chunk) const {
    return held_of(core::track_of(seq))->chunk(seq, chunk);
  }
  // Before start(), for each track: takes over from the sealed epoch before what the decision says.
  // COMPLETE operations are done once take_final() has brought the chunks that are missing. To be
  // given to run(), under their new numbers and before any other: REDO ones, again, and COMPLETE
  // ones that this node had not launched (broadcasts: they may end before all have begun).
  void carry_over(DataJob& before, core::Track track, const core::TrackDecision& decision);
  // A REDO operation that cannot be run: the root of the broadcast is lost. On all nodes alike.
  void abandon(Seq seq) { held_of(seq)->abandon(seq); }
  // The operation is COMPLETE and waits for chunks.
  bool is_completing(Seq seq) const;
  // A chunk of it, fetched from another node. kInternal if nobody waits for it, or it has not its
  // size.
  [[nodiscard]] Status take_final(Seq seq, uint32_t chunk, std::span<const std::byte> values);
  // What is known from elsewhere (heartbeats): all nodes have completed the operations up to here.
  void note_stable(Seq seq);
  // Of final values that are not stable.
  int64_t unstable_bytes(core::Track track) const;

 private:
  struct Running {
    std::unique_ptr<Operation> operation;
    core::RingCut cut;
    std::vector<uint16_t> due;   // by piece: chunks that this node is to start, or to receive, yet
    std::vector<bool> received;  // by chunk, reduced then final: whether its frame has come
    std::vector<transport::FrameHeader> parked;  // frames whose round may not begin yet
    int64_t first_incomplete = 0;                // piece
    int rounds_done = 0;                         // as has been told
    int64_t next_origin = 0;    // piece that this node starts next, if it starts its chunk
    int64_t elements_done = 0;  // on one node, or handed back at the end
    bool stores_late = false;   // its inputs are P: outputs are written when all of F is here
    double started_s = 0;
    bool is_diverged = false;          // it has been told
    bool launched_everywhere = false;  // the others have deadlines to keep only from then on
    bool is_exchanged = false;         // over the mesh: cut, due and the pieces here mean nothing
    std::unique_ptr<Adasum> adasum;    // null: another operator
  };

  // The two channels' events; they differ in whose death on_closed means.
  struct SendSide final : transport::SendEvents {
    explicit SendSide(DataJob& owner) : job(owner) {}
    void on_sent(uint64_t cookie) override { job.on_sent(static_cast<uint32_t>(cookie)); }
    void on_slot_free(uint32_t slot) override { job.on_slot_free(slot); }
    void on_closed(const Status& status) override {
      job.send_closed_ = true;
      job.on_closed(job.next(), status, false);
    }
    DataJob& job;
  };
  struct ReceiveSide final : transport::ReceiveEvents {
    explicit ReceiveSide(DataJob& owner) : job(owner) {}
    std::byte* place(const transport::FrameHeader& header) override { return job.place(header); }
    void on_frame(const transport::FrameHeader& header, std::span<std::byte> payload) override {
      job.on_frame(header, payload);
    }
    void on_closed(const Status& status) override {
      job.on_closed(job.previous(), status, job.awaits_frames());
    }
    DataJob& job;
  };

  int nodes() const { return static_cast<int>(options_.node_ids.size()); }
  NodeIndex next() const { return NodeIndex{(options_.self.value + 1) % nodes()}; }
  transport::ChannelId channel(NodeIndex from, NodeIndex to) const;
  NodeIndex previous() const { return NodeIndex{(options_.self.value + nodes() - 1) % nodes()}; }

  void on_sent(uint32_t cookie);
  void on_slot_free(uint32_t slot);
  // Straight into the output of the only rank that gets it, if it is final and goes no further.
  std::byte* place(const transport::FrameHeader& header);
  void on_frame(const transport::FrameHeader& header, std::span<std::byte> payload);

  void allocate_staging();
  void open_channels();
  void on_open();
  // All channels are, and it is known which way is the quickest.
  bool is_open() const {
    return send_ && receive_ && (!mesh_ || mesh_->is_open()) && !table_.empty();
  }
  // The peer closed a channel. It may just have nothing left to do: then what comes from the other
  // neighbour is still wanted.
  void on_closed(NodeIndex peer, const Status& status, bool is_missed);
  // Nothing more can be done with the peer, and so in this epoch.
  void give_up(NodeIndex peer, const Status& status);
  void report_loss(NodeIndex peer, const Status& status, bool is_missed);
  // An operation that every node has launched, and none can cancel, lacks frames of the ring.
  bool awaits_frames() const;

  // Those for which there is room, in the order of their tracks.
  void launch_waiting();
  void launch(std::unique_ptr<Operation> operation);
  int64_t chunk_bytes_of(const Operation& operation) const;
  void run_locally(Running& running);
  void prepare_ring(Running& running);
  // Starts what there is room for.
  void originate(Running& running);
  void originate_later(Seq seq);
  // Where one rank is the root, on more than one node.
  static bool is_chain(const Operation& operation) { return has_root(operation.kind); }
  core::Route route(const Running& running, int64_t piece, int shard) const;
  core::Route route(const Running& running, uint32_t chunk) const {
    return route(running, chunk / running.cut.shards(),
                 static_cast<int>(chunk % static_cast<uint32_t>(running.cut.shards())));
  }
  // The next node's, for a chunk in this phase.
  uint32_t slot(const Running& running, uint32_t chunk, core::RingPhase phase) const;
  Running* find(Seq seq);
  uint64_t& last_launched(Seq seq) { return last_launched_[core::index_of(core::track_of(seq))]; }
  // The operation of the frame was cancelled, and has, or had, a new generation.
  bool is_stale(const transport::FrameHeader& header) const;
  // After the operation's inputs were read. False, and the operation is reported as failed, if what
  // was read is worthless.
  bool inputs_hold(const Running& running);
  enum class Admission { kTaken, kEarly, kStale, kRefused };
  // What is to be done with a chunk's frame: if taken, `running` is its operation; early, it waits
  // in its slot; stale, the slot is given back. Refused, it has been dealt with.
  Admission admit(const transport::FrameHeader& header, NodeIndex from, Running*& running);
  // What is no chunk.
  void on_notice(const transport::FrameHeader& header, std::span<std::byte> payload);
  // Both sides mean the same operation.
  Status check_operation(const Running* running, const transport::FrameHeader& header,
                         NodeIndex from) const;
  // Of a frame that cannot be: the operation fails, or the peer is lost.
  void refuse(const transport::FrameHeader& header, NodeIndex from, const Status& status);
  // L9: the neighbour has chosen another alternative of a plan.
  static bool is_of_another_way(const Running& running, const transport::FrameHeader& header);
  // The frame can only have come if every node has launched its operation.
  bool shows_launch_everywhere(const Running& running, const transport::FrameHeader& header) const;
  // The error says what is wrong with the frame.
  Status check_frame(const Running& running, const transport::FrameHeader& header) const;
  void handle_chunk(Running& running, const transport::FrameHeader& header,
                    std::span<std::byte> payload);
  // Whether the piece's round may: an Adasum's stage, or what its inputs are here for.
  static bool may_begin(const Running& running, int64_t piece) {
    const Operation& operation = *running.operation;
    if (operation.rounds_here) {
      return running.cut.round_of(piece) < operation.rounds_here->load(std::memory_order_acquire);
    }
    return !running.adasum || running.adasum->may_begin(piece, running.first_incomplete);
  }
  // Another process adds; then it goes on.
  void add_elsewhere(const Running& running, const transport::FrameHeader& header,
                     uint64_t stable_seq);
  void on_added(const transport::FrameHeader& header, uint64_t stable_seq, const Status& status);
  // With the sum, or with what has come, if it is final: on its way, and to whoever gets it.
  void hand_on(Running& running, const transport::FrameHeader& header, std::span<std::byte> payload,
               uint64_t stable_seq, bool is_stored);
  // Those that had come too early. Their operations may be gone afterwards.
  void handle_parked();
  void release_parked(const Running& running);
  void forward(const Running& running, const transport::FrameHeader& received,
               core::RingPhase phase, std::span<std::byte> payload, uint64_t stable_seq);
  transport::FrameHeader header_of(const Operation& operation, transport::FrameKind kind) const;
  void push(uint32_t cookie, const Running& running, const transport::FrameHeader& header,
            transport::SendBuffer buffer);
  // Final values of a chunk that this node keeps: for as long as they are not stable, and in the
  // ranks' outputs.
  void hold_values(const Running& running, uint32_t chunk, const std::byte* values);
  void store(const Running& running, uint32_t chunk, const std::byte* values);
  // This node's part in one of the piece's chunks is done.
  void note_done(Running& running, int64_t piece);
  static void skip_done(Running& running);
  void finish_if_done(Running& running);
  void finish(Running& running);
  transport::FrameHeader header_for(const Running& running, core::RingPhase phase, uint32_t chunk,
                                    size_t bytes) const;
  // The values of a chunk that starts here, and in which buffer they are until they are sent.
  transport::SendBuffer take_input(const Operation& operation, const core::Route& way,
                                   core::ElementRange range, uint32_t buffer);
  std::byte* origin_buffer(uint32_t index);
  std::span<std::byte> slot_payload(const transport::FrameHeader& header) const;

  // --- data_job_exchange.cc
  void make_mesh();
  // False: the operation goes round the ring. Else it may be done, and gone.
  bool begin_exchange(Running& running);
  std::optional<NodeIndex> awaited_peer(const Running& running) const;
  // Does what can be done. The operation may be gone afterwards.
  void go_on(Running& running);
  void begin_piece(Running& running, ExchangeState& state, ExchangePiece& piece);
  void go_on(Running& running, ExchangeState& state, ExchangePiece& piece);
  void send(const Running& running, ExchangeState& state, ExchangePiece& piece, size_t index);
  // What has come, up to that receive of the program.
  void receive(const Running& running, ExchangeState& state, ExchangePiece& piece, size_t end);
  ExchangeState& state_of(const Operation& operation) {
    return exchanges_[geometry_.lane(operation.seq)];
  }
  // Of a piece of an operation that is exchanged.
  uint32_t work_of(const Operation& operation, int64_t piece) const;
  void drop_exchange(ExchangeState& state);
  Status check_message(const Running& running, NodeIndex from,
                       const transport::FrameHeader& header) const;
  void on_mesh_open() override { on_open(); }
  void on_mesh_frame(NodeIndex from, const transport::FrameHeader& header,
                     std::span<std::byte> payload) override;
  void on_mesh_sent(NodeIndex to, uint32_t work, int message) override;
  void on_mesh_slot_free() override;
  void on_mesh_failed(NodeIndex peer, const Status& status) override { give_up(peer, status); }
  void on_mesh_closed(NodeIndex peer, const Status& status) override;

  // --- data_job_adasum.cc
  // Turns of the passes over the ranks' memory, then the sum begins.
  void weigh(Running& running);
  // Which stage the chunk belongs to; kSum of any other operator.
  static core::AdasumStage stage_of(const Running& running, int64_t chunk);
  // Of a chunk as it goes between nodes.
  size_t chunk_bytes(const Running& running, int64_t chunk) const;
  // What this node begins the chunk with.
  transport::SendBuffer begin_adasum_chunk(const Running& running, int64_t chunk, uint32_t buffer);
  // What comes before the sum.
  void take_products(Running& running, int64_t chunk, const core::RingStep& step,
                     std::byte* values);
  void refuse_adasum(Seq seq);

  // --- data_job_start.cc
  // Before the first launch node 0 measures what messages cost, and tells all which way is the
  // quickest for how many bytes.
  void begin_probing();
  void send_probe();
  void on_probe(const transport::FrameHeader& header, std::span<std::byte> payload);
  void tell_table();
  void on_table(const transport::FrameHeader& header, std::span<std::byte> payload);
  void begin_launching();

  // --- data_job_recovery.cc
  HeldFinals* held_of(core::Track track) const { return held_[core::index_of(track)].get(); }
  HeldFinals* held_of(Seq seq) const { return held_of(core::track_of(seq)); }
  void allocate_holds();
  void note_finished(Seq seq);
  void give_up_for_memory(const Operation& operation);
  std::unique_ptr<Running> extract(Seq seq);
  // Writes all of F to the outputs.
  void hand_back(Running& running);
  void hand_back_carried();
  // Of a COMPLETE operation that was not launched before: its values are fetched.
  void launch_completing(std::unique_ptr<Operation> operation, uint32_t chunk_bytes);
  // R2: learns from the frame what is stable; returns what it says where it goes next, as final
  // values or not.
  uint64_t pass_on_stability(const transport::FrameHeader& header, bool is_final);
  // After something has become complete or stable: what waited for that.
  void settle();
  void acknowledge(core::Track track);
  void on_acknowledgement(const transport::FrameHeader& header);
  void pass_acknowledgement(core::Track track);

  // From now on, until there is nothing to wait for. Costs nothing if it does already.
  void watch_progress();
  void look_for_progress();
  // Gives up where what was sent is not acknowledged.
  void look_at_channels(TicksMs now);
  struct Taken;
  void look_at(NodeIndex peer, const transport::SendChannel& channel, Taken& taken, TicksMs now);
  // A member has not launched an operation here, as far as is known, and can do so yet.
  bool waits_for_application() const;
  bool is_waiting() const {
    return !running_.empty() || !waiting_.empty() || (send_ && receive_ && !is_open());
  }
  std::string describe_silence(NodeIndex peer) const;
  // Whoever keeps what is under way from going on.
  NodeIndex culprit() const;
  bool is_quiet() const {
    return (outbox_.is_quiet() || send_closed_) && (!mesh_ || mesh_->is_quiet());
  }
  void check_quiet();

  boost::asio::io_context& loop_;
  transport::Transport& transport_;
  observe::Metrics& metrics_;
  const DataJobOptions options_;
  const uint64_t job_hash_;
  const uint32_t chunk_bytes_;  // as configured, or what fits
  const SlotGeometry geometry_;
  OperationKernels kernels_;
  std::vector<OperationKernels> pass_kernels_;  // by thread

  // Slots first, then the buffers for what this node originates: one mapping, one region.
  std::unique_ptr<Staging> staging_;
  Outbox outbox_;    // cookies: slots (forwards), then origin buffers
  LentMemory lent_;  // places: slots, for what comes in, then origin buffers
  SendSide send_side_{*this};
  ReceiveSide receive_side_{*this};
  std::unique_ptr<transport::SendChannel> send_;
  std::unique_ptr<transport::ReceiveChannel> receive_;
  std::unique_ptr<Mesh> mesh_;  // null: everything goes round the ring
  std::map<core::Algorithm, core::ExchangeProgram> programs_;  // those that table_ may name
  std::vector<ExchangeState> exchanges_;                       // by lane
  std::vector<const void*> addends_;                           // scratch
  core::AlgorithmTable table_;                                 // empty: not known yet
  std::optional<RingProbe> probe_;                             // on node 0, while it measures
  std::optional<transport::FrameHeader> early_probe_;  // came before this node could pass it on
  double probe_sent_s_ = 0;
  bool is_probe_out_ = false;
  bool send_closed_ = false;
  bool has_closed_peer_ = false;
  std::optional<std::pair<NodeIndex, Status>> given_up_;  // when nothing was under way
  bool stopped_ = false;  // no frame is handled or sent any more; the epoch is about to end

  std::vector<std::unique_ptr<Operation>> waiting_;      // for the channels, or for room
  std::vector<std::unique_ptr<Running>> running_;        // at most one a lane
  std::vector<transport::FrameHeader> early_;            // their payloads wait in their slots
  std::vector<EarlyMessage> early_messages_;             // likewise, of the mesh
  std::array<uint64_t, core::kTracks> last_launched_{};  // Seq values
  std::vector<core::Cancel> cancels_;                    // by ascending first and generation

  // By track; null where nothing is held.
  std::array<std::unique_ptr<HeldFinals>, core::kTracks> held_;
  std::vector<std::unique_ptr<Running>> completing_;  // carried over, decided COMPLETE
  std::map<Seq, uint32_t> awaited_;  // likewise, not launched here yet: the bytes of a chunk
  // By track: the acknowledgement that waits here until its operations are complete.
  std::array<std::optional<transport::FrameHeader>, core::kTracks> parked_;
  std::array<bool, core::kTracks> acknowledging_{};  // node 0: one is going round

  // What a neighbour's machine has of what was sent to it, and since when that is no more.
  struct Taken {
    uint64_t bytes = 0;
    TicksMs since_ms = 0;
  };
  boost::asio::steady_timer progress_timer_;
  bool is_watching_ = false;
  TicksMs last_progress_ms_ = 0;
  uint64_t seen_received_ = 0;
  std::map<NodeIndex, Taken> taken_by_ring_;
  std::map<NodeIndex, Taken> taken_by_mesh_;
  uint32_t largest_probe_ = 0;  // that came
  std::vector<std::function<void()>> quiet_handlers_;
  std::map<NodeIndex, std::shared_ptr<observe::PeerMetrics>> traffic_;  // of neighbours so far
  uint64_t counted_sent_ = 0;
  uint64_t counted_received_ = 0;
  std::shared_ptr<bool> alive_ =
      std::make_shared<bool>(true);  // posted work looks before it touches
};

}  // namespace rueda::engine
