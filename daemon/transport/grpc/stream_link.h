// The loop's end of a stream of gRPC, whose other end works on gRPC's thread.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>

#include <grpcpp/grpcpp.h>

#include "daemon/base/loop_gate.h"
#include "daemon/base/status.h"
#include "daemon/rpc/stream.h"

namespace rueda::transport::grpc_data {

// Gets what a stream says, on the loop and never from inside a call.
class LinkOwner {
 public:
  virtual ~LinkOwner() = default;
  // The owner calls StreamLink::taken() with message.Length() when it has dealt with the message.
  virtual void on_message(grpc::ByteBuffer message) = 0;
  // gRPC has passed on everything of the send() with this cookie to the kernel, or has dropped it
  // with the stream.
  virtual void on_flushed(uint64_t cookie) = 0;
  // The stream is over. It is called once, and last.
  virtual void on_over(const Status& status) = 0;
};

// A link belongs to the loop, and is held by its owner. If nobody holds it, the stream breaks off.
class StreamLink : public std::enable_shared_from_this<StreamLink> {
 public:
  explicit StreamLink(std::shared_ptr<LoopGate> gate) : gate_(std::move(gate)) {}
  ~StreamLink() { abort(); }
  StreamLink(const StreamLink&) = delete;
  StreamLink& operator=(const StreamLink&) = delete;

  // Returns what the stream tells this link, for open_stream() or AcceptedStream::start().
  rpc::StreamEvents events();
  void adopt(std::shared_ptr<rpc::Stream> stream) { stream_ = std::move(stream); }
  bool has_stream() const { return stream_ != nullptr; }
  // Sets who is told. Null: nobody is.
  void set_owner(LinkOwner* owner) { owner_ = owner; }

  // Sends the parts, which are copied, as one message.
  void send(std::span<const std::span<const std::byte>> parts, uint64_t cookie);
  void taken(size_t bytes) {
    if (stream_ != nullptr) stream_->taken(bytes);
  }
  // Lets the other side send ahead, once it has said who it is.
  void trust();
  // Ends the stream behind all that was sent.
  void close() {
    if (stream_ != nullptr) stream_->close();
  }
  // Ends the stream now.
  void abort() {
    if (stream_ != nullptr) stream_->abort();
  }

 private:
  const std::shared_ptr<LoopGate> gate_;
  std::shared_ptr<rpc::Stream> stream_;
  LinkOwner* owner_ = nullptr;
};

}  // namespace rueda::transport::grpc_data
