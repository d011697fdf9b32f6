// The one interface of the data plane: one-sided writes into the slots of a neighbour.
//
// It has the shape of RDMA (WRITE with immediate into pre-registered slots, credits, completions),
// and TCP, gRPC and, in tests, in-process memory carry out the same contract. A channel is one-way:
// one end writes frames into slots that the other end owns. tests/conformance holds every
// implementation to this.
//
// A new implementation has a folder beside tcp, rdma and grpc. These files have to know of it:
//   CMakeLists.txt here; ROOMS in tests/layering_test.py, if it includes more than this room may
//   daemon/config.cc, and make_data_loops in daemon/main.cc: --transport chooses it; the engine's
//     data plane knows this interface alone
//   tests/conformance/transport_harness.h: it says how an implementation comes into the suite
//   if all nodes of a job must choose it: Join in core/messages/messages.h, core/job/forming.cc,
//     engine/job/job_spec.h, service/convert/convert.cc and control.proto, as for is_over_grpc
// One that begins on a TCP connection implements less: tcp/wire.h, as grpc does, if it carries the
// hello, too; or tcp/upgrade.h, as rdma does, if the two ends agree on it in the hello. Channels of
// several streams need nothing of it (striped.h).
//
// Frames that go into one slot arrive in the order of write(). Frames of different slots may
// overtake each other, on their way and in on_sent(), because a channel may be several streams
// (striped.h).
//
// Life of a slot, as the writer sees it: free -> (write) -> busy -> (the reader releases it, a
// credit travels back) -> free. A write into a busy slot is a bug of the caller (RUEDA_CHECK).
//
// Threads: a Transport and all its channels belong to the io_context that they were made with;
// every method is called, and every callback arrives, on the one thread of that context. A callback
// is never called from inside write(), release(), expect() or connect(). After close() no further
// callback arrives.
//
// End of a channel: the other end hears a close() as on_closed() with kNodeLost, behind every frame
// that on_sent() was called for; frames not sent yet may be lost. A frame that breaks the rules
// closes the channel with kInternal. The buffers of writes not yet sent are the caller's again once
// close() returns or on_closed() is called; from then on write() and release() do nothing, and no
// slot is free. A channel or a transport may be destroyed in any callback, also in the channel's
// own.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include <boost/asio/io_context.hpp>

#include "daemon/base/status.h"
#include "daemon/transport/frame.h"

namespace rueda::transport {

// Names memory that a transport may send from or receive into. Transports that need no registration
// hand out keys all the same, and check them.
struct RegionKey {
  uint32_t value = 0;  // 0 is no region
  bool operator==(const RegionKey&) const = default;
};

struct SendBuffer {
  const std::byte* data = nullptr;
  size_t bytes = 0;
  RegionKey region;  // The registered region that [data, data + bytes) lies in.
};

inline constexpr size_t kMaxBuffersPerWrite = 16;

// Memory of another device, such as a GPU, as its driver exports it: a dma-buf.
struct DeviceMemory {
  int fd = -1;          // It belongs to the caller, who may close it after the call.
  uint64_t offset = 0;  // Where the memory begins in the dma-buf, in bytes; a multiple of a page.
  uint64_t bytes = 0;
};
struct DeviceRegion {
  RegionKey key;
  // The memory's address in a SendBuffer. The host has nothing there.
  const std::byte* base = nullptr;
};

// The slots of one channel: `count` slots of `slot_bytes` each, contiguous from `base`. The reader
// owns the memory. Both ends must be opened with the same count, slot_bytes and number of streams,
// which the hello checks.
struct SlotRegion {
  std::byte* base = nullptr;
  uint32_t count = 0;
  uint32_t slot_bytes = 0;
  RegionKey region;
};

class SendEvents {
 public:
  virtual ~SendEvents() = default;
  // The buffers of the write with this cookie may be reused.
  virtual void on_sent(uint64_t cookie) = 0;
  // The reader has released the slot; it may be written again.
  virtual void on_slot_free(uint32_t slot) = 0;
  // The channel is dead; the status says why, and names the peer. This is called at most once, and
  // last.
  virtual void on_closed(const Status& status) = 0;
};

class SendChannel {
 public:
  virtual ~SendChannel() = default;  // The destructor closes.
  virtual bool slot_free(uint32_t slot) const = 0;
  // Queues one frame. header.slot must be free; the sum of the buffers is header.payload_bytes and
  // at most slot_bytes, and may be 0. The buffers must stay untouched until on_sent(cookie). The
  // header is sent as the caller filled it, magic, version and kind included.
  virtual void write(const FrameHeader& header, std::span<const SendBuffer> buffers,
                     uint64_t cookie) = 0;
  // Returns whether the channel can send from the registered region. It always can from the host's
  // memory; what it says of a device's stays as it is.
  virtual bool sends_from(RegionKey /*region*/) const { return true; }
  // Makes frames go over the first `streams` of the channel's streams from now on; 0 means all. The
  // reader takes frames from any stream.
  virtual void use_streams(uint32_t /*streams*/) {}
  virtual void close() = 0;
  virtual uint64_t bytes_sent() const = 0;  // The number includes headers.
  // Returns how many of the sent bytes the reader's machine has not acknowledged. It is 0 for
  // transports that cannot lose bytes on the way.
  virtual uint64_t bytes_unacknowledged() const { return 0; }
  // Returns how many bytes of a frame one packet carries, or 0 if the transport has no packets.
  virtual uint32_t packet_bytes() const { return 0; }
};

class ReceiveEvents {
 public:
  virtual ~ReceiveEvents() = default;
  // A transport that can receive into any memory calls this when it has a frame's header, to ask
  // where the payload belongs. null means the slot. Any other result points to payload_bytes of
  // memory that stay valid until on_frame() or the end of the channel; the slot is busy all the
  // same. The function must not call the channel.
  virtual std::byte* place(const FrameHeader& /*header*/) { return nullptr; }
  // A frame has arrived whole. `payload` lies in slot header.slot and stays valid until release(),
  // unless place() has put it elsewhere.
  virtual void on_frame(const FrameHeader& header, std::span<std::byte> payload) = 0;
  virtual void on_closed(const Status& status) = 0;
};

inline constexpr std::chrono::milliseconds kCreditDelay{1};

class ReceiveChannel {
 public:
  virtual ~ReceiveChannel() = default;  // The destructor closes.
  // Gives the slot back to the writer. Only a slot that holds a frame may be released.
  virtual void release(uint32_t slot) = 0;
  // Releases a slot that the writer will not need soon: the transport may tell the writer of
  // several slots at once, and of this one kCreditDelay later at most.
  virtual void release_with_others(uint32_t slot) = 0;
  virtual void close() = 0;
  virtual uint64_t bytes_received() const = 0;
};

using ConnectHandler = std::function<void(Result<std::unique_ptr<SendChannel>>)>;
using AcceptHandler = std::function<void(Result<std::unique_ptr<ReceiveChannel>>)>;

struct ConnectOptions {
  std::string address;  // An address of the form "host:port".
  ChannelId id;
  JobToken token{};  // Proves to the reader that the writer belongs to the job.
  uint32_t slot_count = 0;
  uint32_t slot_bytes = 0;
  uint32_t streams = 1;  // The number of the channel's streams, which is part of the geometry.
  // Attempts that are refused, or not expected yet, are repeated until this time has passed.
  int64_t timeout_ms = 0;
  SendEvents* events = nullptr;  // Must outlive the channel.
};

struct AcceptOptions {
  ChannelId id;
  JobToken token{};
  SlotRegion slots;
  uint32_t streams = 1;
  int64_t timeout_ms = 0;
  ReceiveEvents* events = nullptr;  // Must outlive the channel.
};

class Transport {
 public:
  virtual ~Transport() = default;

