#include "daemon/engine/job/host_path.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include <boost/asio/post.hpp>

#include "daemon/base/soon.h"
#include "daemon/engine/job/tuning_space.h"
#include "daemon/engine/ports/data_address.h"
#include "daemon/engine/ports/proof.h"

namespace rueda::engine {
namespace {

// A pass over so many bytes of each rank takes less time than handing it to another thread and
// back.
constexpr int64_t kMaxBytesHere = 32 << 10;

// An operation of fewer bytes is not shared out, because a share would have too few chunks to be
// worth the hand-overs.
constexpr int64_t kLeastShared = 1 << 20;

}  // namespace

HostPath::HostPath(const EngineContext& context, const JobSpec& spec, PathHost& host,
                   SubmissionLedger& ledger, observe::JobMetrics& metrics)
    : context_(context),
      spec_(spec),
      host_(host),
      ledger_(ledger),
      metrics_(metrics),
      kernels_(context.options.corrupt_reduction) {}

// --- Epochs and process sets ---------------------------------------------------------------------

void HostPath::begin_epoch(Epoch epoch, std::vector<std::string> data_addresses,
                           const core::Layout& layout) {
  is_open_ = true;
  epoch_ = epoch;
  data_addresses_ = std::move(data_addresses);
  loops_ = common_loops();
  staging_.clear();  // These are of the epoch before.
  transfer_staging_.clear();
  carried_.clear();
  open_data(0, layout);
  open_transfers(layout);
}

bool HostPath::end_epoch(std::function<void()> done) {
  if (!std::exchange(is_open_, false)) return false;
  context_.data_loops.end_epoch(spec_.job, epoch_, std::move(done));
  return true;
}

void HostPath::when_quiet(std::function<void()> then) {
  if (!is_open_) return then();
  context_.data_loops.when_quiet(spec_.job, epoch_, std::move(then));
}

void HostPath::charge_staging(uint32_t process_set, const core::Layout& layout) {
  if (layout.node_count() == 1) return;  // Nothing goes to other nodes.
  staging_.erase(process_set);
  Result<session::Charge> paid =
      session::charge({context_.ledger, spec_.owner}, session::Resource::kStagingBytes,
                      context_.options.staging_bytes);
  if (paid.is_ok()) {
    staging_.emplace(process_set, std::move(paid).value());
    return;
  }
  // The job ends from a fresh turn, because the core is in the middle of one.
  boost::asio::post(context_.control_loop,
                    lifetime_.guard([this, why = paid.status()] { host_.end_by(why); }));
}

void HostPath::charge_transfers(NodeIndex peer) {
  if (transfer_staging_.contains(peer)) return;
  Result<session::Charge> paid =
      session::charge({context_.ledger, spec_.owner}, session::Resource::kStagingBytes,
                      2 * kTransferStagingBytes + kCarriedBudget);
  const Status why = paid.status();
  transfer_staging_.emplace(peer, paid.is_ok() ? std::move(paid).value() : session::Charge());
  if (why.is_ok()) return;
  boost::asio::post(context_.control_loop, lifetime_.guard([this, why] { host_.end_by(why); }));
}

void HostPath::open_data(uint32_t process_set, const core::Layout& layout) {
  charge_staging(process_set, layout);
  const DataParts& parts =
      parts_.insert_or_assign(process_set, DataParts(reducer(), layout, spec_.self)).first->second;
  DataJobOptions options;
  options.job = spec_.job;
  options.key = make_job_key(spec_.token, spec_.job);
  options.epoch = epoch_;
  options.process_set = process_set;
  options.token = make_data_token(spec_.token, spec_.job, epoch_);
  for (const NodeIndex member : parts.ring()) {
    options.node_ids.push_back(layout.node(member).node_id);
  }
  options.lanes = context_.options.lanes;
  options.chunk_bytes = context_.options.chunk_bytes;
  options.widest_chunk_bytes = widest_chunk_bytes(context_.options, spec_);
  options.staging_bytes = context_.options.staging_bytes / (parts.max_on_a_node() * loops_);
  options.timeout_ms = context_.options.timeout_ms;
  options.corrupt = context_.options.corrupt_reduction;
  options.shares_staging = context_.options.adds_on_gpu;
  options.events = host_.data_events(process_set, parts.ring());
  options.servers = spec_.servers;
  options.cause = host_.cause();
  for (size_t loop = 0; loop < loops_; ++loop) {
    // Operations that are shared out go round the ring.
    options.algorithm = loop == 0 ? spec_.algorithm : core::AlgorithmChoice::kRing;
    options.data_addresses.clear();
    for (const NodeIndex member : parts.ring()) {
      const std::string& told = data_addresses_[static_cast<size_t>(member.value)];
      options.data_addresses.push_back(data_address_of(layout.node(member).control_address,
                                                       split_addresses(told)[loop],
                                                       context_.options.dials_control_hosts));
    }
    for (size_t part = 0; part < parts.size(); ++part) {
      options.part = static_cast<uint32_t>(part);
      options.self = parts.place(part);
      context_.data_loops.at(loop).begin_epoch(options);
    }
  }
}

void HostPath::open_transfers(const core::Layout& layout) {
  DataJobOptions options;
  std::vector<NodeIndex> nodes;
  for (int node = 0; node < layout.node_count(); ++node) {
    const auto& spec = layout.node(NodeIndex{node});
    options.most_offers.push_back(limits::kMaxOffersOfRank * spec.ranks.size());
    nodes.push_back(NodeIndex{node});
    options.node_ids.push_back(spec.node_id);
    const std::string& told = data_addresses_[static_cast<size_t>(node)];
    options.data_addresses.push_back(data_address_of(
        spec.control_address, split_addresses(told).front(), context_.options.dials_control_hosts));
  }
  options.job = spec_.job;
  options.key = make_job_key(spec_.token, spec_.job);
  options.epoch = epoch_;
  options.token = make_data_token(spec_.token, spec_.job, epoch_);
  options.self = spec_.self;
  options.timeout_ms = context_.options.timeout_ms;
  options.events = host_.data_events(0, nodes);
  options.cause = host_.cause();
  context_.data_loops.at(0).begin_transfers(std::move(options));
}

// Returns how many data loops every node has. All nodes know the same addresses, so they all find
// the same number.
size_t HostPath::common_loops() const {
  size_t loops = context_.data_loops.size();
  for (const std::string& told : data_addresses_) {
    loops = std::min(loops, split_addresses(told).size());
  }
  return loops;
}

void HostPath::open_set(uint32_t process_set, const core::Layout& layout) {
  if (is_open_ && layout.is_member(spec_.self)) open_data(process_set, layout);
}

void HostPath::close_set(uint32_t process_set) {
  if (is_open_) context_.data_loops.end_set(spec_.job, epoch_, process_set);
  parts_.erase(process_set);
  staging_.erase(process_set);
}

// --- Operations ----------------------------------------------------------------------------------

size_t HostPath::shares_of(ReduceOp op, int64_t wire_bytes, int nodes) const {
  if (nodes == 1 || wire_bytes < kLeastShared) return 1;
  if (op == ReduceOp::kAdasum) return 1;  // Its weights are those of whole tensors.
  return core::always_rings(spec_.algorithm, nodes, wire_bytes) ? loops_ : 1;
}

void HostPath::launch(const core::Launch& launch, JobTrace* trace,
                      const std::shared_ptr<InputCheck>& check) {
  double last_submitted_s = 0;
  const core::Collectives& set = *host_.find_set(launch.process_set);
  const auto find = [&](LocalRank place, Ticket ticket) -> const SubmittedBuffers& {
    const HeldSubmission& item =
        ledger_.held(set.locals()[static_cast<size_t>(place.value)], ticket);
    last_submitted_s = std::max(last_submitted_s, item.submitted_s);
    return item.buffers;
  };
  const DataParts& parts = parts_.at(launch.process_set);
  const OperationKey key{launch.process_set, launch.seq};
  const auto build = [&](size_t part, size_t share) -> std::unique_ptr<Operation> {
    Result<std::unique_ptr<Operation>> built = parts.build(launch, part, find);
    if (!built.is_ok()) {
      end_later({launch.epoch, key, built.status()});
      return nullptr;
    }
    std::unique_ptr<Operation> operation = std::move(built).value();
    operation->check = check;
    // Each share has a record, and the first one has the bytes.
    if (trace) operation->trace = trace->part_of_launch(share == 0 ? operation->bytes() : 0);
    return operation;
  };
  std::unique_ptr<Operation> operation = build(0, 0);
  if (!operation) return;
  metrics_.negotiation_seconds.Observe(steady_now_s() - last_submitted_s);
  const size_t shares =
      shares_of(operation->op, operation->wire_bytes(), static_cast<int>(parts.ring().size()));
  ledger_.begin(key, operation->kind, parts.size() * shares, check);
  if (parts.ring().size() == 1 && operation->bytes() <= kMaxBytesHere &&
      operation->op != ReduceOp::kAdasum) {
    return run_here(*operation);
  }
  const auto order = in_order_.empty() ? in_order_.end() : in_order_.find(order_of(launch));
  const bool waits = order != in_order_.end();
  if (waits) order->second.push_back({launch.seq, true, {}});
  for (size_t part = 0; part < parts.size(); ++part) {
    for (size_t share = 0; share < shares; ++share) {
      if (!operation) operation = build(part, share);
      if (!operation) return;
      operation->share = {static_cast<int>(share), static_cast<int>(shares)};
      Part one{share, static_cast<uint32_t>(part), std::exchange(operation, nullptr)};
      if (waits) {
        order->second.back().parts.push_back(std::move(one));
      } else {
        run_part(std::move(one));
      }
    }
  }
}

void HostPath::run_part(Part part) {
  const Epoch epoch = part.operation->epoch;
  context_.data_loops.at(part.loop).run(spec_.job, epoch, part.number, std::move(part.operation));
}

void HostPath::run_here(const Operation& operation) {
  const double begin_s = steady_now_s();
  if (operation.trace) operation.trace->begun_ns = steady_now_ns();
  {
    const StageTimer timer(operation.trace.get(), &OperationTrace::local_reduce);
    kernels_.run_on_one_node(operation, {0, operation.elements()});
  }
  metrics_.ring_seconds.Observe(steady_now_s() - begin_s);
  Status status;
  if (operation.has_lost_memory()) status = lost_memory(spec_.layout.node(spec_.self).node_id);
  end_later({operation.epoch, {operation.process_set, operation.seq}, status});
}

Transfer HostPath::part_of(const core::TransferLaunch& launch) const {
  Transfer transfer;
  transfer.key = launch.key;
  transfer.bytes = launch.bytes;
  const auto arena_of = [](session::Arena* arena) {
    return arena ? arena->shared_from_this() : std::shared_ptr<session::Arena>();
  };
  const auto wanted = static_cast<size_t>(launch.bytes);
  bool fits = true;
  if (launch.source) {
    const SubmittedBuffers& buffers =
        ledger_.held(launch.source->rank, launch.source->ticket).buffers;
    transfer.input = buffers.input;
    transfer.input_arena = arena_of(buffers.input_arena);
    fits &= buffers.input_bytes >= wanted;
  }
  if (launch.destination) {
    const SubmittedBuffers& buffers =
        ledger_.held(launch.destination->rank, launch.destination->ticket).buffers;
    transfer.output = buffers.output;
    transfer.output_arena = arena_of(buffers.output_arena);
    fits &= buffers.output_bytes >= wanted;
  }
  RUEDA_CHECK(fits);  // The core has compared the sizes.
  return transfer;
}

void HostPath::launch(const core::TransferLaunch& launch) {
  Transfer transfer = part_of(launch);
  std::shared_ptr<const std::vector<std::byte>> data;
  if (const auto kept = carried_.find(launch.key); kept != carried_.end()) {
    data = std::move(kept->second);
    carried_.erase(kept);
    // The data loop has compared its size with the offer's, and the core that with the receive's.
    RUEDA_CHECK(launch.carried && data->size() == static_cast<size_t>(launch.bytes));
    transfer.input = data->data();
  }
  if (transfer.bytes == 0 || launch.carried ||
      (transfer.is_local() && transfer.bytes <= kMaxBytesHere)) {
    return run_here(transfer);
  }
  context_.data_loops.at(0).run(spec_.job, launch.epoch, std::move(transfer));
}

void HostPath::open_transfers(NodeIndex peer) {
  charge_transfers(peer);
  context_.data_loops.at(0).open_transfers(spec_.job, epoch_, peer);
}

void HostPath::send(const core::TransferSend& send) {
  TransferJob::Outgoing message{send.to, send.process_set, send.message, {}};
  if (const auto* offer = std::get_if<core::TransferOffer>(&send.message)) {
    core::TransferLaunch source;
    source.key = {spec_.self, send.to, offer->number};
    source.bytes = offer->elements * static_cast<int64_t>(element_bytes(offer->dtype));
    source.source = send.source;
    message.source = part_of(source);
  } else if (const auto* refusal = std::get_if<core::TransferRefusal>(&send.message)) {
    carried_.erase({send.to, spec_.self, refusal->number});
  }
  context_.data_loops.at(0).send(spec_.job, epoch_, std::move(message));
}

void HostPath::keep(const core::TransferKey& key,
                    std::shared_ptr<const std::vector<std::byte>> data) {
  carried_.insert_or_assign(key, std::move(data));
}

void HostPath::run_here(const Transfer& transfer) {
  // A rank may send to itself, from where it receives.
  if (transfer.bytes > 0) {
    std::memmove(transfer.output, transfer.input, static_cast<size_t>(transfer.bytes));
  }
  Status status;
  if (transfer.has_lost_memory()) status = lost_memory(spec_.layout.node(spec_.self).node_id);
  transferred_here_.push_back({epoch_, transfer.key, status});
  if (transferred_here_.size() > 1) return;  // The first one has seen to it.
  Soon::run(context_.control_loop, lifetime_.guard([this] {
    for (const TransferredHere& item : std::exchange(transferred_here_, {})) {
      if (item.epoch != host_.epoch()) continue;
      if (item.status.is_ok()) {
        host_.end_transfer(item.key);
      } else {
        host_.fail_operation(Seq{}, item.status);
      }
    }
  }));
}

void HostPath::end_later(EndedHere ended) {
  ended_here_.push_back(std::move(ended));
  if (ended_here_.size() > 1) return;  // The first one has seen to it.
  Soon::run(context_.control_loop, lifetime_.guard([this] { tell_ended_here(); }));
}

void HostPath::tell_ended_here() {
  for (const EndedHere& item : std::exchange(ended_here_, {})) {
    if (item.epoch != host_.epoch()) continue;
    if (item.status.is_ok()) {
      host_.end_operation(item.key);
    } else {
      host_.fail_operation(item.key.second, item.status);
    }
  }
}

void HostPath::cancel(const core::Cancel& cancelled, std::function<void()> done) {
  context_.data_loops.cancel(spec_.job, epoch_, cancelled, std::move(done));
}

// --- Operations that are not in host memory yet --------------------------------------------------

void HostPath::expect(const core::Launch& launch) {
  in_order_[order_of(launch)].push_back({launch.seq, false, {}});
}

void HostPath::run_expected(const core::Launch& launch, std::vector<Part> parts) {
  std::deque<InOrder>& order = in_order_.at(order_of(launch));
  const auto own = std::find_if(order.begin(), order.end(),
                                [&](const InOrder& item) { return item.seq == launch.seq; });
  own->is_ready = true;
  own->parts = std::move(parts);
  while (!order.empty() && order.front().is_ready) {
    for (Part& part : order.front().parts) run_part(std::move(part));
    order.pop_front();
  }
  if (order.empty()) in_order_.erase(order_of(launch));
}

void HostPath::forget_expected(const core::Cancel& cancelled) {
  const auto order = in_order_.find({cancelled.process_set, core::Track::kLockable});
  if (order == in_order_.end()) return;
  std::erase_if(order->second, [&](const InOrder& item) { return item.seq >= cancelled.first; });
  if (order->second.empty()) in_order_.erase(order);
}

void HostPath::rounds_came(size_t loop, const core::Launch& launch) {
  context_.data_loops.at(loop).rounds_came(spec_.job, launch.epoch, launch.process_set, launch.seq);
}

}  // namespace rueda::engine
