// Holds the batches of a timeline until they are written into its file, because making the text
// takes more time than everything else about a timeline, and that time would be the job's. The
// thread that closes the timeline writes it. If half of the room is taken before, another thread
// writes, which runs only when the machine has nothing else to do; it does not start sooner,
// because daemons that wait for a moment without sleeping would see that somebody wants the core.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "agent/records/timeline_file.h"
#include "daemon/base/mutex.h"

namespace rueda::agent {

class TimelineSpool {
 public:
  static constexpr size_t kMaxBytes = size_t{32} << 20;  // the size of the waiting messages

  explicit TimelineSpool(std::unique_ptr<TimelineFile> file, size_t max_bytes = kMaxBytes);
  ~TimelineSpool();

  // Queues a batch without waiting for the disk. If too much is waiting already the batch is
  // dropped, and its events are counted in the file. An error is that of a write since the last
  // call.
  Status write(v1::TimelineBatch batch);
  // Must be called once. Waiting batches are written before it returns.
  Status close(const v1::TimelineClosed& closed);

  const std::string& path() const { return file_->path(); }
  std::string losses() const { return file_->losses(); }  // is valid once the timeline is closed

 private:
  void run();
  // Writes the next batch. Returns false if none waits.
  bool write_next();
  void stop();

  // The file belongs to the thread and, once that has ended, to the caller of close().
  const std::unique_ptr<TimelineFile> file_;
  const size_t max_bytes_;

  Mutex mutex_;
  Condition changed_;
  std::deque<v1::TimelineBatch> waiting_ RUEDA_GUARDED_BY(mutex_);
  size_t waiting_bytes_ RUEDA_GUARDED_BY(mutex_) = 0;
  // Written batches are given back to the thread that made them: nobody should wait for a lock of
  // the allocator's that is held by a thread that hardly runs.
  std::vector<v1::TimelineBatch> written_ RUEDA_GUARDED_BY(mutex_);
  // numbers of dropped events, by node
  std::map<int32_t, uint64_t> dropped_ RUEDA_GUARDED_BY(mutex_);
  Status status_ RUEDA_GUARDED_BY(mutex_);
  bool is_stopping_ RUEDA_GUARDED_BY(mutex_) = false;

  std::thread thread_;
};

}  // namespace rueda::agent
