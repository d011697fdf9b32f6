#include "agent/records/timeline_file.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include <nlohmann/json.hpp>

#include "agent/records/timeline_lines.h"
#include "daemon/base/os/own_file.h"

namespace rueda::agent {
namespace {

using nlohmann::json;

// The numbers are those of observe::TraceKind.
enum Kind : uint32_t {
  kLocalReduce,
  kRing,
  kChunk,
  kCopyOut,
  kStep,
  kForward,
  kBackward,
  kExposed,
  kSend,
  kReceive,
};
constexpr std::array kNames{"LOCAL_REDUCE", "RING",     "chunk",   "COPY_OUT", "STEP",
                            "FORWARD",      "BACKWARD", "EXPOSED", "SEND",     "RECEIVE"};
constexpr size_t kLongText = 256 << 10;  // text of this length is written without waiting for more

// These functions give the numbers of a node and of its tracks, which are processes and threads to
// a viewer. Viewers take the threads for those of one machine: a thread's number may occur only
// once in all processes, 0 is the idle thread's, and the first thread of a process has the
// process's number.
int64_t process_of(int32_t node) { return int64_t{node} + 1; }
int64_t thread_of(int32_t node, uint32_t track) {
  constexpr int64_t kTracks = 20'000;  // more than a node has
  return process_of(node) * kTracks + track % kTracks;
}

uint64_t key_of(int32_t node, uint32_t track) {
  return (uint64_t{static_cast<uint32_t>(node)} << 32) | track;
}

std::string quoted(const std::string& text) {
  return json(text).dump(-1, ' ', false, json::error_handler_t::replace);
}

// Returns the place of a track in a viewer: ranks come first, then what the data plane does, then
// tensors.
int sort_index(const std::string& track, uint32_t number) {
  if (track.starts_with("rank ")) return std::atoi(track.c_str() + 5);
  const int room = track.starts_with("tensor ") ? 2'000'000 : 1'000'000;
  return room + static_cast<int>(std::min<uint32_t>(number, 999'999));
}

}  // namespace

Result<std::unique_ptr<TimelineFile>> TimelineFile::open(const std::string& path,
                                                         const std::string& job_id) {
  return begin(path, job_id, open_own_file(path));
}

Result<std::unique_ptr<TimelineFile>> TimelineFile::open_for_another_node(
    const std::string& path, const std::string& job_id) {
  const bool is_hidden = path.find("/.") != std::string::npos;
  if (!path.starts_with('/') || !path.ends_with(".json") || is_hidden) {
    return Status(
        Code::kPermission,
        "another node of job " + job_id + " asks for the timeline " + path +
            ": it may choose a new file alone whose path begins with / and ends with "
            ".json, and has nothing hidden (\"/.\"); any other is asked for on this node");
  }
  return begin(path, job_id, open_new_file(path));
}

Result<std::unique_ptr<TimelineFile>> TimelineFile::begin(const std::string& path,
                                                          const std::string& job_id,
                                                          Result<UniqueFd> made) {
  std::FILE* const file = made.is_ok() ? ::fdopen(made.value().get(), "w") : nullptr;
  if (file == nullptr) {
    return Status(Code::kInvalidArgument,
                  "cannot write the timeline " + path + ": " +
                      (made.is_ok() ? std::strerror(errno) : made.status().message()));
  }
  made.value().release();
  std::unique_ptr<TimelineFile> opened(new TimelineFile(path, job_id, file));
  opened->text_ = "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[";
  if (Status status = opened->flush(); !status.is_ok()) return status;
  return opened;
}

const std::string* TimelineFile::head_of(int32_t node, uint32_t track) const {
  const auto found = heads_.find(key_of(node, track));
  return found == heads_.end() ? nullptr : &found->second;
}

void TimelineFile::name_track(int32_t node, uint32_t track, const std::string& name) {
  const auto [head, is_new] = heads_.try_emplace(key_of(node, track));
  if (!is_new) return;
  head->second = ",\n{\"pid\":" + std::to_string(process_of(node)) +
                 ",\"tid\":" + std::to_string(thread_of(node, track)) + ",";
  const json where = {{"ph", "M"}, {"pid", process_of(node)}, {"tid", thread_of(node, track)}};
  json line = where;
  line["name"] = "thread_name";
  line["args"]["name"] = name.starts_with("tensor ") ? name.substr(7) : name;
  json order = where;
  order["name"] = "thread_sort_index";
  order["args"]["sort_index"] = sort_index(name, track);
  for (const json& item : {line, order}) {
    text_ += ",\n" + item.dump(-1, ' ', false, json::error_handler_t::replace);
  }
}

Status TimelineFile::write(const v1::TimelineBatch& batch) {
  Node& node = nodes_[batch.node()];
  if (node.id.empty()) {
    node.id = batch.node_id();
    text_ += has_events_ ? ",\n" : "\n";
    has_events_ = true;
    text_ += "{\"ph\":\"M\",\"pid\":" + std::to_string(process_of(batch.node())) +
             ",\"name\":\"process_name\",\"args\":{\"name\":" + quoted("node " + node.id) + "}}";
  }
  for (const v1::TimelineBatch::Track& track : batch.tracks()) {
    name_track(batch.node(), track.number(), track.name());
  }
  int64_t begin_ns = 0;
  for (int i = 0; i < batch.track_size(); ++i) {
    begin_ns += batch.begin_delta_ns(i);
    const uint64_t added = add_event(batch, i, begin_ns);
    node.events += added;
    node.dropped_here += 1 - added;
  }
  std::vector<std::vector<const std::string*>> tensors;
  for (const v1::TimelineBatch::Tensors& item : batch.tensors()) {
    tensors.emplace_back();
    for (const uint32_t track : item.track()) {
      tensors.back().push_back(head_of(batch.node(), track));
    }
  }
  for (const v1::TimelineBatch::Operation& operation : batch.operations()) {
    if (operation.tensors() >= tensors.size()) continue;
    add_operation(operation, tensors[operation.tensors()], node);
    if (Status status = flush_if_long(); !status.is_ok()) return status;
  }
  node.dropped = batch.dropped();
  node.clock_offset_ns = batch.clock_offset_ns();
  node.clock_error_ns = std::max(node.clock_error_ns, batch.clock_error_ns());
  node.clock_exchanges = batch.clock_exchanges();
  return flush();
}

void TimelineFile::add_operation(const v1::TimelineBatch::Operation& operation,
                                 const std::vector<const std::string*>& tensors, Node& node) {
  OperationLines lines(operation);
  for (size_t at = 0; at < tensors.size();) {
    const OperationLines::Stretch stretch = lines.next(tensors.size() - at);
    for (const size_t end = at + stretch.tensors; at < end; ++at) {
      if (tensors[at] == nullptr) {
        node.dropped_here += stretch.tails.size();
        continue;
      }
      for (const std::string& tail : stretch.tails) {
        text_ += *tensors[at];
        text_ += tail;
      }
      node.events += stretch.tails.size();
    }
  }
}

uint64_t TimelineFile::add_event(const v1::TimelineBatch& batch, int index, int64_t begin_ns) {
  const uint32_t kind = batch.kind(index);
  const int64_t value = batch.value(index);
  const std::string* const head = head_of(batch.node(), batch.track(index));
  if (head == nullptr || kind >= kNames.size()) return 0;
  text_ += *head;
  text_ += kind == kChunk ? "\"ph\":\"i\",\"s\":\"t\",\"ts\":" : "\"ph\":\"X\",\"ts\":";
  append_us(text_, begin_ns);
  if (kind != kChunk) {
    text_ += ",\"dur\":";
    append_us(text_, batch.duration_ns(index));
  }
  text_ += ",\"name\":\"";
  text_ += kNames[kind];
  if (kind == kChunk || kind == kStep) {
    text_ += ' ';
    append_number(text_, value);
  }
  text_ += "\",\"args\":{";
  if (kind >= kSend) {
    text_ += "\"rank\":";
    append_number(text_, static_cast<int64_t>(batch.operation(index) >> 32));
    text_ += ",\"peer\":";
    append_number(text_, static_cast<int64_t>(batch.operation(index) & UINT32_MAX));
    text_ += ",\"process_set\":";
    append_number(text_, static_cast<int64_t>(batch.process_set(index)));
  } else if (kind >= kStep) {
    text_ += "\"step\":";
    append_number(text_, value);
  } else {
    text_ += operation_arguments(batch.operation(index), batch.process_set(index));
  }
  if (kind == kRing || kind >= kSend) {
    text_ += ",\"bytes\":";
    append_number(text_, value);
  }
  if (kind == kLocalReduce || kind == kCopyOut) {
    text_ += ",\"busy_us\":";
    append_us(text_, value);
  }
  text_ += "}}";
  return 1;
}

std::string TimelineFile::losses() const {
  uint64_t dropped = 0;
  for (const auto& [number, node] : nodes_) dropped += node.dropped + node.dropped_here;
  return dropped == 0 ? "" : "; " + std::to_string(dropped) + " events found no room";
}

Status TimelineFile::close(const v1::TimelineClosed& closed) {
  json said = {{"version", RUEDA_VERSION}, {"job", job_id_}, {"nodes", json::array()}};
  for (const auto& [number, node] : nodes_) {
    said["nodes"].push_back(
        {{"pid", process_of(number)},
         {"node_id", node.id},
         {"events", node.events},
         {"dropped_events", node.dropped + node.dropped_here},
         {"clock_offset_us", static_cast<double>(node.clock_offset_ns) / 1000.0},
         {"clock_error_us", static_cast<double>(node.clock_error_ns) / 1000.0},
         {"clock_exchanges", node.clock_exchanges}});
  }
  said["nodes_without_end"] = closed.missing_nodes();
  if (!nodes_.empty()) said["clock"] = "CLOCK_MONOTONIC of node " + nodes_.begin()->second.id;
  text_ += "\n],\n\"rueda\":" + said.dump(-1, ' ', false, json::error_handler_t::replace) + "}\n";
  return flush();
}

Status TimelineFile::flush_if_long() { return text_.size() < kLongText ? Status::ok() : flush(); }

Status TimelineFile::flush() {
  const bool is_written = std::fwrite(text_.data(), 1, text_.size(), file_.get()) == text_.size() &&
                          std::fflush(file_.get()) == 0;
  text_.clear();
  if (is_written) return Status::ok();
  return {Code::kResourceExhausted,
          "cannot write the timeline " + path_ + ": " + std::strerror(errno)};
}

}  // namespace rueda::agent
