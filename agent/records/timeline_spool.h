// What is to be written into a timeline's file waits here, because text takes more time than all
// else of a timeline, and that time would be the job's. Who ends it writes it. If half of the room
// is taken before, a thread writes that runs when the machine has nothing else to do; not sooner,
// because daemons that wait for a moment without sleeping see that somebody wants the core.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "agent/records/timeline_file.h"

namespace rueda::agent {

class TimelineSpool {
 public:
  static constexpr size_t kMostBytes = size_t{32} << 20;  // as messages

  explicit TimelineSpool(std::unique_ptr<TimelineFile> file, size_t max_bytes = kMostBytes);
  ~TimelineSpool();

  // Does not wait for the disk. If too much waits already, it is dropped, and counted in the file.
  // An error: of what was written since the last call.
  Status write(v1::TimelineBatch batch);
  // Once; what waits is written before it returns.
  Status close(const v1::TimelineClosed& closed);

  const std::string& path() const { return file_->path(); }
  std::string losses() const { return file_->losses(); }  // once it is closed

 private:
  void run();
  // False: nothing waits.
  bool write_next();
  void stop();

  // Of the thread, and once that has ended, of who closes it.
  const std::unique_ptr<TimelineFile> file_;
  const size_t max_bytes_;

  std::mutex mutex_;  // of all that follows
  std::condition_variable changed_;
  std::deque<v1::TimelineBatch> waiting_;
  size_t waiting_bytes_ = 0;
  // Given back to who made them: nobody shall wait for a lock of the allocator's that a thread has
  // that hardly runs.
  std::vector<v1::TimelineBatch> written_;
  std::map<int32_t, uint64_t> dropped_;  // events, by node
  Status status_;
  bool is_stopping_ = false;

  std::thread thread_;
};

}  // namespace rueda::agent
