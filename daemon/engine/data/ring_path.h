// The way of an operation round the ring: what this node begins, what it does with the chunks that
// come from the previous node, and what waits for its turn. Chunks travel as
// core/schedules/ring_schedule.h says. A received chunk is worked on in its slot and sent on from
// there, so that sums never leave the cache on their way. The path belongs to its data loop.
//
// The stages of an Adasum (engine/operation/adasum.h) go round as rounds of one cut, each begun
// when the one before has ended here. A frame that comes before that waits in its slot. Frames of
// earlier rounds never wait for it: they have slots of their own, or the slot before it.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <boost/asio/io_context.hpp>

#include "daemon/base/lifetime.h"
#include "daemon/engine/channels/acknowledgements.h"
#include "daemon/engine/channels/ring_link.h"
#include "daemon/engine/channels/zero_copy_buffers.h"
#include "daemon/engine/data/algorithm_probe.h"
#include "daemon/engine/data/data_host.h"
#include "daemon/engine/data/retained_results.h"
#include "daemon/observe/metrics.h"
#include "daemon/transport/transport.h"

namespace rueda::engine {

class RingPath {
 public:
  // All of them outlive the object.
  RingPath(boost::asio::io_context& loop, transport::Transport& transport,
           const WayContext& context, RingLink& link, RetainedResults& retained,
           const AlgorithmProbe& probe, observe::DaemonMetrics& metrics);

  // Opens the channels of the link.
  void open();
  // Starts those chunks of an operation for which there is room. The operation may be gone
  // afterwards.
  void go_on(RunningOperation& running);
  // Handles the frames that came before the operation was launched. It may be gone afterwards.
  void take_early(Seq seq);
  // Does what waited for something to become complete or stable, or for a round to begin.
  void settle();
  // On node 0, begins an acknowledgement where none is under way (R2).
  void acknowledge(core::Track track);

  // Gives back the slots of frames that wait for a round of the operation, which is cancelled.
  void drop(const RunningOperation& running);
  // Gives back the slots of early frames whose operations were cancelled.
  void drop_stale();

 private:
  // The two channels' events. They differ in whose death on_closed() means.
  struct SendSide final : transport::SendEvents {
    explicit SendSide(RingPath& owner) : path(owner) {}
    void on_sent(uint64_t cookie) override { path.on_sent(static_cast<uint32_t>(cookie)); }
    void on_slot_free(uint32_t slot) override { path.on_slot_free(slot); }
    void on_closed(const Status& status) override { path.on_next_closed(status); }
    RingPath& path;
  };
  struct ReceiveSide final : transport::ReceiveEvents {
    explicit ReceiveSide(RingPath& owner) : path(owner) {}
    std::byte* place(const transport::FrameHeader& header) override { return path.place(header); }
    void on_frame(const transport::FrameHeader& header, std::span<std::byte> payload) override {
      path.on_frame(header, payload);
    }
    void on_closed(const Status& status) override { path.on_previous_closed(status); }
    RingPath& path;
  };

  void on_sent(uint32_t cookie);
  void on_slot_free(uint32_t slot);
  // Places final values straight into the output of the only rank that gets them, if they go no
  // further.
  std::byte* place(const transport::FrameHeader& header);
  void on_frame(const transport::FrameHeader& header, std::span<std::byte> payload);
  // Takes a frame that is no chunk.
  void on_notice(const transport::FrameHeader& header, std::span<std::byte> payload);
  void on_next_closed(const Status& status);
  void on_previous_closed(const Status& status);
  // The peer closed a channel. It may just have nothing left to do: then what comes from the other
  // neighbour is still wanted.
  void on_closed(NodeIndex peer, const Status& status, bool is_missed);

  // --- What begins here

  void originate(RunningOperation& running);
  void originate_later(RunningOperation& running);
  // Returns the values of a chunk that starts here, which stay in the buffer until they are sent.
  transport::SendBuffer take_input(const Operation& operation, const core::Route& way,
                                   core::ElementRange range, uint32_t buffer);
  // Returns them where the network card reads them by itself; none if they have to be copied.
  std::optional<transport::SendBuffer> take_device_input(const Operation& operation,
                                                         core::ElementRange range, uint32_t buffer);
  transport::SendBuffer begin_adasum_chunk(const RunningOperation& running, int64_t chunk,
                                           uint32_t buffer);
  // Returns the header of a chunk of so many bytes that starts here.
  transport::FrameHeader header_for(const RunningOperation& running, core::RingPhase phase,
                                    uint32_t chunk, size_t bytes) const;

  // --- What comes from the previous node

  // Returns what is wrong with a chunk's frame, or ok.
  Status check_frame(const RunningOperation& running, const transport::FrameHeader& header) const;
  // Returns whether the frame can only have come if every node has launched its operation.
  bool shows_launch_everywhere(const RunningOperation& running,
                               const transport::FrameHeader& header) const;
  core::RingStep step_of(const RunningOperation& running,
                         const transport::FrameHeader& header) const;
  void handle_chunk(RunningOperation& running, const transport::FrameHeader& header,
                    std::span<std::byte> payload);
  // Takes what comes before the sum of an Adasum.
  void take_products(RunningOperation& running, int64_t chunk, const core::RingStep& step,
                     std::byte* values);
  // Has another process add; then the chunk goes on. Its slot stays taken meanwhile, whatever
  // becomes of the operation.
  void gpu_reduce(const RunningOperation& running, const transport::FrameHeader& header,
                  uint64_t stable_seq);
  void on_added(const transport::FrameHeader& header, uint64_t stable_seq, const Status& status);
  // Sends the sum, or what has come if it is final, on its way, and to whoever gets it.
  void hand_on(RunningOperation& running, const transport::FrameHeader& header,
               std::span<std::byte> payload, uint64_t stable_seq, bool is_stored);
  void forward(const RunningOperation& running, const transport::FrameHeader& received,
               core::RingPhase phase, std::span<std::byte> payload, uint64_t stable_seq);
  // Handles frames that had come before their rounds. Their operations may be gone afterwards.
  void handle_parked();

  // --- Both

  // Returns the next node's slot for a chunk in this phase.
  uint32_t slot(const RunningOperation& running, uint32_t chunk, core::RingPhase phase) const;
  void push(uint32_t cookie, const RunningOperation& running, const transport::FrameHeader& header,
            transport::SendBuffer buffer);
  // Keeps final values of a chunk for as long as they are not stable; copies them to the outputs.
  void hold_values(const RunningOperation& running, uint32_t chunk, const std::byte* values);
  void store(const RunningOperation& running, uint32_t chunk, const std::byte* values);
  // This node's part in one of the piece's chunks is done.
  void note_done(RunningOperation& running, int64_t piece);
  void finish_if_done(RunningOperation& running);

  boost::asio::io_context& loop_;
  const DataJobOptions& options_;
  OperationKernels& kernels_;
  OperationTable& operations_;
  EpochFaults& faults_;
  ProgressWatch& watch_;
  DataHost& host_;
  Turns::Party& turns_;
  RingLink& link_;
  const SlotGeometry& geometry_ = link_.geometry();
  RetainedResults& retained_;
  const AlgorithmProbe& probe_;
  observe::DaemonMetrics& metrics_;
  ZeroCopyBuffers lent_;  // places: slots, for what comes in, then origin buffers
  Acknowledgements acknowledgements_;
  std::vector<transport::FrameHeader> early_;  // their payloads wait in their slots
  SendSide send_side_{*this};
  ReceiveSide receive_side_{*this};
  Lifetime lifetime_;
};

}  // namespace rueda::engine
