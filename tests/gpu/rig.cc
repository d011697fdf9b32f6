#include "tests/gpu/rig.h"

#include <array>
#include <chrono>
#include <cstring>
#include <list>
#include <optional>
#include <thread>

#include "tests/gpu/fake/fake_device.h"
#include "tests/support/temporary_folder.h"

namespace rueda::gpu {
namespace {

using fake::FakeDevice;
using fake::FakeGpu;
using fake::FakeRunner;

// The time after which a test has hung. Kernels are interpreted, which takes seconds under the
// thread sanitizer, and many times that beside other tests.
constexpr std::chrono::seconds kLong{120};

class FakeNeighbour final : public Neighbour {
 public:
  explicit FakeNeighbour(std::shared_ptr<FakeGpu> gpu) : gpu_(std::move(gpu)), device_(*gpu_) {}

  Result<MemoryHandle> share(size_t bytes, uint8_t seed, Sharing sharing) override {
    const Result<DeviceAddress> at = device_.allocate(bytes, sharing);
    if (!at.is_ok()) return at.status();
    const auto host = device_.allocate_host(bytes).value();
    for (size_t i = 0; i < bytes; ++i) host[i] = shared_byte(i, seed);
    auto stream = device_.make_stream(Priority::kLow).value();
    if (Status status = stream->copy_to_device(at.value(), host.data(), bytes); !status.is_ok()) {
      return status;
    }
    while (!stream->is_idle().value()) gpu_->step();
    last_ = at.value();
    return device_.export_memory(at.value());
  }
  Status take_back() override { return device_.free(last_); }

 private:
  std::shared_ptr<FakeGpu> gpu_;
  FakeDevice device_;
  DeviceAddress last_ = 0;
};

// A rig of a GPU and another one.
class FakeRig final : public Rig {
 public:
  FakeRig(const DeviceOptions& options, uint64_t seed, bool has_thread)
      : gpus_{make_gpu(0, seed), make_gpu(1, seed + 1)}, device_(*gpus_[0], options) {
    if (!has_thread) return;
    for (const auto& gpu : gpus_) runners_.emplace_back(*gpu);
  }

  Device& device() override { return device_; }
  Result<Device*> peer() override {
    if (!peer_) peer_.emplace(*gpus_[1]);
    return &*peer_;
  }
  void wait_a_little() override {
    if (runners_.empty()) {
      for (const auto& gpu : gpus_) gpu->step();
    } else {
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  }
  std::unique_ptr<Neighbour> make_neighbour(bool is_peers) override {
    return std::make_unique<FakeNeighbour>(gpus_[is_peers ? 1 : 0]);
  }

 private:
  static std::shared_ptr<FakeGpu> make_gpu(int ordinal, uint64_t seed) {
    return std::make_shared<FakeGpu>(fake::FakeOptions{.seed = seed, .ordinal = ordinal});
  }

  const std::array<std::shared_ptr<FakeGpu>, 2> gpus_;
  FakeDevice device_;
  std::optional<FakeDevice> peer_;
  std::list<FakeRunner> runners_;
};

// A rig whose neighbour has GPUs of its own over the same files, as two processes have of one GPU.
class FakeFilesRig final : public Rig {
 public:
  explicit FakeFilesRig(const DeviceOptions& options) : device_(*gpus_[0], options) {}

  Device& device() override { return device_; }
  Result<Device*> peer() override {
    if (!peer_) peer_.emplace(*gpus_[1]);
    return &*peer_;
  }
  void wait_a_little() override {
    for (const auto& gpu : gpus_) gpu->step();
  }
  std::unique_ptr<Neighbour> make_neighbour(bool is_peers) override {
    return std::make_unique<FakeNeighbour>(make_gpu(is_peers ? 1 : 0));
  }
  void remove_folder() const override { folder_.remove(); }

 private:
  std::shared_ptr<FakeGpu> make_gpu(int ordinal) {
    return std::make_shared<FakeGpu>(
        fake::FakeOptions{.ordinal = ordinal, .folder = folder_.path()});
  }

