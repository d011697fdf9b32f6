// Tests operations whose first chunks are read from a GPU's memory by the network itself. The
// memory is a file here, which the in-process transport maps.
#include <cstring>
#include <memory>
#include <vector>

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/engine/fake_gpu_adder.h"
#include "tests/engine/ring.h"

namespace rueda::engine::testing {
namespace {

constexpr uint64_t kBegins = 4096;  // Where the memory begins in its file.
constexpr uint64_t kOffset = 512;   // Where the row begins in the memory.

class DataJobDevice : public ::testing::Test {
 protected:
  // Returns memory that has the bytes at kOffset.
  static std::shared_ptr<const gpu::DmaBuf> memory_with(const Bytes& row) {
    UniqueFd fd(::memfd_create("a GPU's memory", MFD_CLOEXEC));
    const uint64_t bytes = (kOffset + row.size() + 4095) / 4096 * 4096;
    EXPECT_EQ(::ftruncate(fd.get(), static_cast<off_t>(kBegins + bytes)), 0);
    EXPECT_EQ(::pwrite(fd.get(), row.data(), row.size(), kBegins + kOffset),
              static_cast<ssize_t>(row.size()));
    return std::make_shared<const gpu::DmaBuf>(gpu::DmaBuf{std::move(fd), kBegins, bytes});
  }
  Bytes input_of(const OperationFixture& work, int node) const {
    const std::byte* const from = work.input_of(Rank{node}, 0);
    return {from, from + work.input_bytes(Rank{node}, 0)};
  }
  const OperationFixture& make_work(uint64_t seq, int64_t elements = 30'000) {
    OperationSpec spec;
    spec.sizes = {elements};
    spec.op = ReduceOp::kAverage;
    works_.push_back(std::make_unique<OperationFixture>(spec, options_.ranks_per_node, Seq{seq}));
    return *works_.back();
  }
  // Launches the node's part. If it is alone in the memory, the host has something else.
  void launch(const OperationFixture& work, int node,
              const std::shared_ptr<const gpu::DmaBuf>& memory, bool is_alone) {
    auto operation = work.operation(NodeIndex{node});
    elsewhere_.take_over(*operation, work.operation(NodeIndex{node}));
    is_readable_.push_back(std::make_shared<std::atomic<bool>>(false));
    operation->device_input = DeviceInput{memory, kOffset, is_alone, is_readable_.back()};
    if (is_alone) {
      other_.assign(work.input_bytes(Rank{node}, 0), std::byte{0x77});
      operation->tensors[0].ranks[0].input = other_.data();
    }
    ring_.node(node).job->run(std::move(operation));
  }
  void launch(const OperationFixture& work, bool is_alone) {
    for (int node = 0; node < ring_.size(); ++node) {
      launch(work, node, memory_with(input_of(work, node)), is_alone);
    }
  }
  // Runs until so many operations are done on all nodes.
  void run_until_done(size_t operations) {
    const auto is_done = [&] {
      for (int node = 0; node < ring_.size(); ++node) {
        if (ring_.node(node).done.size() < operations) return false;
      }
      return true;
    };
    while (!is_done()) {
      const bool was_idle = !ring_.poll();
      ASSERT_TRUE(!was_idle || elsewhere_.waiting() > 0) << "it hangs";
      if (elsewhere_.waiting() > 0) elsewhere_.add(0);
    }
  }
  double from_gpus() { return ring_.metrics().daemon().inputs_from_gpus.Value(); }
  double from_buffers() { return ring_.metrics().daemon().inputs_from_buffers.Value(); }

  const RingOptions options_{.ranks_per_node = {1, 1, 1}, .shares_staging = true};
  std::vector<std::unique_ptr<OperationFixture>> works_;
  Bytes other_;
  FakeGpuAdder elsewhere_;
  Ring ring_{options_};
  std::vector<std::shared_ptr<std::atomic<bool>>> is_readable_;
};

TEST_F(DataJobDevice, WhatANodeBeginsToSendNeedNotBeInHostMemory) {
  for (uint64_t seq = 1; seq <= 3; ++seq) {
    launch(make_work(seq), true);
    run_until_done(seq);
    EXPECT_EQ(works_.back()->check(), "");
  }
  EXPECT_EQ(from_gpus(), 3 * 30'000 * 4);
  EXPECT_EQ(from_buffers(), 0);
  for (const auto& is_readable : is_readable_) EXPECT_TRUE(*is_readable);
}

TEST_F(DataJobDevice, MemoryThatTheNetworkCannotReadIsCopied) {
  const auto unreadable = std::make_shared<const gpu::DmaBuf>(gpu::DmaBuf{UniqueFd(), 0, 1 << 20});
  const OperationFixture& work = make_work(1);
  for (int node = 0; node < ring_.size(); ++node) launch(work, node, unreadable, false);
  run_until_done(1);
  EXPECT_EQ(work.check(), "");
  EXPECT_EQ(from_gpus(), 0);
  EXPECT_EQ(from_buffers(), 30'000 * 4);
  for (const auto& is_readable : is_readable_) EXPECT_FALSE(*is_readable);
}

TEST_F(DataJobDevice, StagingThatHasGrownTakesThePlaceOfTheOld) {
  const OperationFixture& first = make_work(1);
  const std::shared_ptr<const gpu::DmaBuf> old = memory_with(input_of(first, 0));
  launch(first, 0, old, true);
  for (int node = 1; node < ring_.size(); ++node) {
    launch(first, node, memory_with(input_of(first, node)), true);
  }
  run_until_done(1);
  ring_.settle();
  EXPECT_GT(old.use_count(), 1) << "it is registered";
  launch(make_work(2, 50'000), true);
  run_until_done(2);
  EXPECT_EQ(ring_.check(), "");
  for (const auto& work : works_) EXPECT_EQ(work->check(), "");
  EXPECT_EQ(old.use_count(), 1) << "the old memory can be freed";
}

// The first two nodes' chunks are read; the third has its row in less memory than it says.
TEST_F(DataJobDevice, MemoryThatIsTooShortIsTheOperationsError) {
  const OperationFixture& work = make_work(1);
  for (int node = 0; node < 2; ++node) launch(work, node, memory_with(input_of(work, node)), true);
  launch(work, 2, memory_with(Bytes(1000)), true);
  ASSERT_TRUE(ring_.run_until([&] { return !ring_.node(2).failed.empty(); }));
  EXPECT_EQ(ring_.node(2).failed[0].first, Seq{1});
  EXPECT_EQ(ring_.node(2).failed[0].second.message(),
            "the network card does not read the GPU's memory any more, as it did before");
}

}  // namespace
}  // namespace rueda::engine::testing
