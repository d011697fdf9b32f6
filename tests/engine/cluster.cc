#include "tests/engine/cluster.h"

#include <algorithm>
#include <cctype>
#include <chrono>
#include <cstdlib>
#include <numeric>
#include <utility>

#include <boost/asio/post.hpp>
#include <unistd.h>

#include "daemon/base/rank_token.h"

namespace rueda::engine::testing {
namespace {

// Stands for what the control plane hashes.
std::string digest_of(int from, int to, const JobId& job, const core::Message& message) {
  return job + " from " + std::to_string(from) + " to " + std::to_string(to) + ": message " +
         std::to_string(message.body.index()) + " of " + std::to_string(message.epoch.value) +
         " by " + std::to_string(message.from.value);
}

std::string control_address(int node) { return "control:" + std::to_string(2000 + node); }

}  // namespace

std::string packet_digest(int from, int to, const std::string& body) {
  return "packet from " + std::to_string(from) + " to " + std::to_string(to) + ": " + body;
}

GenerationPacket packet_of(const std::string& token, int from, int to, const std::string& body) {
  const std::string digest = packet_digest(from, to, body);
  return {"job", body, {{}, digest, make_proof(make_proof_key(token, "job"), digest)}};
}

LinkId RoutedPlane::acquire(const std::string& address) {
  const auto node = static_cast<LinkId>(std::stoi(address.substr(address.rfind(':') + 1)) - 2000);
  ++users[node + 1];
  return node + 1;
}

void RoutedPlane::send(LinkId link, const Envelope& envelope) {
  const int to = static_cast<int>(link) - 1;
  Envelope sent = envelope;
  const std::string key = std::exchange(sent.proof.key, {});
  if (!key.empty()) {
    sent.proof.value = make_proof(key, digest_of(self_, to, sent.job, sent.message));
  }
  router_.route(self_, to, std::move(sent));
}

void RoutedPlane::send(LinkId link, const TimelineMessage& message) {
  router_.route(self_, static_cast<int>(link) - 1, message);
}

void RoutedPlane::send(LinkId link, const NonfiniteMessage& message) {
  router_.route(self_, static_cast<int>(link) - 1, message);
}

void RoutedPlane::send(LinkId link, const CommunicatorMessage& message) {
  router_.route(self_, static_cast<int>(link) - 1, message);
}

void RoutedPlane::send(LinkId link, const GenerationPacket& packet) {
  const int to = static_cast<int>(link) - 1;
  const std::string digest = packet_digest(self_, to, packet.body);
  router_.route(self_, to,
                {packet.job, packet.body, {{}, digest, make_proof(packet.proof.key, digest)}});
}

std::string RoutedPlane::encode(const core::GenerationMessage& message) const {
  router_.encoded_messages.push_back(message);
  return std::to_string(router_.encoded_messages.size() - 1);
}

Result<core::GenerationMessage> RoutedPlane::decode(const std::string& body) const {
  return router_.encoded_messages.at(std::stoul(body));
}

std::string RoutedPlane::encode(const core::GenerationVotes& votes) const {
  router_.encoded_votes.push_back(votes);
  return std::to_string(router_.encoded_votes.size() - 1);
}

Result<core::GenerationVotes> RoutedPlane::decode_votes(const std::string& bytes) const {
  if (!std::isdigit(static_cast<unsigned char>(bytes.front()))) {
    return Status(Code::kInvalidArgument, "these are no votes");
  }
  return router_.encoded_votes.at(std::stoul(bytes));
}

RoutedPlane& Router::add_node() {
  planes_.push_back(std::make_unique<RoutedPlane>(*this, static_cast<int>(planes_.size())));
  events_.push_back(nullptr);
  return *planes_.back();
}

void Router::route(int from, int to, Envelope envelope) {
  if (filter && !filter(from, to, envelope)) return;
  if (is_cut(from, to)) return;
  envelope.proof.digest = digest_of(from, to, envelope.job, envelope.message);
  boost::asio::post(loop_, [this, from, to, envelope = std::move(envelope)] {
    ControlEvents* events = events_[static_cast<size_t>(to)];
    if (events) events->on_envelope(static_cast<LinkId>(from) + 1, envelope);
  });
}

void Router::route(int from, int to, TimelineMessage message) {
  if (is_cut(from, to)) return;
  boost::asio::post(loop_, [this, from, to, message = std::move(message)] {
    ControlEvents* events = events_[static_cast<size_t>(to)];
    if (events) events->on_timeline(static_cast<LinkId>(from) + 1, message);
  });
}

void Router::route(int from, int to, NonfiniteMessage message) {
  if (is_cut(from, to)) return;
  boost::asio::post(loop_, [this, from, to, message = std::move(message)] {
    ControlEvents* events = events_[static_cast<size_t>(to)];
    if (events) events->on_nonfinite(static_cast<LinkId>(from) + 1, message);
  });
}

void Router::route(int from, int to, const CommunicatorMessage& message) {
  if (is_cut(from, to)) return;
  boost::asio::post(loop_, [this, from, to, message] {
    ControlEvents* events = events_[static_cast<size_t>(to)];
    if (events) events->on_communicator(static_cast<LinkId>(from) + 1, message);
  });
}

void Router::route(int from, int to, const GenerationPacket& packet) {
  if (is_cut(from, to)) return;
  if (generation_filter && !generation_filter(from, to, plane(from).decode(packet.body).value())) {
    return;
  }
  boost::asio::post(loop_, [this, from, to, packet] {
    ControlEvents* events = events_[static_cast<size_t>(to)];
    if (events) events->on_generation(static_cast<LinkId>(from) + 1, packet);
  });
}

bool Router::is_cut(int from, int to) const {
  const std::pair<int, int> pair = std::minmax(from, to);
  return std::find(cut_.begin(), cut_.end(), pair) != cut_.end();
}

void Router::cut(int a, int b) {
  cut_.push_back(std::minmax(a, b));
  const Status gone(Code::kNodeLost, "its control connection closed");
  for (const auto& [from, to] : {std::pair{a, b}, std::pair{b, a}}) {
    ControlEvents* events = events_[static_cast<size_t>(to)];
    if (events) events->on_link_lost(static_cast<LinkId>(from) + 1, gone, 30);
  }
}

void Router::fall_silent(int node, int other, TicksMs quiet_ms) {
  events_[static_cast<size_t>(node)]->on_link_lost(
      static_cast<LinkId>(other) + 1, {Code::kNodeLost, "nothing came from it"}, quiet_ms);
}

Cluster::Cluster(ClusterOptions options)
    : options_(std::move(options)), work_(boost::asio::make_work_guard(loop_)), places_(ranks()) {
  for (int i = 0; i < static_cast<int>(options_.ranks_per_node.size()); ++i) {
    nodes_.push_back(std::make_unique<Node>());
    Node& made = *nodes_.back();
    made.options.node_id = "n" + std::to_string(i);
    made.options.timeout_ms = options_.timeout_ms;
    made.options.start_timeout_ms = options_.start_timeout_ms;
    made.options.chunk_bytes = 4096;
    made.options.reducer = options_.reducer;
    made.metrics =
        std::make_unique<observe::Metrics>(observe::BuildInfo{"0", made.options.node_id, "none"});
    std::vector<std::unique_ptr<DataLoop>> loops;
    std::vector<std::string> addresses;
    const size_t count = options_.data_loops.empty() ? 1 : options_.data_loops[i];
    for (size_t loop = 0; loop < count; ++loop) {
      loops.push_back(
          std::make_unique<DataLoop>(*made.metrics, [this](boost::asio::io_context& io) {
            return transport::make_mem_transport(io, network_);
          }));
      addresses.push_back("data:" + std::to_string(3000 + 100 * loop + i));
    }
    made.data_loops = std::make_unique<DataLoops>(std::move(loops));
    const Result<std::vector<std::string>> bound = made.data_loops->start(addresses);
    if (!bound.is_ok()) std::abort();
    made.data_address = join_addresses(bound.value());
    router_.add_node();
    start_daemon(i);
  }
}

void Cluster::start_daemon(int index) {
  Node& made = node(index);
  made.engine = std::make_unique<Engine>(
      EngineContext{loop_, *made.data_loops, router_.plane(index), *made.metrics, made.options,
                    made.data_address, [] {}, options_.ledger});
  router_.set_events(index, made.engine.get());
  for (int other = 0; other < size(); ++other) router_.mend(index, other);
}

void Cluster::kill_daemon(int index) {
  router_.set_events(index, nullptr);
  for (int other = 0; other < size(); ++other) {
    if (other != index) router_.cut(index, other);
  }
  // What it would still say goes nowhere.
  bool is_closed = false;
  engine(index).close_all(Status(Code::kShutDown, "was killed"), [&] { is_closed = true; });
  run_until([&] { return is_closed; });
  // Its sessions are the test's.
  retired_engines_.push_back(std::move(node(index).engine));
}

Cluster::~Cluster() {
  while (!blocks_.empty()) release_data_loop(blocks_.begin()->first);
  for (const auto& made : nodes_) made->data_loops->stop();
}

int Cluster::ranks() const {
  return std::accumulate(options_.ranks_per_node.begin(), options_.ranks_per_node.end(), 0);
}

int Cluster::node_of(Rank rank) const { return layout().node_of(rank).value; }

std::string Cluster::token() { return std::string(limits::kTokenBytes, 't'); }

core::Layout Cluster::layout() const {
  std::vector<core::LayoutNode> nodes;
  int next_rank = 0;
  for (int i = 0; i < size(); ++i) {
    core::LayoutNode item{"n" + std::to_string(i), control_address(i), {}};
    for (int k = options_.ranks_per_node[static_cast<size_t>(i)]; k > 0; --k) {
      item.ranks.push_back(Rank{next_rank++});
    }
    nodes.push_back(std::move(item));
  }
  Result<core::Layout> made = core::Layout::make(std::move(nodes));
  if (!made.is_ok()) std::abort();
  return std::move(made).value();
}

JobSpec Cluster::spec(const JobId& job, int node) const {
  JobSpec spec{job, token(), "tester", Principal::user(::getuid()), NodeIndex{node}, layout()};
  spec.checks_finite = options_.checks_finite;
  return spec;
}

JobHandle Cluster::handle(int node, const JobId& job) const {
  const auto it = handles_.find({node, job});
  return it == handles_.end() ? JobHandle() : it->second;
}

Status Cluster::register_on(int node, JobSpec spec, JobListener listener) {
  const JobId job = spec.job;
  if (spec.elastic) elastic_.insert(job);
  const Result<JobHandle> made = engine(node).register_job(std::move(spec), std::move(listener));
  if (made.is_ok()) handles_[{node, job}] = made.value();
  return made.status();
}

void Cluster::register_everywhere(const JobId& job) {
  for (int i = 0; i < size(); ++i) {
    Node& here = node(i);
    JobListener listener;
    listener.on_started = [&here](Epoch epoch) { here.started.push_back(epoch); };
    listener.on_failed = [&here](const Status& status) { here.failures.push_back(status); };
    if (!register_on(i, spec(job, i), std::move(listener)).is_ok()) std::abort();
  }
}

session::Attach Cluster::attach_of(const JobId& job, Rank rank) const {
  const core::Layout all = layout();
  const std::vector<Rank>& here = all.node(all.node_of(rank)).ranks;
  const LocalRank local{rank.value - here.front().value};
  session::Attach attach{job, "", rank, local, {1000 + rank.value, ::getuid(), ::getgid()}};
  give_token(attach);
  return attach;
}

void Cluster::give_token(session::Attach& attach, const std::string& job_token) const {
  const core::Layout all = layout();
  attach.token = elastic_.contains(attach.job)
                     ? slot_token(job_token, attach.job, all.node(all.node_of(attach.rank)).node_id,
                                  attach.local_rank)
                     : rank_token(job_token, attach.job, attach.rank);
}

FakeSession* Cluster::attach(const JobId& job, Rank rank) {
  sessions_.push_back(std::make_unique<FakeSession>(attach_of(job, rank)));
  refusal = engine(node_of(rank)).on_attach(*sessions_.back());
  return refusal.is_ok() ? sessions_.back().get() : nullptr;
}

std::vector<FakeSession*> Cluster::start(const JobId& job) {
  std::vector<FakeSession*> sessions;
  for (int rank = 0; rank < ranks(); ++rank) sessions.push_back(attach(job, Rank{rank}));
  const bool all = run_until([&] {
    return std::all_of(sessions.begin(), sessions.end(),
                       [](const FakeSession* s) { return s && !s->places.empty(); });
  });
  return all ? sessions : std::vector<FakeSession*>{};
}

Cluster::Tensor& Cluster::submit(FakeSession& session, const std::string& name, int64_t elements,
                                 float value, core::TensorDescriptor as) {
  tensors_.push_back(std::make_unique<Tensor>());
  Tensor& tensor = *tensors_.back();
  const Rank rank = session.attach().rank;
  as.name = name;
  if (as.shape.empty()) as.shape = {elements};
  const Extent extent = extent_of(as.parted(), rank.value, ranks(), as.root == rank);
  tensor.input.assign(static_cast<size_t>(extent.input), value);
  tensor.output.assign(static_cast<size_t>(extent.output), -1);
  tensor.ticket = Ticket{++last_ticket_};
  session::Submission submission;
  if (has_parts(as.kind)) {
    submission.place = rank.value;
    submission.places = places_;
  }
  submission.ticket = tensor.ticket;
  submission.descriptor = std::make_shared<core::TensorDescriptor>(as);
  submission.input.bytes = tensor.input.size() * sizeof(float);
  submission.output.bytes = tensor.output.size() * sizeof(float);
  if (extent.input > 0) submission.input.data = reinterpret_cast<std::byte*>(tensor.input.data());
  if (extent.output > 0) {
    submission.output.data = reinterpret_cast<std::byte*>(tensor.output.data());
  }
  Engine& owner = engine(node_of(session.first_rank));
  owner.on_submit(session, submission);
  owner.on_submissions_drained(session);
  return tensor;
}

void Cluster::detach(FakeSession& session) {
  engine(node_of(session.first_rank)).on_detached(session);
}

void Cluster::lose(FakeSession& session, const std::string& what) {
  const Rank rank = session.attach().rank;
  engine(node_of(session.first_rank))
      .on_lost(session, Status(Code::kRankLost, "rank " + std::to_string(rank.value) + " " + what));
}

void Cluster::hang_up(FakeSession& session, const std::string& what) {
  session.on_look = [this, &session, what] { lose(session, what); };
}

bool Cluster::run_until(const std::function<bool()>& condition, TicksMs timeout_ms) {
  const TicksMs give_up = steady_now_ms() + timeout_ms;
  while (!condition()) {
    if (steady_now_ms() > give_up) return false;
    loop_.run_one_for(std::chrono::milliseconds(100));
  }
  return true;
}

void Cluster::poll() { loop_.poll(); }

void Cluster::settle() {
  for (int round = 0; round < 3; ++round) {
    for (int i = 0; i < size(); ++i) {
      if (blocks_.contains(i)) continue;
      std::promise<void> done;
      node(i).data_loops->when_quiet("no such job", Epoch{0}, [&] { done.set_value(); });
      done.get_future().wait();
    }
    poll();
  }
}

JobSnapshot Cluster::snapshot(int node, const JobId& job) const {
  for (const JobSnapshot& item : nodes_[static_cast<size_t>(node)]->engine->jobs()) {
    if (item.job == job) return item;
  }
  return {};
}

void Cluster::block_data_loop(int index) {
  auto release = std::make_shared<std::promise<void>>();
  std::promise<void> blocked;
  node(index).data_loops->at(0).when_quiet("no such job", Epoch{0}, [release, &blocked] {
    blocked.set_value();
    release->get_future().wait();
  });
  blocked.get_future().wait();
  blocks_[index] = release;
}

void Cluster::release_data_loop(int index) {
  blocks_.at(index)->set_value();
  blocks_.erase(index);
}

}  // namespace rueda::engine::testing
