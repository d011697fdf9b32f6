#include "tests/engine/fake_gpu_adder.h"

#include <utility>

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
  return base + addition.offset;
}

void FakeGpuAdder::add(size_t which, const Status& status) {
  const auto at = waiting_.begin() + static_cast<ptrdiff_t>(which);
  const Waiting next = std::move(*at);
  waiting_.erase(at);
  std::byte* const chunk = memory_of(next.addition);
  kernels_.reduce_local(*next.operation, next.addition.range, chunk, next.addition.is_final, chunk);
  ++added_;
  next.done(status);
}

}  // namespace rueda::engine::testing
