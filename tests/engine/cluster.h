// Runs engines of several nodes in one process: real engines, job runners and data loops (threads,
// over in-process transports). The test plays sessions and the connections between the daemons. All
// control loops are one io_context, which the test runs.
#pragma once

#include <functional>
#include <future>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>

#include "daemon/engine/node/engine.h"
#include "tests/transport/mem/mem_transport.h"

namespace rueda::engine::testing {

class Router;

// Stands for what the control plane hashes of a packet.
std::string packet_digest(int from, int to, const std::string& body);
// Returns a packet about job "job" as it comes to node `to`, from who knows the token.
GenerationPacket packet_of(const std::string& token, int from, int to, const std::string& body);

// Is one node's end of the control plane. Links are numbered by node: the link to node n is n + 1.
class RoutedPlane final : public ControlPlane {
 public:
  RoutedPlane(Router& router, int self) : router_(router), self_(self) {}
  LinkId acquire(const std::string& address) override;
  void release(LinkId link) override { --users[link]; }
  void send(LinkId link, const Envelope& envelope) override;
  void send(LinkId link, const TimelineMessage& message) override;
  void send(LinkId link, const NonfiniteMessage& message) override;
  void send(LinkId link, const CommunicatorMessage& message) override;
  void send(LinkId link, const GenerationPacket& packet) override;
  // A body is the number of what it stands for, which the router keeps.
  std::string encode(const core::GenerationMessage& message) const override;
  Result<core::GenerationMessage> decode(const std::string& body) const override;
  std::string encode(const core::GenerationVotes& votes) const override;
  Result<core::GenerationVotes> decode_votes(const std::string& bytes) const override;

  std::string node_of(LinkId link) const override { return certificates ? certificates(link) : ""; }

  std::map<LinkId, int> users;
  // Whom the certificate of a link's peer is for; nobody has any if it is not set.
  std::function<std::string(LinkId)> certificates;

 private:
  Router& router_;
  const int self_;
};

// Carries envelopes from engine to engine, in order.
class Router {
 public:
  explicit Router(boost::asio::io_context& loop) : loop_(loop) {}
  RoutedPlane& add_node();
  RoutedPlane& plane(int node) { return *planes_[static_cast<size_t>(node)]; }
  void set_events(int node, ControlEvents* events) { events_[static_cast<size_t>(node)] = events; }
  void route(int from, int to, Envelope envelope);
  void route(int from, int to, TimelineMessage message);
  void route(int from, int to, NonfiniteMessage message);
  void route(int from, int to, const CommunicatorMessage& message);
  void route(int from, int to, const GenerationPacket& packet);
  // Cuts the link: both ends hear that it is lost, and nothing goes over it any more.
  void cut(int a, int b);
  // Drops what goes over the link from now on. fall_silent() tells `node` that nothing has come
  // from the other for so long.
  void drop(int a, int b) { cut_.push_back(std::minmax(a, b)); }
  void fall_silent(int node, int other, TicksMs quiet_ms);
  void mend(int a, int b) { std::erase(cut_, std::pair<int, int>(std::minmax(a, b))); }
  // Is called with every envelope before it goes. It may change the envelope, and drops it by
  // returning false.
  std::function<bool(int from, int to, Envelope&)> filter;
  // The same for what is said of generations.
  std::function<bool(int from, int to, const core::GenerationMessage&)> generation_filter;
  std::vector<core::GenerationMessage> encoded_messages;
  std::vector<core::GenerationVotes> encoded_votes;

 private:
  bool is_cut(int from, int to) const;

  boost::asio::io_context& loop_;
  std::vector<std::unique_ptr<RoutedPlane>> planes_;
  std::vector<ControlEvents*> events_;
  std::vector<std::pair<int, int>> cut_;
};

// Stands for the other side of the unix socket: a training process as the engine sees it.
class FakeSession final : public session::Session {
 public:
  struct Completion {
    Ticket ticket;
    Status status;
    Epoch epoch;
    uint32_t contributors;
    Seq seq;
  };

  explicit FakeSession(session::Attach attach)
      : first_rank(attach.rank), attach_(std::move(attach)) {}
  const Rank first_rank;  // With which it has attached, on the node that has it.
  const session::Attach& attach() const override { return attach_; }
  uint32_t ring_capacity() const override { return 1024; }
  std::vector<std::shared_ptr<session::Arena>> arenas() const override { return {}; }
  void deal(Rank rank, LocalRank local_rank) override {
    attach_.rank = rank;
    attach_.local_rank = local_rank;
  }
  void started(const session::Started& place) override { places.push_back(place); }
  void complete(Ticket ticket, const Status& status, Epoch epoch, uint32_t contributors, Seq seq,
                uint32_t /*value*/) override {
    completions.push_back({ticket, status, epoch, contributors, seq});
  }
  void job_failed(const Status& status) override { failures.push_back(status); }
  void hosts_changed() override { ++host_changes; }
  void nonfinite(const session::NonfiniteNews* told) override {
    news.push_back(told ? std::optional(*told) : std::nullopt);
  }
  void device_memory_added(uint32_t id, const Status& status) override {
    memories.emplace_back(id, status);
  }
  void flush() override { flushed = completions.size(); }
  void look() override {
    if (on_look) std::exchange(on_look, nullptr)();
  }
  void drop() override {}

