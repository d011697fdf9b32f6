// Runs the data plane of a whole job in one process and one thread: a DataJob for each node, on
// in-process transports that share one io_context. The test decides what happens next.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <boost/asio/io_context.hpp>

#include "daemon/engine/data/data_job.h"
#include "tests/engine/operation_fixture.h"
#include "tests/transport/mem/mem_transport.h"

namespace rueda::engine::testing {

// The job of all rings, on the data plane.
inline constexpr transport::JobKey kRingKey(77, 5);

struct RingOptions {
  std::vector<int> ranks_per_node{1, 1};
  uint64_t chunk_bytes = 4096;
  uint64_t widest_chunk_bytes = 0;
  uint64_t staging_bytes = 64u << 20;
  int lanes = 4;
  TicksMs timeout_ms = 60'000;
  bool corrupt = false;
  bool shares_staging = false;
  core::DeathPolicy policy = core::DeathPolicy::kFail;
  core::AlgorithmChoice algorithm = core::AlgorithmChoice::kRing;
};

class Ring {
 public:
  struct Node {
    std::unique_ptr<transport::Transport> transport;
    std::unique_ptr<DataJob> job;  // a test may destroy it
    std::vector<Seq> done;
    std::vector<std::pair<Seq, Status>> failed;
    std::vector<std::pair<NodeIndex, Status>> lost;
    std::function<void(Seq, int rounds)> on_rounds_done;  // null: nobody asks
  };

  explicit Ring(RingOptions options);
  ~Ring();

  int size() const { return static_cast<int>(nodes_.size()); }
  Node& node(int index) { return nodes_[static_cast<size_t>(index)]; }
  boost::asio::io_context& io() { return io_; }
  observe::Metrics& metrics() { return metrics_; }

  // Adds the next operation of the order, which is launched nowhere yet.
  OperationFixture& add(OperationSpec spec);
  OperationFixture& work(size_t index) { return *works_[index]; }
  size_t works() const { return works_.size(); }
  // Launches the node's next operation, if core's window (lanes) would let it.
  bool launch_next(int node);
  // Launches on every node what the window lets it, until everything is done everywhere.
  bool run_all();
  // Runs handlers until the condition holds; false when it never comes true.
  bool run_until(const std::function<bool()>& condition);
  // Runs what is ready, until nothing is.
  void settle() {
    while (poll()) {
    }
  }
  bool poll();
  bool all_done();
  // Returns what is wrong with any result, or "" when nothing is.
  std::string check();
  // Returns the most that a node may hold of values that are not stable: the bound, or one
  // operation.
  int64_t max_unstable_bytes() const;

 private:
  const RingOptions options_;
  boost::asio::io_context io_{1};
  Turns turns_{io_, kTurnBytes, kLongestTurn};
  std::shared_ptr<transport::MemNetwork> network_ = transport::make_mem_network();
  observe::Metrics metrics_{{"0", "test", "none"}};
  std::vector<std::unique_ptr<OperationFixture>> works_;
  std::vector<size_t> launched_;  // number by node
  std::vector<Node> nodes_;
};

// Returns options of a DataJob whose events nobody hears. A DataLoop has turns of its own.
DataJobOptions data_job_options(int nodes, int self, Turns* turns = nullptr);

}  // namespace rueda::engine::testing
