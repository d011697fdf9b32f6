// The counters by which streams and the GPU worker wait for each other (rueda_abi_device_kind):
// there are two words for each ticket in flight, in memory that this process and the worker have
// pinned.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "client/src/device/driver.h"
#include "daemon/base/fd.h"
#include "daemon/base/status.h"

namespace rueda::client {

// This class is thread-safe.
class DeviceCounters {
 public:
  // Creates counters for tickets that differ modulo `capacity`, a power of two. The driver must
  // outlive the counters.
  static Result<std::unique_ptr<DeviceCounters>> create(DeviceDriver& driver, uint32_t capacity);
  // The counters may be destroyed only if no stream has been given work on them.
  ~DeviceCounters();
  // Keeps the counters until the process ends: a stream that lags behind its host has yet to read
  // the word that it was told to wait for, and nobody knows when it has read it.
  static DeviceCounters& keep(std::unique_ptr<DeviceCounters> counters);
  DeviceCounters(const DeviceCounters&) = delete;
  DeviceCounters& operator=(const DeviceCounters&) = delete;

  int memfd() const { return memfd_.get(); }
  size_t bytes() const { return memory_.size(); }
  void close_memfd() { memfd_.reset(); }

  // Returns kInvalidArgument if the stream cannot take the work of any of the functions below now.
  Status check_stream(StreamBeside stream) { return driver_.check_stream(stream); }
  // Makes the stream announce the ticket's input when it has done the work that it has now.
  Status announce(StreamBeside stream, uint64_t ticket);
  // Announces the ticket's input at once: it is ready.
  void announce_now(uint64_t ticket);
  bool is_announced(uint64_t ticket) const { return has_reached(ready_at(ticket), ticket); }
  // Makes the stream wait until the ticket's output is ready.
  Status wait(StreamBeside stream, uint64_t ticket);
  bool is_done(uint64_t ticket) const { return has_reached(done_at(ticket), ticket); }
  // Lets streams that wait for the ticket's output go on, if the worker has not done so.
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
  const uint64_t on_device_;  // address of the counters on the device
};

}  // namespace rueda::client
