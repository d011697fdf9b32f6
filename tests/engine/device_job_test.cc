// What of a job is on GPUs, with workers that are processes of ruedad's on a fake device, and with
// programs that are none.
#include "daemon/engine/device_job.h"

#include <chrono>
#include <cstdlib>
#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include "daemon/gpu/fake/fake_device.h"
#include "tests/gpu/shared_counters.h"
#include "tests/gpu/temporary_folder.h"

namespace rueda::engine {
namespace {

using gpu::Sharing;
using testing::HasSubstr;

constexpr uint64_t kBytes = 4096;
constexpr LocalRank kRank{1};

class DeviceJobTest : public testing::Test {
 protected:
  DeviceJobTest() { ::setenv("RUEDA_FAKE_GPU", folder_.path().c_str(), 1); }
  ~DeviceJobTest() override {
    ::unsetenv("RUEDA_FAKE_GPU");
    if (job_) stop();
  }

  static std::vector<std::string> worker() {
    const auto build = std::filesystem::read_symlink("/proc/self/exe").parent_path().parent_path();
    return {(build / "bin" / "ruedad").string(), "--gpu-worker",
            (build / "lib" / "librueda_gpu_test_fake.so").string()};
  }
  void make(std::vector<std::string> command = worker()) {
    DeviceJobEvents events;
    events.on_added = [this](LocalRank rank, uint32_t id, const Status& status) {
      EXPECT_EQ(rank, kRank);
      added_.emplace_back(id, status);
    };
    events.on_ended = [this](uint32_t process_set, Seq seq, const Status& status) {
      EXPECT_EQ(process_set, 3u);
      ended_.emplace_back(seq, status);
    };
    job_ = std::make_unique<DeviceJob>(
        loop_, metrics_, DeviceJobOptions{"the GPU worker of job j", std::move(command)},
        std::move(events));
  }
  template <class Condition>
  bool wait_for(Condition condition) {
    const auto give_up = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (!condition()) {
      if (std::chrono::steady_clock::now() > give_up) return false;
      loop_.restart();
      loop_.run_for(std::chrono::milliseconds(2));
    }
    return true;
  }
  void stop() {
    bool has_ended = false;
    job_->stop([&] { has_ended = true; });
    EXPECT_TRUE(wait_for([&] { return has_ended; }));
    job_.reset();
  }
  double memories() { return metrics_.daemon().gpu_memories.Value(); }

  session::DeviceMemory counters(uint32_t id) {
    session::DeviceMemory memory;
    memory.id = id;
    memory.kind = RUEDA_ABI_DEVICE_COUNTERS;
    memory.bytes = gpu::SharedCounters::kBytes;
    memory.device[0] = 0xfa;
    memory.fd = counters_.duplicate();
    return memory;
  }
  session::DeviceMemory allocation(uint32_t id) {
    const gpu::DeviceAddress at = device_.allocate(kBytes, Sharing::kIpc).value();
    session::DeviceMemory memory;
    memory.id = id;
    memory.bytes = kBytes;
    memory.device[0] = 0xfa;
    memory.ipc = device_.export_memory(at).value().ipc;
    return memory;
  }
  void add(session::DeviceMemory memory) {
    const size_t before = added_.size();
    job_->add(kRank, std::move(memory));
    ASSERT_TRUE(wait_for([&] { return added_.size() > before; }));
  }
  // Waits for a counter, and writes the next.
  std::vector<gpu::WorkerOperation> operation(size_t counter) {
    const uint32_t number = job_->counters_of(kRank);
    gpu::WorkerOperation made;
    made.waits = {{{.memory = number, .offset = counter * 8}, 1}};
    made.writes = {{{.memory = number, .offset = (counter + 1) * 8}, 1}};
    return {made};
  }

