#include "daemon/rpc/stream.h"

#include <deque>
#include <utility>

#include <grpcpp/generic/generic_stub.h>

#include "daemon/base/mutex.h"

namespace rueda::rpc {
namespace {

// The part that both ends share: one write in flight with a queue behind it, and reads one after
// the other. Side is ServerCall or ClientCall; its operations are started only under the mutex and
// while the call is open.
template <class Side>
class StreamCore : public Side, public Stream {
 public:
  void send(grpc::ByteBuffer bytes) override {
    const MutexLock lock(mutex_);
    if (closing_) return;
    queued_bytes_ += bytes.Length();
    if (queue_.size() >= kind_.max_queued_messages || queued_bytes_ > kind_.max_queued_bytes) {
      return abort_locked();
    }
    queue_.push_back(std::move(bytes));
    if (started_ && !writing_) write_next();
  }

  void close() override {
    const MutexLock lock(mutex_);
    close_locked();
  }

  void abort() override {
    const MutexLock lock(mutex_);
    abort_locked();
  }

  void taken(size_t bytes) override {
    const MutexLock lock(mutex_);
    --ahead_messages_;
    ahead_bytes_ -= bytes;
    read_next();
  }

  std::string peers_certificate() const override { return Side::peers_certificate(); }

  void set_window(const StreamWindow& window) override {
    const MutexLock lock(mutex_);
    window_ = window;
    read_next();
  }

 protected:
  template <class... Arguments>
  explicit StreamCore(const StreamKind& kind, Arguments&&... arguments)
      : Side(std::forward<Arguments>(arguments)...), kind_(kind) {}

  void on_write(bool ok) override {
    const MutexLock lock(mutex_);
    writing_ = false;
    queued_bytes_ -= queue_.front().Length();
    queue_.pop_front();
    if (!ok) return abort_locked();
    if (!queue_.empty()) return write_next();
    if (closing_) on_drained();
  }

  void on_read(bool ok) override {
    const size_t bytes = ok ? incoming_.Length() : 0;
    {
      const MutexLock lock(mutex_);
      reading_ = false;
      if (!ok) {
        reads_over_ = true;
        close_locked();
        return on_reads_over();
      }
      if (closing_) {  // Nobody takes messages any more.
        incoming_.Clear();
        return read_next();
      }
      ++ahead_messages_;
      ahead_bytes_ += bytes;
    }
    grpc::ByteBuffer message;
    message.Swap(&incoming_);
    const bool is_one = events_.on_message(std::move(message), bytes);
    const MutexLock lock(mutex_);
    if (!is_one) abort_locked();
    read_next();
  }

  void on_exception(const char*) override { abort(); }

  // Holds the stream until gRPC has finished with the call.
  void keep_alive(std::shared_ptr<Stream> self) RUEDA_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    self_ = std::move(self);
  }

  void start(StreamEvents events) {
    bool is_over = false;
    {
      const MutexLock lock(mutex_);
      events_ = std::move(events);
      is_over = over_;
      started_ = true;
      read_next();
      if (!closing_ && !queue_.empty()) write_next();
    }
    if (is_over && events_.on_closed) events_.on_closed(Status(Code::kNodeLost, "it went away"));
  }

  // gRPC has finished with the call: nothing of it may be touched after this returns.
  void finished(const Status& status) {
    std::shared_ptr<Stream> last_breath;
    {
      const MutexLock lock(mutex_);
      closing_ = true;
      over_ = true;
      last_breath = std::move(self_);
      if (!started_) return;  // start() reports the end.
    }
    if (events_.on_closed) events_.on_closed(status);
  }

  // The other side will send nothing more.
  virtual void on_reads_over() RUEDA_REQUIRES(mutex_) = 0;
  // Returns true if reads must have ended before the call can end.
  virtual bool reads_to_the_end() const = 0;
  // The call has to break off. May be called more than once.
  virtual void on_abort() RUEDA_REQUIRES(mutex_) = 0;
  // The stream is closing, and nothing is left to write. May be called more than once.
  virtual void on_drained() RUEDA_REQUIRES(mutex_) = 0;
  bool is_aborted() const RUEDA_REQUIRES(mutex_) { return aborted_; }

  const StreamKind kind_;
  Mutex mutex_;

 private:
  void read_next() RUEDA_REQUIRES(mutex_) {
    if (!started_ || reading_ || reads_over_) return;
    const bool is_full = ahead_messages_ >= window_.messages ||
                         (ahead_messages_ > 0 && ahead_bytes_ >= window_.bytes);
    if (closing_ ? !reads_to_the_end() : is_full) return;
    reading_ = true;
    Side::start_read(&incoming_);
  }
  void write_next() RUEDA_REQUIRES(mutex_) {
    writing_ = true;
    Side::start_write(queue_.front());
  }
  void close_locked() RUEDA_REQUIRES(mutex_) {
    closing_ = true;
    read_next();
    if (!writing_ && (queue_.empty() || !started_)) on_drained();
  }
  void abort_locked() RUEDA_REQUIRES(mutex_) {
    closing_ = true;
    aborted_ = true;
    on_abort();
    read_next();
    if (writing_) return;  // The end of that write calls this function again.
    queue_.clear();
    on_drained();
  }

