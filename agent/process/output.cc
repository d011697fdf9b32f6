#include "agent/process/output.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <utility>

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include "daemon/base/mutex.h"

namespace rueda::agent {
namespace {

constexpr size_t kReadBytes = 64 * 1024;
// A write that failed for a reason that may pass is tried again after this time.
constexpr auto kRetry = std::chrono::milliseconds(100);
// At the end, such a reason is waited for at most this long.
constexpr std::chrono::seconds kFullDisk(2);

// Returns true for a full disk or quota, or a file system that is away for a moment; false for a
// reader that is gone.
bool may_pass(int error) { return error == ENOSPC || error == EDQUOT || error == EIO; }

// Writes what the descriptor takes, and returns 0 or errno.
int write_some(int fd, const char* bytes, size_t count_bytes, size_t* written_bytes) {
  while (true) {
    const ssize_t got = ::write(fd, bytes, count_bytes);
    if (got >= 0) {
      *written_bytes = static_cast<size_t>(got);
      return 0;
    }
    if (errno == EAGAIN) {
      // Another process that shares the terminal may have made it non-blocking.
      pollfd writable{fd, POLLOUT, 0};
      ::poll(&writable, 1, -1);
    } else if (errno != EINTR) {
      return errno;
    }
  }
}

std::string loss(size_t count_bytes, const std::string& why) {
  return std::to_string(count_bytes) + " bytes of output are lost: " + why;
}

}  // namespace

OutputSink::OutputSink(int fd, std::function<void()> on_room) : state_(std::make_shared<State>()) {
  state_->on_room = std::move(on_room);
  thread_ = std::thread([state = state_, fd] { run(state, fd); });
}

OutputSink::~OutputSink() { finish(std::chrono::seconds(0)); }

std::string OutputSink::finish(std::chrono::seconds patience) {
  if (!thread_.joinable()) return "";
  MutexLock lock(state_->mutex);
  state_->is_stopping = true;
  state_->changed.notify_all();
  while (!state_->is_done) {
    const size_t before_bytes = state_->written_bytes;
    const int before_error = state_->passing_error;
    const auto limit = before_error != 0 ? std::min(patience, kFullDisk) : patience;
    const auto until = std::chrono::steady_clock::now() + limit;
    bool is_in_time = true;
    const auto has_moved = [&]() RUEDA_REQUIRES(state_->mutex) {
      return state_->is_done || state_->written_bytes != before_bytes ||
             state_->passing_error != before_error;
    };
    while (is_in_time && !has_moved()) is_in_time = state_->changed.wait_until(lock, until);
    if (!has_moved()) break;
  }
  const bool is_stuck = !state_->is_done;
  const size_t lost_bytes =
      state_->lost_bytes + (is_stuck ? state_->queued.size() + state_->writing_bytes : 0);
  const int error = state_->passing_error;
  lock.unlock();
  if (is_stuck) {
    thread_.detach();
  } else {
    thread_.join();
  }
  if (lost_bytes == 0) return "";
  return loss(lost_bytes, error != 0 ? std::strerror(error)
                                     : "their reader has taken nothing for " +
                                           std::to_string(patience.count()) + " s");
}

void OutputSink::write(std::string text) {
  if (text.empty()) return;
  const MutexLock lock(state_->mutex);
  if (state_->is_broken) return;
  // Ranks do not wait for a full disk, so text that does not fit is dropped.
  if (state_->passing_error != 0 && state_->queued.size() + text.size() > kMaxQueuedBytes) {
    state_->lost_bytes += text.size();
    return;
  }
  if (state_->queued.empty()) {
    state_->queued = std::move(text);
  } else {
    state_->queued += text;
  }
  state_->changed.notify_all();
}

bool OutputSink::is_full() const {
  const MutexLock lock(state_->mutex);
  const bool is_full =
      state_->passing_error == 0 && state_->queued.size() + state_->writing_bytes > kMaxQueuedBytes;
  state_->was_full = state_->was_full || is_full;
  return is_full;
}

void OutputSink::run(const std::shared_ptr<State>& state, int fd) {
  std::string batch;
  MutexLock lock(state->mutex);
  while (true) {
    while (state->queued.empty() && !state->is_stopping) state->changed.wait(lock);
    if (state->queued.empty()) break;
    batch.clear();
    batch.swap(state->queued);
    for (size_t position = 0; position < batch.size() && !state->is_broken;) {
      state->writing_bytes = batch.size() - position;
      lock.unlock();
      size_t count_bytes = 0;
      const int error =
          write_some(fd, batch.data() + position, batch.size() - position, &count_bytes);
      lock.lock();
      position += count_bytes;
      state->written_bytes += count_bytes;
      state->writing_bytes = batch.size() - position;
      state->is_broken = error != 0 && !may_pass(error);
      if (error == 0 && state->lost_bytes > 0) {
        state->queued +=
            "ruedarun: " + loss(state->lost_bytes, std::strerror(state->passing_error)) + "\n";
        state->lost_bytes = 0;
      }
      state->passing_error = may_pass(error) ? error : 0;
      state->changed.notify_all();
      if (state->passing_error != 0) {
        give_room(*state);
        state->changed.wait_for(lock, kRetry);
      }
    }
    state->writing_bytes = 0;
    if (state->is_broken) state->queued.clear();
    if (state->queued.size() <= kMaxQueuedBytes / 2) give_room(*state);
  }
  state->is_done = true;
  state->changed.notify_all();
}

void OutputSink::give_room(State& state) RUEDA_REQUIRES(state.mutex) {
  if (!state.was_full) return;
  state.was_full = false;
  if (state.on_room && !state.is_stopping) state.on_room();
}

OutputPipe::OutputPipe(boost::asio::io_context& loop, UniqueFd read_end, std::string prefix,
                       OutputSink& sink, std::function<void()> on_end)
    : pipe_(loop, read_end.release()),
      splitter_(std::move(prefix)),
      sink_(sink),
      on_end_(std::move(on_end)) {
  ::fcntl(pipe_.native_handle(), F_SETFL, O_NONBLOCK);
}

void OutputPipe::wait() {
  pipe_.async_wait(boost::asio::posix::descriptor_base::wait_read,
                   [this](const boost::system::error_code& error) {
                     if (!error) on_readable();
                   });
}

void OutputPipe::on_readable() {
  // There is one read in a turn of the loop: a rank that prints without end must not starve the
  // others.
  read_some();
  if (is_ended_) return;
  if (sink_.is_full()) {
    is_waiting_for_room_ = true;
  } else {
    wait();
  }
}

void OutputPipe::resume() {
  if (!is_waiting_for_room_ || is_ended_) return;
  is_waiting_for_room_ = false;
  wait();
}

bool OutputPipe::read_some() {
  char buffer[kReadBytes];
  const ssize_t got = ::read(pipe_.native_handle(), buffer, sizeof(buffer));
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return errno == EINTR;
  if (got <= 0) {
    end();
    return false;
  }
  std::string lines;
  splitter_.feed({buffer, static_cast<size_t>(got)}, lines);
  sink_.write(std::move(lines));
  return true;
}

void OutputPipe::end() {
  if (is_ended_) return;
  is_ended_ = true;
  std::string lines;
  splitter_.finish(lines);
  sink_.write(std::move(lines));
  boost::system::error_code ignored;
  pipe_.close(ignored);
  on_end_();
}

void OutputPipe::catch_up() {
  // The number of reads is bounded, because other processes may still be writing without end.
  for (int reads = 0; reads < 64 && !is_ended_ && read_some(); ++reads) {
  }
}

void OutputPipe::finish() {
  catch_up();
  end();
}

}  // namespace rueda::agent
