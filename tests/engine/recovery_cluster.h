// Runs a job whose nodes die, for tests of the data plane's part in recovery: DataJobs under policy
// `shrink` in one process and one thread, a driver in the place of the control plane that carries
// out core's decisions, and clients that overwrite all of their memory as soon as they are told
// that an operation is done.
#pragma once

#include <array>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include <boost/asio/io_context.hpp>

#include "daemon/core/recovery/decision.h"
#include "daemon/engine/data/data_job.h"
#include "tests/engine/operation_fixture.h"
#include "tests/transport/mem/mem_transport.h"

namespace rueda::engine::testing {

struct SurvivorOptions {
  std::vector<int> ranks_per_node{1, 1};  // has 8 ranks at most
  uint64_t staging_bytes = 64u << 20;
  uint32_t seed = 1;                      // determines everything that happens
  std::vector<OperationSpec> reductions;  // are float32, sum or average, in the order of launches
  std::vector<OperationSpec> broadcasts;  // are float32
};

class RecoveryCluster {
 public:
  explicit RecoveryCluster(SurvivorOptions options);
  ~RecoveryCluster();

  // Runs one turn of the loop, and what the nodes do beside it. Returns false when everything is
  // over.
  bool turn();
  bool run_to_the_end();
  // Kills the node; some turns later all others have sealed, and go on without it.
  void kill(int victim);

  // Returns the first thing that was wrong, or "" if nothing was.
  const std::string& wrong() const { return wrong_; }
  // These return what became of the operations that were under way at the deaths.
  int completed() const { return completed_; }
  int repeated() const { return repeated_; }
  int fetched() const { return fetched_; }
  // Hands over a chunk that no node has asked for.
  Status stray_chunk() { return node(members_.front()).job->take_final(Seq{1}, 0, {}); }
  double unstable_bytes() { return metrics_.daemon().unstable_bytes.Value(); }

 private:
  using Members = std::vector<NodeIndex>;  // by their index in the first epoch, ascending

  struct Item {
    std::unique_ptr<OperationFixture> work;
    Members contributors;
    std::vector<float> root_values;  // for a broadcast
  };
  struct Order {                  // the order of one track, the same on all nodes
    std::vector<Item*> items;     // by number - 1; null: the operation is over
    std::vector<bool> is_to_run;  // by number - 1
  };
  struct Node {
    std::unique_ptr<transport::Transport> transport;
    std::unique_ptr<DataJob> job;                  // null if the node is dead
    std::array<size_t, core::kTracks> launched{};  // the numbers that were looked at
    std::map<Seq, Item*> under_way;
    std::map<Seq, Item*> late;                          // COMPLETE, and not launched here before
    std::map<const Item*, std::vector<float>> results;  // as the item's first rank was told
  };
  struct Fetch {
    Seq seq;
    uint32_t chunk;
    NodeIndex from, to;
  };

  int draw(int low, int high) { return std::uniform_int_distribution<int>(low, high)(random_); }
  Node& node(NodeIndex index) { return nodes_[static_cast<size_t>(index.value)]; }
  void fail(const std::string& what) {
    if (wrong_.empty()) wrong_ = what;
  }
  DataJobOptions job_options(NodeIndex self);
  bool poll();
  void launch_next(NodeIndex index, core::Track track);
  void launch(NodeIndex index, Seq seq, Item& item);
  void fetch_next();
  void on_done(NodeIndex index, Seq seq);
  std::vector<float> expected(const Item& item) const;
  std::vector<int> ranks_of(NodeIndex node) const;
  int ranks_in(const Members& members) const;
  bool is_member(NodeIndex node) const;
  bool has_root(const Item& item) const;
  bool is_over();
  void check_bounds();
  void check_end();
  void decide(core::Track track, const Members& before,
              const std::map<NodeIndex, core::Report>& reports,
              std::map<NodeIndex, std::unique_ptr<DataJob>>& next);

  const SurvivorOptions options_;
  std::mt19937 random_;
  PassThreads pass_threads_{1};
  boost::asio::io_context io_{1};
  Turns turns_{io_, kTurnBytes, kLongestTurn};
  std::shared_ptr<transport::MemNetwork> network_ = transport::make_mem_network();
  observe::Metrics metrics_{{"0", "test", "none"}};
  std::vector<std::unique_ptr<Item>> items_;
  std::array<Order, core::kTracks> orders_;
  std::vector<Node> nodes_;
  Members members_;
  Epoch epoch_{1};
  std::vector<Fetch> fetches_;
  std::string wrong_;
  int completed_ = 0;
  int repeated_ = 0;
  int fetched_ = 0;
};

}  // namespace rueda::engine::testing
