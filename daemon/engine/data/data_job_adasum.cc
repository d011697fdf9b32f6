// DataJob's part in an Adasum: its stages (engine/operation/adasum.h) go round the ring as rounds
// of one cut, each begun when the one before has ended here. A frame that comes before that waits
// in its slot. Frames of earlier rounds never wait for it: they have slots of their own, or its
// slot before it.

#include <boost/asio/post.hpp>

#include "daemon/engine/data/data_job.h"

namespace rueda::engine {

// What is kept until all have it are final values, and the rounds before the sum have none.
void DataJob::refuse_adasum(Seq seq) {
  options_.events.on_failed(
      seq, Status(Code::kInvalidArgument,
                  "Adasum does not go with policy shrink; use the sum or the average"));
}

void DataJob::weigh(Running& running) {
  const Seq seq = running.operation->seq;
  bool is_done = false;
  {
    const StageTimer timer(running.operation->trace.get(), &OperationTrace::local_reduce);
    is_done = running.adasum->weigh(*options_.pass_threads, pass_kernels_);
  }
  last_progress_ms_ = steady_now_ms();
  if (!inputs_hold(running)) return;
  if (is_done && nodes() == 1) return run_locally(running);
  if (is_done) {
    originate(running);
    return finish_if_done(running);
  }
  boost::asio::post(loop_, [this, alive = alive_, seq] {
    if (!*alive || stopped_) return;
    Running* found = find(seq);
    // Another operation may have come under its number.
    if (!found || !found->adasum || !found->adasum->is_weighing()) return;
    weigh(*found);
    settle();
  });
}

core::AdasumStage DataJob::stage_of(const Running& running, int64_t chunk) {
  if (!running.adasum) return core::AdasumStage::kSum;
  return running.adasum->schedule()->stage_of(chunk / running.cut.shards());
}

size_t DataJob::chunk_bytes(const Running& running, int64_t chunk) const {
  const int64_t count = running.cut.chunk_at(chunk).count();
  if (stage_of(running, chunk) == core::AdasumStage::kShare) {
    return static_cast<size_t>(count) * sizeof(double);
  }
  return static_cast<size_t>(running.operation->wire_bytes(count));
}

transport::SendBuffer DataJob::begin_adasum_chunk(const Running& running, int64_t chunk,
                                                  uint32_t buffer) {
  const Operation& operation = *running.operation;
  const core::ElementRange range = running.cut.chunk_at(chunk);
  const StageTimer timer(operation.trace.get(), &OperationTrace::local_reduce);
  std::byte* const values = origin_buffer(buffer);
  if (stage_of(running, chunk) == core::AdasumStage::kShare) {
    running.adasum->add_products(range, nullptr, values);
  } else {
    kernels_.reduce_local(operation, range, nullptr, false, values);
  }
  return {values, chunk_bytes(running, chunk), staging_->region()};
}

void DataJob::take_products(Running& running, int64_t chunk, const core::RingStep& step,
                            std::byte* values) {
  if (stage_of(running, chunk) == core::AdasumStage::kMeet) {
    return running.adasum->meet(kernels_, chunk, values);
  }
  const core::ElementRange range = running.cut.chunk_at(chunk);
  if (step.adds) running.adasum->add_products(range, values, values);
  if (step.keeps) running.adasum->take_products(range, values);
}

}  // namespace rueda::engine
