// The data plane of one epoch of one job on this node: its channels, its slots, its operations.
// Belongs to one data loop.
//
// Chunks travel as core/ring_schedule.h says. A received chunk is worked on in its slot and sent on
// from there: sums never leave the cache on their way. Frames of an operation that this node has
// not launched yet wait in their slots.
#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include "daemon/base/clock.h"
#include "daemon/core/agreement.h"
#include "daemon/engine/operation.h"
#include "daemon/engine/outbox.h"
#include "daemon/engine/slots.h"
#include "daemon/observe/metrics.h"
#include "daemon/transport/transport.h"

namespace rueda::engine {

// What a data job tells its owner, on the data loop.
struct DataEvents {
  std::function<void(Seq, double seconds)> on_done;
  std::function<void(Seq, const Status&)> on_failed;
  std::function<void(NodeIndex, const Status&)> on_channel_lost;
};

struct DataJobOptions {
  JobId job;
  Epoch epoch;
  transport::JobToken token{};
  NodeIndex self;
  std::vector<std::string> node_ids;        // by node index
  std::vector<std::string> data_addresses;  // likewise
  int lanes = 4;
  uint64_t chunk_bytes = 256 * 1024;
  uint64_t staging_bytes = 64u << 20;  // bound of slots and send buffers
  TicksMs timeout_ms = 10'000;         // to connect, and without progress
  bool corrupt = false;                // --fault reduce
  DataEvents events;
};

class DataJob {
 public:
  DataJob(boost::asio::io_context& loop, transport::Transport& transport, observe::Metrics& metrics,
          DataJobOptions options);
  ~DataJob();

  // Opens the channels. Operations may be given before they are open.
  void start();
  void run(std::unique_ptr<Operation> operation);
  // L7: forgets the lockable operations from `first` on. Their frames, here and under way, are
  // dropped, and their slots given back.
  void cancel(const core::Cancel& cancelled);
  // Calls back once the neighbour has taken everything sent to it, or after timeout_ms.
  void when_quiet(std::function<void()> handler);
  // Brings the neighbours' traffic counters up to date: the last frames of an operation go out
  // after its end here.
  void count_traffic();

 private:
  struct Running {
    std::unique_ptr<Operation> operation;
    core::RingCut cut;
    std::vector<uint16_t> finals;  // by piece: final chunks held
    std::vector<bool> received;    // by chunk, reduced then final: whether its frame has come
    int64_t first_incomplete = 0;  // piece
    int64_t next_origin = 0;       // piece that this node starts next
    int64_t local_done = 0;        // on one node: elements
    double started_s = 0;
    bool launched_everywhere = false;  // the others have deadlines to keep only from then on
  };

  // The two channels' events; they differ in whose death on_closed means.
  struct SendSide final : transport::SendEvents {
    explicit SendSide(DataJob& owner) : job(owner) {}
    void on_sent(uint64_t cookie) override { job.on_sent(static_cast<uint32_t>(cookie)); }
    void on_slot_free(uint32_t slot) override { job.on_slot_free(slot); }
    void on_closed(const Status& status) override { job.on_closed(job.next(), status); }
    DataJob& job;
  };
  struct ReceiveSide final : transport::ReceiveEvents {
    explicit ReceiveSide(DataJob& owner) : job(owner) {}
    void on_frame(const transport::FrameHeader& header, std::span<std::byte> payload) override {
      job.on_frame(header, payload);
    }
    void on_closed(const Status& status) override { job.on_closed(job.previous(), status); }
    DataJob& job;
  };

  int nodes() const { return static_cast<int>(options_.node_ids.size()); }
  NodeIndex next() const { return NodeIndex{(options_.self.value + 1) % nodes()}; }
  NodeIndex previous() const { return NodeIndex{(options_.self.value + nodes() - 1) % nodes()}; }

