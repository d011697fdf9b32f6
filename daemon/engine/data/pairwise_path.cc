#include "daemon/engine/data/pairwise_path.h"

#include <algorithm>
#include <string>
#include <utility>

#include <boost/asio/post.hpp>

namespace rueda::engine {
namespace {

// The mesh has one part in so many of the staging memory.
constexpr uint64_t kMeshShare = 4;

bool has_mesh(const DataJobOptions& options) {
  return options.node_ids.size() > 1 && options.policy == core::DeathPolicy::kFail &&
         !core::exchanges_of(options.algorithm).empty();
}

bool can_be_exchanged(CollectiveKind kind) {
  return kind == CollectiveKind::kAllreduce || kind == CollectiveKind::kBarrier;
}

ElementRange elements_of(const core::BlockRange& blocks, const ElementRange& piece, int of) {
  return {core::nearly_equal_part(piece, blocks.begin, of).begin,
          core::nearly_equal_part(piece, blocks.end - 1, of).end};
}

// Returns how many messages of the list go to, or come from, the same node before this message.
template <class Messages, class Peer>
int ordinal(const Messages& messages, size_t index, Peer peer_of) {
  int before = 0;
  for (size_t i = 0; i < index; ++i) {
    if (peer_of(messages[i]) == peer_of(messages[index])) ++before;
  }
  return before;
}

NodeIndex receiver(const core::PairwiseSend& item) { return item.to; }
NodeIndex sender(const core::PairwiseReceive& item) { return item.from; }

// Returns the index of the message that is the `message`-th to, or from, that node; nothing if the
// list has not so many.
template <class Messages, class Peer>
std::optional<size_t> find_message(const Messages& messages, NodeIndex peer, int message,
                                   Peer peer_of) {
  for (size_t i = 0; i < messages.size(); ++i) {
    if (peer_of(messages[i]) == peer && message-- == 0) return i;
  }
  return std::nullopt;
}

// Returns which piece a message that comes for this receive must be of.
int64_t expected_piece(const PairwiseState& state, size_t window_index, size_t receive) {
  const auto window = static_cast<int64_t>(state.window.size());
  const PairwisePiece& piece = state.window[window_index];
  if (piece.number >= 0) {
    return receive >= piece.receives_done ? piece.number : piece.number + window;
  }
  const int64_t ahead =
      static_cast<int64_t>(window_index) - static_cast<int64_t>(state.index(state.next_piece));
  return state.next_piece + (ahead + window) % window;
}

}  // namespace

uint64_t mesh_budget(const DataJobOptions& options) {
  return has_mesh(options) ? options.staging_bytes / kMeshShare : 0;
}

PairwisePath::PairwisePath(boost::asio::io_context& loop, const WayContext& context,
                           const FrameStamp& stamp, const SlotGeometry& ring)
    : loop_(loop),
      options_(context.options),
      kernels_(context.kernels),
      operations_(context.operations),
      faults_(context.faults),
      watch_(context.watch),
      host_(context.host),
      stamp_(stamp),
      ring_(ring) {}

PairwisePath::~PairwisePath() = default;

Status PairwisePath::start(transport::Transport& transport, observe::Metrics& metrics) {
  if (!has_mesh(options_)) return Status::ok();
  const int nodes = options_.nodes();
  const std::vector<core::Algorithm> algorithms = core::exchanges_of(options_.algorithm);
  size_t most_heard = 0;
  for (int node = 0; node < nodes; ++node) {
    most_heard =
        std::max(most_heard,
                 core::peers_of(algorithms, nodes, NodeIndex{node}, options_.servers).from.size());
  }
  for (const core::Algorithm algorithm : algorithms) {
    programs_.emplace(algorithm,
                      core::make_exchange(algorithm, nodes, options_.self, options_.servers));
  }
  MeshOptions mesh;
  mesh.id = stamp_.channel(options_.self, options_.self);
  mesh.token = options_.token;
  mesh.self = options_.self;
  mesh.data_addresses = options_.data_addresses;
  mesh.peers = core::peers_of(algorithms, nodes, options_.self, options_.servers);
  mesh.geometry = MeshGeometry::make(options_.lanes, static_cast<int>(most_heard),
                                     options_.chunk_bytes, mesh_budget(options_));
  mesh.timeout_ms = options_.timeout_ms;
  mesh.shares_staging = options_.shares_staging;
  states_.resize(static_cast<size_t>(options_.lanes));
  for (PairwiseState& state : states_) {
    state.window.resize(static_cast<size_t>(mesh.geometry.window));
  }
  MeshEvents& events = *this;
  mesh_ = std::make_unique<Mesh>(transport, metrics, std::move(mesh), events);
  return mesh_->start();
}

bool PairwisePath::begin(RunningOperation& running, const core::AlgorithmTable& table) {
  const Operation& operation = *running.operation;
  if (!mesh_ || !can_be_exchanged(operation.kind) || operation.share.of > 1) return false;
  if (running.adasum) return false;
  const core::Algorithm algorithm =
      core::tuned_algorithm_for(table, operation.wire_bytes(), operation.tuning.cutover_log2,
                                options_.algorithm, running.nodes);
  if (algorithm == core::Algorithm::kRing) return false;

  running.is_pairwise = true;
  PairwiseState& state = state_of(operation);
  state.program = &programs_.at(algorithm);
  const int64_t size = operation.wire_bytes(1);
  state.piece_elements = mesh_->geometry().slot_bytes / size;
  state.pieces = std::max<int64_t>(
      1, (operation.elements() + state.piece_elements - 1) / state.piece_elements);
  state.first_place = ring_.turn(operation.seq);
  state.next_piece = 0;
  state.pieces_done = 0;
  for (PairwisePiece& piece : state.window) {
    piece.number = -1;
    piece.messages.assign(state.program->receives.size(), {});
  }
  const Seq seq = operation.seq;
  go_on(running);
  // Some messages have come before the launch. Handling a message may end the operation.
  std::vector<EarlyMessage> mine;
  std::erase_if(early_, [&](const EarlyMessage& message) {
    if (message.header.seq == seq.value) mine.push_back(message);
    return message.header.seq == seq.value;
  });
  for (const EarlyMessage& message : mine) {
    on_mesh_frame(message.from, message.header, message.payload);
  }
  return true;
}

uint32_t PairwisePath::work_of(const Operation& operation, int64_t piece) const {
  const uint32_t lane = ring_.lane(operation.seq);
  return mesh_->geometry().work(lane, states_[lane].place(piece));
}

void PairwisePath::drop(const RunningOperation& running) {
  PairwiseState& state = state_of(*running.operation);
  for (PairwisePiece& piece : state.window) {
    piece.number = -1;
    const size_t being_added = std::exchange(piece.adding_to, 0);
    for (size_t i = 0; i < piece.messages.size(); ++i) {
      if (!std::exchange(piece.messages[i].has_come, false)) continue;
      if (i >= piece.receives_done && i < being_added) continue;  // on_added() releases it
      mesh_->release(state.program->receives[i].from, piece.messages[i].slot);
    }
  }
  state.program = nullptr;
}

void PairwisePath::drop_stale() {
  std::erase_if(early_, [&](const EarlyMessage& message) {
    if (!operations_.is_stale(message.header)) return false;
    mesh_->release(message.from, message.header.slot);
    return true;
  });
}

void PairwisePath::go_on(RunningOperation& running) {
  PairwiseState& state = state_of(*running.operation);
  for (PairwisePiece& piece : state.window) {
    if (piece.number >= 0 && !faults_.is_stopped()) go_on(running, state, piece);
  }
  while (state.next_piece < state.pieces && !faults_.is_stopped()) {
    PairwisePiece& piece = state.window[state.index(state.next_piece)];
    if (piece.number >= 0 || !mesh_->is_at_rest(work_of(*running.operation, state.next_piece))) {
      break;
    }
    begin_piece(running, state, piece);
    if (!faults_.is_stopped()) go_on(running, state, piece);
  }
  if (faults_.is_stopped() || state.pieces_done < state.pieces) return;
  state.program = nullptr;
  host_.complete(running);
}

void PairwisePath::begin_piece(RunningOperation& running, PairwiseState& state,
                               PairwisePiece& piece) {
  const Operation& operation = *running.operation;
  piece.number = state.next_piece++;
  piece.range.begin = piece.number * state.piece_elements;
  piece.range.end = std::min(operation.elements(), piece.range.begin + state.piece_elements);
  piece.sends_begun = 0;
  piece.receives_done = 0;
  piece.adding_to = 0;
  piece.unsent.assign(state.program->sends.size(), false);
  const StageTimer timer(operation.trace.get(), &OperationTrace::local_reduce);
  kernels_.reduce_local(operation, piece.range, nullptr, false,
                        mesh_->work_buffer(work_of(operation, piece.number)));
  faults_.inputs_hold(operation);
}

void PairwisePath::go_on(RunningOperation& running, PairwiseState& state, PairwisePiece& piece) {
  if (piece.adding_to > 0) return;
  const core::PairwiseProgram& program = *state.program;
  while (true) {
    while (piece.sends_begun < program.sends.size() &&
           static_cast<size_t>(program.sends[piece.sends_begun].after) <= piece.receives_done) {
      send(running, state, piece, piece.sends_begun++);
    }
    if (piece.receives_done == program.receives.size()) break;
    size_t end = piece.receives_done;
    do {
      if (!piece.messages[end].has_come) return;
    } while (program.receives[end++].joins_next);
    for (size_t i = 0; i < piece.sends_begun; ++i) {
      if (piece.unsent[i] && program.sends[i].blocks.overlaps(program.receives[end - 1].blocks)) {
        return;
      }
    }
    receive(running, state, piece, end);
    if (piece.adding_to > 0) return;
  }
  {
    const StageTimer timer(running.operation->trace.get(), &OperationTrace::copy_out);
    kernels_.store(*running.operation, piece.range,
                   mesh_->work_buffer(work_of(*running.operation, piece.number)));
  }
  piece.number = -1;
  ++state.pieces_done;
}

void PairwisePath::send(const RunningOperation& running, PairwiseState& state, PairwisePiece& piece,
                        size_t index) {
  const Operation& operation = *running.operation;
  const core::PairwiseSend& item = state.program->sends[index];
  const int64_t size = operation.wire_bytes(1);
  const ElementRange elements = elements_of(item.blocks, piece.range, state.program->blocks);
  const uint32_t work = work_of(operation, piece.number);
  const int message = ordinal(state.program->sends, index, receiver);
  transport::FrameHeader header = stamp_.header(
      item.is_final ? transport::FrameKind::kGather : transport::FrameKind::kReduce, operation);
  header.chunk = static_cast<uint32_t>(piece.number * core::kMaxMessages + message);
  piece.unsent[index] = true;
  if (operation.trace) operation.trace->note_sent();
  mesh_->send(item.to, work, message, operation.urgency, header,
              {mesh_->work_buffer(work) + (elements.begin - piece.range.begin) * size,
               static_cast<size_t>(elements.count() * size)});
}

void PairwisePath::receive(const RunningOperation& running, PairwiseState& state,
                           PairwisePiece& piece, size_t end) {
  const Operation& operation = *running.operation;
  if (operation.trace) operation.trace->note_received(static_cast<uint32_t>(piece.number));
  const core::PairwiseReceive& last = state.program->receives[end - 1];
  const ElementRange elements = elements_of(last.blocks, piece.range, state.program->blocks);
  std::byte* mine = mesh_->work_buffer(work_of(operation, piece.number)) +
                    operation.wire_bytes(elements.begin - piece.range.begin);
  if (last.adds && operation.gpu_reduce && elements.count() > 0) {
    return add_elsewhere(running, state, piece, end, elements, mine);
  }
  if (last.adds) {
    const std::span<const void* const> values = addends(state, piece, end, mine);
    kernels_.combine(operation, values.front(), values.subspan(1), elements.count(),
                     last.becomes_final, mine);
  } else {
    std::copy_n(piece.messages[end - 1].payload.data(), piece.messages[end - 1].payload.size(),
                mine);
  }
  finish_receives(state, piece, end);
}

std::span<const void* const> PairwisePath::addends(const PairwiseState& state,
                                                   const PairwisePiece& piece, size_t end,
                                                   const std::byte* mine) {
  addends_.clear();
  bool has_mine = false;
  for (size_t i = piece.receives_done; i < end; ++i) {
    if (!has_mine && options_.self < state.program->receives[i].from) {
      addends_.push_back(mine);
      has_mine = true;
    }
    addends_.push_back(piece.messages[i].payload.data());
  }
  if (!has_mine) addends_.push_back(mine);
  return addends_;
}

void PairwisePath::add_elsewhere(const RunningOperation& running, const PairwiseState& state,
                                 PairwisePiece& piece, size_t end, ElementRange elements,
                                 const std::byte* mine) {
  const Operation& operation = *running.operation;
  const PairwiseAddition addition{.seq = operation.seq,
                                  .generation = operation.generation,
                                  .program = state.program,
                                  .work = work_of(operation, piece.number),
                                  .begin = piece.receives_done,
                                  .end = end};
  ChunkAddition wanted{.range = elements,
                       .staging = mesh_->file(),
                       .offset = mesh_->offset_of(mine),
                       .is_final = state.program->receives[end - 1].becomes_final};
  for (const void* values : addends(state, piece, end, mine)) {
    wanted.addends.push_back(mesh_->offset_of(static_cast<const std::byte*>(values)));
  }
  piece.adding_to = end;
  mesh_->hold(addition.work);
  auto added =
      lifetime_.guard([this, addition](const Status& status) { on_added(addition, status); });
  operation.gpu_reduce(std::move(wanted),
                       [&loop = loop_, added = std::move(added)](const Status& status) {
                         boost::asio::post(loop, [added, status]() mutable { added(status); });
                       });
}

void PairwisePath::on_added(const PairwiseAddition& addition, const Status& status) {
  if (faults_.is_stopped()) return;
  watch_.note_progress();
  mesh_->let_go(addition.work);
  PairwiseState& state = states_[addition.work / static_cast<uint32_t>(mesh_->geometry().window)];
  RunningOperation* const running = operations_.find(addition.seq);
  if (!running || running->operation->generation != addition.generation) {
    // It has been cancelled. The next operation of the lane may wait for the work buffer.
    const auto& receives = addition.program->receives;
    for (size_t i = addition.begin; i < addition.end; ++i) {
      mesh_->release(receives[i].from,
                     mesh_->geometry().slot(addition.work, ordinal(receives, i, sender)));
    }
    return go_on(state);
  }
  if (!status.is_ok()) return faults_.fail(addition.seq, status);
  PairwisePiece& piece = state.window[addition.work % state.window.size()];
  piece.adding_to = 0;
  finish_receives(state, piece, addition.end);
  go_on(*running);
}

void PairwisePath::finish_receives(const PairwiseState& state, PairwisePiece& piece, size_t end) {
  for (; piece.receives_done < end; ++piece.receives_done) {
    WaitingMessage& message = piece.messages[piece.receives_done];
    message.has_come = false;
    const NodeIndex from = state.program->receives[piece.receives_done].from;
    if (state.pieces == 1) {
      mesh_->release_with_others(from, message.slot);
    } else {
      mesh_->release(from, message.slot);
    }
  }
}

void PairwisePath::on_mesh_frame(NodeIndex from, const transport::FrameHeader& header,
                                 std::span<std::byte> payload) {
  if (faults_.is_stopped()) return;
  HandlerWatch::note(options_.cause);
  watch_.note_progress();
  if (header.payload_bytes <= kSmallBytes) options_.events.on_small();
  Admission admitted = operations_.admit(header, from);
  switch (admitted.verdict) {
    case Admission::Verdict::kRefused: return host_.refuse(header, from, admitted.why);
    case Admission::Verdict::kStale: return mesh_->release(from, header.slot);
    case Admission::Verdict::kEarly: return early_.push_back({from, header, payload});
    case Admission::Verdict::kTaken: break;
  }
  RunningOperation* const running = admitted.running;
  const Status checked = running
                             ? check_message(*running, from, header)
                             : Status(Code::kInternal, "it sent a frame that belongs to the ring");
  if (!checked.is_ok()) return host_.refuse(header, from, checked);
  PairwiseState& state = state_of(*running->operation);
  const size_t receive = *find_message(state.program->receives, from,
                                       static_cast<int>(header.chunk % core::kMaxMessages), sender);
  const int64_t number = header.chunk / core::kMaxMessages;
  PairwisePiece& piece = state.window[state.index(number)];
  piece.messages[receive] = {true, header.slot, payload};
  // A node that has final values has heard of all nodes.
  if (header.kind == transport::FrameKind::kGather) running->launched_everywhere = true;
  go_on(*running);
}

Status PairwisePath::check_message(const RunningOperation& running, NodeIndex from,
                                   const transport::FrameHeader& header) const {
  const auto broken = [&](const std::string& what) { return broken_frame(header, what); };
  if (!running.is_pairwise) return broken("a way that it does not go");
  const Operation& operation = *running.operation;
  const uint32_t lane = ring_.lane(operation.seq);
  const PairwiseState& state = states_[lane];
  const int64_t number = header.chunk / core::kMaxMessages;
  const auto message = static_cast<int>(header.chunk % core::kMaxMessages);
  const std::optional<size_t> receive =
      find_message(state.program->receives, from, message, sender);
  if (!receive || number >= state.pieces) return broken("message " + std::to_string(header.chunk));
  const core::PairwiseReceive& item = state.program->receives[*receive];
  const size_t window_index = state.index(number);
  if (header.slot != mesh_->geometry().slot(work_of(operation, number), message) ||
      number != expected_piece(state, window_index, *receive) ||
      state.window[window_index].messages[*receive].has_come) {
    return broken("message " + std::to_string(header.chunk) + " at a wrong time");
  }
  if (item.adds != (header.kind == transport::FrameKind::kReduce)) {
    return broken("a phase that node has no part in");
  }
  ElementRange range;
  range.begin = number * state.piece_elements;
  range.end = std::min(operation.elements(), range.begin + state.piece_elements);
  const ElementRange elements = elements_of(item.blocks, range, state.program->blocks);
  if (header.payload_bytes != operation.wire_bytes(elements.count())) {
    return broken(std::to_string(header.payload_bytes) + " bytes in message " +
                  std::to_string(header.chunk));
  }
  return Status::ok();
}

void PairwisePath::on_mesh_sent(NodeIndex to, uint32_t work, int message) {
  watch_.note_progress();
  const auto window = static_cast<uint32_t>(mesh_->geometry().window);
  PairwiseState& state = states_[work / window];
  if (!state.program) return;
  // The message may be of a piece that is done, or of an earlier operation: then the buffer has not
  // been used again.
  PairwisePiece& piece = state.window[work % window];
  if (piece.number >= 0) {
    const std::optional<size_t> sent = find_message(state.program->sends, to, message, receiver);
    if (sent) piece.unsent[*sent] = false;
  }
  go_on(state);
}

void PairwisePath::go_on(const PairwiseState& state) {
  for (const auto& running : operations_.running()) {
    if (!running->is_pairwise || &state_of(*running->operation) != &state) continue;
    return go_on(*running);
  }
}

void PairwisePath::on_mesh_slot_free() {
  watch_.note_progress();
  watch_.check_quiet();
}

void PairwisePath::on_mesh_closed(NodeIndex peer, const Status& status) {
  faults_.note_closed_peer();
  faults_.report_loss(peer, status, false);
  watch_.check_quiet();
}

std::optional<NodeIndex> PairwisePath::awaited_peer(const RunningOperation& running) const {
  const PairwiseState& state = states_[ring_.lane(running.operation->seq)];
  for (const PairwisePiece& piece : state.window) {
    if (piece.number < 0 || piece.receives_done == state.program->receives.size()) continue;
    size_t next = piece.receives_done;
    while (piece.messages[next].has_come && state.program->receives[next].joins_next) ++next;
    if (!piece.messages[next].has_come) return state.program->receives[next].from;
  }
  return std::nullopt;
}

}  // namespace rueda::engine
