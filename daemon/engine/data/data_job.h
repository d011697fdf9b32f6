// The data plane of one process set in one epoch of a job on this node. It carries out operations
// in the order in which they are given, and belongs to one data loop.
//
// The work is elsewhere: RingPath takes operations round the ring, whose channels RingLink has, and
// PairwisePath takes those all-reduces that are quicker by messages over a mesh of channels, as
// AlgorithmProbe has measured it. OperationTable knows what is under way, ProgressWatch whether it
// goes on, AwaitedPeers who keeps it from that, and EpochFaults whether all is well. The job
// launches and ends operations.
//
// Where the job is to outlive a node (policy `shrink`), RetainedResults keeps the final values here
// until they are stable, and the data plane of the next epoch can take them over.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include <boost/asio/io_context.hpp>

#include "daemon/base/lifetime.h"
#include "daemon/base/turns.h"
#include "daemon/core/order/agreement.h"
#include "daemon/core/recovery/decision.h"
#include "daemon/engine/channels/ring_link.h"
#include "daemon/engine/channels/traffic_counter.h"
#include "daemon/engine/data/algorithm_probe.h"
#include "daemon/engine/data/awaited_peers.h"
#include "daemon/engine/data/data_host.h"
#include "daemon/engine/data/data_job_options.h"
#include "daemon/engine/data/epoch_faults.h"
#include "daemon/engine/data/operation_table.h"
#include "daemon/engine/data/pairwise_path.h"
#include "daemon/engine/data/progress_watch.h"
#include "daemon/engine/data/retained_results.h"
#include "daemon/engine/data/ring_path.h"
#include "daemon/observe/metrics.h"
#include "daemon/transport/transport.h"

namespace rueda::engine {

class DataJob final : private DataHost {
 public:
  // The loop, the transport and the metrics outlive the object.
  DataJob(boost::asio::io_context& loop, transport::Transport& transport, observe::Metrics& metrics,
          DataJobOptions options);
  ~DataJob();
  DataJob(const DataJob&) = delete;
  DataJob& operator=(const DataJob&) = delete;

  // Opens the channels. Operations may be given before they are open.
  void start();
  // Gives the epoch up on this node: nothing goes on, and the owner is told that the node is lost.
  void fail(const Status& status);
  // Returns whether an operation has been given, and has not ended.
  bool has_work() const { return !operations_.is_idle() || retained_.has_completing(); }
  const std::shared_ptr<const Cause>& cause() const { return options_.cause; }
  // Carries the operation out. One for whose values there is no room waits until earlier ones are
  // stable.
  void run(std::unique_ptr<Operation> operation);
  // Another round of the operation's input has reached host memory (Operation::rounds_here). The
  // call is ignored if the operation has not been launched here, or has finished.
  void rounds_came(Seq seq);
  // L7: forgets the lockable operations from `first` on. Their frames, here and under way, are
  // dropped, and their slots given back.
  void cancel(const core::Cancel& cancelled);
  // Calls back once the neighbours have taken everything sent to them, or nothing more is sent. For
  // as long as they take something, or say by their acknowledgements that they have it, that may
  // take any time; a neighbour that does neither is lost after timeout_ms.
  void when_quiet(std::function<void()> handler) { watch_.when_quiet(std::move(handler)); }
  // Brings the neighbours' traffic counters up to date: the last frames of an operation go out
  // after its end here.
  void count_traffic();

  // --- Recovery, policy `shrink` on more than one node (docs/protocol.md, R1 to R4)

  // From now on nothing is sent, received, launched or handed back any more.
  void seal();
  // R3: reports what a sealed epoch holds. `delivered` in it says that the owner was told; the
  // owner knows whether it told the clients.
  core::Report report(core::Track track) const { return retained_.of(track)->report(); }
  // Returns the final values of a chunk that is held (checked), for a node that lacks them.
  std::span<const std::byte> final_chunk(Seq seq, uint32_t chunk) const {
    return retained_.of(seq)->chunk(seq, chunk);
  }
  // Is called before start(), for each track: takes over from the sealed epoch before what the
  // decision says. COMPLETE operations are done once take_final() has brought the chunks that are
  // missing. To be given to run(), under their new numbers and before any other, are REDO
  // operations, again, and COMPLETE ones that this node had not launched (broadcasts: they may end
  // before all have begun).
  void carry_over(DataJob& before, core::Track track, const core::TrackDecision& decision);
  // A REDO operation cannot be run, because the root of the broadcast is lost. All nodes call this
  // alike.
  void abandon(Seq seq) { retained_.of(seq)->abandon(seq); }
  // Returns whether the operation is COMPLETE and waits for chunks.
  bool is_completing(Seq seq) const { return retained_.is_completing(seq); }
  // Takes a chunk of such an operation, fetched from another node. The error is kInternal if nobody
  // waits for the chunk, or if it has another size.
  [[nodiscard]] Status take_final(Seq seq, uint32_t chunk, std::span<const std::byte> values);
  // All nodes have completed the operations up to here, as is known from elsewhere (heartbeats).
  void note_stable(Seq seq);
  // Returns the bytes of final values that are not stable.
  int64_t unstable_bytes(core::Track track) const;

 private:
  // The next step of the start is due: an error of the probe is the previous node's; once the
  // algorithms are known, launching begins.
  void go_on_starting(const Status& probed);
  void launch(std::unique_ptr<Operation> operation);
  int64_t chunk_bytes_of(const Operation& operation) const;
  void launch_between_nodes(RunningOperation& running);
  // Does the first turn of an operation on one node, now or when it is the job's turn.
  void begin_locally(RunningOperation& running);
  // Does `work` with the operation in one of the job's next turns, if it is under way then.
  template <class Work>
  void in_turn(Seq seq, Work work);
  // Does a turn of an operation on one node.
  void run_locally(RunningOperation& running);
  // Does a turn of the passes over the ranks' memory that an Adasum begins with.
  void weigh(RunningOperation& running);
  // Does a turn of writing all of F to the outputs.
  void hand_back(RunningOperation& running);
  void finish(RunningOperation& running);

  // --- DataHost
  void on_open() override;
  void on_notice(const transport::FrameHeader& header, std::span<std::byte> payload) override;
  void on_probe_sent() override;
  void launch_waiting() override;
  void complete(RunningOperation& running) override;
  void refuse(const transport::FrameHeader& header, NodeIndex from, const Status& status) override;
  void give_up(NodeIndex peer, const Status& status) override;

  transport::Transport& transport_;
  observe::Metrics& metrics_;
  const DataJobOptions options_;
  const std::shared_ptr<Turns::Party> turns_ = options_.turns->party(options_.job);
  const uint32_t chunk_bytes_;  // as configured, or what fits
  OperationKernels kernels_;
  std::vector<OperationKernels> pass_kernels_;  // by thread
  RingLink link_;
  OperationTable operations_;
  EpochFaults faults_;
  AwaitedPeers awaited_;
  ProgressWatch watch_;
  RetainedResults retained_;
  AlgorithmProbe probe_;
  RingPath ring_;
  PairwisePath mesh_;
  TrafficCounter traffic_;
  Lifetime lifetime_;
};

}  // namespace rueda::engine
