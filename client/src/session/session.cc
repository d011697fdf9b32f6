#include "client/src/session/session.h"

#include <algorithm>
#include <cstring>

#include "client/src/wire/errors.h"

namespace rueda::client {
namespace {

constexpr size_t kAttachDescriptors = 4;

template <class Body>
bool copy_body(const Message& message, Body& body) {
  if (message.body.size() != sizeof(Body)) return false;
  std::memcpy(&body, message.body.data(), sizeof(Body));
  return true;
}

template <size_t kBytes>
std::string text_of(const char (&field)[kBytes]) {
  return std::string(field, ::strnlen(field, kBytes));
}

Status bad_message(const char* what) {
  return {Code::kInternal, std::string("the daemon sent a ") + what +
                               " that this librueda (" RUEDA_VERSION
                               ") cannot read; install the same release of both"};
}

}  // namespace

Session::Session(Config config) : config_(std::move(config)) {
  allocator_ = std::make_shared<ArenaAllocator>(ArenaAllocator::Registrar{
      .add =
          [this](int memfd, uint64_t bytes) {
            rueda_abi_arena body{.bytes = bytes, .arena_id = 0, .reserved = 0};
            return request(RUEDA_ABI_ARENA_ADD, &body, sizeof(body), memfd);
          },
      .remove =
          [this](uint32_t arena_id) {
            rueda_abi_arena body{.bytes = 0, .arena_id = arena_id, .reserved = 0};
            return request(RUEDA_ABI_ARENA_REMOVE, &body, sizeof(body), -1).status();
          }});
  interned_ = std::make_unique<InternCache>(
      [this](const rueda_abi_intern& descriptor, std::span<const int64_t> counts) {
        return intern(descriptor, counts);
      },
      [this](uint32_t id) {
        const rueda_abi_forget body{.tensor_id = id, .reserved = 0};
        return request(RUEDA_ABI_FORGET, &body, sizeof(body), -1).status();
      });
}

Session::~Session() {
  if (watchdog_.joinable()) {
    {
      const Lock lock(mutex_);
      watchdog_stops_ = true;
      end_all({Code::kShutDown, "Rueda has been shut down"});
    }
    watch_changed_.notify_all();
    connection_->shut_down();  // wakes the watchdog, which may sleep on the socket
    watchdog_.join();
  }
  for (auto& handle : handles_.all()) release(*handle);
  allocator_->retire();
}

Result<std::unique_ptr<Session>> Session::attach(const Config& config) {
  std::unique_ptr<Session> session(new Session(config));
  if (Status status = session->handshake(); !status.is_ok()) return status;
  return session;
}

Status Session::handshake() {
  TicksMs deadline_ms = steady_now_ms() + config_.timeout_ms;
  auto connection = Connection::connect(config_.socket_path, config_.timeout_ms);
  if (!connection.is_ok()) return connection.status();
  connection_ = std::move(connection).value();

  rueda_abi_attach attach{};
  std::memcpy(attach.job_id, config_.job_id.data(), config_.job_id.size());
  std::memcpy(attach.token, config_.token.data(), sizeof(attach.token));
  attach.rank = config_.rank;
  attach.local_rank = config_.local_rank;
  // A daemon that refuses may close before it has read everything: its answer matters, not the
  // error of the send.
  Status sent = connection_->send(RUEDA_ABI_ATTACH, &attach, sizeof(attach));
  Result<Message> reply = connection_->wait_message(deadline_ms);
  if (!reply.is_ok()) {
    Status reason = sent.is_ok() ? reply.status() : sent;
    return {reason.code(), "could not attach to the daemon at \"" + config_.socket_path +
                               "\": " + reason.message() + "; see the daemon's log"};
  }
  if (Status status = take_rings(reply.value()); !status.is_ok()) return status;

  Result<rueda_abi_started> started = wait_started(deadline_ms);
  if (!started.is_ok()) return started.status();
  place_ = started.value();
  process_sets_ = std::make_unique<ProcessSets>(place_.world_size);
  place_.node_id[RUEDA_ABI_NODE_ID_BYTES - 1] = '\0';
  return Status::ok();
}

Status Session::take_rings(const Message& message) {
  rueda_abi_attach_reply reply;
  if (message.type != RUEDA_ABI_ATTACH_REPLY || !copy_body(message, reply)) {
    return bad_message("reply to the attach");
  }
  if (reply.code != 0) return {code_from_wire(reply.code), text_of(reply.text)};
  std::vector<UniqueFd> descriptors = connection_->take_descriptors();
  if (descriptors.size() != kAttachDescriptors) return bad_message("reply without descriptors");
  auto submissions = SubmissionRing::map(descriptors[0], reply.submission_capacity);
  if (!submissions.is_ok()) return submissions.status();
  auto completions = CompletionRing::map(descriptors[1], reply.completion_capacity);
  if (!completions.is_ok()) return completions.status();
  submissions_ = std::move(submissions).value();
  completions_ = std::move(completions).value();
  daemon_doorbell_ = std::move(descriptors[2]);
  client_doorbell_ = std::move(descriptors[3]);
  // The daemon does not signal when it takes a submission, so this process must never wait for room
  // in the submission ring: at most as many operations are in flight as that ring holds.
  handles_.open(std::min(submissions_.capacity(), completions_.capacity()));
  return Status::ok();
}

Result<rueda_abi_started> Session::wait_started(TicksMs deadline_ms) {
  for (;;) {
    Result<Message> message = connection_->wait_message(deadline_ms);
    if (!message.is_ok() && message.status().code() == Code::kTimeout) {
      return Status{Code::kTimeout, "not every rank of job \"" + config_.job_id +
                                        "\" attached within " + std::to_string(config_.timeout_ms) +
                                        " ms; check that all of them run, or raise "
                                        "RUEDA_START_TIMEOUT_MS"};
    }
    if (!message.is_ok()) {
      return Status{message.status().code(),
                    "while rank " + std::to_string(config_.rank) + " waited for the other ranks: " +
                        message.status().message() + "; see the daemon's log"};
    }
    if (message.value().type == RUEDA_ABI_STARTED) {
      rueda_abi_started started;
      if (!copy_body(message.value(), started)) return bad_message("start message");
      return started;
    }
    if (message.value().type == RUEDA_ABI_FAILED) {
      rueda_abi_status failed;
      if (!copy_body(message.value(), failed)) return bad_message("failure message");
      return Status{code_from_wire(failed.code), text_of(failed.text)};
    }
  }
}

Result<void*> Session::allocate(size_t bytes) {
  Result<Block> block = allocator_->allocate(bytes);
  if (!block.is_ok()) return block.status();
  return static_cast<void*>(block.value().data);
}

Status Session::free(void* memory) {
  std::optional<size_t> bytes = allocator_->block_bytes(memory);
  if (bytes) {
    auto begin = static_cast<const std::byte*>(memory);
    Lock lock(mutex_);
    for (const Operation* operation : handles_.in_flight()) {
      if (operation == nullptr) continue;
      for (const std::byte* used : operation->arena_data) {
        if (used == nullptr || used < begin || used >= begin + *bytes) continue;
        return {Code::kInvalidArgument, "the memory is in use by tensor \"" +
                                            std::string(operation->name) +
                                            "\"; wait for its handle before freeing it"};
      }
    }
    ++frees_;
  }
  return allocator_->free(memory, ArenaAllocator::IfIdle::kMayReturn);
}

rueda_stats Session::stats() const {
  Lock lock(mutex_);
  rueda_stats stats = stats_;
  stats.arena_bytes = allocator_->mapped_bytes();
  return stats;
}

Status Session::detach(int64_t timeout_ms) {
  Status result;
  {
    Lock lock(mutex_);
    bool is_quiet = wait_until(
        lock, [this] { return handles_.in_flight_count() == 0; }, steady_now_ms() + timeout_ms);
    if (!is_quiet) {
      result = {Code::kTimeout, std::to_string(handles_.in_flight_count()) +
                                    " operations were still in flight at shutdown, among them "
                                    "tensor \"" +
                                    std::string(handles_.first_in_flight().name) +
                                    "\"; wait for every handle before rueda_shutdown"};
    }
    ask_nonfinite(lock);
    if (over_) return result;
    PendingReply goodbye;
    if (!connection_->send(RUEDA_ABI_DETACH, nullptr, 0).is_ok()) return result;
    is_leaving_ = true;
    pending_replies_.push_back(&goodbye);
    wait_until(
        lock, [&] { return goodbye.is_answered || over_; }, steady_now_ms() + timeout_ms);
    std::erase(pending_replies_, &goodbye);
    end_all({Code::kShutDown, "Rueda has been shut down"});
  }
  return result;
}

void Session::detach_if_idle(int64_t timeout_ms) {
  {
    Lock lock(mutex_, std::try_to_lock);
    if (!lock.owns_lock() || is_polled_) return;
    drain_completions();
    if (handles_.in_flight_count() > 0) return;
  }
  (void)detach(timeout_ms);
}

void Session::close_in_child() {
  connection_->close_in_child();
  ::close(daemon_doorbell_.get());
  ::close(client_doorbell_.get());
}

}  // namespace rueda::client
