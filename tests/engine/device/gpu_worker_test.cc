// Tests GPU workers as processes: `ruedad` itself with a fake device, whose memory lies in files
// that this process shares, and programs that do not behave.
#include "daemon/engine/device/gpu_worker.h"

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <map>
#include <optional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include "tests/gpu/fake/fake_device.h"
#include "tests/gpu/shared_counters.h"
#include "tests/support/processes.h"
#include "tests/support/temporary_folder.h"

namespace rueda::engine {
namespace {

using gpu::Priority;
using gpu::Sharing;
using testing::HasSubstr;

constexpr uint64_t kCount = 1000;
constexpr uint64_t kBytes = kCount * sizeof(float);
constexpr uint32_t kCounters = 9;

std::filesystem::path build_dir() {
  return std::filesystem::read_symlink("/proc/self/exe").parent_path().parent_path();
}

class GpuWorkerTest : public testing::Test {
 protected:
  using Command = std::vector<std::string>;
  // Plays a training process, without the process.
  struct Rank {
    explicit Rank(gpu::fake::FakeGpu& gpu) : device(gpu) {}
    gpu::fake::FakeDevice device;
    gpu::DeviceAddress at = 0;
  };

  GpuWorkerTest() { ::setenv("RUEDA_FAKE_GPU", folder_.path().c_str(), 1); }
  ~GpuWorkerTest() override {
    ::unsetenv("RUEDA_FAKE_GPU");
    ::unsetenv("RUEDA_FAKE_GPU_LOSE_AFTER");
    if (worker_) end();
  }

  static GpuWorkerOptions options() {
    GpuWorkerOptions options;
    options.who = "the GPU worker of job j";
    options.uuid[0] = 0xfa;
    return options;
  }
  static Command ruedad(const std::string& plugin = "librueda_gpu_test_fake.so") {
    return {(build_dir() / "bin" / "ruedad").string(), "--gpu-worker",
            (build_dir() / "lib" / plugin).string()};
  }
  static Command of_program(const std::string& script) { return {"/bin/sh", "-c", script}; }
  // Returns the fork server for a command; it has the environment of the first call for it.
  gpu::ForkServer* server(const Command& command) {
    std::unique_ptr<gpu::ForkServer>& server = servers_[command];
    if (!server) server = gpu::ForkServer::start(command).value();
    return server.get();
  }
  void start(const Command& command = ruedad()) { start(options(), command); }
  void start(GpuWorkerOptions options, const Command& command = ruedad()) {
    options.fork_server = server(command);
    GpuWorkerEvents events;
    events.on_ready = [this](const gpu::ReadyBody& body) { name_ = body.name.data(); };
    events.on_memory_added = [this](uint32_t memory, const Status& status) {
      added_.emplace(memory, status);
    };
    events.on_exported = [this](uint32_t memory, const Result<GpuWorkerEvents::Exported>& told) {
      exported_.emplace(memory, told);
    };
    events.on_ended = [this](uint64_t operation, const Status& status) {
      ended_.emplace(operation, status);
    };
    events.on_lost = [this](const Status& status) { lost_ = status; };
    auto made = GpuWorker::start(loop_, metrics_, std::move(options), std::move(events));
    ASSERT_TRUE(made.is_ok()) << made.status().to_string();
    worker_ = std::move(made).value();
  }
  // Waits until the condition is true. Returns false if it takes longer than `most`.
  template <class Condition>
  bool wait_for(Condition condition, std::chrono::milliseconds most = std::chrono::seconds(20)) {
    const auto give_up = std::chrono::steady_clock::now() + most;
    while (!condition()) {
      if (std::chrono::steady_clock::now() > give_up) return false;
      loop_.restart();
      loop_.run_for(std::chrono::milliseconds(2));
    }
    return true;
  }
  // Stops the worker, and waits for its process.
  void end() {
    bool has_ended = false;
    worker_->stop([&] { has_ended = true; });
    EXPECT_TRUE(wait_for([&] { return has_ended; }));
    worker_.reset();
  }
  std::string lost_text() {
    EXPECT_TRUE(wait_for([this] { return lost_.has_value(); }));
    return lost_ ? lost_->message() : "";
  }

