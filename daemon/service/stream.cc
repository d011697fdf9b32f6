#include "daemon/service/stream.h"

#include <deque>
#include <mutex>
#include <utility>

namespace rueda::service {
namespace {

constexpr size_t kMaxQueuedMessages = 16'384;

// What both ends share: one write in flight, a queue behind it, reads one after the other. Side is
// ServerCall or ClientCall; its operations are only started under the mutex and while open.
template <class Side>
class StreamCore : public Side, public Stream {
 public:
  void send(const v1::LinkMessage& message) override {
    const std::lock_guard lock(mutex_);
    if (closing_) return;
    if (queue_.size() >= kMaxQueuedMessages) return abort_locked();
    queue_.push_back(message);
    if (started_ && !writing_) write_locked();
  }

  void close() override {
    const std::lock_guard lock(mutex_);
    close_locked();
  }

  void abort() override {
    const std::lock_guard lock(mutex_);
    abort_locked();
  }

  using Side::Side;

 protected:
  void on_write(bool ok) override {
    const std::lock_guard lock(mutex_);
    writing_ = false;
    queue_.pop_front();
    if (!ok) return abort_locked();
    if (!queue_.empty()) return write_locked();
    if (closing_) on_drained_locked();
  }

  void on_read(bool ok) override {
    if (ok) {
      events_.on_message(std::exchange(incoming_, {}));
      Side::start_read(&incoming_);
      return;
    }
    const std::lock_guard lock(mutex_);
    close_locked();
    on_reads_over_locked();
  }

  void on_exception(const char*) override { abort(); }

  // Until gRPC is through with the call, somebody must hold it.
  void keep_alive(std::shared_ptr<Stream> self) { self_ = std::move(self); }

  void start(StreamEvents events) {
    bool is_over = false;
    {
      const std::lock_guard lock(mutex_);
      events_ = std::move(events);
      is_over = over_;
      started_ = true;
      if (!closing_) {
        Side::start_read(&incoming_);
        if (!queue_.empty()) write_locked();
      }
    }
    if (is_over && events_.on_closed) events_.on_closed(Status(Code::kNodeLost, "it went away"));
  }

  // gRPC is through with the call: nothing of it may be touched after this returns.
  void finished(const Status& status) {
    std::shared_ptr<Stream> last_breath;
    {
      const std::lock_guard lock(mutex_);
      closing_ = true;
      over_ = true;
      last_breath = std::move(self_);
      if (!started_) return;  // start() tells
    }
    if (events_.on_closed) events_.on_closed(status);
  }

  // The other side will send nothing more.
  virtual void on_reads_over_locked() = 0;
  // The call is to break off. May come more than once.
  virtual void on_abort_locked() = 0;
  // Closing, and nothing is left to write. May come more than once.
  virtual void on_drained_locked() = 0;
  bool is_aborted() const { return aborted_; }

 private:
  void write_locked() {
    writing_ = true;
    Side::start_write(queue_.front());
  }
  void close_locked() {
    closing_ = true;
    if (!writing_ && (queue_.empty() || !started_)) on_drained_locked();
  }
  void abort_locked() {
    closing_ = true;
    aborted_ = true;
    on_abort_locked();
    if (writing_) return;  // its end comes back here
    queue_.clear();
    on_drained_locked();
  }

  std::mutex mutex_;
  std::deque<v1::LinkMessage> queue_;  // the front one is being written while writing_
  v1::LinkMessage incoming_;
  StreamEvents events_;
  std::shared_ptr<Stream> self_;
  bool started_ = false;
  bool writing_ = false;
  bool closing_ = false;  // nothing more is taken
  bool aborted_ = false;  // nor is what was taken delivered
  bool over_ = false;     // gRPC is through with it
};

class ClientStream final : public StreamCore<ClientCall<v1::LinkMessage, v1::LinkMessage>> {
 public:
  ClientStream(CallQueue& queue, const std::shared_ptr<grpc::Channel>& channel)
      : StreamCore(queue), stub_(v1::Control::NewStub(channel)) {}

  void open(StreamEvents events, std::shared_ptr<Stream> self) {
    keep_alive(std::move(self));
    start_call([this](grpc::ClientContext* context, grpc::CompletionQueue* queue) {
      return stub_->PrepareAsyncLink(context, queue);
    });
    start(std::move(events));
  }

 private:
  void on_done() override {
    finished(Status(Code::kNodeLost,
                    status().error_message().empty()
                        ? "its control connection closed"
                        : "its control connection broke (" + status().error_message() + ")"));
  }

  void on_reads_over_locked() override { start_finish(); }
  void on_abort_locked() override { cancel(); }
  void on_drained_locked() override {
    if (!std::exchange(drained_, true) && !is_aborted()) start_writes_done();
  }

  const std::unique_ptr<v1::Control::Stub> stub_;
  bool drained_ = false;
};

class ServerStream final : public StreamCore<ServerCall<v1::LinkMessage, v1::LinkMessage>> {
 public:
  using StreamCore::keep_alive;
  using StreamCore::start;
  using StreamCore::StreamCore;

 private:
  void on_cancel() override { abort(); }
  void on_done() override { finished(Status(Code::kNodeLost, "its control connection closed")); }

  void on_reads_over_locked() override {}
  void on_abort_locked() override {}
  void on_drained_locked() override {
    if (!std::exchange(finished_, true)) start_finish(grpc::Status::OK);
  }

  bool finished_ = false;
};

}  // namespace

std::shared_ptr<Stream> open_stream(CallQueue& queue, const std::shared_ptr<grpc::Channel>& channel,
                                    StreamEvents events) {
  auto stream = std::make_shared<ClientStream>(queue, channel);
  stream->open(std::move(events), stream);
  return stream;
}

AcceptedStream accept_stream(CallQueue& queue, std::unique_ptr<LinkArrival> arrival) {
  auto stream = std::make_shared<ServerStream>(queue, std::move(arrival));
  stream->keep_alive(stream);
  return {stream, [stream](StreamEvents events) { stream->start(std::move(events)); }};
}

}  // namespace rueda::service
