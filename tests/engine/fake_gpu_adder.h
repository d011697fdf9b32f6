// Adds up chunks and messages in place of a data loop (Operation::gpu_reduce), when the test says
// so.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>

#include "daemon/engine/operation/operation.h"

namespace rueda::engine::testing {

class FakeGpuAdder {
 public:
  FakeGpuAdder() = default;
  ~FakeGpuAdder();
  FakeGpuAdder(const FakeGpuAdder&) = delete;
  FakeGpuAdder& operator=(const FakeGpuAdder&) = delete;

  // Takes over the additions of the operation. `same` is an equal operation, for its
  // arithmetic.
  void take_over(Operation& operation, std::unique_ptr<Operation> same);
  size_t waiting() const { return waiting_.size(); }
  // Makes one of the additions that wait, whatever has become of its operation.
  void add(size_t which, const Status& status = {});
  size_t added() const { return added_; }

 private:
  struct Waiting {
    std::shared_ptr<const Operation> operation;
    ChunkAddition addition;
    std::function<void(const Status&)> done;
  };

  // Returns where the addition's staging is mapped here.
  std::byte* memory_of(const ChunkAddition& addition);

  OperationKernels kernels_;
  std::deque<Waiting> waiting_;
  std::map<std::shared_ptr<const StagingFile>, std::byte*> mapped_;
  size_t added_ = 0;
};

}  // namespace rueda::engine::testing