  void on_sent(uint32_t cookie);
  void on_slot_free(uint32_t slot);
  void on_frame(const transport::FrameHeader& header, std::span<std::byte> payload);

  void allocate_staging();
  void open_channels();
  void on_open();
  // The peer closed a channel. It may just have nothing left to do: then what comes from the other
  // neighbour is still wanted.
  void on_closed(NodeIndex peer, const Status& status);
  // Nothing more can be done with the peer, and so in this epoch.
  void give_up(NodeIndex peer, const Status& status);
  void report_loss(NodeIndex peer, const Status& status);

  void launch(std::unique_ptr<Operation> operation);
  void run_locally(Running& running);
  void originate(Running& running);
  void originate_broadcast(Running& running);
  Running* find(Seq seq);
  uint64_t& last_launched(Seq seq) { return last_launched_[core::index_of(core::track_of(seq))]; }
  // The operation of the frame was cancelled, and has, or had, a new generation.
  bool is_stale(const transport::FrameHeader& header) const;
  // After the operation's inputs were read. False, and the operation is reported as failed, if what
  // was read is worthless.
  bool inputs_hold(const Running& running);
  // The frame can only have come if every node has launched its operation.
  bool shows_launch_everywhere(const transport::FrameHeader& header) const;
  // The error says what is wrong with the frame.
  Status check_frame(const Running& running, const transport::FrameHeader& header) const;
  void handle_ring_frame(Running& running, const transport::FrameHeader& header,
                         std::span<std::byte> payload);
  void handle_broadcast_frame(Running& running, const transport::FrameHeader& header,
                              std::span<std::byte> payload);
  void forward(const transport::FrameHeader& received, transport::FrameKind kind, uint32_t to_slot,
               std::span<std::byte> payload);
  void note_final(Running& running, int64_t piece);
  void finish_if_done(Running& running);
  core::ElementRange range_of(const Running& running, uint32_t chunk) const;
  transport::FrameHeader header_for(const Running& running, transport::FrameKind kind,
                                    uint32_t chunk, uint32_t slot, size_t bytes) const;
  std::byte* origin_buffer(uint32_t index);

  void watch_progress();
  void check_quiet();

  boost::asio::io_context& loop_;
  transport::Transport& transport_;
  observe::Metrics& metrics_;
  const DataJobOptions options_;
  const uint64_t job_hash_;
  const SlotGeometry geometry_;
  OperationKernels kernels_;

  // Slots first, then the buffers for what this node originates: one mapping, one region.
  std::byte* staging_ = nullptr;
  size_t staging_bytes_ = 0;
  transport::RegionKey region_;
  Outbox outbox_;  // cookies: slots (forwards), then origin buffers
  SendSide send_side_{*this};
  ReceiveSide receive_side_{*this};
  std::unique_ptr<transport::SendChannel> send_;
  std::unique_ptr<transport::ReceiveChannel> receive_;
  bool send_closed_ = false;
  bool stopped_ = false;  // no frame is handled or sent any more; the epoch is about to end

  std::vector<std::unique_ptr<Operation>> waiting_;      // for the channels
  std::vector<std::unique_ptr<Running>> running_;        // at most one a lane
  std::vector<transport::FrameHeader> early_;            // their payloads wait in their slots
  std::array<uint64_t, core::kTracks> last_launched_{};  // Seq values
  std::vector<core::Cancel> cancels_;                    // by ascending first and generation
  uint64_t stable_ = 0;  // lockable operations up to here are complete on this node

  boost::asio::steady_timer progress_timer_;
  TicksMs last_progress_ms_ = 0;
  std::vector<std::function<void()>> quiet_handlers_;
  boost::asio::steady_timer quiet_timer_;
  uint64_t counted_sent_ = 0;
  uint64_t counted_received_ = 0;
  std::shared_ptr<bool> alive_ =
      std::make_shared<bool>(true);  // posted work looks before it touches
};

}  // namespace rueda::engine
