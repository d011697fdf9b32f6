// The times at which an operation passed the stages of the data plane. The loop that carries the
// operation out writes them, and they are read when it has ended. Operations have such a trace
// while a timeline is recorded.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "daemon/base/clock.h"

namespace rueda::engine {

struct OperationTrace {
  // A stage lasts from its first piece of work to its last.
  struct Stage {
    int64_t first_ns = 0;  // It is 0 if there was none.
    int64_t last_ns = 0;
    int64_t busy_ns = 0;

    void note(int64_t begin_ns, int64_t end_ns) {
      if (first_ns == 0) first_ns = begin_ns;
      last_ns = end_ns;
      busy_ns += end_ns - begin_ns;
    }
  };
  struct Chunk {
    int64_t at_ns = 0;
    uint32_t number = 0;
  };
  static constexpr size_t kMaxChunks = 1024;

  explicit OperationTrace(bool wants_chunks) : has_chunks(wants_chunks) {}

  void note_sent() {
    const int64_t now_ns = steady_now_ns();
    ring.note(now_ns, now_ns);
  }
  void note_received(uint32_t chunk) {
    const int64_t now_ns = steady_now_ns();
    ring.note(now_ns, now_ns);
    if (!has_chunks) return;
    if (chunks.size() < kMaxChunks) {
      chunks.push_back({now_ns, chunk});
    } else {
      ++chunks_dropped;
    }
  }

  const bool has_chunks;
  int64_t begun_ns = 0;  // It is 0 if the operation has not been begun.
  Stage local_reduce;
  Stage ring;
  Stage copy_out;
  std::vector<Chunk> chunks;
  uint64_t chunks_dropped = 0;
};

// Notes a piece of work that lasts from here to the end of the block. With null there is no
// timeline, and it does nothing.
class StageTimer {
 public:
  StageTimer(OperationTrace* trace, OperationTrace::Stage OperationTrace::*stage)
      : stage_(trace ? &(trace->*stage) : nullptr), begin_ns_(trace ? steady_now_ns() : 0) {}
  ~StageTimer() {
    if (stage_) stage_->note(begin_ns_, steady_now_ns());
  }
  StageTimer(const StageTimer&) = delete;
  StageTimer& operator=(const StageTimer&) = delete;

 private:
  OperationTrace::Stage* const stage_;
  const int64_t begin_ns_;
};

}  // namespace rueda::engine