  void share_all() {
    worker_->add_memory(
        {.memory = kCounters, .kind = gpu::MemoryKind::kHost, .bytes = counters_.kBytes},
        counters_.duplicate());
    for (uint32_t i = 0; i < 2; ++i) {
      Rank& rank = ranks_[i];
      rank.at = rank.device.allocate(kBytes, i == 0 ? Sharing::kIpc : Sharing::kFd).value();
      put(rank, static_cast<float>(i + 1));
      const gpu::MemoryHandle handle = rank.device.export_memory(rank.at).value();
      const auto kind = i == 0 ? gpu::MemoryKind::kIpc : gpu::MemoryKind::kFd;
      worker_->add_memory({.memory = i,
                           .kind = kind,
                           .bytes = handle.bytes,
                           .uuid = options().uuid,
                           .ipc = handle.ipc},
                          UniqueFd(handle.fd));
    }
    ASSERT_TRUE(wait_for([this] { return added_.size() == 3 || lost_; }));
    for (const auto& [memory, status] : added_) EXPECT_TRUE(status.is_ok()) << status.to_string();
  }
  void put(Rank& rank, float value) {
    const auto host = rank.device.allocate_host(kBytes).value();
    for (uint64_t i = 0; i < kCount; ++i) std::memcpy(host.data() + i * 4, &value, 4);
    const auto stream = rank.device.make_stream(Priority::kLow).value();
    ASSERT_TRUE(stream->copy_to_device(rank.at, host.data(), kBytes).is_ok());
    gpu_.run();
  }
  std::vector<float> values(Rank& rank) {
    const auto host = rank.device.allocate_host(kBytes).value();
    const auto stream = rank.device.make_stream(Priority::kLow).value();
    EXPECT_TRUE(stream->copy_to_host(host.data(), rank.at, kBytes).is_ok());
    gpu_.run();
    std::vector<float> found(kCount);
    std::memcpy(found.data(), host.data(), kBytes);
    return found;
  }
  static std::vector<float> all(float value) { return std::vector<float>(kCount, value); }
  static gpu::WorkerOperation sum_of_two(uint64_t number) {
    gpu::WorkerOperation operation{.number = number};
    operation.segments.push_back({.count = kCount,
                                  .sources = {{.memory = 0}, {.memory = 1}},
                                  .destinations = {{.memory = 0}, {.memory = 1}}});
    return operation;
  }
  static gpu::Place counter(size_t index) { return {.memory = kCounters, .offset = index * 8}; }

