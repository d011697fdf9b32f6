// Simulates a driver whose allocations the test makes and frees, and which counts the questions
// that it is asked.
#pragma once

#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <set>
#include <utility>

#include <gtest/gtest.h>
#include <unistd.h>

#include "client/src/device/driver.h"

namespace rueda::client {

class ScriptedDriver final : public DeviceDriver {
 public:
  void allocate(uint64_t base, uint64_t bytes, bool by_fd = false, uint8_t gpu = 1) {
    allocations_[base] = {bytes, ++last_id_, by_fd, gpu};
  }
  void free(uint64_t base) { allocations_.erase(base); }

  Result<DeviceAllocation> find(uint64_t address) override {
    ++finds;
    const auto* found = at(address);
    if (found == nullptr) return Status{Code::kInvalidArgument, "no memory of a GPU's"};
    return DeviceAllocation{
        found->first, found->second.bytes, found->second.id, {found->second.gpu}};
  }
  uint64_t buffer_id(uint64_t address) override {
    const auto* found = at(address);
    return found == nullptr ? 0 : found->second.id;
  }
  Result<ExportedMemory> export_memory(const DeviceAllocation& allocation) override {
    ++exports;
    ExportedMemory exported;
    exported.is_fd = allocations_.at(allocation.base).by_fd;
    exported.fd = exported.is_fd ? UniqueFd(::dup(0)) : UniqueFd();
    exported.ipc[0] = static_cast<std::byte>(allocation.buffer_id);
    return exported;
  }

  // Pinned host memory has the same address on the device.
  Result<uint64_t> register_host(std::span<std::byte> memory) override {
    if (!register_fails.is_ok()) return register_fails;
    pinned.insert(memory.data());
    return reinterpret_cast<uint64_t>(memory.data());
  }
  void unregister_host(std::byte* memory) override { EXPECT_EQ(pinned.erase(memory), 1u); }

  // advance() does the work of streams. Streams see device memory at its host address.
  Result<void*> make_stream() override { return static_cast<void*>(&own_stream); }
  void free_stream(void* stream) override { EXPECT_EQ(stream, &own_stream); }
  Status synchronize(void* stream) override {
    advance(stream);
    return streams_[stream].empty() ? Status::ok() : Status(Code::kTimeout, "it waits");
  }
  Status check_stream(StreamBeside) override { return Status::ok(); }
  Status write_value(StreamBeside stream, uint64_t counter, uint64_t value) override {
    return queue(stream.handle, [counter, value] {
      *reinterpret_cast<uint64_t*>(counter) = value;
      return true;
    });
  }
  Status wait_value(StreamBeside stream, uint64_t counter, uint64_t value) override {
    return queue(stream.handle, [counter, value] {
      return static_cast<int64_t>(*reinterpret_cast<uint64_t*>(counter) - value) >= 0;
    });
  }
  Status copy_to_host(StreamBeside stream, std::byte* to, uint64_t from, size_t bytes) override {
    if (!copy_fails.is_ok()) return copy_fails;
    return queue(stream.handle, [=] {
      std::memcpy(to, reinterpret_cast<const void*>(from), bytes);
      return true;
    });
  }
  Status copy_to_device(StreamBeside stream, uint64_t to, const std::byte* from,
                        size_t bytes) override {
    return queue(stream.handle, [=] {
      std::memcpy(reinterpret_cast<void*>(to), from, bytes);
      return true;
    });
  }
  void advance(void* stream) {
    auto& work = streams_[stream];
    while (!work.empty() && work.front()()) work.pop_front();
  }

  Status register_fails;
  Status copy_fails;
  std::set<std::byte*> pinned;
  char own_stream = 0;

  int finds = 0;
  int exports = 0;

 private:
  Status queue(void* stream, std::function<bool()> work) {
    streams_[stream].push_back(std::move(work));
    return Status::ok();
  }

  struct Allocation {
    uint64_t bytes = 0;
    uint64_t id = 0;
    bool by_fd = false;
    uint8_t gpu = 1;
  };
  const std::pair<const uint64_t, Allocation>* at(uint64_t address) const {
    const auto after = allocations_.upper_bound(address);
    if (after == allocations_.begin()) return nullptr;
    const auto& found = *std::prev(after);
    return address - found.first < found.second.bytes ? &found : nullptr;
  }
  std::map<void*, std::deque<std::function<bool()>>> streams_;
  std::map<uint64_t, Allocation> allocations_;
  uint64_t last_id_ = 0;
};

}  // namespace rueda::client
