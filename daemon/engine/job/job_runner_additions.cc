// JobRunner's side of what arrives from other nodes for batches in device memory, where the GPU is
// to add it up (docs/decisions/0061-additions-on-the-gpu.md).

#include <algorithm>
#include <utility>

#include <boost/asio/post.hpp>

#include "daemon/engine/device/device_operation.h"
#include "daemon/engine/job/job_runner.h"

namespace rueda::engine {
namespace {

// That the worker has at a time: enough to keep it busy, and far from what it may have in all.
constexpr size_t kMostAdding = 128;

}  // namespace

bool JobRunner::adds_on_gpu(const core::Launch& launch) const {
  return context_.options.adds_on_gpu && always_rings(launch) &&
         launch.tensors->front().descriptor->kind == CollectiveKind::kAllreduce &&
         std::all_of(launch.tickets.begin(), launch.tickets.end(),
                     [](const auto& ticket) { return ticket.has_value(); });
}

// Its shard of each round, with which this node begins the ring.
std::vector<ElementRange> JobRunner::sent_of(const StagedBatch& staged) const {
  std::vector<ElementRange> sent;
  if (!staged.adds_on_gpu) return sent;
  const DataParts& parts = parts_.at(staged.launch.process_set);
  const auto nodes = static_cast<int>(parts.ring().size());
  for (const ElementRange& round : staged.rounds) {
    sent.push_back(core::nearly_equal_part(round, parts.place(0).value, nodes));
  }
  return sent;
}

AddElsewhere JobRunner::additions_of(const std::shared_ptr<StagedBatch>& staged) {
  return [this, alive = alive_, &loop = context_.control_loop, staged](
             ChunkAddition addition, std::function<void(const Status&)> done) {
    boost::asio::post(loop, [this, alive, staged, addition = std::move(addition),
                             done = std::move(done)]() mutable {
      if (*alive) add_on_gpu({staged, std::move(addition), std::move(done)});
    });
  };
}

void JobRunner::add_on_gpu(WantedAddition wanted) {
  wanted_additions_.push_back(std::move(wanted));
  serve_additions();
}

void JobRunner::serve_additions() {
  while (!wanted_additions_.empty() && adding_ < kMostAdding) {
    const WantedAddition next = std::move(wanted_additions_.front());
    wanted_additions_.pop_front();
    if (next.staged->is_over) {  // nobody wants it any more
      next.done(Status::ok());
    } else {
      run_addition(next);
    }
  }
}

void JobRunner::run_addition(const WantedAddition& wanted) {
  const core::Launch& launch = wanted.staged->launch;
  const ChunkAddition& addition = wanted.addition;
  const gpu::Place chunk{.memory = number_of_staging(launch.process_set, addition),
                         .offset = addition.offset};
  gpu::WorkerOperation operation =
      build_addition(launch, device_launch_of(launch), *wanted.staged->row, addition.range, chunk,
                     addition.is_final);
  context_.metrics.daemon().gpu_added_bytes.Increment(static_cast<double>(
      addition.range.count() *
      static_cast<int64_t>(element_bytes(launch.tensors->front().descriptor->dtype))));
  ++wanted.staged->users;
  ++adding_;
  device_->run({std::move(operation)},
               [this, staged = wanted.staged, done = wanted.done](const Status& status) {
                 let_go(*staged);
                 --adding_;
                 done(status);
                 serve_additions();
               });
}

uint32_t JobRunner::number_of_staging(uint32_t process_set, const ChunkAddition& addition) {
  std::vector<MappedStaging>& known = mapped_staging_[process_set];
  const auto found = std::find_if(known.begin(), known.end(), [&](const MappedStaging& item) {
    return item.file == addition.staging;
  });
  if (found != known.end()) return found->number;
  known.push_back({addition.staging, device_->map(*addition.staging)});
  return known.back().number;
}

void JobRunner::unmap_staging(uint32_t process_set) {
  const auto found = mapped_staging_.find(process_set);
  if (found == mapped_staging_.end()) return;
  for (const MappedStaging& item : found->second) device_->unmap(item.number);
  mapped_staging_.erase(found);
}

}  // namespace rueda::engine
