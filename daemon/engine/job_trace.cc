#include "daemon/engine/job_trace.h"

#include <algorithm>
#include <string>

#include "daemon/core/track.h"

namespace rueda::engine {

using observe::TraceEvent;
using observe::TraceKind;

JobTrace::JobTrace(JobTraceOptions options)
    : options_(std::move(options)),
      buffer_(options_.max_events, options_.max_tracks),
      steps_(options_.ranks.size()) {
  for (const Rank rank : options_.ranks) {
    rank_tracks_.push_back(buffer_.track("rank " + std::to_string(rank.value)));
  }
}

uint32_t JobTrace::track_of(const core::TensorDescriptor& tensor) {
  const std::string set =
      tensor.process_set == 0 ? "" : "set " + std::to_string(tensor.process_set) + ": ";
  return buffer_.track("tensor " + set + tensor.name);
}

void JobTrace::on_submitted(LocalRank rank, const core::TensorDescriptor& tensor) {
  const uint32_t track = track_of(tensor);
  if (track == observe::TraceBuffer::kNoTrack) return;
  const int64_t at_ns = now_ns();
  const auto place = static_cast<size_t>(rank.value);
  if (track >= ready_.size()) ready_.resize(track + size_t{1});
  ready_[track].push_back({at_ns, options_.ranks[place]});
  if (const auto step = steps_[place].on_submitted(track, at_ns)) add_step(place, *step);
}

void JobTrace::on_launch(const core::Launch& launch) {
  UnderWay& operation = operations_[{launch.process_set, launch.seq}];
  operation = {};
  operation.kind = launch.tensors->front().descriptor->kind;
  operation.launched_ns = now_ns();
  for (const core::LaunchTensor& tensor : *launch.tensors) {
    Tensor& item = operation.tensors.emplace_back();
    item.track = track_of(*tensor.descriptor);
    if (item.track < ready_.size()) item.ready = std::exchange(ready_[item.track], {});
  }
  launched_last_ = &operation;
}

std::shared_ptr<OperationTrace> JobTrace::part_of_launch(int64_t bytes) {
  launched_last_->bytes += bytes;
  launched_last_->parts.push_back(std::make_shared<OperationTrace>(options_.wants_chunks));
  return launched_last_->parts.back();
}

void JobTrace::on_cancelled(const core::Cancel& cancelled) {
  const auto begin = operations_.lower_bound({cancelled.process_set, cancelled.first});
  const auto end =
      operations_.lower_bound({cancelled.process_set, core::first_of(core::Track::kDecreed)});
  for (auto it = begin; it != end; ++it) {
    for (Tensor& tensor : it->second.tensors) {
      if (tensor.track >= ready_.size()) continue;
      std::vector<Mark>& ready = ready_[tensor.track];
      ready.insert(ready.begin(), tensor.ready.begin(), tensor.ready.end());
    }
  }
  operations_.erase(begin, end);
}

void JobTrace::on_ended(uint32_t process_set, Seq seq) {
  const auto found = operations_.extract({process_set, seq});
  if (!found) return;  // it was launched before the timeline began
  const UnderWay& operation = found.mapped();
  TraceEvent event;
  event.process_set = process_set;
  event.operation = seq.value;
  const auto add = [&](TraceKind kind, int64_t begin_ns, int64_t end_ns, int64_t value) {
    event.kind = kind;
    event.begin_ns = begin_ns;
    event.duration_ns = std::max<int64_t>(end_ns - begin_ns, 0);
    event.value = value;
    buffer_.add(event);
  };
  const auto kind = static_cast<int64_t>(operation.kind);
  const int64_t launched_ns = operation.launched_ns;
  const int64_t ended_ns = now_ns();
  int64_t begun_ns = launched_ns;
  for (const auto& part : operation.parts) {
    if (part->begun_ns > 0) begun_ns = std::max(begun_ns, part->begun_ns + options_.clock_skew_ns);
  }
  for (const Tensor& tensor : operation.tensors) {
    event.track = tensor.track;
    if (!tensor.ready.empty()) {
      add(TraceKind::kNegotiate, tensor.ready.front().at_ns, launched_ns, kind);
    }
    for (const Mark& mark : tensor.ready) {
      add(TraceKind::kReady, mark.at_ns, mark.at_ns, mark.rank.value);
    }
    add(TraceKind::kOperation, launched_ns, ended_ns, kind);
    add(TraceKind::kQueue, launched_ns, begun_ns, 0);
  }
  event.value = 0;
  for (const auto& part : operation.parts) {
    add_stage(Lane::kLocalReduce, TraceKind::kLocalReduce, part->local_reduce,
              part->local_reduce.busy_ns, event);
    add_stage(Lane::kRing, TraceKind::kRing, part->ring, operation.bytes, event);
    add_chunks(*part, event);
    add_stage(Lane::kCopyOut, TraceKind::kCopyOut, part->copy_out, part->copy_out.busy_ns, event);
  }
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

// On the track of their ring.
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
  static constexpr std::array kNames{"local reduce ", "ring ", "copy out "};
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

void JobTrace::on_delivered(LocalRank rank, const core::TensorDescriptor& tensor,
                            const Status& status) {
  const auto place = static_cast<size_t>(rank.value);
  steps_[place].on_delivered(now_ns());
  if (status.is_ok() && moves_data(tensor.kind)) return;
  // It may never have been launched; then it was not ready for what comes next by this name.
  const uint32_t track = track_of(tensor);
  if (track >= ready_.size()) return;
  std::erase_if(ready_[track],
                [&](const Mark& mark) { return mark.rank == options_.ranks[place]; });
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
