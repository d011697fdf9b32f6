#include "tests/engine/ring.h"

#include <algorithm>
#include <chrono>

namespace rueda::engine::testing {
namespace {

std::string address_of(int node) { return "ring:" + std::to_string(1000 + node); }

}  // namespace

DataJobOptions data_job_options(int nodes, int self, Turns* turns) {
  DataJobOptions options;
  options.job = "ring";
  options.key = kRingKey;
  options.epoch = Epoch{1};
  options.algorithm = core::AlgorithmChoice::kRing;
  options.self = NodeIndex{self};
  for (int i = 0; i < nodes; ++i) {
    options.node_ids.push_back("n" + std::to_string(i));
    options.data_addresses.push_back(address_of(i));
  }
  static PassThreads pass_threads(3);
  options.pass_threads = &pass_threads;
  options.turns = turns;
  options.events.on_done = [](Seq, double) {};
  options.events.on_failed = [](Seq, const Status&) {};
  options.events.on_diverged = [](Seq, uint32_t, NodeIndex) {};
  options.events.on_channel_lost = [](NodeIndex, const Status&, bool) {};
  return options;
}

Ring::Ring(RingOptions options)
    : options_(std::move(options)),
      launched_(options_.ranks_per_node.size()),
      nodes_(options_.ranks_per_node.size()) {
  for (int i = 0; i < size(); ++i) {
    Node& made = node(i);
    made.transport = transport::make_mem_transport(io_, network_);
    if (!made.transport->listen(address_of(i)).is_ok()) std::abort();
    DataJobOptions job = data_job_options(size(), i, &turns_);
    job.chunk_bytes = options_.chunk_bytes;
    job.widest_chunk_bytes = options_.widest_chunk_bytes;
    job.staging_bytes = options_.staging_bytes;
    job.lanes = options_.lanes;
    job.timeout_ms = options_.timeout_ms;
    job.corrupt = options_.corrupt;
    job.shares_staging = options_.shares_staging;
    job.policy = options_.policy;
    job.algorithm = options_.algorithm;
    job.events.on_done = [&made](Seq seq, double) { made.done.push_back(seq); };
    job.events.on_failed = [&made](Seq seq, const Status& status) {
      made.failed.emplace_back(seq, status);
    };
    job.events.on_channel_lost = [&made](NodeIndex peer, const Status& status, bool) {
      made.lost.emplace_back(peer, status);
    };
    job.events.on_rounds_done = [&made](Seq seq, uint32_t, uint32_t, int, int rounds) {
      if (made.on_rounds_done) made.on_rounds_done(seq, rounds);
    };
    made.job = std::make_unique<DataJob>(io_, *made.transport, metrics_, std::move(job));
  }
  for (Node& made : nodes_) made.job->start();
}

Ring::~Ring() {
  for (Node& made : nodes_) made.job.reset();
  settle();
}

OperationFixture& Ring::add(OperationSpec spec) {
  works_.push_back(std::make_unique<OperationFixture>(std::move(spec), options_.ranks_per_node,
                                                      Seq{works_.size() + 1}));
  return *works_.back();
}

bool Ring::launch_next(int index) {
  size_t& next = launched_[static_cast<size_t>(index)];
  if (next == works_.size()) return false;
  const std::vector<Seq>& done = node(index).done;
  size_t oldest = next;  // the oldest operation under way
  for (size_t i = next; i-- > 0;) {
    if (std::find(done.begin(), done.end(), Seq{i + 1}) == done.end()) oldest = i;
    if (next - i > static_cast<size_t>(options_.lanes)) break;
  }
  if (next - oldest >= static_cast<size_t>(options_.lanes)) return false;
  node(index).job->run(works_[next++]->operation(NodeIndex{index}));
  return true;
}

bool Ring::poll() {
  io_.restart();
  return io_.poll_one() > 0;
}

bool Ring::run_until(const std::function<bool()>& condition) {
  const TicksMs give_up = steady_now_ms() + 60'000;
  while (!condition()) {
    if (steady_now_ms() > give_up) return false;
    io_.restart();
    if (io_.run_one_for(std::chrono::seconds(1)) == 0 && io_.stopped()) return condition();
  }
  return true;
}

bool Ring::all_done() {
  return std::all_of(nodes_.begin(), nodes_.end(),
                     [&](const Node& item) { return item.done.size() == works_.size(); });
}

bool Ring::run_all() {
  return run_until([this] {
    for (int i = 0; i < size(); ++i) {
      while (launch_next(i)) {
      }
    }
    return all_done();
  });
}

int64_t Ring::max_unstable_bytes() const {
  // The bound is at least a page, as in the data job.
  auto most = std::max<int64_t>(static_cast<int64_t>(options_.staging_bytes), 4096);
  for (const auto& item : works_) {
    int64_t elements = 0;
    for (const int64_t size : item->spec().sizes) elements += size;
    const auto size = static_cast<int64_t>(element_bytes(item->spec().dtype));
    most = std::max<int64_t>(most, elements * size + 64);
  }
  return most;
}

std::string Ring::check() {
  for (const auto& item : works_) {
    if (std::string wrong = item->check(); !wrong.empty()) return wrong;
  }
  for (int i = 0; i < size(); ++i) {
    for (const auto& [seq, status] : node(i).failed) {
      return "node " + std::to_string(i) + ": " + status.message();
    }
    for (const auto& [peer, status] : node(i).lost) {
      return "node " + std::to_string(i) + ": " + status.message();
    }
  }
  return {};
}

}  // namespace rueda::engine::testing
