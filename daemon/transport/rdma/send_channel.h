// The writing end of a channel over a queue pair.
//
// A frame is RDMA writes of its payload into the reader's slot, and then one write of its header,
// with the slot as immediate data, which tells the reader that the frame is there. The payload is
// sent from where it lies. The reader gives slots back by messages that list them.
#pragma once

#include "daemon/transport/rdma/queue_pair.h"

#ifdef RUEDA_HAS_VERBS

#include <memory>
#include <string>

#include "daemon/transport/rdma/credit.h"
#include "daemon/transport/region_table.h"
#include "daemon/transport/tcp/asio_types.h"
#include "daemon/transport/transport.h"

namespace rueda::transport::rdma {

// The writer's queue pair and memory, before the channel is open.
class SendEnd {
 public:
  // Makes a queue pair for the channel, with receives for credits posted.
  static Result<std::unique_ptr<SendEnd>> make(LocalPort port, const ConnectOptions& options);

  QueuePair& pair() { return *pair_; }
  FrameHeader* headers() { return reinterpret_cast<FrameHeader*>(memory_.get()); }
  uint32_t* credits(uint64_t number) {
    return reinterpret_cast<uint32_t*>(memory_.get() + credits_at_ + number * kCreditBytes);
  }
  uint32_t local_key() const { return registered_->local_key(); }
  // Posts the receive of this number again. Returns 0, or an errno value.
  int post_receive(uint64_t number);

 private:
  SendEnd() = default;

  size_t credits_at_ = 0;
  // The headers of frames that are being sent, by slot, and the credits that are being received.
  std::unique_ptr<std::byte[]> memory_;
  std::unique_ptr<RegisteredMemory> registered_;
  std::unique_ptr<QueuePair> pair_;  // It is the first to be destroyed.
};

// Takes the socket over, whose end is the channel's end. The pair is connected to `reader`.
std::unique_ptr<SendChannel> make_send_channel(tcp::Socket socket, const ConnectOptions& options,
                                               std::shared_ptr<const RegionTable> regions,
                                               std::string peer, std::unique_ptr<SendEnd> end,
                                               const Offer& reader);

}  // namespace rueda::transport::rdma

#endif
