// The operations of a data job that wait or are under way, and what is remembered of earlier ones:
// with this the table decides what becomes of a frame. It belongs to its data loop.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "daemon/core/model/track.h"
#include "daemon/core/order/agreement.h"
#include "daemon/engine/data/data_job_options.h"
#include "daemon/engine/data/running_operation.h"

namespace rueda::engine {

// Returns the error of a frame that the peer cannot have sent if it keeps to the protocol.
Status broken_frame(const transport::FrameHeader& header, const std::string& what);

// An admission says what is to be done with a frame.
struct Admission {
  enum class Verdict {
    kTaken,    // it belongs to `running`, or to no operation
    kEarly,    // it waits in its slot
    kStale,    // its slot is given back
    kRefused,  // `why` says what is wrong with it
  };
  Verdict verdict;
  RunningOperation* running = nullptr;
  Status why;
};

class OperationTable {
 public:
  using List = std::vector<std::unique_ptr<RunningOperation>>;

  // The options outlive the object.
  explicit OperationTable(const DataJobOptions& options) : options_(options) {}

  // --- Operations that wait for the channels, or for room

  void wait(std::unique_ptr<Operation> operation) { waiting_.push_back(std::move(operation)); }
  const std::vector<std::unique_ptr<Operation>>& waiting() const { return waiting_; }
  // Takes the first one out for which `may_go` returns true, or returns null. All before it are
  // asked, in their order.
  template <class MayGo>
  std::unique_ptr<Operation> take_waiting(MayGo may_go) {
    for (auto it = waiting_.begin(); it != waiting_.end(); ++it) {
      if (!may_go(**it)) continue;
      std::unique_ptr<Operation> taken = std::move(*it);
      waiting_.erase(it);
      return taken;
    }
    return nullptr;
  }

  // --- Operations that are under way

  // The operation is launched; earlier numbers of its track are known to be.
  void note_launched(Seq seq) { last_launched(seq) = seq.value; }
  RunningOperation& add(std::unique_ptr<RunningOperation> running) {
    return *running_.emplace_back(std::move(running));
  }
  const List& running() const { return running_; }
  bool is_idle() const { return running_.empty() && waiting_.empty(); }
  RunningOperation* find(Seq seq) {
    const auto it = std::find_if(running_.begin(), running_.end(),
                                 [&](const auto& r) { return r->operation->seq == seq; });
    return it == running_.end() ? nullptr : it->get();
  }
  // Ends it. Returns false if it is not in this table.
  bool erase(const RunningOperation& running);
  // Takes it out; null if it is not here.
  std::unique_ptr<RunningOperation> extract(Seq seq);
  // Returns whether an operation of the track is under way.
  bool is_busy(core::Track track) const;
  // Returns whether every node has launched one of them.
  bool is_any_launched_everywhere() const;
  // L7: forgets the lockable operations from `cancelled.first` on. `let_go` is called with each
  // that was under way.
  template <class LetGo>
  void cancel(const core::Cancel& cancelled, LetGo let_go) {
    remember(cancelled);
    std::erase_if(waiting_, [&](const auto& item) { return is_of(cancelled, item->seq); });
    std::erase_if(running_, [&](const auto& item) {
      if (!is_of(cancelled, item->operation->seq)) return false;
      let_go(*item);
      return true;
    });
    note_launched_everywhere(cancelled.generation);
  }

  // --- Frames

  // Decides about a frame from that neighbour. If the neighbour means another batch by the number
  // of an operation of a plan, the owner is told, once.
  Admission admit(const transport::FrameHeader& header, NodeIndex from);
  // Returns whether the operation of the frame was cancelled; then its number has, or had, a new
  // generation.
  bool is_stale(const transport::FrameHeader& header) const;
  // Returns whether both sides mean the same operation, or what is wrong. `running` may be null.
  Status check(const RunningOperation* running, const transport::FrameHeader& header,
               NodeIndex from) const;

 private:
  static bool is_of(const core::Cancel& cancelled, Seq seq) {
    return core::track_of(seq) == core::Track::kLockable && seq >= cancelled.first;
  }
  // L9: the neighbour has chosen another alternative of a plan.
  static bool is_of_another_way(const RunningOperation& running,
                                const transport::FrameHeader& header);
  uint64_t& last_launched(Seq seq) { return last_launched_[core::index_of(core::track_of(seq))]; }
  void remember(const core::Cancel& cancelled);
  // L7: every node has launched what is left of the generations before.
  void note_launched_everywhere(uint32_t generation);

  const DataJobOptions& options_;
  std::vector<std::unique_ptr<Operation>> waiting_;
  List running_;                                         // at most one a lane
  std::array<uint64_t, core::kTracks> last_launched_{};  // Seq values
  std::vector<core::Cancel> cancels_;                    // by ascending first and generation
};

}  // namespace rueda::engine
