// JobRunner's side of the data plane: channels, for each process set, and operations.

#include <algorithm>
#include <utility>

#include <boost/asio/post.hpp>

#include "daemon/engine/job/job_runner.h"
#include "daemon/engine/job/tuning_space.h"
#include "daemon/engine/ports/data_address.h"
#include "daemon/engine/ports/proof.h"

namespace rueda::engine {
namespace {

// A pass over so many bytes of each rank takes less time than to hand it to another thread and
// back.
constexpr int64_t kMostBytesHere = 32 << 10;

// Below that a share is too few chunks to be worth the hand-overs.
constexpr int64_t kLeastShared = 1 << 20;

}  // namespace

void JobRunner::charge_staging(uint32_t process_set, const core::Layout& layout) {
  if (layout.node_count() == 1) return;  // nothing goes to other nodes
  staging_.erase(process_set);
  Result<session::Charge> paid =
      session::charge({context_.ledger, spec_.uid}, session::Resource::kStagingBytes,
                      context_.options.staging_bytes);
  if (paid.is_ok()) {
    staging_.emplace(process_set, std::move(paid).value());
    return;
  }
  // From a fresh turn: the core is in the middle of one.
  boost::asio::post(context_.control_loop, [this, alive = alive_, why = paid.status()] {
    if (*alive) end_by(why);
  });
}

void JobRunner::open_data(uint32_t process_set, const core::Layout& layout) {
  charge_staging(process_set, layout);
  const DataParts& parts =
      parts_.insert_or_assign(process_set, DataParts(reducer(), layout, spec_.self)).first->second;
  DataJobOptions options;
  options.job = spec_.job;
  options.epoch = data_epoch_;
  options.process_set = process_set;
  options.token = make_data_token(spec_.token, spec_.job, data_epoch_);
  for (const NodeIndex member : parts.ring()) {
    options.node_ids.push_back(layout.node(member).node_id);
  }
  options.lanes = context_.options.lanes;
  options.chunk_bytes = context_.options.chunk_bytes;
  options.widest_chunk_bytes = widest_chunk_bytes(context_.options, spec_);
  options.staging_bytes = context_.options.staging_bytes / (parts.most_on_a_node() * loops_);
  options.timeout_ms = context_.options.timeout_ms;
  options.corrupt = context_.options.corrupt_reduction;
  options.shares_staging = context_.options.adds_on_gpu;
  options.events = data_events(process_set, parts.ring());
  for (size_t loop = 0; loop < loops_; ++loop) {
    // What is shared out goes round the ring.
    options.algorithm = loop == 0 ? spec_.algorithm : core::AlgorithmChoice::kRing;
    options.data_addresses.clear();
    for (const NodeIndex member : parts.ring()) {
      const std::string& told = data_addresses_[static_cast<size_t>(member.value)];
      options.data_addresses.push_back(
          data_address_of(layout.node(member).control_address, split_addresses(told)[loop]));
    }
    for (size_t part = 0; part < parts.size(); ++part) {
      options.part = static_cast<uint32_t>(part);
      options.self = parts.place(part);
      context_.data_loops.at(loop).begin_epoch(options);
    }
  }
}

// As many as every node has. All nodes know the same addresses, so they all find the same.
size_t JobRunner::common_loops() const {
  size_t loops = context_.data_loops.size();
  for (const std::string& told : data_addresses_) {
    loops = std::min(loops, split_addresses(told).size());
  }
  return loops;
}

size_t JobRunner::shares_of(const Operation& operation, int nodes) const {
  if (nodes == 1 || operation.wire_bytes() < kLeastShared) return 1;
  if (operation.op == ReduceOp::kAdasum) return 1;  // its weights are those of whole tensors
  return core::always_rings(spec_.algorithm, nodes, operation.wire_bytes()) ? loops_ : 1;
}

// The data loop's news arrives here as events of the core, unless the job has gone meanwhile: so on
// the data loop nothing of it may be touched.
DataEvents JobRunner::data_events(uint32_t process_set, const std::vector<NodeIndex>& ring) {
  const auto tell = [this, epoch = data_epoch_](auto handle) {
    return
        [this, alive = alive_, &loop = context_.control_loop, epoch, handle](auto&&... arguments) {
          boost::asio::post(loop, [this, alive, epoch, handle, arguments...] {
            if (*alive && epoch == core_.epoch()) handle(arguments...);
          });
        };
  };
  DataEvents events;
  events.on_done = tell([this, process_set](Seq seq, double seconds) {
    const OperationKey key{process_set, seq};
    const auto found = operations_.find(key);
    if (found != operations_.end() && --found->second.parts > 0) return;
    metrics_->ring_seconds.Observe(seconds);
    if (!is_staged(key)) end_operation(process_set, seq);
  });
  events.on_failed = tell([this](Seq seq, const Status& status) {
    step(core::OperationFailed{seq, status});
  });
  events.on_diverged =
      tell([this, ring, process_set](Seq seq, uint32_t generation, NodeIndex place) {
        const NodeIndex peer = ring[static_cast<size_t>(place.value)];
        step(core::OperationDiverged{seq, generation, peer, process_set});
      });
  events.on_rounds_done =
      tell([this, process_set](Seq seq, uint32_t generation, int share, int rounds) {
        on_rounds_done({process_set, seq}, generation, share, rounds);
      });
  events.on_channel_lost =
      tell([this, ring, process_set](NodeIndex place, const Status& status, bool is_missed) {
        const NodeIndex peer = ring[static_cast<size_t>(place.value)];
        if (peer != spec_.self) {
          step(core::DataChannelLost{peer, status, process_set, is_missed});
        } else if (is_missed) {
          step(core::OperationFailed{Seq{}, status});
        }
      });
  return events;
}

void JobRunner::open_set(const core::ProcessSetAdded& added) {
  const core::Layout layout = core_.layout().subset(added.ranks);
  if (data_epoch_open_ && layout.is_member(spec_.self)) open_data(added.id, layout);
}

void JobRunner::close_set(uint32_t process_set) {
  if (data_epoch_open_) context_.data_loops.end_set(spec_.job, data_epoch_, process_set);
  if (nccl_) nccl_->drop(process_set);
  unmap_staging(process_set);
  parts_.erase(process_set);
  staging_.erase(process_set);
}

const core::Collectives* JobRunner::find_set(uint32_t id) const {
  for (const core::Collectives* set : core_.process_sets()) {
    if (set->id() == id) return set;
  }
  return nullptr;
}

void JobRunner::launch(const core::Launch& launch) {
  if (launch.tensors->front().descriptor->memory != MemorySpace::kHost) {
    return launch_on_device(launch);
  }
  double last_submitted_s = 0;
  const core::Collectives& set = *find_set(launch.process_set);
  const auto find = [&](LocalRank place, Ticket ticket) -> const SubmittedBuffers& {
    const Held& item = held(set.locals()[static_cast<size_t>(place.value)], ticket);
    last_submitted_s = std::max(last_submitted_s, item.submitted_s);
    return item.buffers;
  };
  const DataParts& parts = parts_.at(launch.process_set);
  JobTrace* const trace = timeline_.trace_of_launches();
  if (trace) {
    trace->on_launch(launch, set.locals(), [&](LocalRank rank, Ticket ticket) {
      return static_cast<int64_t>(held(rank, ticket).submitted_s * 1e9);
    });
  }
  const std::shared_ptr<InputCheck> check = spec_.checks_finite ? check_of(launch) : nullptr;
  const auto build = [&](size_t part, size_t share) -> std::unique_ptr<Operation> {
    Result<std::unique_ptr<Operation>> built = parts.build(launch, part, find);
    if (!built.is_ok()) {
      end_later({launch.epoch, launch.process_set, launch.seq, built.status()});
      return nullptr;
    }
    std::unique_ptr<Operation> operation = std::move(built).value();
    operation->check = check;
    // Of its shares each has a record, and the first one the bytes.
    if (trace) operation->trace = trace->part_of_launch(share == 0 ? operation->bytes() : 0);
    return operation;
  };
  std::unique_ptr<Operation> operation = build(0, 0);
  if (!operation) return;
  metrics_->negotiation_seconds.Observe(steady_now_s() - last_submitted_s);
  const size_t shares = shares_of(*operation, static_cast<int>(parts.ring().size()));
  operations_.emplace(OperationKey{launch.process_set, launch.seq},
                      UnderWay{operation->kind, parts.size() * shares, check});
  if (parts.ring().size() == 1 && operation->bytes() <= kMostBytesHere &&
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

void JobRunner::run_part(Part part) {
  const Epoch epoch = part.operation->epoch;
  context_.data_loops.at(part.loop).run(spec_.job, epoch, part.number, std::move(part.operation));
}

void JobRunner::run_here(const Operation& operation) {
  const double begin_s = steady_now_s();
  if (operation.trace) operation.trace->begun_ns = steady_now_ns();
  {
    const StageTimer timer(operation.trace.get(), &OperationTrace::local_reduce);
    kernels_.run_on_one_node(operation, {0, operation.elements()});
  }
  metrics_->ring_seconds.Observe(steady_now_s() - begin_s);
  Status status;
  if (operation.has_lost_memory()) status = lost_memory(spec_.layout.node(spec_.self).node_id);
  end_later({operation.epoch, operation.process_set, operation.seq, status});
}

void JobRunner::end_later(EndedHere ended) {
  ended_here_.push_back(std::move(ended));
  if (ended_here_.size() > 1) return;  // the first one has seen to it
  boost::asio::post(context_.control_loop, [this, alive = alive_] {
    if (*alive) tell_ended_here();
  });
}

void JobRunner::tell_ended_here() {
  for (const EndedHere& item : std::exchange(ended_here_, {})) {
    if (item.epoch != core_.epoch()) continue;
    if (item.status.is_ok()) {
      end_operation(item.process_set, item.seq);
    } else {
      step(core::OperationFailed{item.seq, item.status});
    }
  }
}

void JobRunner::end_operation(uint32_t process_set, Seq seq) {
  if (JobTrace* trace = timeline_.trace()) {
    trace->on_ended(process_set, seq);
    // What comes in this turn from now on may be the next submission of a tensor that has ended.
    turn_began_s_ = steady_now_s();
  }
  const auto found = operations_.find({process_set, seq});
  if (found != operations_.end() && found->second.check) finite_.on_ended(*found->second.check);
  step(core::OperationDone{seq, process_set});
  operations_.erase({process_set, seq});  // nobody is told where all ranks have joined
}

void JobRunner::cancel(const core::Cancel& cancelled) {
  if (JobTrace* trace = timeline_.trace()) trace->on_cancelled(cancelled);
  const uint32_t set = cancelled.process_set;
  const auto end = operations_.lower_bound({set, core::first_of(core::Track::kDecreed)});
  operations_.erase(operations_.lower_bound({set, cancelled.first}), end);
  std::vector<std::shared_ptr<StagedBatch>> staged = cancel_staged(cancelled);
  std::function<void()> done;
  if (!staged.empty()) {
    done = [this, alive = alive_, &loop = context_.control_loop, staged = std::move(staged)] {
      boost::asio::post(loop, [this, alive, staged] {
        if (!*alive) return;
        for (const auto& batch : staged) let_go(*batch);
      });
    };
  }
  context_.data_loops.cancel(spec_.job, data_epoch_, cancelled, std::move(done));
}

}  // namespace rueda::engine
