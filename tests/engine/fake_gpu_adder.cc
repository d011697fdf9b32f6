#include "tests/engine/fake_gpu_adder.h"

#include <span>
#include <utility>
#include <vector>

#include "daemon/base/check.h"
#include "daemon/base/os/shared_mapping.h"

namespace rueda::engine::testing {

FakeGpuAdder::~FakeGpuAdder() {
  for (const auto& [file, base] : mapped_) unmap_guarded(base, file->bytes);
}

void FakeGpuAdder::take_over(Operation& operation, std::unique_ptr<Operation> same) {
  operation.gpu_reduce = [this, own = std::shared_ptr<const Operation>(std::move(same))](
                             ChunkAddition addition, std::function<void(const Status&)> done) {
    waiting_.push_back({own, std::move(addition), std::move(done)});
  };
}

std::byte* FakeGpuAdder::memory_of(const ChunkAddition& addition) {
  RUEDA_CHECK(addition.staging != nullptr);
  std::byte*& base = mapped_[addition.staging];
  if (base == nullptr) base = map_shared(addition.staging->fd.get(), addition.staging->bytes);
  RUEDA_CHECK(base != nullptr);
  return base;
}

void FakeGpuAdder::add(size_t which, const Status& status) {
  const auto at = waiting_.begin() + static_cast<ptrdiff_t>(which);
  const Waiting next = std::move(*at);
  waiting_.erase(at);
  const ChunkAddition& addition = next.addition;
  std::byte* const memory = memory_of(addition);
  std::byte* const sum = memory + addition.offset;
  std::vector<const void*> addends;
  for (const uint64_t offset : addition.addends) addends.push_back(memory + offset);
  if (addends.empty()) {
    kernels_.reduce_local(*next.operation, addition.range, sum, addition.is_final, sum);
  } else {
    kernels_.combine(*next.operation, addends.front(), std::span(addends).subspan(1),
                     addition.range.count(), addition.is_final, sum);
  }
  ++added_;
  next.done(status);
}

}  // namespace rueda::engine::testing
