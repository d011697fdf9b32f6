// Writes the file of a job's timeline, in Chrome's trace format (docs/timeline.md). An object
// belongs to one thread at a time.
#pragma once

#include <cstdint>
#include <cstdio>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "daemon/base/fd.h"
#include "daemon/base/status.h"
#include "rueda/v1/timeline.pb.h"

namespace rueda::agent {

class TimelineFile {
 public:
  // Opens the file, and replaces one that is there.
  static Result<std::unique_ptr<TimelineFile>> open(const std::string& path,
                                                    const std::string& job_id);
  // Opens the file for a request of another node of the job, whose daemon may be in other hands: it
  // may not choose any file of this user. Refused (kPermission) but for a new file "/....json" in
  // no hidden folder.
  static Result<std::unique_ptr<TimelineFile>> open_for_another_node(const std::string& path,
                                                                     const std::string& job_id);

  const std::string& path() const { return path_; }
  Status write(const v1::TimelineBatch& batch);
  // Counts events that were to be written and were lost before they came here.
  void count_dropped(int32_t node, uint64_t events) { nodes_[node].dropped_here += events; }
  // Writes the end, without which the file is not complete. Must be called once.
  Status close(const v1::TimelineClosed& closed);
  // Returns a text such as "; 12 events were lost on the way", or "".
  std::string losses() const;

 private:
  struct Node {
    std::string id;
    uint64_t events = 0;
    uint64_t dropped = 0;  // reported by the daemons
    // Events that the launcher dropped, including events on tracks without a name.
    uint64_t dropped_here = 0;
    int64_t clock_offset_ns = 0;
    int64_t clock_error_ns = 0;  // the largest error
    uint32_t clock_exchanges = 0;
  };
  struct Closer {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };

  static Result<std::unique_ptr<TimelineFile>> begin(const std::string& path,
                                                     const std::string& job_id,
                                                     Result<UniqueFd> made);
  TimelineFile(std::string path, std::string job_id, std::FILE* file)
      : path_(std::move(path)), job_id_(std::move(job_id)), file_(file) {}

  // Returns the beginning of the lines of events on a track, or null if the track has no name.
  const std::string* head_of(int32_t node, uint32_t track) const;
  void name_track(int32_t node, uint32_t track, const std::string& name);
  // Adds an event. Returns the number of events added: 0 if its track has no name.
  uint64_t add_event(const v1::TimelineBatch& batch, int index, int64_t begin_ns);
  void add_operation(const v1::TimelineBatch::Operation& operation,
                     const std::vector<const std::string*>& tensors, Node& node);
  Status flush_if_long();
  Status flush();

  const std::string path_;
  const std::string job_id_;
  const std::unique_ptr<std::FILE, Closer> file_;
  std::map<int32_t, Node> nodes_;
  std::unordered_map<uint64_t, std::string> heads_;  // keyed by node and track
  bool has_events_ = false;
  std::string text_;  // text that is not in the file yet
};

}  // namespace rueda::agent
