// JobRunner's side of tensors in device memory that go between nodes. The GPU worker brings what
// this node's ranks make of a batch to host memory, the data plane takes it from there as it does
// that of one rank, and the worker brings back what has come of it
// (docs/decisions/0053-device-memory-between-nodes.md).

#include <algorithm>
#include <utility>

#include <boost/asio/post.hpp>

#include "daemon/engine/device_operation.h"
#include "daemon/engine/job_runner.h"

namespace rueda::engine {

void JobRunner::launch_staged(const core::Launch& launch) {
  auto staged = std::make_shared<StagedBatch>();
  staged->launch = launch;
  staged_.emplace(OperationKey{launch.process_set, launch.seq}, staged);
  in_order_[order_of(launch)].push_back({launch.seq, false, {}});
  const bool is_anybodys = std::any_of(launch.tickets.begin(), launch.tickets.end(),
                                       [](const auto& ticket) { return ticket.has_value(); });
  if (!is_anybodys) return send_staged(*staged);  // all ranks of this node have joined
  device_->stage(staged_bytes(launch),
                 [this, staged](const Result<StagedRow>& row) { gather(staged, row); });
}

void JobRunner::gather(const std::shared_ptr<StagedBatch>& staged, const Result<StagedRow>& row) {
  if (!row.is_ok()) {
    boost::asio::post(context_.control_loop,
                      [this, alive = alive_, staged, status = row.status()] {
                        if (*alive && !staged->is_cancelled) end_staged(*staged, status);
                      });
    return;
  }
  staged->row = row.value();
  if (staged->is_cancelled) return device_->unstage(*staged->row);
  const core::Launch& launch = staged->launch;
  StagedOperations operations =
      build_staged_operations(launch, device_launch_of(launch), places_of(launch), *staged->row);
  staged->in = std::move(operations.in);
  context_.metrics.daemon().gpu_staged_bytes.Increment(
      static_cast<double>(staged_bytes(launch)));
  device_->run(std::move(operations.out), [this, staged](const Status& status) {
    if (staged->is_cancelled) return device_->unstage(*staged->row);
    if (!status.is_ok()) return end_staged(*staged, status);
    send_staged(*staged);
  });
}

std::unique_ptr<Operation> JobRunner::build_staged(const StagedBatch& staged) {
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
    at += (*own.tensors)[i].descriptor->bytes();
  }
  size_t next = 0;  // they are asked for in turn
  std::unique_ptr<Operation> operation =
      parts_.at(own.process_set).build(own, 0, [&](LocalRank, Ticket) -> const SubmittedBuffers& {
        return rows[next++];
      });
  operation->prescale = 1;  // is in what the worker has made
  return operation;
}

void JobRunner::send_staged(StagedBatch& staged) {
  if (!data_epoch_open_) return;  // the job is about to end
  staged.is_sent = true;
  const core::Launch& launch = staged.launch;
  std::deque<InOrder>& order = in_order_.at(order_of(launch));
  const auto own = std::find_if(order.begin(), order.end(),
                                [&](const InOrder& item) { return item.seq == launch.seq; });
  own->is_ready = true;
  std::unique_ptr<Operation> operation = build_staged(staged);
  const size_t shares =
      shares_of(*operation, static_cast<int>(parts_.at(launch.process_set).ring().size()));
  operations_.emplace(OperationKey{launch.process_set, launch.seq},
                      UnderWay{operation->kind, shares, nullptr});
  for (size_t share = 0; share < shares; ++share) {
    if (!operation) operation = build_staged(staged);
    operation->share = {static_cast<int>(share), static_cast<int>(shares)};
    own->parts.push_back({share, 0, std::move(operation)});
  }
  while (!order.empty() && order.front().is_ready) {
    for (Part& part : order.front().parts) run_part(std::move(part));
    order.pop_front();
  }
  if (order.empty()) in_order_.erase(order_of(launch));
}

// True: it has been one, and is not done yet.
bool JobRunner::bring_back(const OperationKey& key) {
  const auto found = staged_.find(key);
  if (found == staged_.end()) return false;
  const std::shared_ptr<StagedBatch> staged = found->second;
  if (staged->in.empty()) {
    end_staged(*staged, Status::ok());
  } else {
    device_->run(std::move(staged->in),
                 [this, staged](const Status& status) { end_staged(*staged, status); });
  }
  return true;
}

void JobRunner::end_staged(const StagedBatch& staged, const Status& status) {
  const core::Launch& launch = staged.launch;
  if (staged.row) device_->unstage(*staged.row);
  // It may be the last that knows of it.
  const uint32_t process_set = launch.process_set;
  const Seq seq = launch.seq;
  staged_.erase({process_set, seq});
  if (status.is_ok()) {
    end_operation(process_set, seq);
  } else {
    step(core::OperationFailed{seq, status});
  }
}

// What is on its way to host memory is let go of when it has come there.
std::vector<StagedRow> JobRunner::cancel_staged(const core::Cancel& cancelled) {
  const uint32_t set = cancelled.process_set;
  const auto end = staged_.lower_bound({set, core::first_of(core::Track::kDecreed)});
  std::vector<StagedRow> sent;
  for (auto item = staged_.lower_bound({set, cancelled.first}); item != end;) {
    StagedBatch& staged = *item->second;
    staged.is_cancelled = true;
    if (staged.is_sent && staged.row) sent.push_back(*staged.row);
    item = staged_.erase(item);
  }
  const auto order = in_order_.find({set, core::Track::kLockable});
  if (order != in_order_.end()) {
    std::erase_if(order->second, [&](const InOrder& item) { return item.seq >= cancelled.first; });
    if (order->second.empty()) in_order_.erase(order);
  }
  return sent;
}

}  // namespace rueda::engine