  // The first message is being written while writing_.
  std::deque<grpc::ByteBuffer> queue_ RUEDA_GUARDED_BY(mutex_);
  size_t queued_bytes_ RUEDA_GUARDED_BY(mutex_) = 0;
  grpc::ByteBuffer incoming_;
  StreamWindow window_ RUEDA_GUARDED_BY(mutex_) = kStrangersWindow;
  // Messages that are handed over, and not taken yet.
  int ahead_messages_ RUEDA_GUARDED_BY(mutex_) = 0;
  size_t ahead_bytes_ RUEDA_GUARDED_BY(mutex_) = 0;
  bool reading_ RUEDA_GUARDED_BY(mutex_) = false;
  bool reads_over_ RUEDA_GUARDED_BY(mutex_) = false;
  StreamEvents events_;
  std::shared_ptr<Stream> self_ RUEDA_GUARDED_BY(mutex_);
  bool started_ RUEDA_GUARDED_BY(mutex_) = false;
  bool writing_ RUEDA_GUARDED_BY(mutex_) = false;
  bool closing_ RUEDA_GUARDED_BY(mutex_) = false;  // No more messages are accepted.
  // Messages that were accepted are not delivered either.
  bool aborted_ RUEDA_GUARDED_BY(mutex_) = false;
  bool over_ RUEDA_GUARDED_BY(mutex_) = false;  // gRPC has finished with the call.
};

class ClientStream final : public StreamCore<ClientCall<grpc::ByteBuffer, grpc::ByteBuffer>> {
 public:
  ClientStream(CallQueue& queue, const std::shared_ptr<grpc::Channel>& channel,
               const StreamKind& kind)
      : StreamCore(kind, queue), stub_(channel) {}

  void open(StreamEvents events, std::shared_ptr<Stream> self) {
    keep_alive(std::move(self));
    start_call([this](grpc::ClientContext* context, grpc::CompletionQueue* queue) {
      return stub_.PrepareCall(context, kind_.method, queue);
    });
    start(std::move(events));
  }

 private:
  void on_done() override {
    const std::string its = std::string("its ") + kind_.connection;
    finished(Status(Code::kNodeLost, status().error_message().empty()
                                         ? its + " closed"
                                         : its + " broke (" + status().error_message() + ")"));
  }

  void on_reads_over() RUEDA_REQUIRES(mutex_) override { start_finish(); }
  bool reads_to_the_end() const override { return true; }
  void on_abort() RUEDA_REQUIRES(mutex_) override { cancel(); }
  void on_drained() RUEDA_REQUIRES(mutex_) override {
    if (!std::exchange(drained_, true) && !is_aborted()) start_writes_done();
  }

  grpc::GenericStub stub_;
  bool drained_ RUEDA_GUARDED_BY(mutex_) = false;
};

class ServerStream final : public StreamCore<ServerCall<grpc::ByteBuffer, grpc::ByteBuffer>> {
 public:
  ServerStream(CallQueue& queue, const StreamKind& kind, std::unique_ptr<ByteArrival> arrival)
      : StreamCore(kind, queue, std::move(arrival)) {}
  using StreamCore::keep_alive;
  using StreamCore::start;

 private:
  void on_cancel() override { abort(); }
  void on_done() override {
    finished(Status(Code::kNodeLost, std::string("its ") + kind_.connection + " closed"));
  }

  void on_reads_over() RUEDA_REQUIRES(mutex_) override {}
  bool reads_to_the_end() const override { return false; }
  // The call is cancelled because a peer that takes nothing would otherwise hold up the write under
  // way, and with it the end.
  void on_abort() RUEDA_REQUIRES(mutex_) override { cancel(); }
  void on_drained() RUEDA_REQUIRES(mutex_) override {
    if (!std::exchange(finished_, true)) start_finish(grpc::Status::OK);
  }

  bool finished_ RUEDA_GUARDED_BY(mutex_) = false;
};

}  // namespace

std::shared_ptr<Stream> open_stream(CallQueue& queue, const std::shared_ptr<grpc::Channel>& channel,
                                    const StreamKind& kind, StreamEvents events) {
  auto stream = std::make_shared<ClientStream>(queue, channel, kind);
  stream->open(std::move(events), stream);
  return stream;
}

AcceptedStream accept_stream(CallQueue& queue, const StreamKind& kind,
                             std::unique_ptr<ByteArrival> arrival) {
  auto stream = std::make_shared<ServerStream>(queue, kind, std::move(arrival));
  stream->keep_alive(stream);
  return {stream, [stream](StreamEvents events) { stream->start(std::move(events)); }};
}

}  // namespace rueda::rpc
