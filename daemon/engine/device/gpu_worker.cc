#include "daemon/engine/device/gpu_worker.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <optional>
#include <set>
#include <utility>

#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <fcntl.h>
#include <spdlog/spdlog.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon/base/fd.h"
#include "daemon/base/os/exit_watch.h"

namespace rueda::engine {
namespace {

namespace asio = boost::asio;
using asio::posix::stream_descriptor;
using boost::system::error_code;
using gpu::Packet;
using gpu::PacketSocket;
using gpu::WorkerMessage;

// The packets that may wait beside what the socket takes. An operation is a few packets, and the
// window has few operations.
constexpr size_t kMaxQueuedPackets = 4096;
constexpr size_t kMaxOperations = 1024;
// A worker that was told to go, or has closed its socket, has this long to end by itself.
constexpr std::chrono::milliseconds kGoodbye{2000};
// A worker says something twice a second (gpu/worker/worker.cc).
constexpr TicksMs kLeastSilenceMs = 2000;

std::string how_it_ended(int status) {
  if (WIFSIGNALED(status)) {
    return "was killed by signal " + std::to_string(WTERMSIG(status)) + " (" +
           ::strsignal(WTERMSIG(status)) + ')';
  }
  return "ended with code " + std::to_string(WEXITSTATUS(status));
}

}  // namespace

class GpuWorker::Impl : public std::enable_shared_from_this<Impl> {
 public:
  Impl(asio::io_context& loop, observe::Metrics& metrics, GpuWorkerOptions options,
       GpuWorkerEvents events)
      : metrics_(metrics.daemon()),
        options_(std::move(options)),
        events_(std::move(events)),
        readable_(loop),
        writable_(loop),
        process_(loop),
        deadline_(loop),
        gpus_{options_.uuid} {}
  ~Impl() {
    readable_
        .release();  // Its descriptor belongs to socket_; writable_ has a duplicate of its own.
  }

  Status start();
  void send(Packet packet);
  void add_memory(const gpu::AddMemoryBody& memory, UniqueFd fd, std::shared_ptr<void> behind_fd);
  Status run(const gpu::WorkerOperation& operation);
  void stop(std::function<void()> ended);

 private:
  // Calls a copy of the event, because the owner may end this object in return, and with it the
  // event itself.
  template <class Event, class... Arguments>
  static void tell(Event event, const Arguments&... arguments) {
    event(arguments...);
  }
  bool is_told() const { return state_ == State::kStarting || state_ == State::kReady; }
  void wait_readable();
  void wait_writable();
  // Returns false if the worker has closed its end.
  bool read();
  bool take(Packet& packet);
  bool take_exported(Packet& packet);
  // Counts an answer. Returns false if none is awaited.
  bool count_answer();
  void on_device(const gpu::ReadyBody& body);
  void flush();
  void on_exit();
  void watch_silence();
  void kill_after(std::chrono::milliseconds wait);
  // The worker is of no more use, which is told once, from a turn of its own.
  void lose(const Status& why);
  Status broken() const {
    return {Code::kInternal, options_.who + " has said what cannot be, and was killed"};
  }

  enum class State : uint8_t { kStarting, kReady, kLost, kStopped };

