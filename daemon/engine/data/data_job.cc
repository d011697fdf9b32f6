#include "daemon/engine/data/data_job.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

namespace rueda::engine {

namespace {

// Returns how many of staging_bytes the ring may have; the mesh has the others.
uint64_t ring_budget(const DataJobOptions& options) {
  return options.staging_bytes - mesh_budget(options);
}

SlotGeometry geometry_of(const DataJobOptions& options, uint64_t chunk_bytes) {
  return SlotGeometry::make(options.nodes(), options.lanes, chunk_bytes, ring_budget(options),
                            options.policy == core::DeathPolicy::kShrink);
}

RingLinkOptions link_options(const DataJobOptions& options) {
  RingLinkOptions link;
  link.stamp = {options.key, options.epoch.value, options.process_set};
  link.token = options.token;
  link.self = options.self;
  link.next = options.next();
  link.previous = options.previous();
  if (options.nodes() > 1) {
    link.next_address = options.data_addresses[static_cast<size_t>(link.next.value)];
  }
  link.geometry = geometry_of(options, std::max(options.chunk_bytes, options.widest_chunk_bytes));
  link.timeout_ms = options.timeout_ms;
  link.shares_staging = options.shares_staging;
  return link;
}

}  // namespace

DataJob::DataJob(boost::asio::io_context& loop, transport::Transport& transport,
                 observe::Metrics& metrics, DataJobOptions options)
    : transport_(transport),
      metrics_(metrics),
      options_(std::move(options)),
      chunk_bytes_(geometry_of(options_, options_.chunk_bytes).slot_bytes),
      kernels_(options_.corrupt),
      pass_kernels_(static_cast<size_t>(options_.pass_threads->threads()), kernels_),
      link_(transport, metrics, link_options(options_)),
      operations_(options_),
      faults_(loop, options_),
      awaited_(options_, link_, mesh_, probe_, operations_, faults_, *this),
      watch_(loop, options_, awaited_),
      retained_(options_, metrics, chunk_bytes_),
      probe_(options_, mesh_budget(options_) > 0, link_),
      ring_(loop, transport, {options_, kernels_, operations_, faults_, watch_, *this, *turns_},
            link_, retained_, probe_, metrics.daemon()),
      mesh_(loop, {options_, kernels_, operations_, faults_, watch_, *this, *turns_}, link_.stamp(),
            link_.geometry()),
      traffic_(metrics, transport.name(), options_.node_ids) {}

DataJob::~DataJob() {
  lifetime_.end();
  if (options_.nodes() > 1) link_.stop_opening();
  watch_.tell_quiet();
  count_traffic();
  mesh_.close();
  link_.close();
}

// --- Channels ------------------------------------------------------------------------------------

void DataJob::start() {
  const auto give_up_unless = [this](const Status& status) {
    if (!status.is_ok()) give_up(options_.next(), status);
    return !faults_.is_stopped();
  };
  if (options_.nodes() > 1 && give_up_unless(link_.allocate()) &&
      (options_.policy != core::DeathPolicy::kShrink || give_up_unless(retained_.allocate()))) {
    ring_.open();
    give_up_unless(mesh_.start(transport_, metrics_));
  }
  for (RunningOperation* running : retained_.whole()) hand_back(*running);
  if (options_.nodes() == 1) retained_.note_complete_is_stable();
}

void DataJob::on_open() {
  if (!link_.is_open() || !mesh_.is_open()) return;
  if (probe_.is_known()) return go_on_starting(Status::ok());
  watch_.expect_progress();
  go_on_starting(probe_.begin());
}

void DataJob::on_notice(const transport::FrameHeader& header, std::span<std::byte> payload) {
  go_on_starting(header.kind == transport::FrameKind::kProbe ? probe_.on_probe(header, payload)
                                                             : probe_.on_table(header, payload));
}

void DataJob::on_probe_sent() {
  probe_.on_sent();
  go_on_starting(Status::ok());
}

void DataJob::go_on_starting(const Status& probed) {
  if (!probed.is_ok()) return give_up(options_.previous(), probed);
  if (!probe_.is_known()) return;
  // This comes before any launch: others may still hold what this node has freed in the epoch
  // before.
  if (retained_.is_on()) {
    ring_.acknowledge(core::Track::kLockable);
    ring_.acknowledge(core::Track::kDecreed);
  }
  launch_waiting();
  ring_.settle();
}

void DataJob::give_up(NodeIndex peer, const Status& status) {
  if (!faults_.stop()) return;
  watch_.stop();
  // Nothing is missed where nothing is under way: the node's ranks may have left before it was
  // there.
  const bool is_missed = has_work();
  if (!is_missed) faults_.keep_loss(peer, status);
  faults_.report_loss(peer, status, is_missed);
  watch_.check_quiet();
}

void DataJob::fail(const Status& status) {
  if (!faults_.stop()) return;
  watch_.stop();
  faults_.report_loss(options_.self, status, true);
  watch_.check_quiet();
}

void DataJob::refuse(const transport::FrameHeader& header, NodeIndex from, const Status& status) {
  if (status.code() == Code::kMismatch) {
    options_.events.on_failed(Seq{header.seq}, status);
  } else {
    give_up(from, status);
  }
}

void DataJob::count_traffic() {
  if (!link_.is_open()) return;
  const RingLink::Traffic ring = link_.take_traffic();
  traffic_.count(options_.next(), ring.sent, 0);
  traffic_.count(options_.previous(), 0, ring.received);
  if (Mesh* mesh = mesh_.mesh()) {
    mesh->take_traffic([this](NodeIndex peer, uint64_t sent, uint64_t received) {
      traffic_.count(peer, sent, received);
    });
  }
}

// --- Operations ----------------------------------------------------------------------------------

void DataJob::run(std::unique_ptr<Operation> operation) {
  if (faults_.is_stopped()) return faults_.report_kept();
  if (options_.nodes() == 1) return launch(std::move(operation));
  operations_.wait(std::move(operation));
  launch_waiting();
  ring_.settle();
  if (awaited_.is_open() && operations_.running().empty() && !operations_.waiting().empty()) {
    watch_.expect_progress();
  }
}

void DataJob::launch_waiting() {
  if (!awaited_.is_open()) return;
  while (!faults_.is_stopped()) {
    // A launch handles frames that came early, which may have launched others, or made room for
    // them. So all are looked at again.
    std::array<bool, core::kTracks> is_full{};
    std::unique_ptr<Operation> next = operations_.take_waiting([&](const Operation& waiting) {
      bool& full = is_full[core::index_of(core::track_of(waiting.seq))];
      const RetainedFinals* held = retained_.of(waiting.seq);
      full = full || (held && !held->has_room(waiting.seq, waiting.wire_bytes()));
      return !full;
    });
    if (!next) return;
    launch(std::move(next));
  }
}

void DataJob::launch(std::unique_ptr<Operation> operation) {
  const Seq seq = operation->seq;
  if (const std::optional<uint32_t> awaited = retained_.take_awaited(seq)) {
    const Status launched = retained_.launch_awaited(std::move(operation), *awaited);
    if (!launched.is_ok()) give_up(options_.next(), launched);
    return;
  }
  operations_.note_launched(seq);
  if (retained_.of(seq) && operation->op == ReduceOp::kAdasum) {
    // What is kept until all have it are final values, and the rounds before the sum have none.
    return options_.events.on_failed(
        seq, Status(Code::kInvalidArgument,
                    "Adasum does not go with policy shrink; use the sum or the average"));
  }
  const int64_t chunk_bytes = chunk_bytes_of(*operation);
  RunningOperation& running = operations_.add(
      RunningOperation::make(std::move(operation), options_.nodes(), options_.self, chunk_bytes));
  if (running.is_small()) options_.events.on_small();
  running.started_s = steady_now_s();
  if (running.operation->trace) running.operation->trace->begun_ns = steady_now_ns();
  running.launched_everywhere = !running.operation->locked;
  if (Status kept = retained_.launch(running); !kept.is_ok()) {
    return give_up(options_.next(), kept);
  }
  if (options_.nodes() > 1) return launch_between_nodes(running);
  begin_locally(running);
}

void DataJob::begin_locally(RunningOperation& running) {
  if (!turns_->may_work()) {
    return in_turn(running.operation->seq,
                   [this](RunningOperation& begun) { begin_locally(begun); });
  }
  if (running.adasum) return weigh(running);
  run_locally(running);
}

template <class Work>
void DataJob::in_turn(Seq seq, Work work) {
  turns_->wait(lifetime_.guard([this, seq, work] {
    HandlerWatch::note(options_.cause);
    if (RunningOperation* const found = operations_.find(seq)) work(*found);
  }));
}

int64_t DataJob::chunk_bytes_of(const Operation& operation) const {
  const uint32_t tuned = operation.tuning.chunk_bytes / 4096 * 4096;
  return tuned == 0 ? chunk_bytes_ : std::min(tuned, link_.geometry().slot_bytes);
}

void DataJob::launch_between_nodes(RunningOperation& running) {
  const Seq seq = running.operation->seq;
  running.stores_late =
      retained_.of(seq) && !running.is_chain() && running.operation->is_in_place();
  if (operations_.running().size() == 1) watch_.expect_progress();
  // Operations of a plan all say the same; what is decreed beside the plan goes the same way.
  if (core::track_of(seq) == core::Track::kLockable) {
    link_.use_streams(running.operation->tuning.streams);
  }
  if (mesh_.begin(running, probe_.table())) return;
  running.prepare_ring(options_.self);
  if (running.adasum) {
    weigh(running);
  } else {
    ring_.go_on(running);
  }
  ring_.take_early(seq);
}

void DataJob::rounds_came(Seq seq) {
  RunningOperation* const running = operations_.find(seq);
  if (faults_.is_stopped() || !running) return;
  watch_.note_progress();
  ring_.go_on(*running);
  ring_.settle();
}

void DataJob::cancel(const core::Cancel& cancelled) {
  operations_.cancel(cancelled, [&](const RunningOperation& running) {
    if (running.is_pairwise) mesh_.drop(running);
    ring_.drop(running);
  });
  ring_.drop_stale();
  mesh_.drop_stale();
  if (RetainedFinals* held = retained_.of(core::Track::kLockable)) held->cancel(cancelled.first);
  ring_.settle();
}

void DataJob::run_locally(RunningOperation& running) {
  constexpr int64_t kStretchBytes = 128 << 10;  // fits the cache
  const auto size = static_cast<int64_t>(element_bytes(running.operation->dtype));
  const int64_t elements = running.operation->elements();
  const int64_t turn_end = std::min(elements, running.elements_done + kTurnBytes / size);
  const int64_t from = std::exchange(running.elements_done, turn_end);
  turns_->charge((turn_end - from) * size);
  const int64_t stretch = kStretchBytes / size;
  const int64_t stretches = (turn_end - from + stretch - 1) / stretch;
  const auto pass = [&](int thread, int64_t i) {
    const int64_t begin = from + i * stretch;
    pass_kernels_[static_cast<size_t>(thread)].run_on_one_node(
        *running.operation, {begin, std::min(turn_end, begin + stretch)});
  };
  {
    const StageTimer timer(running.operation->trace.get(), &OperationTrace::local_reduce);
    options_.pass_threads->run(stretches, std::ref(pass));  // a copy would be allocated
  }
  if (!faults_.inputs_hold(*running.operation)) return;
  if (running.elements_done == elements) return complete(running);
  in_turn(running.operation->seq, [this](RunningOperation& found) { run_locally(found); });
}

void DataJob::weigh(RunningOperation& running) {
  turns_->charge(kTurnBytes);
  bool is_done = false;
  {
    const StageTimer timer(running.operation->trace.get(), &OperationTrace::local_reduce);
    is_done = running.adasum->weigh(*options_.pass_threads, pass_kernels_);
  }
  watch_.note_progress();
  if (!faults_.inputs_hold(*running.operation)) return;
  if (is_done && options_.nodes() == 1) return run_locally(running);
  if (is_done) return ring_.go_on(running);
  in_turn(running.operation->seq, [this](RunningOperation& found) {
    // Another operation may have come under its number.
    if (faults_.is_stopped() || !found.adasum || !found.adasum->is_weighing()) return;
    weigh(found);
    ring_.settle();
  });
}

void DataJob::complete(RunningOperation& running) {
  if (!running.stores_late) return finish(running);
  if (running.elements_done > 0) return;  // the turns of handing back have begun
  hand_back(running);
}

void DataJob::hand_back(RunningOperation& running) {
  const Operation& operation = *running.operation;
  const auto size = static_cast<int64_t>(element_bytes(operation.dtype));
  const std::byte* values = retained_.of(operation.seq)->values(operation.seq);
  const int64_t begin = running.elements_done;
  const int64_t end = std::min(operation.elements(), begin + kTurnBytes / size);
  {
    const StageTimer timer(operation.trace.get(), &OperationTrace::copy_out);
    kernels_.store(operation, {begin, end}, values + operation.wire_bytes(begin));
  }
  running.elements_done = end;
  turns_->charge((end - begin) * size);
  if (end == operation.elements()) return finish(running);
  turns_->wait(lifetime_.guard([this, &running] {
    HandlerWatch::note(options_.cause);
    if (faults_.is_stopped()) return;
    hand_back(running);
    ring_.settle();
  }));
}

void DataJob::finish(RunningOperation& running) {
  const Seq seq = running.operation->seq;
  const double seconds = steady_now_s() - running.started_s;
  if (running.is_small()) options_.events.on_small();
  if (!operations_.erase(running)) retained_.erase(running);
  count_traffic();
  retained_.note_delivered(seq);
  options_.events.on_done(seq, seconds);
}

// --- Recovery ------------------------------------------------------------------------------------

void DataJob::seal() {
  faults_.stop();
  watch_.stop();
  count_traffic();
  link_.close();
  watch_.check_quiet();
}

void DataJob::carry_over(DataJob& before, core::Track track, const core::TrackDecision& decision) {
  RUEDA_CHECK(before.faults_.is_stopped());
  retained_.carry_over(before.retained_, before.operations_, track, decision);
}

Status DataJob::take_final(Seq seq, uint32_t chunk, std::span<const std::byte> values) {
  const Result<RunningOperation*> whole = retained_.take_final(seq, chunk, values);
  if (!whole.is_ok()) return whole.status();
  if (whole.value() == nullptr) return Status::ok();
  hand_back(*whole.value());
  ring_.settle();
  return Status::ok();
}

void DataJob::note_stable(Seq seq) {
  retained_.note_stable(seq);
  ring_.settle();
}

int64_t DataJob::unstable_bytes(core::Track track) const {
  const RetainedFinals* held = retained_.of(track);
  return held ? held->bytes() : 0;
}

}  // namespace rueda::engine
