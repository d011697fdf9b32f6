// The channels between nodes that exchange messages directly, apart from the ring
// (core/schedules/pairwise_schedule.h), and their memory. They belong to a data loop.
//
// A piece of an operation has a work buffer here, and for each message that may come for it, a slot
// in the channel of the node that it comes from. Pieces of the same work buffer follow each other,
// so that no message ever waits for a later one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "daemon/core/schedules/pairwise_schedule.h"
#include "daemon/engine/channels/send_scheduler.h"
#include "daemon/engine/memory/staging.h"
#include "daemon/observe/metrics.h"
#include "daemon/transport/transport.h"

namespace rueda::engine {

struct MeshGeometry {
  int lanes = 4;   // How many operations are under way (engine/memory/slots.h).
  int window = 4;  // How many pieces of one operation are under way.
  uint32_t slot_bytes = 64 * 1024;

  // Returns the geometry. `peers` is the most nodes that any node hears. All nodes compute the
  // same.
  static MeshGeometry make(int lanes, int peers, uint64_t chunk_bytes, uint64_t budget_bytes);

  uint32_t works() const { return static_cast<uint32_t>(lanes * window); }
  // The number of slots of a channel.
  uint32_t slots() const { return works() * core::kMaxMessages; }
  uint32_t work(uint32_t lane, int64_t place) const {
    return lane * static_cast<uint32_t>(window) + static_cast<uint32_t>(place % window);
  }
  uint32_t slot(uint32_t work, int message) const {
    return work * core::kMaxMessages + static_cast<uint32_t>(message);
  }
  uint64_t total_bytes(size_t peers) const {
    return (uint64_t{works()} + peers * slots()) * slot_bytes;
  }
};

class MeshEvents {
 public:
  virtual ~MeshEvents() = default;
  virtual void on_mesh_open() = 0;
  virtual void on_mesh_frame(NodeIndex from, const transport::FrameHeader& header,
                             std::span<std::byte> payload) = 0;
  // The message of the piece with this work buffer has left.
  virtual void on_mesh_sent(NodeIndex to, uint32_t work, int message) = 0;
  virtual void on_mesh_slot_free() = 0;
  // These say that a channel cannot be opened, and that one has closed or broken.
  virtual void on_mesh_failed(NodeIndex peer, const Status& status) = 0;
  virtual void on_mesh_closed(NodeIndex peer, const Status& status) = 0;
};

struct MeshOptions {
  transport::ChannelId id;  // What all channels have in common: job, epoch, process set.
  transport::JobToken token{};
  NodeIndex self;
  std::vector<std::string> data_addresses;  // The index is that of the node.
  core::PairwisePeers peers;
  MeshGeometry geometry;
  int64_t timeout_ms = 0;
  bool shares_staging = false;  // Another process adds in the staging memory.
};

class Mesh {
 public:
  // The transport, the metrics and the events must outlive the object.
  Mesh(transport::Transport& transport, observe::Metrics& metrics, MeshOptions options,
       MeshEvents& events);
  ~Mesh();

  // Opens the channels; on_mesh_open() says when all are open. The error is this node's.
  [[nodiscard]] Status start();
  bool is_open() const { return opening_ == 0; }
  const MeshGeometry& geometry() const { return geometry_; }

  std::byte* work_buffer(uint32_t work) const;
  // Returns the file that other processes map work buffers and slots by, or null if they cannot.
  const std::shared_ptr<const StagingFile>& file() const { return staging_->file(); }
  // Returns where a byte of a work buffer or of a slot lies in the file.
  uint64_t offset_of(const std::byte* byte) const {
    return static_cast<uint64_t>(byte - staging_->base());
  }
  // Sends bytes of a work buffer as that message of its piece. They stay untouched until it has
  // left.
  void send(NodeIndex to, uint32_t work, int message, const SendPriority& urgency,
            transport::FrameHeader header, std::span<const std::byte> payload);
  // While it is held, a work buffer is not at rest.
  void hold(uint32_t work) { ++users_[work]; }
  void let_go(uint32_t work) { --users_[work]; }
  // Returns whether nothing of the work buffer is on its way out, and nobody holds it.
  bool is_at_rest(uint32_t work) const { return users_[work] == 0; }
  void release(NodeIndex from, uint32_t slot);
  // Gives the slot back together with later ones, where it is needed again only some operations
  // later.
  void release_with_others(NodeIndex from, uint32_t slot);
  // Returns whether the neighbours have taken everything, or are gone.
  bool is_quiet() const;
  uint64_t bytes_received() const;
  // Calls `visit` for each peer's channel that is open.
  void for_each_outlet(
      const std::function<void(NodeIndex, const transport::SendChannel&)>& visit) const;
  // Calls `count` with the bytes that went to and came from each peer since the last call.
  void take_traffic(const std::function<void(NodeIndex, uint64_t sent, uint64_t received)>& count);

 private:
  struct Outlet;
  struct Inlet;

  Outlet& outlet(NodeIndex to);
  Inlet& inlet(NodeIndex from);
  transport::ChannelId channel(NodeIndex from, NodeIndex to) const;
  void connect(Outlet& to);
  void expect(Inlet& from);
  void on_one_open();

  transport::Transport& transport_;
  observe::Metrics& metrics_;
  const MeshOptions options_;
  const MeshGeometry& geometry_ = options_.geometry;
  MeshEvents& events_;
  std::unique_ptr<Staging> staging_;  // The work buffers, then each inlet's slots.
  std::vector<std::unique_ptr<Outlet>> outlets_;
  std::vector<std::unique_ptr<Inlet>> inlets_;
  std::vector<uint32_t> users_;  // By work buffer: its messages to send, and who holds it.
  size_t opening_ = 0;           // How many channels are being opened.
};

}  // namespace rueda::engine
