#include "agent/timeline_file.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include <nlohmann/json.hpp>

#include "daemon/base/dtype.h"

namespace rueda::agent {
namespace {

using nlohmann::json;

// In the order of docs/timeline.md's table; the numbers are observe::TraceKind's.
enum Kind : uint32_t {
  kNegotiate,
  kReady,
  kOperation,
  kQueue,
  kLocalReduce,
  kRing,
  kChunk,
  kCopyOut,
  kStep,
  kForward,
  kBackward,
  kExposed,
};
constexpr std::array kNames{"NEGOTIATE", "ready",    "",     "QUEUE",   "LOCAL_REDUCE", "RING",
                            "chunk",     "COPY_OUT", "STEP", "FORWARD", "BACKWARD",     "EXPOSED"};
constexpr uint64_t kDecreedBit = uint64_t{1} << 63;

// Viewers take threads for those of a machine: a number is one thread's in all processes, 0 is the
// idle one's, and that of the process is its first thread's.
int64_t process_of(int32_t node) { return int64_t{node} + 1; }
int64_t thread_of(int32_t node, uint32_t track) {
  constexpr int64_t kTracks = 20'000;  // more than a node has
  return process_of(node) * kTracks + track % kTracks;
}

std::string upper_name(int64_t kind) {
  if (kind < 0 || kind >= kCollectiveKindCount) return "OPERATION";
  std::string name = to_string(static_cast<CollectiveKind>(kind));
  std::transform(name.begin(), name.end(), name.begin(),
                 [](unsigned char letter) { return static_cast<char>(std::toupper(letter)); });
  return name;
}

std::string quoted(const std::string& text) {
  return json(text).dump(-1, ' ', false, json::error_handler_t::replace);
}

// Ranks first, then what the data plane does, then tensors.
int sort_index(const std::string& track, uint32_t number) {
  if (track.starts_with("rank ")) return std::atoi(track.c_str() + 5);
  const int room = track.starts_with("tensor ") ? 2'000'000 : 1'000'000;
  return room + static_cast<int>(std::min<uint32_t>(number, 999'999));
}

// Microseconds, to the nanosecond.
void append_us(std::string& text, int64_t ns) {
  char digits[32];
  const int64_t rest = std::abs(ns % 1000);
  std::snprintf(digits, sizeof(digits), "%s%lld.%03lld", ns < 0 ? "-" : "",
                static_cast<long long>(std::abs(ns / 1000)), static_cast<long long>(rest));
  text += digits;
}

}  // namespace

Result<std::unique_ptr<TimelineFile>> TimelineFile::open(const std::string& path,
                                                         const std::string& job_id) {
  std::FILE* const file = std::fopen(path.c_str(), "we");
  if (file == nullptr) {
    return Status(Code::kInvalidArgument,
                  "cannot write the timeline " + path + ": " + std::strerror(errno));
  }
  std::unique_ptr<TimelineFile> opened(new TimelineFile(path, job_id, file));
  opened->text_ = "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[";
  if (Status status = opened->flush(); !status.is_ok()) return status;
  return opened;
}

void TimelineFile::name_track(int32_t node, uint32_t track, const std::string& name) {
  if (!named_.insert((uint64_t{static_cast<uint32_t>(node)} << 32) | track).second) return;
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
    add_event(batch, i, begin_ns);
  }
  node.events += static_cast<uint64_t>(batch.track_size());
  node.dropped = batch.dropped();
  node.clock_offset_ns = batch.clock_offset_ns();
  node.clock_error_ns = std::max(node.clock_error_ns, batch.clock_error_ns());
  node.clock_exchanges = batch.clock_exchanges();
  return flush();
}

void TimelineFile::add_event(const v1::TimelineBatch& batch, int index, int64_t begin_ns) {
  const uint32_t kind = batch.kind(index);
  const int64_t value = batch.value(index);
  const bool is_mark = kind == kReady || kind == kChunk;
  std::string name = kind < kNames.size() ? kNames[kind] : "UNKNOWN";
  if (kind == kOperation) name = upper_name(value);
  if (is_mark || kind == kStep) name += " " + std::to_string(value);
  text_ += is_mark ? ",\n{\"ph\":\"i\",\"s\":\"t\",\"pid\":" : ",\n{\"ph\":\"X\",\"pid\":";
  text_ += std::to_string(process_of(batch.node()));
  text_ += ",\"tid\":";
  text_ += std::to_string(thread_of(batch.node(), batch.track(index)));
  text_ += ",\"ts\":";
  append_us(text_, begin_ns);
  if (!is_mark) {
    text_ += ",\"dur\":";
    append_us(text_, batch.duration_ns(index));
  }
  text_ += ",\"name\":\"" + name + "\"";
  if (kind >= kStep) {
    text_ += ",\"args\":{\"step\":" + std::to_string(value) + "}}";
    return;
  }
  // Two orders run side by side; "b" for that of what has a root, or no data.
  const uint64_t operation = batch.operation(index);
  text_ += ",\"args\":{\"operation\":\"";
  if ((operation & kDecreedBit) != 0) text_ += "b";
  text_ += std::to_string(operation & ~kDecreedBit);
  text_ += "\"";
  if (batch.process_set(index) != 0) {
    text_ += ",\"process_set\":" + std::to_string(batch.process_set(index));
  }
  if (kind == kNegotiate) text_ += ",\"collective\":\"" + upper_name(value) + "\"";
  if (kind == kReady) text_ += ",\"rank\":" + std::to_string(value);
  if (kind == kRing) text_ += ",\"bytes\":" + std::to_string(value);
  if (kind == kLocalReduce || kind == kCopyOut) {
    text_ += ",\"busy_us\":";
    append_us(text_, value);
  }
  text_ += "}}";
}

std::string TimelineFile::losses() const {
  uint64_t dropped = 0;
  for (const auto& [number, node] : nodes_) dropped += node.dropped;
  return dropped == 0 ? "" : "; " + std::to_string(dropped) + " events found no room";
}

Status TimelineFile::close(const v1::TimelineClosed& closed) {
  json said = {{"version", RUEDA_VERSION}, {"job", job_id_}, {"nodes", json::array()}};
  for (const auto& [number, node] : nodes_) {
    said["nodes"].push_back(
        {{"pid", process_of(number)},
         {"node_id", node.id},
         {"events", node.events},
         {"dropped_events", node.dropped},
         {"clock_offset_us", static_cast<double>(node.clock_offset_ns) / 1000.0},
         {"clock_error_us", static_cast<double>(node.clock_error_ns) / 1000.0},
         {"clock_exchanges", node.clock_exchanges}});
  }
  said["nodes_without_end"] = closed.missing_nodes();
  if (!nodes_.empty()) said["clock"] = "CLOCK_MONOTONIC of node " + nodes_.begin()->second.id;
  text_ += "\n],\n\"rueda\":" + said.dump(-1, ' ', false, json::error_handler_t::replace) + "}\n";
  return flush();
}

Status TimelineFile::flush() {
  const bool is_written = std::fwrite(text_.data(), 1, text_.size(), file_.get()) == text_.size() &&
                          std::fflush(file_.get()) == 0;
  text_.clear();
  if (is_written) return Status::ok();
  return {Code::kResourceExhausted,
          "cannot write the timeline " + path_ + ": " + std::strerror(errno)};
}

}  // namespace rueda::agent
