// Tests the part of a job that is on GPUs, with workers that are processes of ruedad's on a fake
// device, and with programs that are no workers.
#include "daemon/engine/device/device_job.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <optional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>

#include "daemon/base/os/shared_mapping.h"
#include "tests/gpu/fake/fake_device.h"
#include "tests/gpu/shared_counters.h"
#include "tests/support/processes.h"
#include "tests/support/temporary_folder.h"

namespace rueda::engine {
namespace {

using gpu::Sharing;
using testing::HasSubstr;

constexpr uint64_t kTensorBytes = 4096;
constexpr uint64_t kMaxStaging = 256 << 20;
constexpr LocalRank kRank{1};

class DeviceJobTest : public testing::Test {
 protected:
  DeviceJobTest() { ::setenv("RUEDA_FAKE_GPU", folder_.path().c_str(), 1); }
  ~DeviceJobTest() override {
    for (const char* name : {"RUEDA_FAKE_GPU", "RUEDA_FAKE_GPU_COUNT", "RUEDA_FAKE_GPU_PEERS"}) {
      ::unsetenv(name);
    }
    if (job_) stop();
  }

  static std::vector<std::string> worker() {
    const auto build = std::filesystem::read_symlink("/proc/self/exe").parent_path().parent_path();
    return {(build / "bin" / "ruedad").string(), "--gpu-worker",
            (build / "lib" / "librueda_gpu_test_fake.so").string()};
  }
  void make(std::vector<std::string> command = worker()) {
    auto on_added = [this](LocalRank rank, uint32_t id, const Status& status) {
      EXPECT_EQ(rank, kRank);
      added_.emplace_back(id, status);
    };
    fork_server_ = gpu::ForkServer::start(std::move(command)).value();
    DeviceJobOptions options{"the GPU worker of job j", fork_server_.get()};
    options.max_staging_bytes = kMaxStaging;
    options.is_direct = is_direct_;
    job_ = std::make_unique<DeviceJob>(loop_, metrics_, std::move(options), std::move(on_added));
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
    memory.fd = session::ForeignFd(counters_.duplicate(), Principal::user(::getuid()));
    return memory;
  }
  session::DeviceMemory allocation(uint32_t id) {
    return shared(id, device_, device_.allocate(kTensorBytes, Sharing::kIpc).value());
  }
  static session::DeviceMemory shared(uint32_t id, gpu::fake::FakeDevice& device,
                                      gpu::DeviceAddress at) {
    const gpu::MemoryHandle handle = device.export_memory(at).value();
    session::DeviceMemory memory;
    memory.id = id;
    memory.bytes = handle.bytes;
    memory.device = device.facts().uuid;
    memory.ipc = handle.ipc;
    return memory;
  }
  session::DeviceMemory piece(uint32_t id) {
    const gpu::DeviceAddress at = device_.allocate(kTensorBytes, Sharing::kFd).value();
    const gpu::MemoryHandle handle = device_.export_memory(at).value();
    session::DeviceMemory memory;
    memory.id = id;
    memory.kind = RUEDA_ABI_DEVICE_FD;
    memory.bytes = handle.bytes;
    memory.device[0] = 0xfa;
    memory.fd = session::ForeignFd(UniqueFd(handle.fd), Principal::user(::getuid()));
    return memory;
  }
  static session::DeviceMemory join(uint32_t id, std::vector<uint32_t> pieces) {
    session::DeviceMemory memory;
    memory.id = id;
    memory.kind = RUEDA_ABI_DEVICE_FD;
    memory.bytes = kTensorBytes * pieces.size();
    memory.pieces = std::move(pieces);
    return memory;
  }
  void add(session::DeviceMemory memory) {
    const size_t before = added_.size();
    job_->add(kRank, std::move(memory));
    ASSERT_TRUE(wait_for([&] { return added_.size() > before; }));
  }
  void run(int number, std::vector<gpu::WorkerOperation> operations) {
    job_->run(std::move(operations),
              [this, number](const Status& status) { ended_.emplace_back(number, status); });
  }
  // Asks for staging memory, which is put into rows_.
  void stage(uint64_t bytes, DeviceJob::Through through = DeviceJob::Through::kScratchAndHost) {
    job_->stage(bytes, through, [this](const Result<StagedRow>& row) { rows_.push_back(row); });
  }
  // Returns an operation that waits for a counter, and writes the next one.
  std::vector<gpu::WorkerOperation> operation(size_t counter) {
    const uint32_t number = job_->counters_of(kRank);
    gpu::WorkerOperation made;
    made.waits = {{{.memory = number, .offset = counter * 8}, 1}};
    made.writes = {{{.memory = number, .offset = (counter + 1) * 8}, 1}};
    return {made};
  }