  const gpu::TemporaryFolder folder_;
  boost::asio::io_context loop_;
  observe::Metrics metrics_{{"0", "node", "none"}};
  gpu::fake::FakeGpu gpu_{{.folder = folder_.path()}};
  gpu::fake::FakeDevice device_{gpu_};
  gpu::SharedCounters counters_;
  std::vector<std::pair<uint32_t, Status>> added_;
  std::vector<std::pair<Seq, Status>> ended_;
  std::unique_ptr<DeviceJob> job_;
};

TEST_F(DeviceJobTest, MemoryAndOperationsGoToOneWorker) {
  make();
  add(counters(1));
  add(allocation(2));
  for (const auto& [id, status] : added_) EXPECT_TRUE(status.is_ok()) << status.to_string();
  EXPECT_NE(job_->number_of(kRank, 2), 0u);
  EXPECT_EQ(memories(), 2);
  job_->run(3, Seq{5}, operation(0));
  counters_.set(0, 1);
  ASSERT_TRUE(wait_for([&] { return !ended_.empty(); }));
  EXPECT_EQ(ended_[0].first, Seq{5});
  EXPECT_TRUE(ended_[0].second.is_ok());
  EXPECT_EQ(counters_.get(1), 1u);
  job_->remove(kRank, 2);
  EXPECT_EQ(job_->number_of(kRank, 2), 0u);
  EXPECT_EQ(memories(), 1);
  job_->drop(kRank);
  EXPECT_EQ(memories(), 0);
}

TEST_F(DeviceJobTest, MemoryThatCannotBeOpenedIsToldAndNoMore) {
  make();
  add(counters(1));
  session::DeviceMemory stranger = allocation(2);
  stranger.ipc.fill(std::byte{7});
  add(std::move(stranger));
  EXPECT_FALSE(added_[1].second.is_ok());
  add(allocation(3));
  EXPECT_TRUE(added_[2].second.is_ok());
  EXPECT_EQ(memories(), 2);
}

TEST_F(DeviceJobTest, WhoseProcessHasGoneIsNotAnswered) {
  make();
  job_->add(kRank, counters(1));
  job_->drop(kRank);
  add(counters(1));  // the next process of the rank
  ASSERT_EQ(added_.size(), 1u);
  EXPECT_TRUE(added_[0].second.is_ok());
  EXPECT_EQ(memories(), 1);
}

TEST_F(DeviceJobTest, ALostWorkerEndsWhatItHasAndIsNotReplaced) {
  make();
  add(counters(1));
  job_->run(3, Seq{1}, operation(0));
  job_->run(3, Seq{2}, operation(2));
  ::kill(job_->worker_pid(), SIGKILL);
  ASSERT_TRUE(wait_for([&] { return ended_.size() == 2; }));
  for (const auto& [seq, status] : ended_) {
    EXPECT_THAT(status.message(), HasSubstr("killed by signal 9"));
    EXPECT_THAT(status.message(), HasSubstr("start the job again, or hand over host memory"));
  }
  EXPECT_EQ(memories(), 0);
  add(counters(2));
  EXPECT_EQ(added_[1].second, ended_[0].second);
  job_->run(3, Seq{3}, {gpu::WorkerOperation{}});
  EXPECT_EQ(ended_.size(), 2u);  // not from within
  ASSERT_TRUE(wait_for([&] { return ended_.size() == 3; }));
}

TEST_F(DeviceJobTest, AProgramThatIsNoWorkerIsAReason) {
  make({"/bin/false"});
  job_->add(kRank, counters(1));
  add(counters(2));
  ASSERT_TRUE(wait_for([&] { return added_.size() == 2; }));
  EXPECT_THAT(added_[0].second.message(), HasSubstr("hand over host memory"));
}

TEST_F(DeviceJobTest, StoppedItIsSilentAndWaitsForItsProcess) {
  make();
  add(counters(1));
  job_->run(3, Seq{1}, operation(0));
  stop();
  EXPECT_EQ(metrics_.daemon().gpu_workers.Value(), 0);
  EXPECT_TRUE(ended_.empty());
  EXPECT_EQ(metrics_.daemon().gpu_worker_losses.Value(), 0);
}

}  // namespace
}  // namespace rueda::engine