  const testing_support::TemporaryFolder folder_;
  std::map<Command, std::unique_ptr<gpu::ForkServer>> servers_;
  boost::asio::io_context loop_;
  observe::Metrics metrics_{{"0", "node", "none"}};
  gpu::fake::FakeGpu gpu_{{.folder = folder_.path()}};
  std::array<Rank, 2> ranks_{Rank(gpu_), Rank(gpu_)};
  gpu::SharedCounters counters_;
  std::unique_ptr<GpuWorker> worker_;
  std::string name_;
  std::map<uint32_t, Status> added_;
  std::map<uint32_t, Result<GpuWorkerEvents::Exported>> exported_;
  std::map<uint64_t, Status> ended_;
  std::optional<Status> lost_;
};

TEST_F(GpuWorkerTest, ReducesMemoryOfOtherProcesses) {
  start();
  EXPECT_EQ(metrics_.daemon().gpu_workers.Value(), 1);
  share_all();
  EXPECT_FALSE(name_.empty());
  gpu::WorkerOperation operation = sum_of_two(1);
  operation.waits = {{counter(0), 1}};
  operation.writes = {{counter(1), 5}};
  ASSERT_TRUE(worker_->run(operation).is_ok());
  EXPECT_FALSE(wait_for([this] { return !ended_.empty(); }, std::chrono::milliseconds(50)));
  counters_.set(0, 1);
  ASSERT_TRUE(wait_for([this] { return !ended_.empty(); }));
  EXPECT_TRUE(ended_.at(1).is_ok()) << ended_.at(1).to_string();
  EXPECT_EQ(counters_.get(1), 5u);
  for (Rank& rank : ranks_) EXPECT_EQ(values(rank), all(3));
  end();
  EXPECT_EQ(metrics_.daemon().gpu_workers.Value(), 0);
  EXPECT_EQ(metrics_.daemon().gpu_worker_losses.Value(), 0);
}

TEST_F(GpuWorkerTest, AWorkerThatIsKilledIsTold) {
  start();
  share_all();
  gpu::WorkerOperation operation = sum_of_two(1);
  operation.waits = {{counter(0), 1}};
  ASSERT_TRUE(worker_->run(operation).is_ok());
  ASSERT_EQ(::kill(only_child(), SIGKILL), 0);
  EXPECT_THAT(lost_text(), HasSubstr("the GPU worker of job j"));
  EXPECT_THAT(lost_text(), HasSubstr("was killed by signal 9"));
  EXPECT_EQ(lost_->code(), Code::kUnavailable);
  EXPECT_TRUE(ended_.empty());
  EXPECT_EQ(metrics_.daemon().gpu_workers.Value(), 0);
  EXPECT_EQ(metrics_.daemon().gpu_worker_losses.Value(), 1);
  // Requests from now on have no effect.
  EXPECT_TRUE(worker_->run(sum_of_two(2)).is_ok());
  worker_->remove_memory(0);
  // Another worker does what this one did not.
  added_.clear();
  lost_.reset();
  start();
  share_all();
  ASSERT_TRUE(worker_->run(sum_of_two(3)).is_ok());
  ASSERT_TRUE(wait_for([this] { return !ended_.empty(); }));
  EXPECT_EQ(values(ranks_[0]), all(3));
}

TEST_F(GpuWorkerTest, AStickyErrorIsTold) {
  ::setenv("RUEDA_FAKE_GPU_LOSE_AFTER", "1", 1);
  start();
  share_all();
  ASSERT_TRUE(worker_->run(sum_of_two(1)).is_ok());
  EXPECT_THAT(lost_text(), HasSubstr("the device has fallen off"));
  EXPECT_EQ(lost_->code(), Code::kUnavailable);
  EXPECT_TRUE(wait_for([this] { return metrics_.daemon().gpu_workers.Value() == 0; }));
}

TEST_F(GpuWorkerTest, AWorkerThatSaysNothingIsKilled) {
  GpuWorkerOptions impatient = options();
  impatient.timeout_ms = 100;
  start(impatient);
  share_all();
  gpu::WorkerOperation operation = sum_of_two(1);
  operation.waits = {{counter(0), 1}};
  ASSERT_TRUE(worker_->run(operation).is_ok());
  // The worker lives, and waits for the application, however long that takes.
  EXPECT_FALSE(wait_for([this] { return lost_.has_value(); }, std::chrono::milliseconds(3000)));
  ASSERT_EQ(::kill(only_child(), SIGSTOP), 0);
  EXPECT_THAT(lost_text(), HasSubstr("said nothing for 2000 ms"));
  EXPECT_EQ(lost_->code(), Code::kTimeout);
  EXPECT_TRUE(wait_for([this] { return metrics_.daemon().gpu_workers.Value() == 0; }));
}

TEST_F(GpuWorkerTest, AWorkerWithNothingToDoMayBeSilent) {
  GpuWorkerOptions impatient = options();
  impatient.timeout_ms = 100;
  start(impatient);
  share_all();
  EXPECT_FALSE(wait_for([this] { return lost_.has_value(); }, std::chrono::milliseconds(2500)));
  // The worker's silence counts from when it is given something.
  ASSERT_EQ(::kill(only_child(), SIGSTOP), 0);
  worker_->add_memory({.memory = 7, .kind = gpu::MemoryKind::kHost, .bytes = counters_.kBytes},
                      counters_.duplicate());
  EXPECT_FALSE(wait_for([this] { return lost_.has_value(); }, std::chrono::milliseconds(500)));
  ASSERT_EQ(::kill(only_child(), SIGCONT), 0);
  EXPECT_TRUE(wait_for([this] { return added_.contains(7); }));
  EXPECT_FALSE(lost_.has_value());
}

TEST_F(GpuWorkerTest, AnotherGpuMayTakeAsLongAsTheFirst) {
  GpuWorkerOptions impatient = options();
  impatient.timeout_ms = 100;
  start(impatient);
  share_all();
  ASSERT_EQ(::kill(only_child(), SIGSTOP), 0);
  gpu::AddMemoryBody others{.memory = 7, .kind = gpu::MemoryKind::kIpc, .bytes = kBytes};
  others.uuid = impatient.uuid;
  others.uuid[15] = 1;
  worker_->add_memory(others, UniqueFd());
  EXPECT_FALSE(wait_for([this] { return lost_.has_value(); }, std::chrono::milliseconds(2500)));
  ASSERT_EQ(::kill(only_child(), SIGCONT), 0);
  ASSERT_TRUE(wait_for([this] { return added_.contains(7); }));
  EXPECT_EQ(added_.at(7).code(), Code::kPermission);  // the number is taken
  EXPECT_THAT(added_.at(7).message(), HasSubstr("GPU-fa000000-0000-0000-0000-000000000001"));
  // The worker knows the memory now.
  ASSERT_EQ(::kill(only_child(), SIGSTOP), 0);
  others.memory = 8;
  worker_->add_memory(others, UniqueFd());
  EXPECT_THAT(lost_text(), HasSubstr("said nothing for 2000 ms"));
}

TEST_F(GpuWorkerTest, AWorkerThatDoesNotGetReadyIsKilled) {
  GpuWorkerOptions hanging = options();
  hanging.start_timeout_ms = 200;
  hanging.timeout_ms = 100;
  start(hanging, of_program("exec sleep 100"));
  EXPECT_THAT(lost_text(), HasSubstr("not become ready for 200 ms"));
  EXPECT_EQ(lost_->code(), Code::kTimeout);
  EXPECT_TRUE(wait_for([this] { return metrics_.daemon().gpu_workers.Value() == 0; }));
}

TEST_F(GpuWorkerTest, AWorkerThatEndsAtOnceIsTold) {
  start(of_program("exit 7"));
  EXPECT_THAT(lost_text(), HasSubstr("ended with code 7"));
}

// A duplicate of the socket stayed open behind each worker, and later ones were not heard.
TEST_F(GpuWorkerTest, AWorkerThatHasGoneLeavesNoDescriptor) {
  const auto open_descriptors = [] {
    const std::filesystem::directory_iterator all("/proc/self/fd");
    return std::distance(std::filesystem::begin(all), std::filesystem::end(all));
  };
  start(of_program("exit 7"));  // The loop opens what it needs.
  EXPECT_THAT(lost_text(), HasSubstr("ended with code 7"));
  end();
  const auto before = open_descriptors();
  for (int i = 0; i < 3; ++i) {
    lost_.reset();
    start(of_program("exit 7"));
    EXPECT_THAT(lost_text(), HasSubstr("ended with code 7"));
    end();
  }
  // What the first one had may still have been open before.
  EXPECT_TRUE(wait_for([&] { return open_descriptors() <= before; })) << open_descriptors();
}

TEST_F(GpuWorkerTest, AWorkerThatHangsUpAndStaysIsKilled) {
  for (const char* program :
       {"exec 3>&-; exec sleep 100", "sleep 0.5; exec 3>&-; exec sleep 100"}) {
    lost_.reset();
    start(of_program(program));
    EXPECT_THAT(lost_text(), HasSubstr("was killed by signal 9")) << program;
    end();
  }
}

TEST_F(GpuWorkerTest, AWorkerThatSaysWhatCannotBeIsKilled) {
  start(of_program("printf 'hello, there' >&3; exec sleep 100"));
  EXPECT_THAT(lost_text(), HasSubstr("what cannot be"));
  EXPECT_EQ(lost_->code(), Code::kInternal);
  EXPECT_TRUE(wait_for([this] { return metrics_.daemon().gpu_workers.Value() == 0; }));
}

// Returns a program that says what has become of the export of memory 7.
std::string says_exported(uint64_t offset, uint64_t bytes, Code code, bool has_fd) {
  return "exec python3 -IS -c 'import os, socket, struct, time\n"
         "told = struct.pack(\"<IQQQiI\", " +
         std::to_string(static_cast<uint32_t>(gpu::WorkerMessage::kExported)) + ", " +
         std::to_string(offset) + ", " + std::to_string(bytes) + ", 7, " +
         std::to_string(static_cast<int>(code)) +
         ", 0)\n"
         "fds = [os.open(\"/dev/null\", os.O_RDONLY)] if " +
         (has_fd ? "True" : "False") +
         " else []\n"
         "own = socket.socket(fileno=3)\n"
         "socket.send_fds(own, [told], fds)\n"
         "time.sleep(100)'";
}

TEST_F(GpuWorkerTest, WhatItExportsIsToldOrWhyItCannot) {
  start(of_program(says_exported(4096, 8192, Code::kOk, true)));
  ASSERT_TRUE(wait_for([this] { return exported_.contains(7); }));
  const gpu::DmaBuf& memory = *exported_.at(7).value();
  EXPECT_TRUE(memory.fd.is_open());
  EXPECT_EQ(memory.offset, 4096u);
  EXPECT_EQ(memory.bytes, 8192u);
  end();
  exported_.clear();
  start(of_program(says_exported(0, 0, Code::kUnavailable, false)));
  ASSERT_TRUE(wait_for([this] { return exported_.contains(7); }));
  EXPECT_EQ(exported_.at(7).status().code(), Code::kUnavailable);
}

TEST_F(GpuWorkerTest, AnExportThatCannotBeIsTheEndOfTheWorker) {
  const std::string cases[] = {
      says_exported(0, 0, Code::kOk, true),           // of nothing
      says_exported(UINT64_MAX, 2, Code::kOk, true),  // beyond all addresses
      says_exported(0, 8192, Code::kOk, false),       // without its descriptor
      says_exported(0, 0, Code::kUnavailable, true),  // with one, and a reason why there is none
  };
  for (const std::string& program : cases) {
    lost_.reset();
    start(of_program(program));
    EXPECT_THAT(lost_text(), HasSubstr("what cannot be")) << program;
    EXPECT_TRUE(exported_.empty());
    end();
  }
}

TEST_F(GpuWorkerTest, AProgramThatIsNotThereCannotBeStarted) {
  GpuWorkerOptions none = options();
  none.fork_server = server({"/nowhere/ruedad"});
  const Status status = GpuWorker::start(loop_, metrics_, none, {}).status();
  EXPECT_EQ(status.code(), Code::kInternal);
  EXPECT_THAT(status.message(), HasSubstr("/nowhere/ruedad"));
  EXPECT_EQ(metrics_.daemon().gpu_workers.Value(), 0);
}

TEST_F(GpuWorkerTest, APluginThatIsNotThereIsTold) {
  start(ruedad("/nowhere/librueda_cuda.so"));
  EXPECT_THAT(lost_text(), HasSubstr("there is no GPU plugin"));
  EXPECT_EQ(lost_->code(), Code::kNotFound);
}

TEST_F(GpuWorkerTest, ADeviceThatIsNotThereIsTold) {
  GpuWorkerOptions other = options();
  other.uuid[15] = 1;
  start(other);
  EXPECT_THAT(lost_text(), HasSubstr("GPU-fa000000-0000-0000-0000-000000000001"));
  EXPECT_EQ(lost_->code(), Code::kNotFound);
}

TEST_F(GpuWorkerTest, OneThatDoesNotGoIsKilled) {
  start(of_program("exec sleep 100"));
  end();
  EXPECT_EQ(metrics_.daemon().gpu_worker_losses.Value(), 0);
}

TEST_F(GpuWorkerTest, ItsOwnerMayEndItWhenItIsTold) {
  GpuWorkerEvents events;
  bool is_lost = false;
  events.on_lost = [&](const Status&) {
    worker_.reset();
    is_lost = true;
  };
  GpuWorkerOptions failing = options();
  failing.fork_server = server(of_program("exit 1"));
  auto made = GpuWorker::start(loop_, metrics_, failing, std::move(events));
  worker_ = std::move(made).value();
  EXPECT_TRUE(wait_for([&] { return is_lost; }));
}

TEST_F(GpuWorkerTest, MoreThanItMayHaveIsRefused) {
  start(of_program("exec sleep 100"));
  Status status;
  uint64_t number = 0;
  while (status.is_ok() && number < 10'000) status = worker_->run(sum_of_two(++number));
  EXPECT_EQ(status.code(), Code::kResourceExhausted);
  EXPECT_THAT(status.message(), HasSubstr("1024 operations"));
}

}  // namespace
}  // namespace rueda::engine