  const testing_support::TemporaryFolder folder_;
  std::unique_ptr<gpu::ForkServer> fork_server_;
  boost::asio::io_context loop_;
  observe::Metrics metrics_{{"0", "node", "none"}};
  gpu::fake::FakeGpu gpu_{{.folder = folder_.path()}};
  gpu::fake::FakeDevice device_{gpu_};
  gpu::fake::FakeGpu second_gpu_{{.ordinal = 1, .folder = folder_.path()}};
  gpu::fake::FakeDevice second_device_{second_gpu_};
  gpu::SharedCounters counters_;
  std::vector<std::pair<uint32_t, Status>> added_;
  std::vector<std::pair<int, Status>> ended_;
  std::vector<Result<StagedRow>> rows_;
  bool is_direct_ = false;  // Of the job that make() makes.
  std::unique_ptr<DeviceJob> job_;
};

TEST_F(DeviceJobTest, MemoryAndOperationsGoToOneWorker) {
  make();
  add(counters(1));
  add(allocation(2));
  for (const auto& [id, status] : added_) EXPECT_TRUE(status.is_ok()) << status.to_string();
  EXPECT_NE(job_->number_of(kRank, 2), 0u);
  EXPECT_EQ(memories(), 2);
  run(5, operation(0));
  counters_.set(0, 1);
  ASSERT_TRUE(wait_for([&] { return !ended_.empty(); }));
  EXPECT_EQ(ended_[0].first, 5);
  EXPECT_TRUE(ended_[0].second.is_ok());
  EXPECT_EQ(counters_.get(1), 1u);
  job_->remove(kRank, 2);
  EXPECT_EQ(job_->number_of(kRank, 2), 0u);
  EXPECT_EQ(memories(), 1);
  job_->drop(kRank);
  EXPECT_EQ(memories(), 0);
}

TEST_F(DeviceJobTest, AJoinIsMemoryLikeOthers) {
  make();
  add(counters(1));
  add(piece(2));
  add(piece(3));
  add(join(4, {3, 2}));
  for (const auto& [id, status] : added_) EXPECT_TRUE(status.is_ok()) << status.to_string();
  EXPECT_EQ(memories(), 4);
  std::vector<gpu::WorkerOperation> one = operation(0);
  const gpu::Place all{.memory = job_->number_of(kRank, 4)};
  one[0].segments = {{.count = 2 * kTensorBytes / 4, .sources = {all}, .destinations = {all}}};
  run(1, one);
  counters_.set(0, 1);
  ASSERT_TRUE(wait_for([&] { return !ended_.empty(); }));
  EXPECT_TRUE(ended_[0].second.is_ok()) << ended_[0].second.to_string();
  job_->remove(kRank, 4);
  add(join(5, {2, 3}));
  EXPECT_TRUE(added_.back().second.is_ok());
}

// Some of the join's pieces may be removed while the worker has yet to answer for the join.
TEST_F(DeviceJobTest, AJoinWhoseProcessHasGoneIsClosedWithItsPieces) {
  make();
  for (int round = 0; round < 3; ++round) {
    add(counters(1));
    add(piece(2));
    add(piece(3));
    if (round > 0) add(join(4, {3, 2}));
    job_->add(kRank, join(5, {2, 3}));
    job_->drop(kRank);
    const size_t before = added_.size();
    add(counters(1));  // belongs to the rank's next process; the join was answered before
    ASSERT_EQ(added_.size(), before + 1);
    EXPECT_TRUE(added_.back().second.is_ok()) << added_.back().second.to_string();
    EXPECT_EQ(memories(), 1);
    job_->drop(kRank);
  }
}

TEST_F(DeviceJobTest, MemoryOfTwoGpusIsReducedByBoth) {
  ::setenv("RUEDA_FAKE_GPU_COUNT", "2", 1);
  constexpr uint64_t kLarge = 1 << 20;
  make();
  add(counters(1));
  const std::array devices{&device_, &second_device_};
  std::array<gpu::DeviceAddress, 2> at{};
  for (uint32_t i = 0; i < 2; ++i) {
    at[i] = devices[i]->allocate(kLarge, Sharing::kIpc).value();
    add(shared(2 + i, *devices[i], at[i]));
  }
  for (const auto& [id, status] : added_) EXPECT_TRUE(status.is_ok()) << status.to_string();
  EXPECT_EQ(memories(), 3);
  std::vector<gpu::WorkerOperation> one = operation(0);
  const gpu::Place first{.memory = job_->number_of(kRank, 2)};
  const gpu::Place second{.memory = job_->number_of(kRank, 3)};
  one[0].batch.dtype = DType::kUInt8;
  one[0].segments = {
      {.count = kLarge, .sources = {first, second}, .destinations = {first, second}}};
  run(1, one);
  counters_.set(0, 1);
  ASSERT_TRUE(wait_for([&] { return !ended_.empty(); }));
  EXPECT_TRUE(ended_[0].second.is_ok()) << ended_[0].second.to_string();
  // Memory of a fake GPU is 0xa5 at first.
  for (size_t i = 0; i < 2; ++i) {
    const std::byte* const memory = devices[i]->host_memory(at[i]);
    EXPECT_TRUE(
        std::all_of(memory, memory + kLarge, [](std::byte b) { return b == std::byte{0x4a}; }));
  }
  job_->drop(kRank);
  EXPECT_EQ(memories(), 0);
}

TEST_F(DeviceJobTest, AGpuThatIsNotReachedIsToldAndNoMore) {
  ::setenv("RUEDA_FAKE_GPU_COUNT", "2", 1);
  ::setenv("RUEDA_FAKE_GPU_PEERS", "none", 1);
  make();
  add(counters(1));
  add(allocation(2));
  add(shared(3, second_device_, second_device_.allocate(kTensorBytes, Sharing::kIpc).value()));
  EXPECT_EQ(added_[2].second.code(), Code::kPermission);
  EXPECT_THAT(added_[2].second.message(),
              HasSubstr("fake GPU 0 and fake GPU 1 do not reach each other"));
  EXPECT_EQ(job_->number_of(kRank, 3), 0u);
  add(allocation(4));
  EXPECT_TRUE(added_[3].second.is_ok());
}

TEST_F(DeviceJobTest, MemoryThatCannotBeOpenedIsToldAndNoMore) {
  make();
  add(counters(1));
  session::DeviceMemory stranger = allocation(2);
  stranger.ipc.fill(std::byte{7});
  add(std::move(stranger));
  EXPECT_EQ(added_[1].second.code(), Code::kPermission);
  add(allocation(3));
  EXPECT_TRUE(added_[2].second.is_ok());
  EXPECT_EQ(memories(), 2);
}

TEST_F(DeviceJobTest, WhoHasHostMemoryInPlaceOfTheDevicesIsCountedOnce) {
  const auto clients = [&] { return metrics_.daemon().gpu_staged_clients.Value(); };
  const auto staging = [&](uint32_t id) {
    session::DeviceMemory memory = counters(id);
    memory.kind = RUEDA_ABI_DEVICE_STAGING;
    return memory;
  };
  make();
  add(counters(1));
  EXPECT_EQ(clients(), 0);
  add(staging(2));
  add(staging(3));
  EXPECT_EQ(clients(), 1);
  EXPECT_TRUE(job_->is_staging(kRank, 2));
  EXPECT_FALSE(job_->is_staging(kRank, 1));
  job_->remove(kRank, 2);
  EXPECT_EQ(clients(), 1);
  job_->remove(kRank, 3);
  EXPECT_EQ(clients(), 0);
  add(staging(4));
  job_->drop(kRank);
  EXPECT_EQ(clients(), 0);
  add(staging(5));
  ::kill(only_child(), SIGKILL);
  run(1, {gpu::WorkerOperation{}});
  ASSERT_TRUE(wait_for([&] { return !ended_.empty() && !ended_.back().second.is_ok(); }));
  EXPECT_EQ(clients(), 0);
}

TEST_F(DeviceJobTest, WhoseProcessHasGoneIsNotAnswered) {
  make();
  job_->add(kRank, counters(1));
  job_->drop(kRank);
  add(counters(1));  // belongs to the rank's next process
  ASSERT_EQ(added_.size(), 1u);
  EXPECT_TRUE(added_[0].second.is_ok());
  EXPECT_EQ(memories(), 1);
}

TEST_F(DeviceJobTest, ALostWorkerEndsWhatItHasAndIsNotReplaced) {
  make();
  add(counters(1));
  run(1, operation(0));
  run(2, operation(2));
  ::kill(only_child(), SIGKILL);
  ASSERT_TRUE(wait_for([&] { return ended_.size() == 2; }));
  for (const auto& [number, status] : ended_) {
    EXPECT_THAT(status.message(), HasSubstr("killed by signal 9"));
    EXPECT_THAT(status.message(), HasSubstr("start the job again, or hand over host memory"));
  }
  EXPECT_EQ(memories(), 0);
  add(counters(2));
  EXPECT_EQ(added_[1].second, ended_[0].second);
  run(3, {gpu::WorkerOperation{}});
  EXPECT_EQ(ended_.size(), 2u);  // not called from within
  ASSERT_TRUE(wait_for([&] { return ended_.size() == 3; }));
}

TEST_F(DeviceJobTest, TheFirstOfSeveralOperationsThatFailsIsTold) {
  make();
  add(counters(1));
  std::vector<gpu::WorkerOperation> two = operation(0);
  two.push_back(operation(2).front());
  two[0].segments = {{.count = 4, .sources = {{.memory = 77}}, .destinations = {{.memory = 77}}}};
  counters_.set(0, 1);
  counters_.set(2, 1);
  run(1, two);
  ASSERT_TRUE(wait_for([&] { return counters_.get(3) == 1 && !ended_.empty(); }));
  ASSERT_EQ(ended_.size(), 1u);
  EXPECT_EQ(ended_[0].second.code(), Code::kNotFound);
}

TEST_F(DeviceJobTest, PlacesOnTheWayBetweenNodesGrowWhenNoneIsInUse) {
  make();
  add(counters(1));
  stage(1000);
  ASSERT_TRUE(wait_for([&] { return rows_.size() == 1; }));
  const StagedRow first = rows_[0].value();
  EXPECT_EQ(memories(), 3) << "counters, host memory, memory of the device";
  stage(2000);
  ASSERT_EQ(rows_.size(), 2u);
  EXPECT_EQ(rows_[1].value().host, first.host);
  EXPECT_EQ(rows_[1].value().memory - first.memory,
            static_cast<ptrdiff_t>(rows_[1].value().offset - first.offset));
  stage(100 << 20);  // does not fit beside anything
  stage(10);         // waits behind it
  EXPECT_EQ(rows_.size(), 2u);
  job_->unstage(first);
  EXPECT_EQ(rows_.size(), 2u);
  job_->unstage(rows_[1].value());
  ASSERT_TRUE(wait_for([&] { return rows_.size() == 4; }));
  EXPECT_NE(rows_[2].value().host, first.host);
  EXPECT_EQ(rows_[3].value().host, rows_[2].value().host);
  EXPECT_EQ(memories(), 3);
  EXPECT_FALSE(rows_[3].value().exported) << "nobody has asked for that";
}

TEST_F(DeviceJobTest, ANetworkCardMayReadWhatIsInTheDevicesMemory) {
  is_direct_ = true;
  make();
  add(counters(1));
  stage(1000);
  ASSERT_TRUE(wait_for([&] { return rows_.size() == 1; }));
  const StagedRow row = rows_[0].value();
  ASSERT_TRUE(row.exported);
  ASSERT_LE(row.offset + 1000, row.exported->bytes);
  for (int i = 0; i < 1000; ++i) row.memory[i] = static_cast<std::byte>(i * 11);
  gpu::WorkerOperation copies;
  copies.copies_before = {{.to = {.memory = row.scratch, .offset = row.offset},
                           .from = {.memory = row.host, .offset = row.offset},
                           .bytes = 1000}};
  std::optional<Status> ended;
  job_->run({copies}, [&](const Status& status) { ended = status; });
  ASSERT_TRUE(wait_for([&] { return ended.has_value(); }));
  ASSERT_TRUE(ended->is_ok()) << ended->to_string();
  const auto& exported = *row.exported;
  void* const mapped = ::mmap(nullptr, exported.bytes, PROT_READ, MAP_SHARED, exported.fd.get(),
                              static_cast<off_t>(exported.offset));
  ASSERT_NE(mapped, MAP_FAILED);
  EXPECT_EQ(std::memcmp(static_cast<std::byte*>(mapped) + row.offset, row.memory, 1000), 0);
  ::munmap(mapped, exported.bytes);
}

// A card must not read memory that is freed.
TEST_F(DeviceJobTest, WhatACardMayReadIsFreedWhenNobodyHasItAnyMore) {
  is_direct_ = true;
  make();
  add(counters(1));
  stage(1000);
  ASSERT_TRUE(wait_for([&] { return rows_.size() == 1; }));
  auto held = rows_[0].value().exported;
  job_->unstage(rows_[0].value());
  stage(100 << 20);
  ASSERT_TRUE(wait_for([&] { return rows_.size() == 2; }));
  EXPECT_NE(rows_[1].value().exported, held);
  rows_[0].value().exported.reset();
  EXPECT_EQ(memories(), 4) << "the old memory of the device is there";
  held.reset();
  EXPECT_TRUE(wait_for([&] { return memories() == 3; }));
}

TEST_F(DeviceJobTest, HostMemoryIsPinnedOnlyForWhatGoesThroughIt) {
  make();
  add(counters(1));
  stage(1000, DeviceJob::Through::kScratch);
  ASSERT_TRUE(wait_for([&] { return rows_.size() == 1; }));
  EXPECT_EQ(memories(), 2) << "counters, memory of the device";
  EXPECT_NE(rows_[0].value().scratch, 0u);
  stage(1000);  // gets room once the first is given back
  EXPECT_EQ(rows_.size(), 1u);
  job_->unstage(rows_[0].value());
  ASSERT_TRUE(wait_for([&] { return rows_.size() == 2; }));
  EXPECT_NE(rows_[1].value().host, 0u);
  EXPECT_EQ(memories(), 3);
  stage(1000, DeviceJob::Through::kScratch);
  EXPECT_EQ(rows_.size(), 3u) << "beside it";
}

TEST_F(DeviceJobTest, HostMemoryIsMappedForKernelsUntilItIsUnmapped) {
  make();
  add(counters(1));
  SharedMemory memory = make_shared_memory("staging", kTensorBytes);
  const StagingFile file{std::move(memory.fd), kTensorBytes};
  std::memset(memory.base, 1, kTensorBytes);
  const uint32_t number = job_->map(file);
  gpu::WorkerOperation add_two;
  add_two.batch.dtype = DType::kUInt8;
  add_two.segments = {{.count = 7,
                       .partial = gpu::Place{.memory = number, .offset = 8},
                       .sources = {{.memory = number, .offset = 64}},
                       .destinations = {{.memory = number, .offset = 8}}}};
  run(1, {add_two});
  ASSERT_TRUE(wait_for([&] { return !ended_.empty(); }));
  EXPECT_TRUE(ended_[0].second.is_ok()) << ended_[0].second.to_string();
  EXPECT_EQ(memory.base[7], std::byte{1});
  EXPECT_EQ(memory.base[8], std::byte{2});
  EXPECT_EQ(memories(), 2);
  job_->unmap(number);
  EXPECT_EQ(memories(), 1);
  run(2, {add_two});
  ASSERT_TRUE(wait_for([&] { return ended_.size() == 2; }));
  EXPECT_EQ(ended_[1].second.code(), Code::kNotFound);
  unmap_guarded(memory.base, kTensorBytes);
}

TEST_F(DeviceJobTest, ACommunicatorsIdIsMadeByTheWorkerUnlessItIsLost) {
  make();
  add(counters(1));
  std::vector<Result<gpu::CommunicatorId>> ids;
  const auto made = [&](const Result<gpu::CommunicatorId>& id) { ids.push_back(id); };
  job_->make_communicator_id(1, made);
  ASSERT_TRUE(wait_for([&] { return ids.size() == 1; }));
  EXPECT_TRUE(ids[0].is_ok()) << ids[0].status().to_string();
  ::kill(only_child(), SIGKILL);
  job_->make_communicator_id(2, made);
  ASSERT_TRUE(wait_for([&] { return ids.size() == 2; }));
  EXPECT_THAT(ids[1].status().message(), HasSubstr("killed by signal 9"));
  job_->make_communicator_id(3, made);
  EXPECT_EQ(ids.size(), 2u) << "not from within";
  ASSERT_TRUE(wait_for([&] { return ids.size() == 3; }));
}

TEST_F(DeviceJobTest, MoreThanThereMayBeIsRefusedAndWhatComesAfterItIsNot) {
  make();
  add(counters(1));
  stage(kMaxStaging + 1);
  stage(kMaxStaging);
  ASSERT_EQ(rows_.size(), 1u);
  EXPECT_THAT(rows_[0].status().message(), HasSubstr("raise --gpu-staging-bytes"));
  ASSERT_TRUE(wait_for([&] { return rows_.size() == 2; }));
  EXPECT_TRUE(rows_[1].is_ok()) << rows_[1].status().to_string();
}

TEST_F(DeviceJobTest, ALostWorkerIsToldToWhoeverWaitsForAPlace) {
  make();
  add(counters(1));
  stage(1000);
  ASSERT_TRUE(wait_for([&] { return rows_.size() == 1; }));
  stage(kMaxStaging);  // gets room once the first is given back
  ::kill(only_child(), SIGKILL);
  ASSERT_TRUE(wait_for([&] { return rows_.size() == 2; }));
  EXPECT_THAT(rows_[1].status().message(), HasSubstr("killed by signal 9"));
  rows_[0].value().memory[0] = std::byte{1};  // still exists, because the data plane may use it
  job_->unstage(rows_[0].value());
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
  run(1, operation(0));
  stop();
  EXPECT_EQ(metrics_.daemon().gpu_workers.Value(), 0);
  EXPECT_TRUE(ended_.empty());
  EXPECT_EQ(metrics_.daemon().gpu_worker_losses.Value(), 0);
}

}  // namespace
}  // namespace rueda::engine
