// Which allocations of device memory the daemon knows: the pointer cache. An allocation is exported
// and sent once, however many tensors lie in it.
//
// Memory that was freed and comes again at the same address is another allocation: the driver gives
// it another buffer id, which is asked for at every use. Whoever sees memory freed may say so
// (forget()); then nothing stays open for it. Whoever promises to say so each time
// (announce_frees()) has the driver asked now and then only: the pointer cache of Awan et al.
// (2019), with intercepted frees.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>

#include "client/abi/rueda_abi.h"
#include "client/src/device/driver.h"
#include "daemon/base/status.h"

namespace rueda::client {

// Thread-safe.
class DeviceMemories {
 public:
  // How the daemon is told.
  struct Registrar {
    std::function<Result<uint32_t>(const rueda_abi_device_memory&, int fd)> add;
    std::function<Status(uint32_t id)> remove;
  };
  struct Place {
    uint32_t memory_id = 0;
    uint64_t offset = 0;
  };
  // With announced frees, so many uses of known memory are one question to the driver.
  static constexpr uint64_t kUsesACheck = 256;

  struct Stats {
    uint64_t hits = 0;
    uint64_t misses = 0;
    uint64_t recycled = 0;  // misses whose address had been another allocation's
    uint64_t known = 0;     // allocations, now
    uint64_t checks = 0;    // questions to the driver of known memory
  };

  // The driver outlives it.
  DeviceMemories(DeviceDriver& driver, Registrar registrar)
      : driver_(driver), registrar_(std::move(registrar)) {}

  // bytes > 0. kInvalidArgument: no device memory, or more than one allocation.
  Result<Place> locate(uint64_t address, size_t bytes);
  // The allocation that the address lies in is about to be freed, or has been. Unknown ones are
  // fine. kInvalidArgument: a submission in flight uses it; it stays known.
  Status forget(uint64_t address);
  // Whether forget() is called before any memory is freed. A check that finds that it was not ends
  // that, and says so on standard error: from then on every use is checked.
  void announce_frees(bool are_announced);
  Stats stats() const;

 private:
  struct Known {
    uint64_t bytes = 0;
    uint64_t buffer_id = 0;
    uint32_t memory_id = 0;
  };
  using Entry = std::map<uint64_t, Known>::iterator;  // by base

  Entry find(uint64_t address);
  bool is_as_known(uint64_t address, const Known& known);
  Status drop(Entry entry);
  Result<Entry> add(uint64_t address);

  DeviceDriver& driver_;
  const Registrar registrar_;
  mutable std::mutex mutex_;  // held while the daemon is asked: two threads do not ask for the same
  std::map<uint64_t, Known> known_;
  bool are_frees_announced_ = false;
  uint64_t unchecked_ = 0;  // uses since the last check
  Stats stats_;
};

}  // namespace rueda::client