  const testing_support::TemporaryFolder folder_;
  const std::array<std::shared_ptr<FakeGpu>, 2> gpus_{make_gpu(0), make_gpu(1)};
  FakeDevice device_;
  std::optional<FakeDevice> peer_;
};

RigMaker fake_rig(const std::string& name, uint64_t seed, bool has_thread) {
  return {name, [seed, has_thread](const DeviceOptions& options) -> Result<std::unique_ptr<Rig>> {
            return std::unique_ptr<Rig>(std::make_unique<FakeRig>(options, seed, has_thread));
          }};
}

}  // namespace

std::vector<RigMaker> all_rigs() {
  return {fake_rig("fake", 1, false),
          fake_rig("fake_otherwise", 4711, false),
          fake_rig("fake_thread", 2, true),
          {"fake_files",
           [](const DeviceOptions& options) -> Result<std::unique_ptr<Rig>> {
             return std::unique_ptr<Rig>(std::make_unique<FakeFilesRig>(options));
           }},
          cuda_rig()};
}

std::string rig_name(const testing::TestParamInfo<RigMaker>& info) { return info.param.name; }

void GpuConformance::open(const DeviceOptions& options) {
  copies_.reset();
  rig_.reset();
  Result<std::unique_ptr<Rig>> made = GetParam().make(options);
  if (!made.is_ok()) GTEST_SKIP() << made.status().to_string();
  rig_ = std::move(made).value();
  copies_ = make_stream();
}

std::unique_ptr<Stream> GpuConformance::make_stream(Priority priority) {
  auto made = device().make_stream(priority);
  EXPECT_TRUE(made.is_ok()) << made.status().to_string();
  return made.is_ok() ? std::move(made).value() : nullptr;
}

bool GpuConformance::wait_for(const std::function<bool()>& done) {
  const auto give_up = std::chrono::steady_clock::now() + kLong;
  while (!done()) {
    if (std::chrono::steady_clock::now() > give_up) return false;
    rig_->wait_a_little();
  }
  return true;
}

Status GpuConformance::finish(Stream& stream) {
  Status failed;
  const bool is_done = wait_for([&] {
    const Result<bool> idle = stream.is_idle();
    failed = idle.status();
    return !idle.is_ok() || idle.value();
  });
  return is_done ? failed : Status(Code::kTimeout, "the stream hangs");
}

void GpuConformance::wait_a_while() {
  for (int i = 0; i < 200; ++i) rig_->wait_a_little();
}

DeviceAddress GpuConformance::allocate(uint64_t bytes, Sharing sharing) {
  const Result<DeviceAddress> at = device().allocate(bytes, sharing);
  EXPECT_TRUE(at.is_ok()) << at.status().to_string();
  return at.is_ok() ? at.value() : 0;
}

void GpuConformance::expect_all_may_be_allocated() {
  const DeviceAddress all = allocate(kLimitBytes);
  EXPECT_TRUE(device().free(all).is_ok());
}

std::span<std::byte> GpuConformance::pinned(size_t bytes) {
  const auto made = device().allocate_host(bytes);
  EXPECT_TRUE(made.is_ok()) << made.status().to_string();
  return made.is_ok() ? made.value() : std::span<std::byte>();
}

uint64_t* GpuConformance::counter() {
  return reinterpret_cast<uint64_t*>(pinned(sizeof(uint64_t)).data());
}

void GpuConformance::put(DeviceAddress to, std::span<const std::byte> bytes) {
  const auto host = pinned(bytes.size());
  std::memcpy(host.data(), bytes.data(), bytes.size());
  EXPECT_TRUE(copies_->copy_to_device(to, host.data(), bytes.size()).is_ok());
  EXPECT_TRUE(finish(*copies_).is_ok());
  EXPECT_TRUE(device().free_host(host.data()).is_ok());
}

std::vector<std::byte> GpuConformance::get(DeviceAddress from, size_t bytes) {
  const auto host = pinned(bytes);
  EXPECT_TRUE(copies_->copy_to_host(host.data(), from, bytes).is_ok());
  const Status status = finish(*copies_);
  EXPECT_TRUE(status.is_ok()) << status.to_string();
  std::vector<std::byte> out(host.begin(), host.end());
  EXPECT_TRUE(device().free_host(host.data()).is_ok());
  return out;
}

}  // namespace rueda::gpu
