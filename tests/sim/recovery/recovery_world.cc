#include "tests/sim/recovery/recovery_world.h"

#include <algorithm>

namespace rueda::sim {
namespace {

int place_of(const NodeModel& model, int node) {
  const auto it = std::find(model.members.begin(), model.members.end(), NodeIndex{node});
  return static_cast<int>(it - model.members.begin());
}

int at_place(const NodeModel& model, int place) {
  return model.members[static_cast<size_t>(place) % model.members.size()].value;
}

template <class Map>
auto* find(Map& map, Seq seq) {
  const auto it = map.find(seq.value);
  return it == map.end() ? nullptr : &it->second;
}

}  // namespace

RecoveryWorld::RecoveryWorld(std::shared_ptr<const Plan> plan)
    : plan_(std::move(plan)), checks_(plan_) {
  nodes_.resize(static_cast<size_t>(plan_->voter_count()));
  for (int i = 0; i < plan_->voter_count(); ++i) {
    NodeModel& node = model(i);
    node.core.emplace(*plan_->layout, NodeIndex{i}, plan_->options);
    node.members = checks_.members_of(Epoch{1});
    if (i == plan_->node_count()) continue;  // the witness has no rank
    node.endings.resize(plan_->operations.size());
    int segments = 0;
    for (size_t op = 0; op < plan_->operations.size(); ++op) {
      ++segments;
      const bool last = op + 1 == plan_->operations.size() ||
                        plan_->operations[op + 1].tensor != plan_->operations[op].tensor;
      if (!last) continue;
      node.tensors.emplace_back(static_cast<size_t>(segments), plan_->mixed);
      segments = 0;
    }
    node.tensor_endings.resize(node.tensors.size());
  }
}

void RecoveryWorld::start(TicksMs now) {
  for (int i = 0; i < plan_->voter_count(); ++i) {
    core::RecoveryOutput output;
    core(i).start(now, output);
    carry_out(now, i, std::move(output));
  }
}

bool RecoveryWorld::has_finished(int node) const {
  const NodeModel& model = nodes_[static_cast<size_t>(node)];
  return std::all_of(model.tensor_endings.begin(), model.tensor_endings.end(),
                     [](int times) { return times > 0; });
}

// --- Operations ----------------------------------------------------------------------------------

void RecoveryWorld::submit(TicksMs now, int node) {
  if (!model(node).alive) return;
  ++model(node).ready;
  launch_ready(now, node);
}

bool RecoveryWorld::window_open(const NodeModel& model, Seq seq) const {
  for (const auto& [other, memory] : model.operations) {
    if (memory.freed || !memory.launched || memory.whole()) continue;
    return seq.value < other + plan_->window;  // compares with the oldest under way
  }
  return true;
}

void RecoveryWorld::launch_ready(TicksMs now, int node) {
  while (checks_.violation().empty()) {
    NodeModel& at = model(node);
    if (!at.alive || at.sealed || at.ended) return;
    const auto carried = std::find_if(at.operations.begin(), at.operations.end(),
                                      [](const auto& each) { return !each.second.launched; });
    if (carried != at.operations.end()) {
      const Seq seq{carried->first};
      if (!window_open(at, seq)) return;
      launch(now, node, seq, carried->second.operation);
      continue;
    }
    if (at.next_operation >= at.ready) return;
    const Seq seq{at.next_seq};
    const int64_t bytes = plan_->operations[static_cast<size_t>(at.next_operation)].bytes;
    if (!window_open(at, seq) || !at.core->may_launch(bytes)) return;
    ++at.next_seq;
    launch(now, node, seq, at.next_operation++);
  }
}

void RecoveryWorld::launch(TicksMs now, int node, Seq seq, int operation) {
  NodeModel& at = model(node);
  checks_.on_launch(node, at.epoch, seq, operation, at);
  if (!checks_.violation().empty()) return;
  const PlannedOperation& planned = plan_->operations[static_cast<size_t>(operation)];
  const int count = static_cast<int>(at.members.size());
  Memory& memory = at.operations[seq.value];
  memory.operation = operation;
  memory.launched = true;
  memory.chunks.assign(static_cast<size_t>(planned.pieces * count), ChunkValue{});
  core::RecoveryOutput output;
  at.core->on_launched(now, seq, planned.bytes, memory.chunks.size(), {}, output);
  carry_out(now, node, std::move(output));
  const ChunkValue mine{operation, mask_of(NodeIndex{node})};
  const int place = place_of(at, node);
  for (int piece = 0; piece < planned.pieces; ++piece) {
    const auto chunk = static_cast<size_t>(piece * count + place);
    if (count == 1) {
      store(now, node, seq, chunk, mine);
      continue;
    }
    sent_.push_back(
        {node, at_place(at, place + 1),
         Frame{at.epoch, seq, chunk, core::RingPhase::kReduce, mine, at.core->complete_seq()}});
  }
  take_early(now, node);
}

// Handles what arrived before the node had begun the operation, or the epoch.
void RecoveryWorld::take_early(TicksMs now, int node) {
  std::vector<Parcel> early;
  early.swap(model(node).early);
  for (const Parcel& parcel : early) arrive(now, parcel);
}

void RecoveryWorld::store(TicksMs now, int node, Seq seq, size_t chunk, ChunkValue value) {
  NodeModel& at = model(node);
  Memory* memory = find(at.operations, seq);
  if (!memory || memory->freed) return;
  memory->chunks[chunk] = value;
  if (memory->whole()) checks_.on_whole(node, at.epoch, seq);
  core::RecoveryOutput output;
  at.core->on_chunk(now, seq, chunk, output);
  carry_out(now, node, std::move(output));
}

// --- Arrivals ------------------------------------------------------------------------------------

void RecoveryWorld::arrive(TicksMs now, const Parcel& parcel) {
  NodeModel& at = model(parcel.to);
  if (!at.alive || !checks_.violation().empty()) return;
  std::visit([&](const auto& body) { on(now, parcel, body); }, parcel.body);
  launch_ready(now, parcel.to);
}

void RecoveryWorld::on(TicksMs now, const Parcel& parcel, const Frame& frame) {
  NodeModel& at = model(parcel.to);
  if (frame.epoch < at.epoch || at.ended) return;
  if (at.sealed && frame.epoch == at.epoch && !plan_->frames_after_seal) return;
  Memory* memory = find(at.operations, frame.seq);
  if (frame.epoch > at.epoch || !memory || !memory->launched) {
    at.early.push_back(parcel);
    return;
  }
  const int count = static_cast<int>(at.members.size());
  const int place = place_of(at, parcel.to);
  const int shard = static_cast<int>(frame.chunk) % count;
  Frame forwarded = frame;
  forwarded.stable = std::min(frame.stable, at.core->complete_seq());
  const core::Route route = core::route_of(CollectiveKind::kAllreduce, count, {}, 0, shard);
  const core::RingStep step = core::ring_step(route, frame.phase, NodeIndex{place}, count);
  if (step.adds) {
    checks_.on_added(frame, parcel.to, *memory);
    forwarded.value.mask |= mask_of(NodeIndex{parcel.to});
  } else {
    forwarded.stable = frame.stable;
  }
  forwarded.phase = step.phase();
  if (step.forwards) sent_.push_back({parcel.to, at_place(at, place + 1), forwarded});
  if (!step.is_final) return;
  core::RecoveryOutput output;
  at.core->on_stable(now, forwarded.stable, output);
  carry_out(now, parcel.to, std::move(output));
  store(now, parcel.to, frame.seq, frame.chunk, forwarded.value);
}

void RecoveryWorld::on(TicksMs, const Parcel& parcel, const FetchRequest& request) {
  NodeModel& at = model(parcel.to);
  if (request.epoch < at.epoch || at.ended) return;
  if (request.epoch > at.epoch) {
    at.early.push_back(parcel);
    return;
  }
  const Memory* memory = find(at.operations, request.seq);
  checks_.on_served(parcel.to, memory, request.chunk);
  if (!checks_.violation().empty()) return;
  sent_.push_back(
      {parcel.to, parcel.from,
       FetchReply{request.epoch, request.seq, request.chunk, memory->chunks[request.chunk]}});
}

void RecoveryWorld::on(TicksMs now, const Parcel& parcel, const FetchReply& reply) {
  const NodeModel& at = model(parcel.to);
  if (reply.epoch != at.epoch || at.ended) return;
  if (at.sealed && !plan_->frames_after_seal) return;
  store(now, parcel.to, reply.seq, reply.chunk, reply.value);
}

void RecoveryWorld::on(TicksMs now, const Parcel& parcel, const core::RecoveryMessage& message) {
  core::RecoveryOutput output;
  core(parcel.to).on_message(now, message, output);
  carry_out(now, parcel.to, std::move(output));
}

void RecoveryWorld::suspect(TicksMs now, int node, int other) {
  if (!model(node).alive) return;
  core::RecoveryOutput output;
  core(node).on_suspicion(now, NodeIndex{other}, "lost node " + std::to_string(other), output);
  carry_out(now, node, std::move(output));
}

void RecoveryWorld::tick(TicksMs now, int node) {
  if (!model(node).alive) return;
  core::RecoveryOutput output;
  core(node).on_time(now, output);
  carry_out(now, node, std::move(output));
  launch_ready(now, node);
}

void RecoveryWorld::crash(int node) {
  model(node).alive = false;
  model(node).early.clear();
}

// --- Output of the cores -------------------------------------------------------------------------

void RecoveryWorld::carry_out(TicksMs now, int node, core::RecoveryOutput output) {
  // Votes count from the moment when they leave, and an epoch begins with the last one.
  for (auto& [to, message] : output.sends) {
    checks_.on_sent(node, message, nodes_);
    sent_.push_back({node, to.value, std::move(message)});
  }
  NodeModel& at = model(node);
  if (output.sealed) {
    at.sealed = true;
    core::RecoveryOutput stopped;
    at.core->on_stopped(now, {}, {}, stopped);
    carry_out(now, node, std::move(stopped));
    if (!checks_.violation().empty()) return;
  }
  if (output.next) enter(node, *output.next);
  if (!checks_.violation().empty()) return;
  for (const core::CompletedOperation& completed : output.deliveries) deliver(node, completed);
  for (const Seq seq : output.freed_partials) {
    checks_.on_partial_freed(node, seq, nodes_);
    at.operations.at(seq.value).partial = false;
  }
  for (const Seq seq : output.freed_finals) {
    checks_.on_final_freed(node, seq, nodes_);
    at.operations.at(seq.value).freed = true;
  }
  if (output.ended) end(node, *output.ended);
  if (output.next) {
    launch_ready(now, node);
    take_early(now, node);
  }
}

void RecoveryWorld::enter(int node, const core::NextEpoch& next) {
  NodeModel& at = model(node);
  checks_.on_epoch(node, next, at);
  if (!checks_.violation().empty()) return;
  at.epoch = next.epoch;
  at.members = next.members;
  at.sealed = false;
  if (node == plan_->node_count()) return;
  std::map<uint64_t, Memory> carried;
  for (const core::CarriedOperation& operation : next.operations) {
    Memory memory = at.operations.at(operation.was.value);
    if (operation.verdict == core::Verdict::kRedo) {
      memory.launched = false;
      memory.chunks.clear();
    } else if (memory.whole()) {
      checks_.on_whole(node, next.epoch, operation.seq);
    }
    carried.emplace(operation.seq.value, std::move(memory));
  }
  const size_t track = core::index_of(core::Track::kLockable);
  if (const Memory* returned = find(at.operations, next.returned[track])) {
    at.next_operation = returned->operation;
  }
  at.operations = std::move(carried);
  at.next_seq = next.next_seq[track].value;
  for (const core::Fetch& fetch : next.fetches) {
    sent_.push_back({node, fetch.from.value, FetchRequest{next.epoch, fetch.seq, fetch.chunk}});
  }
}

void RecoveryWorld::deliver(int node, const core::CompletedOperation& completed) {
  NodeModel& at = model(node);
  Memory& memory = at.operations.at(completed.seq.value);
  const auto operation = static_cast<size_t>(memory.operation);
  OperationEnding& ending = at.endings[operation];
  const bool again = ending.kind != OperationEnding::Kind::kOpen;
  ending = {OperationEnding::Kind::kDelivered,
            {completed.epoch, completed.contributors},
            memory.chunks.empty() ? ChunkValue{} : memory.chunks.front()};
  checks_.on_delivery(node, completed, nodes_);
  memory.delivered = true;
  if (again) checks_.violated("I5 once: an operation is delivered twice");
  if (!checks_.violation().empty()) return;
  const int tensor = plan_->operations[operation].tensor;
  size_t segment = 0;
  while (segment < operation && plan_->operations[operation - segment - 1].tensor == tensor) {
    ++segment;
  }
  const auto result = at.tensors[static_cast<size_t>(tensor)].complete(segment, ending.result);
  if (!result) return;
  const bool differ =
      std::any_of(result->segments.begin(), result->segments.end(),
                  [&](const SegmentResult& each) { return each != result->segments.front(); });
  if (result->mixed != differ ||
      result->refused != (differ && plan_->mixed == MixedEpochs::kRefuse)) {
    checks_.violated("R6 segments: a tensor of two epochs is not told to be one");
  }
  end_tensor(node, tensor);
}

void RecoveryWorld::end_tensor(int node, int tensor) {
  int& times = model(node).tensor_endings[static_cast<size_t>(tensor)];
  checks_.on_tensor_ended(node, tensor, ++times);
}

void RecoveryWorld::end(int node, const core::JobEnd& ended) {
  NodeModel& at = model(node);
  checks_.on_ended(node, ended, at);
  at.ended = true;
  for (OperationEnding& ending : at.endings) {
    if (ending.kind == OperationEnding::Kind::kOpen) {
      ending.kind = OperationEnding::Kind::kFailed;
    }
  }
  for (size_t tensor = 0; tensor < at.tensor_endings.size(); ++tensor) {
    if (at.tensor_endings[tensor] == 0) end_tensor(node, static_cast<int>(tensor));
  }
}

void RecoveryWorld::hash(Fnv1a& hash) const {
  for (const NodeModel& node : nodes_) {
    hash.add(uint64_t{node.alive} + 2 * uint64_t{node.sealed} + 4 * uint64_t{node.ended});
    hash.add(static_cast<uint64_t>(node.ready)).add(static_cast<uint64_t>(node.next_operation));
    hash.add(node.next_seq).add(node.early.size());
    for (const Parcel& parcel : node.early) hash_parcel(parcel, hash);
    if (node.alive) node.core->hash(hash);
    for (const auto& [seq, memory] : node.operations) {
      hash.add(seq).add(static_cast<uint64_t>(memory.operation));
      hash.add(uint64_t{memory.launched} + 2 * uint64_t{memory.partial} +
               4 * uint64_t{memory.freed} + 8 * uint64_t{memory.delivered});
      for (const ChunkValue& chunk : memory.chunks) hash.add(chunk.mask);
    }
    for (const OperationEnding& ending : node.endings) {
      hash.add(static_cast<uint64_t>(ending.kind)).add(ending.result.epoch.value);
    }
  }
  checks_.hash(hash);
}

namespace {

void hash_ballot(core::Ballot ballot, Fnv1a& hash) {
  hash.add(ballot.round).add(static_cast<uint64_t>(ballot.node.value));
}

void hash_value(Epoch epoch, Seq seq, size_t chunk, ChunkValue value, Fnv1a& hash) {
  hash.add(epoch.value).add(seq.value).add(chunk);
  hash.add(static_cast<uint64_t>(value.operation)).add(uint64_t{value.mask});
}

void hash_body(const Frame& frame, Fnv1a& hash) {
  hash_value(frame.epoch, frame.seq, frame.chunk, frame.value, hash);
  hash.add(static_cast<uint64_t>(frame.phase)).add(frame.stable.value);
}

void hash_body(const FetchRequest& request, Fnv1a& hash) {
  hash_value(request.epoch, request.seq, request.chunk, {}, hash);
}

void hash_body(const FetchReply& reply, Fnv1a& hash) {
  hash_value(reply.epoch, reply.seq, reply.chunk, reply.value, hash);
}

void hash_body(const core::RecoveryMessage& message, Fnv1a& hash) {
  hash.add(message.epoch.value).add(message.body.index());
  if (const auto* heartbeat = std::get_if<core::Heartbeat>(&message.body)) {
    hash.add(static_cast<uint64_t>(heartbeat->sent)).add(heartbeat->complete[0].value);
    hash.add(static_cast<uint64_t>(heartbeat->echo.value_or(-1)));
  } else if (const auto* acknowledge = std::get_if<core::Acknowledge>(&message.body)) {
    hash.add(acknowledge->complete[0].value);
  } else if (const auto* prepare = std::get_if<core::Prepare>(&message.body)) {
    hash_ballot(prepare->ballot, hash);
  } else if (const auto* promise = std::get_if<core::Promise>(&message.body)) {
    hash_ballot(promise->ballot, hash);
    hash_ballot(promise->accepted_in, hash);
    if (promise->accepted) core::hash_decision(*promise->accepted, hash);
    const core::Report& report = promise->report.tracks[0];
    hash.add(report.freed.value);
    for (const core::Holding& holding : report.operations) {
      for (const bool held : holding.chunks) hash.add(uint64_t{held});
      hash.add(2 + uint64_t{holding.partial} + 2 * uint64_t{holding.delivered});
    }
  } else if (const auto* accept = std::get_if<core::Accept>(&message.body)) {
    hash_ballot(accept->ballot, hash);
    core::hash_decision(*accept->decision, hash);
  } else if (const auto* accepted = std::get_if<core::Accepted>(&message.body)) {
    hash_ballot(accepted->ballot, hash);
  } else if (const auto* refuse = std::get_if<core::Refuse>(&message.body)) {
    hash_ballot(refuse->promised, hash);
  } else if (const auto* learn = std::get_if<core::Learn>(&message.body)) {
    core::hash_decision(*learn->decision, hash);
  }
}

}  // namespace

void hash_parcel(const Parcel& parcel, Fnv1a& hash) {
  hash.add(static_cast<uint64_t>(parcel.from)).add(static_cast<uint64_t>(parcel.to));
  hash.add(parcel.body.index());
  std::visit([&](const auto& body) { hash_body(body, hash); }, parcel.body);
}

}  // namespace rueda::sim
