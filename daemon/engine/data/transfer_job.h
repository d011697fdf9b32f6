// Carries transfers between ranks (core/job/transfers.h), of all process sets of a job in one
// epoch: by a copy where both ranks are on this node, otherwise over a channel from the one node to
// the other, which has both the core's messages and the data. Channels are opened when the first
// transfer needs them, so a job without transfers has none. It belongs to a data loop.
//
// Messages go before data. Transfers to one node share its channel in turns, part by part, so that
// a small one does not wait for a large one. Small data goes with its offer, as long as no more
// than kCarriedBudget waits on the other node for receives; the other node's data plane counts,
// too. Any other data is sent when its receive is there, so it has a place. Whatever else comes
// breaks the rules.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include <boost/asio/io_context.hpp>

#include "daemon/base/lifetime.h"
#include "daemon/core/job/job_events.h"
#include "daemon/engine/channels/frame_stamp.h"
#include "daemon/engine/channels/traffic_counter.h"
#include "daemon/engine/channels/transfer_record.h"
#include "daemon/engine/data/data_job_options.h"
#include "daemon/engine/data/epoch_faults.h"
#include "daemon/engine/data/progress_watch.h"
#include "daemon/observe/metrics.h"
#include "daemon/session/memory/arena.h"
#include "daemon/transport/transport.h"

namespace rueda::engine {

// A channel between two nodes has so many slots of so many bytes, and as much memory at each end.
inline constexpr uint32_t kTransferSlots = 8;
inline constexpr uint32_t kTransferSlotBytes = 128 << 10;
inline constexpr uint64_t kTransferStagingBytes = uint64_t{kTransferSlots} * kTransferSlotBytes;
static_assert(kMostRecordBytes + kMostCarriedBytes <= kTransferSlotBytes);

// This node's part of a transfer. The arenas keep the memory mapped; they are null if there are no
// bytes.
struct Transfer {
  core::TransferKey key;
  int64_t bytes = 0;
  const std::byte* input = nullptr;  // Null if the source is on another node.
  std::byte* output = nullptr;       // Null if the destination is.
  std::shared_ptr<session::Arena> input_arena;
  std::shared_ptr<session::Arena> output_arena;

  bool is_local() const { return key.from == key.to; }
  // Returns true if the kernel could not provide a client's memory (Operation::has_lost_memory).
  bool has_lost_memory() const {
    return (input_arena && input_arena->is_lost()) || (output_arena && output_arena->is_lost());
  }
};

class TransferJob final : private ProgressHost {
 public:
  // The nodes of the options are those of the job's layout. The loop, the transport and the metrics
  // outlive the object.
  TransferJob(boost::asio::io_context& loop, transport::Transport& transport,
              observe::Metrics& metrics, DataJobOptions options);
  ~TransferJob();
  TransferJob(const TransferJob&) = delete;
  TransferJob& operator=(const TransferJob&) = delete;

  // A message of the core, to another node. The source of an offer has the data that may go with
  // it.
  struct Outgoing {
    NodeIndex to;
    uint32_t process_set = 0;
    core::TransferMessage message;
    Transfer source;
  };

  // Opens the channels to and from a node. It may be called again.
  void open(NodeIndex peer);
  // Sends a message; what the other node says comes by DataEvents::on_transfer_message.
  void send(Outgoing message);
  // Carries out this node's part; DataEvents::on_transfer_done is the answer. Between nodes, the
  // destination's part is run before its take is sent.
  void run(Transfer transfer);
  // Gives the epoch up on this node, as DataJob::fail() does.
  void fail(const Status& status);
  bool has_work() const;
  const std::shared_ptr<const Cause>& cause() const { return options_.cause; }
  // As DataJob::when_quiet().
  void when_quiet(std::function<void()> handler) { watch_.when_quiet(std::move(handler)); }
  void count_traffic();

 private:
  struct Outlet;
  struct Inlet;

  void copy(Transfer transfer, int64_t from);
  Outlet& outlet(NodeIndex to);
  Inlet& inlet(NodeIndex from);
  transport::ChannelId channel(NodeIndex from, NodeIndex to) const;
  void connect(Outlet& to);
  void expect(Inlet& from);
  void write(Outlet& to);
  // These write the next part of a transfer, or the next message, into the slot. They return false
  // if the data plane has stopped.
  bool write_part(Outlet& to, uint64_t number, uint32_t slot);
  bool write_message(Outlet& to, uint32_t slot);
  // Returns whether the data of an offer may go with it.
  static bool may_carry(const Outlet& to, const Outgoing& offer);
  void on_sent(Outlet& to, uint32_t slot);
  std::byte* place(Inlet& from, const transport::FrameHeader& header);
  // Returns what is wrong with a frame, or ok.
  Status check(const Inlet& from, const transport::FrameHeader& header) const;
  void on_frame(Inlet& from, const transport::FrameHeader& header, std::span<std::byte> payload);
  void on_part(Inlet& from, const transport::FrameHeader& header, std::span<std::byte> payload,
               bool was_placed);
  void on_message(Inlet& from, const transport::FrameHeader& header,
                  std::span<const std::byte> payload);
  // Counts what the message opens or closes. Returns what is wrong with it, or ok.
  Status count(Inlet& from, const TransferRecord& record);
  void on_closed(NodeIndex peer, const Status& status, bool is_missed);
  // Stops the data plane if a client's memory is lost. Returns whether all is well.
  bool holds(const Transfer& transfer);
  void done(const Transfer& transfer);

  // --- ProgressHost
  bool has_to_go_on() const override;
  bool is_quiet() const override;
  std::optional<NodeIndex> culprit() const override;
  std::string describe_silence(NodeIndex peer) const override;
  uint64_t bytes_received() const override;
  void for_each_outlet(const VisitOutlet& visit) const override;
  void give_up(NodeIndex peer, const Status& status) override;

  boost::asio::io_context& loop_;
  transport::Transport& transport_;
  observe::Metrics& metrics_;
  const DataJobOptions options_;
  const FrameStamp stamp_;
  const std::shared_ptr<Turns::Party> turns_ = options_.turns->party(options_.job);
  EpochFaults faults_;
  ProgressWatch watch_;
  TrafficCounter traffic_;
  std::map<NodeIndex, std::unique_ptr<Outlet>> outlets_;
  std::map<NodeIndex, std::unique_ptr<Inlet>> inlets_;
  size_t copies_ = 0;  // Copies on this node that are under way.
  Lifetime lifetime_;
};

}  // namespace rueda::engine
