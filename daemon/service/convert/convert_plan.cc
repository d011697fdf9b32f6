#include "daemon/service/convert/convert_plan.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "daemon/base/limits.h"
#include "daemon/base/one_line.h"

namespace rueda::service {
namespace {

void fill_declared(const std::vector<core::PlannedTensor>& from, v1::TensorDescriptor& to) {
  for (const core::PlannedTensor& planned : from) {
    v1::PlannedTensor& item = *to.add_plan();
    fill_tensor(*planned.tensor, *item.mutable_tensor());
    for (const uint32_t before : planned.after) item.add_after(before);
  }
}

Status read_declared(const v1::TensorDescriptor& from, core::TensorDescriptor& to) {
  for (const v1::PlannedTensor& item : from.plan()) {
    if (item.tensor().plan_size() > 0) return broken("a plan of plans");
    Result<core::DescriptorPtr> tensor = read_tensor(item.tensor());
    if (!tensor.is_ok()) return tensor.status();
    core::PlannedTensor& planned = to.plan.emplace_back();
    planned.tensor = std::move(tensor).value();
    planned.after.assign(item.after().begin(), item.after().end());
    for (const uint32_t before : planned.after) {
      if (before >= to.plan.size() - 1) return broken("a plan whose order is none");
    }
  }
  return Status::ok();
}

void fill_tuning(const core::DataTuning& from, v1::DataTuning& to) {
  to.set_chunk_bytes(from.chunk_bytes);
  to.set_streams(from.streams);
  to.set_cutover_log2(from.cutover_log2);
}

core::DataTuning read_tuning(const v1::DataTuning& from) {
  // The data plane keeps the size of chunks and the number of streams within its own limits.
  return {from.chunk_bytes(), from.streams(),
          std::clamp(from.cutover_log2(), core::kRingAlways, -core::kRingAlways)};
}

// Fills a v1::Lock or a v1::RecordedPlan.
template <class Message>
void fill_batches(const core::Plan& from, Message& to) {
  for (const core::PlanBatch& item : from.batches) {
    v1::Lock::Batch& batch = *to.add_batches();
    for (const core::DescriptorPtr& tensor : item.tensors)
      fill_tensor(*tensor, *batch.add_tensors());
    batch.set_after(static_cast<uint32_t>(item.after + 1));
    batch.set_ends(item.ends);
  }
  fill_tuning(from.tuning, *to.mutable_tuning());
}

template <class Message>
Result<core::Plan> read_batches(const Message& from) {
  core::Plan to;
  for (const v1::Lock::Batch& batch : from.batches()) {
    core::PlanBatch& item = to.batches.emplace_back();
    for (const v1::TensorDescriptor& tensor : batch.tensors()) {
      Result<core::DescriptorPtr> descriptor = read_tensor(tensor);
      if (!descriptor.is_ok()) return descriptor.status();
      item.tensors.push_back(std::move(descriptor).value());
    }
    item.after = read_place(batch.after());
    item.ends = batch.ends();
  }
  to.tuning = read_tuning(from.tuning());
  return to;
}

// Returns whether a tensor with these properties can lie in memory of the kind that the message
// says.
bool is_possible_memory(uint32_t memory, CollectiveKind kind, DType dtype, ReduceOp op) {
  if (memory >= kMemorySpaceCount) return false;
  switch (static_cast<MemorySpace>(memory)) {
    case MemorySpace::kHost: return true;
    case MemorySpace::kDevice: return can_be_on_device(kind, op);
    case MemorySpace::kDeviceNccl: return can_be_by_nccl(kind, dtype, op);
  }
  return false;
}

// Checks the numbers that stand for values of daemon/base/dtype.h, and whether they go together.
Status check_numbers(const v1::TensorDescriptor& from) {
  if (from.kind() >= kCollectiveKindCount || from.dtype() >= kDTypeCount ||
      from.op() >= kReduceOpCount) {
    return broken("an unknown collective, dtype or op for tensor " + from.name());
  }
  const auto kind = static_cast<CollectiveKind>(from.kind());
  if (is_transfer(kind)) return broken("a transfer in the order of operations: " + from.name());
  const auto dtype = static_cast<DType>(from.dtype());
  const auto op = static_cast<ReduceOp>(from.op());
  if (!has_operator(dtype, op) || (op == ReduceOp::kAdasum && !can_be_adasum(kind, dtype))) {
    return broken("an impossible op for tensor " + from.name());
  }
  if (from.wire_dtype() >= kWireDTypeCount ||
      (from.wire_dtype() != 0 && !can_be_rounded(kind, dtype))) {
    return broken("an impossible wire dtype for tensor " + from.name());
  }
  if (!is_possible_memory(from.memory(), kind, dtype, op)) {
    return broken("an impossible memory for tensor " + from.name());
  }
  return Status::ok();
}

}  // namespace

Status broken(const std::string& what) {
  return Status(Code::kInvalidArgument, "a control message has " + what);
}

void fill_tensor(const core::TensorDescriptor& from, v1::TensorDescriptor& to) {
  to.set_name(from.name);
  to.set_kind(static_cast<uint32_t>(from.kind));
  to.set_dtype(static_cast<uint32_t>(from.dtype));
  to.set_op(static_cast<uint32_t>(from.op));
  for (int64_t dim : from.shape) to.add_shape(dim);
  for (int64_t count : from.counts) to.add_counts(count);
  to.set_root(from.root.value);
  to.set_process_set(from.process_set);
  to.set_prescale(from.prescale);
  to.set_postscale(from.postscale);
  to.set_wire_dtype(static_cast<uint32_t>(from.wire_dtype));
  to.set_memory(static_cast<uint32_t>(from.memory));
  to.set_group(from.group);
  to.set_group_size(from.group_size);
  fill_declared(from.plan, to);
}

Result<core::DescriptorPtr> read_tensor(const v1::TensorDescriptor& from) {
  if (from.name().empty() || from.name().size() > limits::kMaxTensorNameBytes ||
      from.group().size() > limits::kMaxTensorNameBytes) {
    return broken("a tensor name that is empty or too long");
  }
  if (!is_one_line(from.name()) || !is_one_line(from.group())) {
    return broken("a tensor name that is not printable");
  }
  if (Status status = check_numbers(from); !status.is_ok()) return status;
  const bool is_set = from.kind() == static_cast<uint32_t>(CollectiveKind::kAddProcessSet);
  if (from.shape_size() > (is_set ? limits::kMaxRanks : limits::kMaxDims)) {
    return broken("too many dimensions");
  }
  auto to = std::make_shared<core::TensorDescriptor>();
  to->name = from.name();
  to->kind = static_cast<CollectiveKind>(from.kind());
  to->dtype = static_cast<DType>(from.dtype());
  to->op = static_cast<ReduceOp>(from.op());
  int64_t room = static_cast<int64_t>(limits::kMaxTensorBytes);
  to->shape.assign(from.shape().begin(), from.shape().end());
  for (int64_t dim : from.shape()) {
    if (is_set) break;  // For a change of process sets these are ranks, which the core checks.
    if (dim < 0 || dim > room) return broken("an impossible shape for tensor " + from.name());
    room /= std::max<int64_t>(dim, 1);
  }
  to->counts.assign(from.counts().begin(), from.counts().end());
  if (to->counts.size() > limits::kMaxCounts ||
      std::any_of(to->counts.begin(), to->counts.end(), [](int64_t count) { return count < 0; })) {
    return broken("impossible counts for tensor " + from.name());
  }
  to->root = Rank{from.root()};
  to->process_set = from.process_set();
  to->prescale = from.prescale();
  to->postscale = from.postscale();
  to->wire_dtype = static_cast<WireDType>(from.wire_dtype());
  to->memory = static_cast<MemorySpace>(from.memory());
  to->group = from.group();
  to->group_size = from.group_size();
  if (Status status = read_declared(from, *to); !status.is_ok()) return status;
  return core::DescriptorPtr(std::move(to));
}

core::PlanPlace read_place(uint32_t number) {
  return static_cast<core::PlanPlace>(
             std::min<uint32_t>(number, std::numeric_limits<core::PlanPlace>::max())) -
         1;
}

void fill_plan(const core::Plan& from, v1::Lock& to) { fill_batches(from, to); }

Result<core::Plan> read_plan(const v1::Lock& from) { return read_batches(from); }

Result<core::Plan> read_plan(const v1::RecordedPlan& from) { return read_batches(from); }

v1::AgentEvent to_proto(const core::TuningLine& line) {
  v1::AgentEvent event;
  v1::TuningLine& to = *event.mutable_tuning();
  to.set_step(line.round);
  to.set_phase(line.phase);
  to.set_fusion_bytes(line.setting.fusion_bytes);
  fill_tuning(line.setting.data, *to.mutable_data());
  to.set_step_ms(line.round_ms);
  to.set_verdict(line.verdict);
  return event;
}

v1::AgentEvent to_proto(const core::Plan& recorded) {
  v1::AgentEvent event;
  fill_batches(recorded, *event.mutable_recorded_plan());
  return event;
}

}  // namespace rueda::service
