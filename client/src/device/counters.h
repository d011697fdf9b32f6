// The counters by which streams and the GPU worker wait for each other (rueda_abi_device_kind): two
// words for each ticket in flight, in memory that this process and the worker have pinned.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "client/src/device/driver.h"
#include "client/src/wire/unique_fd.h"
#include "daemon/base/status.h"

namespace rueda::client {

// Thread-safe.
class DeviceCounters {
 public:
  // For tickets that differ modulo `capacity`, a power of two. The driver outlives it.
  static Result<std::unique_ptr<DeviceCounters>> create(DeviceDriver& driver, uint32_t capacity);
  // No stream has been told of it.
  ~DeviceCounters();
  // For good: a stream that is behind its host has yet to read what it was told to wait for, and
  // nobody knows when it has.
  static DeviceCounters& keep(std::unique_ptr<DeviceCounters> counters);
  DeviceCounters(const DeviceCounters&) = delete;
  DeviceCounters& operator=(const DeviceCounters&) = delete;

  int memfd() const { return memfd_.get(); }
  size_t bytes() const { return memory_.size(); }
  void close_memfd() { memfd_.reset(); }

  // kInvalidArgument: it cannot do any of the following now.
  Status check_stream(StreamBeside stream) { return driver_.check_stream(stream); }
  // The ticket's input is there when the stream has done what it has now.
  Status announce(StreamBeside stream, uint64_t ticket);
  // It is there.
  void announce_now(uint64_t ticket);
  bool is_announced(uint64_t ticket) const { return has_reached(ready_at(ticket), ticket); }
  // The stream goes on when the ticket's output is there.
  Status wait(StreamBeside stream, uint64_t ticket);
  bool is_done(uint64_t ticket) const { return has_reached(done_at(ticket), ticket); }
  // Whoever waits for the ticket's output goes on, if the worker has not seen to it.
  void release(uint64_t ticket);

 private:
  DeviceCounters(DeviceDriver& driver, UniqueFd memfd, std::span<std::byte> memory,
                 uint32_t capacity, uint64_t on_device)
      : driver_(driver),
        memfd_(std::move(memfd)),
        memory_(memory),
        capacity_(capacity),
        on_device_(on_device) {}
  uint64_t ready_at(uint64_t ticket) const { return (ticket & (capacity_ - 1)) * sizeof(uint64_t); }
  uint64_t done_at(uint64_t ticket) const {
    return ready_at(ticket) + uint64_t{capacity_} * sizeof(uint64_t);
  }
  bool has_reached(uint64_t offset, uint64_t value) const;
  void raise(uint64_t offset, uint64_t value);

  DeviceDriver& driver_;
  UniqueFd memfd_;
  const std::span<std::byte> memory_;
  const uint32_t capacity_;
  const uint64_t on_device_;  // where the device has it
};

}  // namespace rueda::client
