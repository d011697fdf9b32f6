#include "daemon/engine/data/data_job.h"

#include <algorithm>
#include <utility>

#include <boost/asio/post.hpp>

#include "daemon/base/hash.h"
#include "daemon/base/yielding_wait.h"

namespace rueda::engine {

namespace {

constexpr size_t kMostCancelsRemembered = 64;
// A turn is bounded, so that other jobs, and an abort, get theirs.
constexpr int64_t kTurnBytes = 8 << 20;

// Of the bound on staging; the mesh has the rest.
uint64_t ring_budget(const DataJobOptions& options) {
  return options.staging_bytes - mesh_budget(options);
}

SlotGeometry geometry_of(const DataJobOptions& options, uint64_t chunk_bytes) {
  return SlotGeometry::make(static_cast<int>(options.node_ids.size()), options.lanes, chunk_bytes,
                            ring_budget(options), options.policy == core::DeathPolicy::kShrink);
}

bool is_small(const Operation& operation) {
  return operation.bytes() <= static_cast<int64_t>(kSmallBytes);
}

}  // namespace

DataJob::DataJob(boost::asio::io_context& loop, transport::Transport& transport,
                 observe::Metrics& metrics, DataJobOptions options)
    : loop_(loop),
      transport_(transport),
      metrics_(metrics),
      options_(std::move(options)),
      job_hash_(Fnv1a().add(options_.job).value()),
      chunk_bytes_(geometry_of(options_, options_.chunk_bytes).slot_bytes),
      geometry_(geometry_of(options_, std::max(options_.chunk_bytes, options_.widest_chunk_bytes))),
      kernels_(options_.corrupt),
      pass_kernels_(static_cast<size_t>(options_.pass_threads->threads()), kernels_),
      outbox_({.slots = geometry_.slots(),
               .cookies = geometry_.slots() + geometry_.origin_buffers() + core::kTracks,
               .lanes = geometry_.all_lanes() + 1}),  // the last one for acknowledgements
      lent_(transport, geometry_.slots() + geometry_.origin_buffers()),
      progress_timer_(loop) {}

DataJob::~DataJob() {
  *alive_ = false;
  if (nodes() > 1) {
    transport_.cancel_expect(channel(previous(), options_.self));
    transport_.cancel_connect(channel(options_.self, next()));
  }
  for (auto& waiting : std::exchange(quiet_handlers_, {})) waiting();
  count_traffic();
  mesh_.reset();
  send_.reset();
  receive_.reset();
}

// --- Channels
// --------------------------------------------------------------------------------------

transport::ChannelId DataJob::channel(NodeIndex from, NodeIndex to) const {
  return {job_hash_, options_.epoch.value, from.value, to.value, 0, options_.process_set};
}

void DataJob::start() {
  if (nodes() > 1) {
    allocate_staging();
    if (!stopped_ && options_.policy == core::DeathPolicy::kShrink) allocate_holds();
    if (!stopped_) open_channels();
    if (!stopped_) make_mesh();
  }
  hand_back_carried();
}

void DataJob::allocate_staging() {
  Result<std::unique_ptr<Staging>> staging =
      Staging::make(transport_, metrics_, geometry_.total_bytes(), options_.shares_staging);
  if (!staging.is_ok()) return give_up(next(), staging.status());
  staging_ = std::move(staging).value();
}

void DataJob::open_channels() {
  transport::AcceptOptions accept;
  accept.id = channel(previous(), options_.self);
  accept.token = options_.token;
  accept.slots = {staging_->base(), geometry_.slots(), geometry_.slot_bytes, staging_->region()};
  accept.timeout_ms = options_.timeout_ms;
  accept.events = &receive_side_;
  transport_.expect(
      accept, [this, alive = alive_](Result<std::unique_ptr<transport::ReceiveChannel>> channel) {
        if (!*alive) return;
        if (!channel.is_ok()) return give_up(previous(), channel.status());
        receive_ = std::move(channel).value();
        on_open();
      });

  transport::ConnectOptions connect;
  connect.address = options_.data_addresses[static_cast<size_t>(next().value)];
  connect.id = channel(options_.self, next());
  connect.token = options_.token;
  connect.slot_count = geometry_.slots();
  connect.slot_bytes = geometry_.slot_bytes;
  connect.timeout_ms = options_.timeout_ms;
  connect.events = &send_side_;
  transport_.connect(
      connect, [this, alive = alive_](Result<std::unique_ptr<transport::SendChannel>> channel) {
        if (!*alive) return;
        if (!channel.is_ok()) return give_up(next(), channel.status());
        send_ = std::move(channel).value();
        outbox_.set_channel(send_.get());
        on_open();
      });
}

void DataJob::on_open() {
  if (!send_ || !receive_ || (mesh_ && !mesh_->is_open())) return;
  if (table_.empty()) return begin_probing();
  begin_launching();
}

void DataJob::begin_launching() {
  // Before any launch: what this node has freed in the epoch before, others may hold still.
  if (held_.front()) {
    acknowledge(core::Track::kLockable);
    acknowledge(core::Track::kDecreed);
  }
  launch_waiting();
  settle();
}

void DataJob::on_closed(NodeIndex peer, const Status& status, bool is_missed) {
  has_closed_peer_ = true;
  // It breaks, too, if a rank's memory that it sends from, or receives into, can no longer be had.
  lent_.touch();
  for (const auto& running : running_) {
    if (!inputs_hold(*running)) return check_quiet();
  }
  report_loss(peer, status, is_missed);
  check_quiet();
}

void DataJob::give_up(NodeIndex peer, const Status& status) {
  if (std::exchange(stopped_, true)) return;
  progress_timer_.cancel();
  // Nothing is missed where nothing is under way: the node's ranks may have left before it was
  // there.
  const bool is_missed = has_work();
  if (!is_missed) given_up_.emplace(peer, status);
  report_loss(peer, status, is_missed);
  check_quiet();
}

void DataJob::fail(const Status& status) {
  if (std::exchange(stopped_, true)) return;
  progress_timer_.cancel();
  report_loss(options_.self, status, true);
  check_quiet();
}

void DataJob::report_loss(NodeIndex peer, const Status& status, bool is_missed) {
  const std::string& id = options_.node_ids[static_cast<size_t>(peer.value)];
  // Told from a fresh turn: the caller may be in the middle of an operation.
  boost::asio::post(loop_,
                    [this, alive = alive_, peer, is_missed,
                     told = Status(Code::kNodeLost, "node " + id + " is lost: " + status.message(),
                                   Origin{id, {}})] {
                      if (*alive) options_.events.on_channel_lost(peer, told, is_missed);
                    });
}

// --- Operations
// ------------------------------------------------------------------------------------

void DataJob::run(std::unique_ptr<Operation> operation) {
  if (stopped_) {  // the epoch is about to end
    if (given_up_) report_loss(given_up_->first, given_up_->second, true);
    given_up_.reset();
    return;
  }
  if (nodes() == 1) return launch(std::move(operation));
  waiting_.push_back(std::move(operation));
  launch_waiting();
  settle();
  if (is_open() && running_.empty() && !waiting_.empty()) {
    last_progress_ms_ = steady_now_ms();
    watch_progress();
  }
}

void DataJob::launch_waiting() {
  if (!is_open()) return;
  std::array<bool, core::kTracks> is_full{};
  for (size_t i = 0; i < waiting_.size() && !stopped_;) {
    const core::Track track = core::track_of(waiting_[i]->seq);
    bool& full = is_full[core::index_of(track)];
    const HeldFinals* held = held_of(track);
    full = full || (held && !held->has_room(waiting_[i]->seq, waiting_[i]->wire_bytes()));
    if (full) {
      ++i;
      continue;
    }
    std::unique_ptr<Operation> next = std::move(waiting_[i]);
    waiting_.erase(waiting_.begin() + static_cast<ptrdiff_t>(i));
    launch(std::move(next));
    // Its early frames may have made others go, or their room.
    i = 0;
    is_full = {};
  }
}

void DataJob::launch(std::unique_ptr<Operation> operation) {
  if (const auto awaited = awaited_.extract(operation->seq)) {
    return launch_completing(std::move(operation), awaited.mapped());
  }
  const Seq seq = operation->seq;
  last_launched(seq) = seq.value;
  if (held_of(seq) && operation->op == ReduceOp::kAdasum) return refuse_adasum(seq);
  const int64_t chunk_bytes = chunk_bytes_of(*operation);
  std::unique_ptr<Adasum> adasum;
  if (operation->op == ReduceOp::kAdasum) {
    adasum = std::make_unique<Adasum>(*operation, nodes(), options_.self, chunk_bytes);
  }
  const core::RingCut cut = adasum && adasum->schedule()
                                ? adasum->schedule()->cut()
                                : operation->cut(nodes(), chunk_bytes / operation->wire_bytes(1));
  running_.push_back(std::make_unique<Running>(Running{std::move(operation), cut, {}}));
  Running& running = *running_.back();
  running.adasum = std::move(adasum);
  if (is_small(*running.operation)) options_.events.on_small();
  running.started_s = steady_now_s();
  if (running.operation->trace) running.operation->trace->begun_ns = steady_now_ns();
  running.launched_everywhere = !running.operation->locked;
  HeldFinals* held = held_of(seq);
  if (held && (nodes() > 1 || held->holds(seq)) && !held->launch(*running.operation, cut)) {
    return give_up_for_memory(*running.operation);
  }
  if (nodes() == 1) return running.adasum ? weigh(running) : run_locally(running);
  running.stores_late = held && !is_chain(*running.operation) && running.operation->is_in_place();
  if (running_.size() == 1) {
    last_progress_ms_ = steady_now_ms();
    watch_progress();
  }
  // Those of a plan all say the same; what is decreed beside it goes the same way.
  if (core::track_of(seq) == core::Track::kLockable) {
    send_->use_streams(running.operation->tuning.streams);
  }
  if (begin_exchange(running)) return;
  prepare_ring(running);
  if (running.adasum) {
    weigh(running);
  } else {
    originate(running);
    finish_if_done(running);
  }
  // Frames that came before: handling one may end the operation, so it is looked up each time.
  std::vector<transport::FrameHeader> mine;
  std::erase_if(early_, [&](const transport::FrameHeader& header) {
    if (header.seq == seq.value) mine.push_back(header);
    return header.seq == seq.value;
  });
  for (const transport::FrameHeader& header : mine) {
    on_frame(header, slot_payload(header));
  }
}

int64_t DataJob::chunk_bytes_of(const Operation& operation) const {
  const uint32_t tuned = operation.tuning.chunk_bytes / 4096 * 4096;
  return tuned == 0 ? chunk_bytes_ : std::min(tuned, geometry_.slot_bytes);
}

void DataJob::cancel(const core::Cancel& cancelled) {
  const auto is_cancelled = [&](Seq seq) {
    return core::track_of(seq) == core::Track::kLockable && seq >= cancelled.first;
  };
  while (!cancels_.empty() && cancels_.back().first >= cancelled.first) cancels_.pop_back();
  cancels_.push_back(cancelled);
  // A frame that is older than so many unlocks has long been read.
  if (cancels_.size() > kMostCancelsRemembered) cancels_.erase(cancels_.begin());
  std::erase_if(waiting_, [&](const auto& operation) { return is_cancelled(operation->seq); });
  std::erase_if(running_, [&](const auto& running) {
    if (!is_cancelled(running->operation->seq)) return false;
    if (running->is_exchanged) drop_exchange(state_of(*running->operation));
    release_parked(*running);
    return true;
  });
  uint64_t& last = last_launched(cancelled.first);
  last = std::min(last, cancelled.first.value - 1);
  std::erase_if(early_, [&](const transport::FrameHeader& header) {
    if (!is_stale(header)) return false;
    receive_->release(header.slot);
    return true;
  });
  std::erase_if(early_messages_, [&](const EarlyMessage& message) {
    if (!is_stale(message.header)) return false;
    mesh_->release(message.from, message.header.slot);
    return true;
  });
  if (HeldFinals* held = held_of(core::Track::kLockable)) held->cancel(cancelled.first);
  // L7: every node has launched what is left of the generations before.
  for (const auto& running : running_) {
    const Operation& operation = *running->operation;
    if (core::track_of(operation.seq) == core::Track::kLockable &&
        operation.generation < cancelled.generation) {
      running->launched_everywhere = true;
    }
  }
  settle();
}

bool DataJob::is_stale(const transport::FrameHeader& header) const {
  if (core::track_of(Seq{header.seq}) != core::Track::kLockable) return false;
  return std::any_of(cancels_.begin(), cancels_.end(), [&](const core::Cancel& cancelled) {
    return header.seq >= cancelled.first.value && header.lock_generation < cancelled.generation;
  });
}

void DataJob::run_locally(Running& running) {
  constexpr int64_t kStretchBytes = 128 << 10;  // fits the cache
  const auto size = static_cast<int64_t>(element_bytes(running.operation->dtype));
  const int64_t elements = running.operation->elements();
  const int64_t turn_end = std::min(elements, running.elements_done + kTurnBytes / size);
  const int64_t from = std::exchange(running.elements_done, turn_end);
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
  if (!inputs_hold(running)) return;
  if (running.elements_done == elements) {
    running.first_incomplete = running.cut.pieces();
    finish_if_done(running);
    return;
  }
  boost::asio::post(loop_, [this, alive = alive_, seq = running.operation->seq] {
    if (!*alive) return;
    if (Running* found = find(seq)) run_locally(*found);
  });
}

core::Route DataJob::route(const Running& running, int64_t piece, int shard) const {
  if (running.adasum) return running.adasum->schedule()->route(piece, shard);
  const Operation& operation = *running.operation;
  return core::route_of(operation.kind, nodes(), operation.root_node, running.cut.round_of(piece),
                        shard);
}

uint32_t DataJob::slot(const Running& running, uint32_t chunk, core::RingPhase phase) const {
  const Operation& operation = *running.operation;
  const int64_t piece = chunk / running.cut.shards();
  if (is_chain(operation)) return geometry_.chain_slot(operation.seq, piece);
  return geometry_.ring_slot(operation.seq, piece, static_cast<int>(chunk % running.cut.shards()),
                             phase);
}

void DataJob::prepare_ring(Running& running) {
  const core::RingCut& cut = running.cut;
  running.due.resize(static_cast<size_t>(cut.pieces()));
  running.received.resize(static_cast<size_t>(cut.chunks()) * 2);
  uint16_t due = 0;
  for (int64_t piece = 0; piece < cut.pieces(); ++piece) {
    if (piece == 0 || cut.round_of(piece) != cut.round_of(piece - 1)) {
      due = 0;
      for (int shard = 0; shard < cut.shards(); ++shard) {
        const core::Route way = route(running, piece, shard);
        if (way.origin == options_.self) ++due;
        for (const core::RingPhase phase : {core::RingPhase::kReduce, core::RingPhase::kGather}) {
          if (core::steps_taken(way, phase, options_.self, nodes())) ++due;
        }
      }
    }
    running.due[static_cast<size_t>(piece)] = due;
  }
  skip_done(running);
}

void DataJob::originate(Running& running) {
  const Operation& operation = *running.operation;
  const int shard = is_chain(operation) ? 0 : options_.self.value;
  int64_t local_bytes = 0;
  for (; running.next_origin < running.cut.pieces() && !stopped_; ++running.next_origin) {
    const int64_t piece = running.next_origin;
    if (!is_chain(operation) && piece >= running.first_incomplete + geometry_.window) return;
    if (!may_begin(running, piece)) return;
    const core::Route way = route(running, piece, shard);
    if (way.origin != options_.self) continue;
    const core::ElementRange range = running.cut.chunk(piece, shard);
    if (way.hops == 0) {
      if (local_bytes >= kTurnBytes) return originate_later(operation.seq);
      local_bytes += range.count() * static_cast<int64_t>(element_bytes(operation.dtype));
      last_progress_ms_ = steady_now_ms();
      {
        const StageTimer timer(operation.trace.get(), &OperationTrace::local_reduce);
        kernels_.run_on_one_node(operation, range);
      }
      if (!inputs_hold(running)) return;
      note_done(running, piece);
      continue;
    }
    const uint32_t buffer = geometry_.origin_buffer(operation.seq, piece);
    const uint32_t cookie = geometry_.slots() + buffer;
    if (outbox_.in_use(cookie)) return;  // on_sent comes back here
    const auto chunk = static_cast<uint32_t>(piece * running.cut.shards() + shard);
    const transport::SendBuffer values = running.adasum ? begin_adasum_chunk(running, chunk, buffer)
                                                        : take_input(operation, way, range, buffer);
    if (!inputs_hold(running)) return;
    if (way.reduce_hops == 0 && way.is_for_all && !running.adasum) {
      hold_values(running, chunk, values.data);
      if (!running.stores_late) store(running, chunk, values.data);
    }
    push(cookie, running, header_for(running, way.first_phase(), chunk, values.bytes), values);
    note_done(running, piece);
  }
}

transport::SendBuffer DataJob::take_input(const Operation& operation, const core::Route& way,
                                          core::ElementRange range, uint32_t buffer) {
  if (const auto lent = lent_.to_send(operation, range, geometry_.slots() + buffer)) {
    if (operation.check) operation.check->look(lent->data, lent->bytes);
    return *lent;
  }
  const StageTimer timer(operation.trace.get(), &OperationTrace::local_reduce);
  std::byte* const values = origin_buffer(buffer);
  if (way.reduce_hops > 0) {
    kernels_.reduce_local(operation, range, nullptr, false, values);
  } else {
    kernels_.read(operation, range, values);
  }
  return {values, static_cast<size_t>(operation.wire_bytes(range.count())), staging_->region()};
}

void DataJob::originate_later(Seq seq) {
  boost::asio::post(loop_, [this, alive = alive_, seq] {
    if (!*alive || stopped_) return;
    Running* running = find(seq);
    if (!running) return;
    originate(*running);
    finish_if_done(*running);
    settle();
  });
}

void DataJob::push(uint32_t cookie, const Running& running, const transport::FrameHeader& header,
                   transport::SendBuffer buffer) {
  const Operation& operation = *running.operation;
  if (operation.trace) operation.trace->note_sent();
  outbox_.push(cookie, geometry_.lane(operation.seq), operation.urgency, header, buffer);
}

bool DataJob::inputs_hold(const Running& running) {
  if (stopped_ || !running.operation->has_lost_memory()) return !stopped_;
  stopped_ = true;  // nothing that was read may go out any more
  options_.events.on_failed(
      running.operation->seq,
      lost_memory(options_.node_ids[static_cast<size_t>(options_.self.value)]));
  return false;
}

DataJob::Running* DataJob::find(Seq seq) {
  const auto it = std::find_if(running_.begin(), running_.end(),
                               [&](const auto& r) { return r->operation->seq == seq; });
  return it == running_.end() ? nullptr : it->get();
}

void DataJob::hold_values(const Running& running, uint32_t chunk, const std::byte* values) {
  const Seq seq = running.operation->seq;
  if (HeldFinals* held = held_of(seq)) held->keep(seq, chunk, values);
}

void DataJob::store(const Running& running, uint32_t chunk, const std::byte* values) {
  const Operation& operation = *running.operation;
  const StageTimer timer(operation.trace.get(), &OperationTrace::copy_out);
  kernels_.store(operation, running.cut.chunk_at(chunk), values);
}

void DataJob::note_done(Running& running, int64_t piece) {
  --running.due[static_cast<size_t>(piece)];
  skip_done(running);
  const Operation& operation = *running.operation;
  if (!operation.rounds_here || running.first_incomplete == running.cut.pieces()) return;
  const int done = running.cut.round_of(running.first_incomplete);
  if (done == std::exchange(running.rounds_done, done)) return;
  options_.events.on_rounds_done(operation.seq, operation.generation, operation.share.index, done);
}

void DataJob::skip_done(Running& running) {
  while (running.first_incomplete < running.cut.pieces() &&
         running.due[static_cast<size_t>(running.first_incomplete)] == 0) {
    ++running.first_incomplete;
  }
}

void DataJob::finish_if_done(Running& running) {
  if (running.first_incomplete < running.cut.pieces()) return;
  if (running.stores_late) return hand_back(running);
  finish(running);
}

void DataJob::finish(Running& running) {
  const Seq seq = running.operation->seq;
  const double seconds = steady_now_s() - running.started_s;
  if (is_small(*running.operation)) options_.events.on_small();
  const auto is_it = [&](const auto& other) { return other.get() == &running; };
  if (std::erase_if(running_, is_it) == 0) std::erase_if(completing_, is_it);
  count_traffic();
  note_finished(seq);
  options_.events.on_done(seq, seconds);
}

transport::FrameHeader DataJob::header_of(const Operation& operation,
                                          transport::FrameKind kind) const {
  transport::FrameHeader header;
  header.kind = kind;
  header.job = job_hash_;
  header.epoch = options_.epoch.value;
  header.process_set = options_.process_set;
  header.lock_generation = operation.generation;
  header.seq = operation.seq.value;
  header.plan_hash = operation.plan_hash;
  return header;
}

transport::FrameHeader DataJob::header_for(const Running& running, core::RingPhase phase,
                                           uint32_t chunk, size_t bytes) const {
  transport::FrameHeader header = header_of(*running.operation, kind_of(phase));
  header.slot = slot(running, chunk, phase);
  header.chunk = chunk;
  if (const HeldFinals* held = held_of(running.operation->seq)) {
    const bool collects = phase == core::RingPhase::kReduce;
    header.stable_seq = (collects ? held->complete() : held->stable()).value;
  }
  header.payload_bytes = static_cast<uint32_t>(bytes);
  return header;
}

std::byte* DataJob::origin_buffer(uint32_t index) {
  return staging_->base() + size_t{geometry_.slots() + index} * geometry_.slot_bytes;
}

std::span<std::byte> DataJob::slot_payload(const transport::FrameHeader& header) const {
  return {staging_->base() + size_t{header.slot} * geometry_.slot_bytes, header.payload_bytes};
}

}  // namespace rueda::engine