  // Returns "tcp", "mem", and so on.
  virtual const char* name() const = 0;
  // Returns ok, or the reason why this transport cannot work on this machine.
  virtual Status is_viable() const = 0;

  // Starts to accept channels. Returns the bound address: "host:port" with the port filled in.
  virtual Result<std::string> listen(const std::string& address) = 0;
  // Announces a channel that a peer will open. A peer that comes first waits or tries again, and is
  // not counted in rejected() if the channel is announced soon. Connections whose channel is not
  // announced, that fail authentication or that speak garbage are closed, logged, and counted in
  // rejected(). There is at most one expectation of an id at a time: the handler of a second one
  // gets kUnavailable. The handler gets kTimeout if nobody came, kMismatch if the peer has other
  // slots or streams, and kInvalidArgument if the slots do not lie in their region.
  virtual void expect(AcceptOptions options, AcceptHandler handler) = 0;
  // Withdraws an expect() that has not been fulfilled; its handler is not called.
  virtual void cancel_expect(const ChannelId& id) = 0;
  // Opens a channel. There is at most one attempt for an id at a time: the handler of a second one
  // gets kUnavailable. Otherwise the handler gets kTimeout with the last cause (nobody there, not
  // expected, wrong token), kMismatch if the peer has other slots or streams, or kInvalidArgument
  // for an address that cannot be one.
  virtual void connect(ConnectOptions options, ConnectHandler handler) = 0;
  // Withdraws a connect() that has not been fulfilled; its handler is not called. The peer may have
  // heard the attempt already, and then gets a channel that closes at once.
  virtual void cancel_connect(const ChannelId& id) = 0;

  virtual Result<RegionKey> register_region(std::span<std::byte> memory) = 0;
  // Registers memory of another device, from which those channels may send that say so. Returns
  // kUnavailable, with the reason, if none of this transport can.
  virtual Result<DeviceRegion> register_device_memory(const DeviceMemory& /*memory*/) {
    return Status(Code::kUnavailable,
                  std::string("channels over ") + name() + " send from the host's memory alone");
  }
  // Takes back a region of either kind. Nothing may be on its way out of it.
  virtual void deregister_region(RegionKey key) = 0;

  virtual uint64_t rejected() const = 0;
  // Returns how many frames, or messages with credits, were changed on their way, or were not what
  // the other end had sent at that place. Each has ended its channel.
  virtual uint64_t forged() const { return 0; }
  // Closes the listener and withdraws every expect() and connect() that has not been fulfilled; no
  // handler is called. Channels live on. The destructor does the same.
  virtual void stop() = 0;
};

}  // namespace rueda::transport
