#include "agent/records/timeline_spool.h"

#include <utility>

#include <pthread.h>
#include <sched.h>

#include "agent/records/timeline_lines.h"
#include "daemon/base/mutex.h"

namespace rueda::agent {
namespace {

// Clears everything but the names, which later batches need, and what the batch says of its node.
void clear_events(v1::TimelineBatch& batch) {
  batch.clear_track();
  batch.clear_kind();
  batch.clear_process_set();
  batch.clear_begin_delta_ns();
  batch.clear_duration_ns();
  batch.clear_operation();
  batch.clear_value();
  batch.clear_tensors();
  batch.clear_operations();
}

}  // namespace

TimelineSpool::TimelineSpool(std::unique_ptr<TimelineFile> file, size_t max_bytes)
    : file_(std::move(file)), max_bytes_(max_bytes), thread_([this] { run(); }) {}

TimelineSpool::~TimelineSpool() { stop(); }

Status TimelineSpool::write(v1::TimelineBatch batch) {
  std::vector<v1::TimelineBatch> written;  // is freed after the lock
  const MutexLock lock(mutex_);
  written.swap(written_);
  if (waiting_bytes_ + batch.ByteSizeLong() > max_bytes_) {
    dropped_[batch.node()] += count_events(batch);
    clear_events(batch);
    if (batch.tracks().empty()) return std::exchange(status_, Status::ok());
  }
  waiting_bytes_ += batch.ByteSizeLong();
  waiting_.push_back(std::move(batch));
  changed_.notify_one();
  return std::exchange(status_, Status::ok());
}

bool TimelineSpool::write_next() {
  v1::TimelineBatch batch;
  {
    const MutexLock lock(mutex_);
    if (waiting_.empty()) return false;
    batch = std::move(waiting_.front());
    waiting_.pop_front();
    waiting_bytes_ -= batch.ByteSizeLong();
  }
  Status status = file_->write(batch);
  const MutexLock lock(mutex_);
  if (!status.is_ok()) status_ = std::move(status);
  written_.push_back(std::move(batch));
  return true;
}

void TimelineSpool::run() {
  pthread_setname_np(pthread_self(), "rueda-timeline");
  const sched_param unused{};
  (void)sched_setscheduler(0, SCHED_IDLE, &unused);  // if refused, this thread runs like others
  MutexLock lock(mutex_);
  while (true) {
    while (!is_stopping_ && waiting_bytes_ <= max_bytes_ / 2) changed_.wait(lock);
    while (!is_stopping_ && !waiting_.empty()) {
      lock.unlock();
      write_next();
      lock.lock();
    }
    if (is_stopping_) return;
  }
}

void TimelineSpool::stop() {
  {
    const MutexLock lock(mutex_);
    is_stopping_ = true;
    changed_.notify_one();
  }
  if (!thread_.joinable()) return;
  const sched_param unused{};
  (void)pthread_setschedparam(thread_.native_handle(), SCHED_OTHER,
                              &unused);  // the caller waits for the thread now
  thread_.join();
}

Status TimelineSpool::close(const v1::TimelineClosed& closed) {
  stop();
  while (write_next()) {
  }
  const MutexLock lock(mutex_);
  if (!status_.is_ok()) return status_;
  for (const auto& [node, events] : dropped_) file_->count_dropped(node, events);
  return file_->close(closed);
}

}  // namespace rueda::agent