  observe::DaemonMetrics& metrics_;
  const GpuWorkerOptions options_;
  GpuWorkerEvents events_;
  State state_ = State::kStarting;
  std::optional<PacketSocket> socket_;
  stream_descriptor readable_;
  stream_descriptor writable_;
  ExitWatch process_;
  asio::steady_timer deadline_;
  pid_t pid_ = -1;
  bool has_exited_ = false;
  bool takes_turns_ = false;  // It takes turns with other processes, on one of its GPUs.
  size_t ready_gpus_ = 0;
  std::deque<Packet> outgoing_;
  bool is_blocked_ = false;
  std::set<uint64_t> operations_;
  size_t unanswered_ = 0;  // Memory and communicators' ids that it has not answered yet.
  std::set<std::array<uint8_t, 16>> gpus_;  // The GPUs of the memory that it was told of.
  size_t answers_until_open_ = 0;  // Counts down to the answer for the memory of the last new GPU.
  TicksMs heard_at_ = 0;
  std::function<void()> on_ended_process_;
};

Status GpuWorker::Impl::start() {
  auto ends = gpu::make_packet_sockets();
  if (!ends.is_ok()) return ends.status();
  auto [own, its] = std::move(ends).value();
  Result<gpu::ForkServer::Process> process = options_.fork_server->spawn(its.get());
  if (!process.is_ok()) return process.status();
  pid_ = process.value().pid;
  socket_.emplace(std::move(own));
  readable_.assign(socket_->fd());
  writable_.assign(::fcntl(socket_->fd(), F_DUPFD_CLOEXEC, 0));
  metrics_.gpu_workers.Increment();
  spdlog::info("{} starts (pid {})", options_.who, pid_);
  heard_at_ = steady_now_ms();
  Packet open(WorkerMessage::kOpen);
  gpu::OpenBody body{.uuid = options_.uuid,
                     .timeout_ms = options_.timeout_ms,
                     .memory_limit_bytes = options_.memory_limit_bytes};
  send(std::move(open.add(body)));
  wait_readable();
  process_.start(std::move(process.value().pidfd),
                 [self = shared_from_this()] { self->on_exit(); });
  watch_silence();
  return Status::ok();
}

// --- What it says.

void GpuWorker::Impl::wait_readable() {
  readable_.async_wait(stream_descriptor::wait_read, [self = shared_from_this()](error_code error) {
    if (error || !self->is_told()) return;
    if (self->read()) {
      if (self->is_told()) self->wait_readable();
    } else {
      // How the process has ended is known when it has.
      self->kill_after(kGoodbye);
    }
  });
}

bool GpuWorker::Impl::read() {
  Packet packet;
  while (is_told()) {
    switch (socket_->receive(packet)) {
      case PacketSocket::Io::kWouldBlock: return true;
      case PacketSocket::Io::kClosed: return false;
      case PacketSocket::Io::kDone: break;
    }
    heard_at_ = steady_now_ms();
    if (!take(packet)) {
      options_.fork_server->kill(pid_);
      lose(broken());
    }
  }
  return true;
}

bool GpuWorker::Impl::count_answer() {
  if (unanswered_ == 0) return false;
  --unanswered_;
  if (answers_until_open_ > 0) --answers_until_open_;
  return true;
}

bool GpuWorker::Impl::take_exported(Packet& packet) {
  gpu::ExportedBody body;
  if (!packet.take(body)) return false;
  const auto outcome = gpu::take_outcome(packet);
  if (!outcome || outcome->status.is_ok() != packet.fd.is_open()) return false;
  using Exported = Result<GpuWorkerEvents::Exported>;
  const auto memory = static_cast<uint32_t>(outcome->about);
  if (!outcome->status.is_ok()) {
    tell(events_.on_exported, memory, Exported(outcome->status));
    return true;
  }
  if (body.bytes == 0 || body.offset > UINT64_MAX - body.bytes) return false;
  tell(events_.on_exported, memory,
       Exported(std::make_shared<const gpu::DmaBuf>(
           gpu::DmaBuf{std::move(packet.fd), body.offset, body.bytes})));
  return true;
}

bool GpuWorker::Impl::take(Packet& packet) {
  switch (packet.type()) {
    case WorkerMessage::kReady: {
      gpu::ReadyBody body;
      if (!packet.take(body)) return false;
      body.name.back() = '\0';
      on_device(body);
      return true;
    }
    case WorkerMessage::kMemoryAdded: {
      const auto outcome = gpu::take_outcome(packet);
      if (!outcome || !count_answer()) return false;
      tell(events_.on_memory_added, static_cast<uint32_t>(outcome->about), outcome->status);
      return true;
    }
    case WorkerMessage::kExported: return take_exported(packet);
    case WorkerMessage::kEnded: {
      const auto outcome = gpu::take_outcome(packet);
      if (!outcome || operations_.erase(outcome->about) == 0) return false;
      tell(events_.on_ended, outcome->about, outcome->status);
      return true;
    }
    case WorkerMessage::kIdMade: {
      gpu::CommunicatorId id{};
      if (!packet.take(id)) return false;
      const auto outcome = gpu::take_outcome(packet);
      if (!outcome || !count_answer()) return false;
      using Id = Result<gpu::CommunicatorId>;
      tell(events_.on_id_made, static_cast<uint32_t>(outcome->about),
           outcome->status.is_ok() ? Id(id) : Id(outcome->status));
      return true;
    }
    case WorkerMessage::kAlive: return true;
    case WorkerMessage::kLost: {
      const auto outcome = gpu::take_outcome(packet);
      if (!outcome || outcome->status.is_ok()) return false;
      lose({outcome->status.code(), options_.who + " has ended: " + outcome->status.message()});
      kill_after(kGoodbye);
      return true;
    }
    default: return false;
  }
}

void GpuWorker::Impl::on_device(const gpu::ReadyBody& body) {
  const bool takes_turns = body.has_mps == 0;
  ++ready_gpus_;
  spdlog::info("{} is ready on {}{}{}", options_.who, body.name.data(),
               ready_gpus_ == 1 ? "" : ", its GPU number " + std::to_string(ready_gpus_),
               takes_turns ? "; without MPS its kernels and those of training take turns: "
                             "nvidia-cuda-mps-control -d lets them run side by side"
                           : ", through MPS");
  if (takes_turns && !std::exchange(takes_turns_, true)) {
    metrics_.gpu_workers_without_mps.Increment();
  }
  if (std::exchange(state_, State::kReady) == State::kStarting) tell(events_.on_ready, body);
}

// --- What it is told.

void GpuWorker::Impl::send(Packet packet) {
  if (!is_told()) return;
  if (packet.type() == WorkerMessage::kAddMemory || packet.type() == WorkerMessage::kJoinMemory ||
      packet.type() == WorkerMessage::kMakeId) {
    // It had nothing to say, as in run().
    if (operations_.empty() && unanswered_ == 0) heard_at_ = steady_now_ms();
    ++unanswered_;
  }
  outgoing_.push_back(std::move(packet));
  flush();
}

void GpuWorker::Impl::add_memory(const gpu::AddMemoryBody& memory, UniqueFd fd,
                                 std::shared_ptr<void> behind_fd) {
  Packet packet(WorkerMessage::kAddMemory);
  packet.add(memory);
  packet.behind_fd = std::move(behind_fd);
  packet.fd = std::move(fd);
  send(std::move(packet));
  const bool is_devices =
      memory.kind == gpu::MemoryKind::kIpc || memory.kind == gpu::MemoryKind::kFd;
  if (is_devices && gpus_.insert(memory.uuid).second) answers_until_open_ = unanswered_;
}

Status GpuWorker::Impl::run(const gpu::WorkerOperation& operation) {
  Result<std::vector<Packet>> packets = gpu::make_packets(operation);
  if (!packets.is_ok()) return packets.status();
  if (operations_.size() >= kMaxOperations ||
      outgoing_.size() + packets.value().size() > kMaxQueuedPackets) {
    return {Code::kResourceExhausted, options_.who + " has more to do than it may have (" +
                                          std::to_string(operations_.size()) + " operations)"};
  }
  if (!is_told()) return Status::ok();                   // on_lost tells it.
  if (operations_.empty()) heard_at_ = steady_now_ms();  // It had nothing to say.
  operations_.insert(operation.number);
  for (Packet& packet : packets.value()) send(std::move(packet));
  return Status::ok();
}

void GpuWorker::Impl::flush() {
  while (!is_blocked_ && !outgoing_.empty()) {
    switch (socket_->send(outgoing_.front())) {
      case PacketSocket::Io::kDone: outgoing_.pop_front(); break;
      case PacketSocket::Io::kWouldBlock: wait_writable(); break;
      // The other direction, and the process, show what has become of it.
      case PacketSocket::Io::kClosed: outgoing_.clear(); break;
    }
  }
}

void GpuWorker::Impl::wait_writable() {
  is_blocked_ = true;
  writable_.async_wait(stream_descriptor::wait_write,
                       [self = shared_from_this()](error_code error) {
                         self->is_blocked_ = false;
                         if (!error && self->is_told()) self->flush();
                       });
}

// --- Its end.

void GpuWorker::Impl::on_exit() {
  const std::optional<int> status = options_.fork_server->reap(pid_);
  has_exited_ = true;
  deadline_.cancel();
  metrics_.gpu_workers.Decrement();
  if (takes_turns_) metrics_.gpu_workers_without_mps.Decrement();
  // The worker's last messages are read before its end is told.
  if (is_told()) static_cast<void>(read());
  if (is_told()) {
    lose({Code::kUnavailable, options_.who + " (pid " + std::to_string(pid_) + ") " +
                                  (status ? how_it_ended(*status) : "has ended") +
                                  ": see the daemon's log for what it said"});
  }
  error_code ignored;
  readable_.cancel(ignored);
  writable_.cancel(ignored);
  if (on_ended_process_) std::exchange(on_ended_process_, nullptr)();
}

// Looks now and then, and kills a worker that has not said anything for too long.
void GpuWorker::Impl::watch_silence() {
  const TicksMs period_ms = std::clamp<TicksMs>(options_.timeout_ms / 8, 10, kLeastSilenceMs);
  const TicksMs due_ms = steady_now_ms() + period_ms;
  deadline_.expires_after(std::chrono::milliseconds(period_ms));
  deadline_.async_wait([self = shared_from_this(), due_ms](error_code error) {
    if (error || !self->is_told()) return;
    // If the timer is late, this daemon itself was stopped, and the worker with it, or what it says
    // is still to be read.
    if (steady_now_ms() - due_ms > kLeastSilenceMs / 2) self->heard_at_ = steady_now_ms();
    const bool is_starting = self->state_ == State::kStarting;
    const bool is_opening = is_starting || self->answers_until_open_ > 0;  // It opens a GPU.
    const GpuWorkerOptions& options = self->options_;
    const TicksMs most =
        is_opening ? options.start_timeout_ms : std::max(options.timeout_ms, kLeastSilenceMs);
    const bool has_to_speak = is_starting || !self->operations_.empty() || self->unanswered_ > 0;
    if (has_to_speak && steady_now_ms() - self->heard_at_ > most) {
      options.fork_server->kill(self->pid_);
      return self->lose({Code::kTimeout, options.who + " (pid " + std::to_string(self->pid_) +
                                             ") has " +
                                             (is_starting ? "not become ready" : "said nothing") +
                                             " for " + std::to_string(most) +
                                             " ms, and was killed: the GPU or its driver hangs"});
    }
    self->watch_silence();
  });
}

void GpuWorker::Impl::kill_after(std::chrono::milliseconds wait) {
  if (has_exited_) return;
  deadline_.expires_after(wait);
  deadline_.async_wait([self = shared_from_this()](error_code error) {
    if (!error && !self->has_exited_) self->options_.fork_server->kill(self->pid_);
  });
}

void GpuWorker::Impl::lose(const Status& why) {
  if (!is_told()) return;
  state_ = State::kLost;
  operations_.clear();
  outgoing_.clear();
  metrics_.gpu_worker_losses.Increment();
  spdlog::error("{}", why.message());
  tell(events_.on_lost, why);
}

void GpuWorker::Impl::stop(std::function<void()> ended) {
  const bool was_told = is_told();
  state_ = State::kStopped;
  events_ = {};
  if (has_exited_) {
    if (ended) ended();
    return;
  }
  on_ended_process_ = std::move(ended);
  if (!socket_) return;
  // The worker ends when it sees its socket closed.
  ::shutdown(socket_->fd(), SHUT_RDWR);
  if (was_told) kill_after(kGoodbye);
}

// --- GpuWorker

GpuWorker::GpuWorker(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}

Result<std::unique_ptr<GpuWorker>> GpuWorker::start(asio::io_context& loop,
                                                    observe::Metrics& metrics,
                                                    GpuWorkerOptions options,
                                                    GpuWorkerEvents events) {
  auto impl = std::make_shared<Impl>(loop, metrics, std::move(options), std::move(events));
  if (Status status = impl->start(); !status.is_ok()) return status;
  return std::unique_ptr<GpuWorker>(new GpuWorker(std::move(impl)));
}

GpuWorker::~GpuWorker() { impl_->stop({}); }

void GpuWorker::add_memory(const gpu::AddMemoryBody& memory, UniqueFd fd,
                           std::shared_ptr<void> behind_fd) {
  impl_->add_memory(memory, std::move(fd), std::move(behind_fd));
}

void GpuWorker::join_memory(uint32_t memory, std::span<const uint32_t> pieces) {
  Packet packet(WorkerMessage::kJoinMemory);
  packet.add(gpu::JoinMemoryBody{.memory = memory, .pieces = static_cast<uint32_t>(pieces.size())});
  impl_->send(std::move(packet.add_bytes(pieces.data(), pieces.size_bytes())));
}

void GpuWorker::remove_memory(uint32_t memory) {
  Packet packet(WorkerMessage::kRemoveMemory);
  impl_->send(std::move(packet.add(gpu::RemoveMemoryBody{.memory = memory})));
}

void GpuWorker::make_communicator_id(uint32_t communicator) {
  Packet packet(WorkerMessage::kMakeId);
  impl_->send(std::move(packet.add(gpu::CommunicatorBody{.communicator = communicator})));
}

void GpuWorker::connect(const gpu::ConnectBody& communicator) {
  Packet packet(WorkerMessage::kConnect);
  impl_->send(std::move(packet.add(communicator)));
}

void GpuWorker::disconnect(uint32_t communicator) {
  Packet packet(WorkerMessage::kDisconnect);
  impl_->send(std::move(packet.add(gpu::CommunicatorBody{.communicator = communicator})));
}

Status GpuWorker::run(const gpu::WorkerOperation& operation) { return impl_->run(operation); }

void GpuWorker::stop(std::function<void()> ended) { impl_->stop(std::move(ended)); }

}  // namespace rueda::engine
