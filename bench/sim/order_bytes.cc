#include "bench/sim/order_bytes.h"

#include <variant>

namespace rueda::scale {
namespace {

constexpr uint64_t kNumber = 8;

uint64_t of_descriptor(const core::TensorDescriptor& tensor) {
  // Kind, dtype, op and process set count as one number, prescale and postscale as one each.
  return tensor.name.size() + tensor.group.size() +
         kNumber * (3 + tensor.shape.size() + tensor.counts.size());
}

uint64_t of_operation(const core::OrderedOperation& operation) {
  uint64_t bytes = 3 * kNumber + operation.error.message().size() + 4 * operation.cached.size();
  for (const std::string& name : operation.tensors) bytes += name.size();
  for (const core::DescriptorPtr& tensor : operation.descriptors) {
    if (tensor) bytes += of_descriptor(*tensor);
  }
  return bytes;
}

uint64_t of_body(const core::Ready& ready) {
  uint64_t bytes = 3 * kNumber + kNumber * ready.cached.size();
  for (const core::ReadyTensor& entry : ready.entries) {
    bytes += kNumber + entry.mismatch.size() + of_descriptor(*entry.descriptor);
  }
  return bytes;
}
uint64_t of_body(const core::Decree& decree) {
  uint64_t bytes = 2 * kNumber;
  for (const core::OrderedOperation& operation : decree.operations) {
    bytes += of_operation(operation);
  }
  return bytes;
}
uint64_t of_body(const core::Lock& lock) {
  uint64_t bytes = 3 * kNumber;
  for (const core::PlanBatch& batch : lock.plan.batches) {
    bytes += kNumber;
    for (const core::DescriptorPtr& tensor : batch.tensors) bytes += of_descriptor(*tensor);
  }
  return bytes;
}
uint64_t of_body(const core::UnlockRequest& request) { return kNumber + request.reason.size(); }
uint64_t of_body(const core::Freeze& freeze) { return kNumber + freeze.reason.size(); }
uint64_t of_body(const core::Frozen& frozen) { return 2 * kNumber + 4 * frozen.walked.size(); }
uint64_t of_body(const core::Resume&) { return 3 * kNumber; }
uint64_t of_body(const core::Ended& ended) { return kNumber * (1 + ended.operations.size()); }

}  // namespace

uint64_t bytes_of(const core::AgreementMessage& message) {
  return std::visit([](const auto& body) { return of_body(body); }, message);
}

}  // namespace rueda::scale
