// The file of a job's timeline, in Chrome's trace format (docs/timeline.md). Belongs to one thread
// at a time.
#pragma once

#include <cstdint>
#include <cstdio>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "daemon/base/status.h"
#include "rueda/v1/timeline.pb.h"

namespace rueda::agent {

class TimelineFile {
 public:
  // Replaces what is there.
  static Result<std::unique_ptr<TimelineFile>> open(const std::string& path,
                                                    const std::string& job_id);

  const std::string& path() const { return path_; }
  Status write(const v1::TimelineBatch& batch);
  // Events that were to be written have been lost before they came here.
  void count_dropped(int32_t node, uint64_t events) { nodes_[node].dropped_here += events; }
  // The end, without which the file is not whole. Once.
  Status close(const v1::TimelineClosed& closed);
  // "; 12 events were lost on the way", or nothing.
  std::string losses() const;

 private:
  struct Node {
    std::string id;
    uint64_t events = 0;
    uint64_t dropped = 0;       // as the daemons say
    uint64_t dropped_here = 0;  // and those on tracks without a name
    int64_t clock_offset_ns = 0;
    int64_t clock_error_ns = 0;  // the largest
    uint32_t clock_exchanges = 0;
  };
  struct Closer {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };

  TimelineFile(std::string path, std::string job_id, std::FILE* file)
      : path_(std::move(path)), job_id_(std::move(job_id)), file_(file) {}

  // What the lines of events on a track begin with. Null: the track has no name.
  const std::string* head_of(int32_t node, uint32_t track) const;
  void name_track(int32_t node, uint32_t track, const std::string& name);
  // Returns how many that are: none, if the track has no name.
  uint64_t add_event(const v1::TimelineBatch& batch, int index, int64_t begin_ns);
  void add_operation(const v1::TimelineBatch::Operation& operation,
                     const std::vector<const std::string*>& tensors, Node& node);
  Status flush_if_long();
  Status flush();

  const std::string path_;
  const std::string job_id_;
  const std::unique_ptr<std::FILE, Closer> file_;
  std::map<int32_t, Node> nodes_;
  std::unordered_map<uint64_t, std::string> heads_;  // by node, then track
  bool has_events_ = false;
  std::string text_;  // that is not in the file yet
};

}  // namespace rueda::agent
