// JobRunner's side of tensors in device memory that go between nodes. The GPU worker brings what
// this node's ranks make of a batch to host memory, the data plane takes it from there as it does
// that of one rank, and the worker brings back what has come of it
// (docs/decisions/0052-tensors-in-device-memory.md).

#include <algorithm>
#include <utility>

#include <boost/asio/post.hpp>

#include "daemon/engine/device/device_operation.h"
#include "daemon/engine/device/staged_rounds.h"
#include "daemon/engine/job/job_runner.h"

namespace rueda::engine {

namespace {

int64_t elements_of(const core::Launch& launch) {
  int64_t elements = 0;
  for (const core::LaunchTensor& tensor : *launch.tensors) elements += tensor.elements;
  return elements;
}

}  // namespace

bool JobRunner::always_rings(const core::Launch& launch) const {
  const core::TensorDescriptor& first = *launch.tensors->front().descriptor;
  if (first.kind == CollectiveKind::kBroadcast) return true;
  const size_t size = element_bytes(dtype_on_wire(first.dtype, first.wire_dtype));
  return core::always_rings(spec_.algorithm,
                            static_cast<int>(parts_.at(launch.process_set).ring().size()),
                            elements_of(launch) * static_cast<int64_t>(size));
}

std::vector<ElementRange> JobRunner::rounds_of(const core::Launch& launch) const {
  const int64_t elements = elements_of(launch);
  if (!always_rings(launch)) return {{0, elements}};
  return cut_into_rounds(elements, element_bytes(launch.tensors->front().descriptor->dtype),
                         static_cast<int>(parts_.at(launch.process_set).ring().size()));
}

void JobRunner::launch_staged(const core::Launch& launch) {
  auto staged = std::make_shared<StagedBatch>();
  staged->launch = launch;
  staged->rounds = rounds_of(launch);
  staged->adds_on_gpu = adds_on_gpu(launch);
  staged_.emplace(OperationKey{launch.process_set, launch.seq}, staged);
  in_order_[order_of(launch)].push_back({launch.seq, false, {}});
  const bool is_anybodys = std::any_of(launch.tickets.begin(), launch.tickets.end(),
                                       [](const auto& ticket) { return ticket.has_value(); });
  if (!is_anybodys) return send_staged(staged);  // all ranks of this node have joined
  device_->stage(staged_bytes(launch), DeviceJob::Through::kScratchAndHost,
                 [this, staged](const Result<StagedRow>& row) { gather(staged, row); });
}

void JobRunner::gather(const std::shared_ptr<StagedBatch>& staged, const Result<StagedRow>& row) {
  if (!row.is_ok()) {
    boost::asio::post(context_.control_loop, [this, alive = alive_, staged, status = row.status()] {
      if (*alive && !staged->is_over) end_staged(*staged, status);
    });
    return;
  }
  if (staged->is_over) return device_->unstage(row.value());
  staged->row = row.value();
  const core::Launch& launch = staged->launch;
  staged->operations = build_staged_rounds(launch, device_launch_of(launch), places_of(launch),
                                           *staged->row, staged->rounds, sent_of(*staged));
  context_.metrics.daemon().gpu_staged_bytes.Increment(static_cast<double>(staged_bytes(launch)));
  for (StagedRound& round : staged->operations) {
    run_round(staged, std::move(round.out), &JobRunner::on_round_out);
  }
}

void JobRunner::run_round(const std::shared_ptr<StagedBatch>& staged,
                          std::vector<gpu::WorkerOperation> operations,
                          void (JobRunner::*then)(const std::shared_ptr<StagedBatch>&)) {
  ++staged->users;
  auto ended = [this, staged, then](const Status& status) {
    let_go(*staged);
    if (staged->is_over) return;
    if (!status.is_ok()) return end_staged(*staged, status);
    (this->*then)(staged);
  };
  if (!operations.empty()) return device_->run(std::move(operations), std::move(ended));
  // Ranks that have joined have nothing in this one.
  boost::asio::post(context_.control_loop, [alive = alive_, ended] {
    if (*alive) ended(Status::ok());
  });
}

void JobRunner::let_go(StagedBatch& staged) {
  if (--staged.users == 0 && staged.row) device_->unstage(*staged.row);
}

void JobRunner::on_round_out(const std::shared_ptr<StagedBatch>& staged) {
  if (staged->rounds_here->fetch_add(1, std::memory_order_release) == 0) return send_staged(staged);
  const core::Launch& launch = staged->launch;
  for (size_t share = 0; share < staged->rounds_done.size(); ++share) {
    context_.data_loops.at(share).rounds_came(spec_.job, launch.epoch, launch.process_set,
                                              launch.seq);
  }
}

Result<std::unique_ptr<Operation>> JobRunner::build_staged(
    const std::shared_ptr<StagedBatch>& batch) {
  const StagedBatch& staged = *batch;
  core::Launch own = staged.launch;
  own.tickets.clear();
  const core::Collectives& set = *find_set(own.process_set);
  const core::TensorDescriptor& first = *own.tensors->front().descriptor;
  const bool is_broadcast = first.kind == CollectiveKind::kBroadcast;
  const bool has_root = device_launch_of(staged.launch).root.has_value();
  std::vector<SubmittedBuffers> rows;
  std::byte* at = staged.row ? staged.row->memory : nullptr;
  for (size_t i = 0; i < own.tensors->size(); ++i) {
    const auto tickets = staged.launch.tickets_of(i);
    const auto some = std::find_if(tickets.begin(), tickets.end(),
                                   [](const auto& ticket) { return ticket.has_value(); });
    own.tickets.push_back(some == tickets.end() ? std::nullopt : *some);
    if (some == tickets.end()) continue;
    SubmittedBuffers& row = rows.emplace_back();
    if (!is_broadcast || has_root) row.input = at;
    if (!is_broadcast || !has_root) row.output = at;
    const LocalRank rank = set.locals()[static_cast<size_t>(some - tickets.begin())];
    row.urgency = held(rank, **some).buffers.urgency;
    row.input_bytes = row.output_bytes = static_cast<size_t>((*own.tensors)[i].descriptor->bytes());
    at += row.input_bytes;
  }
  size_t next = 0;  // they are asked for in turn
  Result<std::unique_ptr<Operation>> built =
      parts_.at(own.process_set).build(own, 0, [&](LocalRank, Ticket) -> const SubmittedBuffers& {
        return rows[next++];
      });
  if (!built.is_ok()) return built;
  std::unique_ptr<Operation> operation = std::move(built).value();
  operation->prescale = 1;  // is in what the worker has made
  if (staged.adds_on_gpu) operation->add_elsewhere = additions_of(batch);
  if (staged.rounds.size() == 1) return operation;
  const int shards =
      core::shards_of(first.kind, static_cast<int>(parts_.at(own.process_set).ring().size()));
  for (const ElementRange& round : staged.rounds) {
    std::vector<ElementRange>& parts = operation->rounds.emplace_back();
    for (int shard = 0; shard < shards; ++shard) {
      parts.push_back(core::nearly_equal_part(round, shard, shards));
    }
  }
  if (staged.row) operation->rounds_here = staged.rounds_here;
  return operation;
}

void JobRunner::send_staged(const std::shared_ptr<StagedBatch>& staged) {
  if (!data_epoch_open_) return;  // the job is about to end
  const core::Launch& launch = staged->launch;
  std::deque<InOrder>& order = in_order_.at(order_of(launch));
  const auto own = std::find_if(order.begin(), order.end(),
                                [&](const InOrder& item) { return item.seq == launch.seq; });
  own->is_ready = true;
  Result<std::unique_ptr<Operation>> built = build_staged(staged);
  if (!built.is_ok()) return end_staged(*staged, built.status());
  std::unique_ptr<Operation> operation = std::move(built).value();
  const size_t shares =
      shares_of(*operation, static_cast<int>(parts_.at(launch.process_set).ring().size()));
  operations_.emplace(OperationKey{launch.process_set, launch.seq},
                      UnderWay{operation->kind, shares, nullptr});
  staged->rounds_done.assign(shares, 0);
  for (size_t share = 0; share < shares; ++share) {
    if (!operation) operation = build_staged(staged).value();  // as the first one was
    operation->share = {static_cast<int>(share), static_cast<int>(shares)};
    own->parts.push_back({share, 0, std::exchange(operation, nullptr)});
  }
  while (!order.empty() && order.front().is_ready) {
    for (Part& part : order.front().parts) run_part(std::move(part));
    order.pop_front();
  }
  if (order.empty()) in_order_.erase(order_of(launch));
}

void JobRunner::on_rounds_done(const OperationKey& key, uint32_t generation, int share,
                               int rounds) {
  const auto found = staged_.find(key);
  if (found == staged_.end() || found->second->launch.generation != generation) return;
  found->second->rounds_done[static_cast<size_t>(share)] = static_cast<size_t>(rounds);
  bring_back(found->second);
}

// True: it has been one, and is not done yet.
bool JobRunner::is_staged(const OperationKey& key) {
  const auto found = staged_.find(key);
  if (found == staged_.end()) return false;
  const std::shared_ptr<StagedBatch> staged = found->second;
  if (!staged->row) {
    end_staged(*staged, Status::ok());
    return true;
  }
  std::fill(staged->rounds_done.begin(), staged->rounds_done.end(), staged->rounds.size());
  bring_back(staged);
  return true;
}

void JobRunner::bring_back(const std::shared_ptr<StagedBatch>& staged) {
  const size_t done = *std::min_element(staged->rounds_done.begin(), staged->rounds_done.end());
  while (staged->rounds_begun_back < done) {
    StagedRound& round = staged->operations[staged->rounds_begun_back++];
    run_round(staged, std::move(round.in), &JobRunner::on_round_back);
  }
}

void JobRunner::on_round_back(const std::shared_ptr<StagedBatch>& staged) {
  if (++staged->rounds_back == staged->rounds.size()) end_staged(*staged, Status::ok());
}

void JobRunner::end_staged(StagedBatch& staged, const Status& status) {
  staged.is_over = true;
  let_go(staged);
  // It may be the last that knows of it.
  const uint32_t process_set = staged.launch.process_set;
  const Seq seq = staged.launch.seq;
  staged_.erase({process_set, seq});
  if (status.is_ok()) {
    end_operation(process_set, seq);
  } else {
    step(core::OperationFailed{seq, status});
  }
}

std::vector<std::shared_ptr<JobRunner::StagedBatch>> JobRunner::cancel_staged(
    const core::Cancel& cancelled) {
  const uint32_t set = cancelled.process_set;
  const auto end = staged_.lower_bound({set, core::first_of(core::Track::kDecreed)});
  std::vector<std::shared_ptr<StagedBatch>> batches;
  for (auto item = staged_.lower_bound({set, cancelled.first}); item != end;) {
    item->second->is_over = true;
    batches.push_back(std::move(item->second));
    item = staged_.erase(item);
  }
  const auto order = in_order_.find({set, core::Track::kLockable});
  if (order != in_order_.end()) {
    std::erase_if(order->second, [&](const InOrder& item) { return item.seq >= cancelled.first; });
    if (order->second.empty()) in_order_.erase(order);
  }
  return batches;
}

}  // namespace rueda::engine
