// Counters in a memfd that cannot shrink, as a client shares them.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "daemon/base/check.h"
#include "daemon/base/fd.h"

namespace rueda::gpu {

class SharedCounters {
 public:
  static constexpr size_t kBytes = 4096;

  SharedCounters() : fd_(::memfd_create("counters", MFD_CLOEXEC | MFD_ALLOW_SEALING)) {
    RUEDA_CHECK(::ftruncate(fd_.get(), kBytes) == 0);
    RUEDA_CHECK(::fcntl(fd_.get(), F_ADD_SEALS, F_SEAL_SHRINK) == 0);
    void* const at = ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd_.get(), 0);
    RUEDA_CHECK(at != MAP_FAILED);
    counters_ = static_cast<uint64_t*>(at);
  }
  ~SharedCounters() { ::munmap(counters_, kBytes); }
  SharedCounters(const SharedCounters&) = delete;
  SharedCounters& operator=(const SharedCounters&) = delete;

  UniqueFd duplicate() const { return UniqueFd(::fcntl(fd_.get(), F_DUPFD_CLOEXEC, 0)); }
  uint64_t get(size_t index) const { return std::atomic_ref(counters_[index]).load(); }
  void set(size_t index, uint64_t value) { std::atomic_ref(counters_[index]).store(value); }

 private:
  UniqueFd fd_;
  uint64_t* counters_ = nullptr;
};

}  // namespace rueda::gpu
