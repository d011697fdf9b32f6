#include "daemon/engine/trace/job_trace.h"

#include <algorithm>
#include <string>

#include "daemon/core/model/track.h"

namespace rueda::engine {

using observe::TraceEvent;
using observe::TraceKind;
using observe::TraceReady;

namespace {

constexpr size_t kMaxPlanned = 256;     // The number of batches of plans that are remembered.
constexpr uint64_t kSpansOfTensor = 3;  // Besides, it has a mark for each rank.

}  // namespace

JobTrace::JobTrace(JobTraceOptions options)
    : options_(std::move(options)),
      buffer_(options_.max_records, options_.max_tracks),
      steps_(options_.ranks.size(), observe::StepWatch(options_.max_tracks)) {
  for (const Rank rank : options_.ranks) {
    rank_tracks_.push_back(buffer_.track("rank " + std::to_string(rank.value)));
  }
}

uint32_t JobTrace::track_of(const core::TensorDescriptor& tensor) {
  const std::string set =
      tensor.process_set == 0 ? "" : "set " + std::to_string(tensor.process_set) + ": ";
  return buffer_.track("tensor " + set + tensor.name);
}

JobTrace::Tensors JobTrace::find_tensors(const core::LaunchTensors& launched) {
  Tensors found{launched, {}, nullptr, 0};
  auto recorded = std::make_shared<std::vector<uint32_t>>();
  for (const core::LaunchTensor& tensor : *launched) {
    const uint32_t track = track_of(*tensor.descriptor);
    found.tracks.push_back(track);
    if (track != observe::TraceBuffer::kNoTrack) recorded->push_back(track);
  }
  found.untracked = launched->size() - recorded->size();
  found.recorded = std::move(recorded);
  return found;
}

const JobTrace::Tensors& JobTrace::tensors_of(const core::Launch& launch) {
  if (!launch.locked) return launched_ = find_tensors(launch.tensors);
  const auto found = planned_.find(launch.tensors.get());
  if (found != planned_.end()) return found->second;
  // This drops the batches of plans that are given up.
  if (planned_.size() >= kMaxPlanned) planned_.clear();
  return planned_.emplace(launch.tensors.get(), find_tensors(launch.tensors)).first->second;
}

void JobTrace::on_launch(const core::Launch& launch, const std::vector<LocalRank>& locals,
                         const SubmittedAt& submitted_at) {
  const Tensors& tensors = tensors_of(launch);
  UnderWay& operation = operations_[{launch.process_set, launch.seq}];
  operation = {};
  operation.ranks = locals;
  operation.untracked = tensors.untracked;
  observe::TraceOperation& record = operation.record;
  record.kind = launch.tensors->front().descriptor->kind;
  record.process_set = launch.process_set;
  record.number = launch.seq.value;
  record.launched_ns = now_ns();
  record.tensors = tensors.recorded;
  launched_last_ = &operation;
  // The loop goes rank by rank, because what is known of a rank's submissions lies together.
  for (size_t place = 0; place < locals.size(); ++place) {
    const auto local = static_cast<size_t>(locals[place].value);
    TraceReady run{options_.ranks[local].value, 0};
    int64_t first_ns = INT64_MAX;
    int64_t last_ns = TraceReady::kNever;
    const auto end_run = [&] {
      if (run.tensors == 0) return;
      record.ready.push_back(run);
      if (run.at_ns == TraceReady::kNever) return;
      first_ns = std::min(first_ns, run.at_ns);
      last_ns = std::max(last_ns, run.at_ns);
    };
    for (size_t tensor = 0; tensor < tensors.tracks.size(); ++tensor) {
      if (tensors.tracks[tensor] == observe::TraceBuffer::kNoTrack) continue;
      const auto& ticket = launch.tickets[tensor * locals.size() + place];
      const int64_t at_ns = ticket ? submitted_at(locals[place], *ticket) + options_.clock_skew_ns
                                   : TraceReady::kNever;
      if (at_ns != run.at_ns) {
        end_run();
        run.at_ns = at_ns;
        run.tensors = 0;
      }
      ++run.tensors;
    }
    end_run();
    if (last_ns == TraceReady::kNever) continue;
    const auto step = steps_[local].on_submitted(*record.tensors, first_ns, last_ns);
    if (step) add_step(local, *step);
  }
}

std::shared_ptr<OperationTrace> JobTrace::part_of_launch(int64_t bytes) {
  launched_last_->bytes += bytes;
  launched_last_->parts.push_back(std::make_shared<OperationTrace>(options_.wants_chunks));
  return launched_last_->parts.back();
}

void JobTrace::on_cancelled(const core::Cancel& cancelled) {
  const auto end =
      operations_.lower_bound({cancelled.process_set, core::first_of(core::Track::kDecreed)});
  operations_.erase(operations_.lower_bound({cancelled.process_set, cancelled.first}), end);
}

void JobTrace::on_ended(uint32_t process_set, Seq seq) {
  const auto found = operations_.extract({process_set, seq});
  if (!found) return;  // The operation was launched before the timeline began.
  UnderWay& operation = found.mapped();
  observe::TraceOperation& record = operation.record;
  record.begun_ns = record.launched_ns;
  record.ended_ns = now_ns();
  for (const LocalRank rank : operation.ranks) {
    steps_[static_cast<size_t>(rank.value)].on_delivered(record.ended_ns);
  }
  TraceEvent event;
  event.process_set = process_set;
  event.operation = seq.value;
  for (const auto& part : operation.parts) {
    if (part->begun_ns > 0) {
      record.begun_ns = std::max(record.begun_ns, part->begun_ns + options_.clock_skew_ns);
    }
    add_stage(Lane::kLocalReduce, TraceKind::kLocalReduce, part->local_reduce,
              part->local_reduce.busy_ns, event);
    add_stage(Lane::kRing, TraceKind::kRing, part->ring, operation.bytes, event);
    add_chunks(*part, event);
    add_stage(Lane::kCopyOut, TraceKind::kCopyOut, part->copy_out, part->copy_out.busy_ns, event);
  }
  buffer_.count_dropped(operation.untracked * (kSpansOfTensor + operation.ranks.size()));
  if (!record.tensors->empty()) buffer_.add(std::move(record));
}

void JobTrace::on_transferred(const core::TensorDescriptor& transfer, LocalRank rank, Rank peer,
                              int64_t submitted_ns) {
  const bool sends = transfer.kind == CollectiveKind::kSend;
  const auto own = static_cast<uint64_t>(options_.ranks[static_cast<size_t>(rank.value)].value);
  TraceEvent event;
  event.kind = sends ? TraceKind::kSend : TraceKind::kReceive;
  event.process_set = transfer.process_set;
  event.begin_ns = submitted_ns + options_.clock_skew_ns;
  event.duration_ns = std::max<int64_t>(now_ns() - event.begin_ns, 0);
  event.operation = own << 32 | static_cast<uint32_t>(peer.value);
  event.value = transfer.bytes();
  event.track = lane_track(sends ? Lane::kSends : Lane::kReceives, event.begin_ns,
                           event.begin_ns + event.duration_ns);
  buffer_.add(event);
}

void JobTrace::add_stage(Lane lane, TraceKind kind, const OperationTrace::Stage& stage,
                         int64_t value, TraceEvent& event) {
  if (stage.first_ns == 0) return;
  event.kind = kind;
  event.begin_ns = stage.first_ns + options_.clock_skew_ns;
  event.duration_ns = stage.last_ns - stage.first_ns;
  event.value = value;
  event.track = lane_track(lane, event.begin_ns, event.begin_ns + event.duration_ns);
  buffer_.add(event);
}

// Chunks stand on the track of their ring.
void JobTrace::add_chunks(const OperationTrace& part, TraceEvent& event) {
  event.kind = TraceKind::kChunk;
  event.duration_ns = 0;
  for (const OperationTrace::Chunk& chunk : part.chunks) {
    event.begin_ns = chunk.at_ns + options_.clock_skew_ns;
    event.value = chunk.number;
    buffer_.add(event);
  }
  buffer_.count_dropped(part.chunks_dropped);
}

uint32_t JobTrace::lane_track(Lane lane, int64_t begin_ns, int64_t end_ns) {
  static constexpr std::array kNames{"local reduce ", "ring ", "copy out ", "sends ", "receives "};
  auto& tracks = lanes_[static_cast<size_t>(lane)];
  auto free = std::find_if(tracks.begin(), tracks.end(),
                           [&](const auto& track) { return track.second <= begin_ns; });
  if (free == tracks.end()) {
    const std::string name = kNames[static_cast<size_t>(lane)] + std::to_string(tracks.size());
    free = tracks.insert(free, {buffer_.track(name), 0});
  }
  free->second = end_ns;
  return free->first;
}

void JobTrace::add_step(size_t place, const observe::TraceStep& step) {
  TraceEvent event;
  event.track = rank_tracks_[place];
  event.value = static_cast<int64_t>(step.number);
  const auto add = [&](TraceKind kind, int64_t begin_ns, int64_t end_ns) {
    event.kind = kind;
    event.begin_ns = begin_ns;
    event.duration_ns = end_ns - begin_ns;
    buffer_.add(event);
  };
  // A rank may go on with the next step before it has all results of this one.
  const int64_t last_ns = std::min(step.last_submitted_ns, step.end_ns);
  add(TraceKind::kStep, step.begin_ns, step.end_ns);
  add(TraceKind::kForward, step.begin_ns, step.first_submitted_ns);
  add(TraceKind::kBackward, step.first_submitted_ns, last_ns);
  add(TraceKind::kExposed, last_ns, step.end_ns);
}

void JobTrace::finish() {
  for (size_t place = 0; place < steps_.size(); ++place) {
    if (const auto step = steps_[place].finish()) add_step(place, *step);
  }
}

}  // namespace rueda::engine