  std::vector<session::Started> places;
  std::vector<Completion> completions;
  std::vector<Status> failures;
  int host_changes = 0;
  std::vector<std::optional<session::NonfiniteNews>> news;
  std::vector<std::pair<uint32_t, Status>> memories;  // memories that were answered for
  size_t flushed = 0;  // how often the client was woken for completions
  std::function<void()> on_look;

 private:
  session::Attach attach_;
};

struct ClusterOptions {
  std::vector<int> ranks_per_node{2, 2};
  TicksMs timeout_ms = 60'000;
  TicksMs start_timeout_ms = 60'000;
  core::Reducer reducer = core::Reducer::kNode;
  std::vector<size_t> data_loops{};  // number of loops by node; empty: one each
  bool checks_finite = false;
  std::shared_ptr<session::Ledger> ledger = std::make_shared<session::Ledger>();
};

class Cluster {
 public:
  struct Node {
    EngineOptions options;
    std::unique_ptr<observe::Metrics> metrics;
    std::unique_ptr<DataLoops> data_loops;
    std::string data_address;
    std::unique_ptr<Engine> engine;
    std::vector<Epoch> started;  // the epochs that listeners heard of, of all jobs
    std::vector<Status> failures;
  };
  // A tensor of a few floats in one rank's memory.
  struct Tensor {
    std::vector<float> input;
    std::vector<float> output;
    Ticket ticket;
  };

  explicit Cluster(ClusterOptions options = {});
  ~Cluster();

  int size() const { return static_cast<int>(nodes_.size()); }
  Node& node(int index) { return *nodes_[static_cast<size_t>(index)]; }
  Engine& engine(int index) { return *node(index).engine; }
  Router& router() { return router_; }
  boost::asio::io_context& loop() { return loop_; }
  const std::vector<int>& ranks_per_node() const { return options_.ranks_per_node; }
  int ranks() const;
  int node_of(Rank rank) const;

  static std::string token();
  core::Layout layout() const;
  JobSpec spec(const JobId& job, int node) const;
  // Returns the handle that the node's launcher has, or an invalid one if the job was not
  // registered there.
  JobHandle handle(int node, const JobId& job) const;
  // Keeps the handle for handle().
  Status register_on(int node, JobSpec spec, JobListener listener = {});
  // Registers the job on every node.
  void register_everywhere(const JobId& job);
  session::Attach attach_of(const JobId& job, Rank rank) const;
  // Gives who attaches the token of the rank, or slot, that it says it is, under the job's token.
  void give_token(session::Attach& attach, const std::string& job_token = token()) const;
  // Attaches a session of that rank and returns it; a refusal is in its `refusal`.
  FakeSession* attach(const JobId& job, Rank rank);
  Status refusal;
  // Attaches every rank and waits for the epoch. Returns the sessions by rank.
  std::vector<FakeSession*> start(const JobId& job);

  // Submits the rank's contribution: `elements` elements in one dimension, all of this value. The
  // tensor belongs to the cluster.
  Tensor& submit(FakeSession& session, const std::string& name, int64_t elements, float value,
                 core::TensorDescriptor as = {});
  // Sets the number of ranks that sessions assume, where each rank has a part.
  void pretend_places(int places) { places_ = places; }
  // Ends the session by a goodbye, or a death.
  void detach(FakeSession& session);
  void lose(FakeSession& session, const std::string& what);
  // Ends the process, which its session has not noticed yet.
  void hang_up(FakeSession& session, const std::string& what);

  // The daemon of the node dies: its links are lost, and so are its sessions' ends.
  void kill_daemon(int node);
  // Another daemon is there in its place, with nothing of what it had.
  void start_daemon(int node);

  bool run_until(const std::function<bool()>& condition, TicksMs timeout_ms = 60'000);
  // Runs what is ready now.
  void poll();
  // Runs until the data loops and the control loop have done what they had to do.
  void settle();
  JobSnapshot snapshot(int node, const JobId& job) const;

  // Keeps a node's data loop busy until release_data_loop().
  void block_data_loop(int node);
  void release_data_loop(int node);

 private:
  const ClusterOptions options_;
  boost::asio::io_context loop_{1};
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> work_;
  Router router_{loop_};
  std::shared_ptr<transport::MemNetwork> network_ = transport::make_mem_network();
  std::vector<std::unique_ptr<Node>> nodes_;
  std::vector<std::unique_ptr<Engine>> retired_engines_;
  std::vector<std::unique_ptr<FakeSession>> sessions_;
  std::vector<std::unique_ptr<Tensor>> tensors_;
  std::map<std::pair<int, JobId>, JobHandle> handles_;
  std::set<JobId> elastic_;  // The jobs whose processes have slots.
  int places_;
  uint64_t last_ticket_ = 0;
  std::map<int, std::shared_ptr<std::promise<void>>> blocks_;
};

}  // namespace rueda::engine::testing
