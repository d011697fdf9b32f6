// The reading end of a channel over a queue pair. The writer writes payloads into the slots, and
// headers into memory beside them; this end looks at a header once, when its frame is announced,
// and trusts nothing in it.
#pragma once

#include "daemon/transport/rdma/queue_pair.h"

#ifdef RUEDA_HAS_VERBS

#include <memory>
#include <string>

#include "daemon/transport/rdma/credit.h"
#include "daemon/transport/tcp/asio_types.h"
#include "daemon/transport/transport.h"

namespace rueda::transport::rdma {

// The reader's queue pair and memory, before the channel is open. Only the channel's slots and
// headers can be written by the peer, and nothing else of their regions.
class ReceiveEnd {
 public:
  // Makes a queue pair for the channel, with receives for frames posted.
  static Result<std::unique_ptr<ReceiveEnd>> make(LocalPort port, const AcceptOptions& options);

  QueuePair& pair() { return *pair_; }
  // Fills in how this end is reached, and where its memory is.
  void describe(Offer& offer) const;
  // Copies the header that the peer has written for the slot.
  FrameHeader header(uint32_t slot) const;
  uint32_t* credits(uint64_t number) {
    return reinterpret_cast<uint32_t*>(memory_.get() + credits_at_ + number * kCreditBytes);
  }
  uint32_t credit_count() const { return pair_->sizes().sends; }
  uint32_t local_key() const { return registered_->local_key(); }
  // Posts a receive for one more frame. Returns 0, or an errno value.
  int post_receive();

 private:
  ReceiveEnd() = default;

  uint64_t slots_address_ = 0;
  size_t credits_at_ = 0;
  // The headers by slot, which the peer writes, and the credits that are being sent.
  std::unique_ptr<std::byte[]> memory_;
  std::unique_ptr<RegisteredMemory> registered_;
  std::unique_ptr<RegisteredMemory> headers_;
  std::unique_ptr<RegisteredMemory> slots_;
  std::unique_ptr<QueuePair> pair_;  // It is the first to be destroyed.
};

// Takes the socket over, whose end is the channel's end. The pair is connected.
std::unique_ptr<ReceiveChannel> make_receive_channel(tcp::Socket socket,
                                                     const AcceptOptions& options, std::string peer,
                                                     std::unique_ptr<ReceiveEnd> end);

}  // namespace rueda::transport::rdma

#endif
