#include "tests/engine/recovery_cluster.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "tests/core/recovery/last_launched.h"

namespace rueda::engine::testing {

using core::Track;

namespace {

constexpr std::array kBothTracks{Track::kLockable, Track::kDecreed};

std::string describe(Track track, uint64_t number) {
  return (track == Track::kDecreed ? "broadcast " : "operation ") + std::to_string(number);
}

int64_t elements_of(const OperationFixture& work) {
  return std::accumulate(work.spec().sizes.begin(), work.spec().sizes.end(), int64_t{0});
}

std::vector<float> floats_of(const Bytes& bytes) {
  std::vector<float> floats(bytes.size() / sizeof(float));
  std::memcpy(floats.data(), bytes.data(), floats.size() * sizeof(float));
  return floats;
}

}  // namespace

RecoveryCluster::RecoveryCluster(SurvivorOptions options)
    : options_(std::move(options)), random_(options_.seed), nodes_(options_.ranks_per_node.size()) {
  for (const Track track : kBothTracks) {
    const bool is_broadcast = track == Track::kDecreed;
    Order& order = orders_[core::index_of(track)];
    for (const OperationSpec& spec : is_broadcast ? options_.broadcasts : options_.reductions) {
      const Seq seq{core::first_of(track).value + order.items.size()};
      items_.push_back(std::make_unique<Item>());
      Item& item = *items_.back();
      item.work = std::make_unique<OperationFixture>(spec, options_.ranks_per_node, seq);
      for (size_t t = 0; is_broadcast && t < spec.sizes.size(); ++t) {
        const auto* values = reinterpret_cast<const float*>(item.work->input_of(spec.root, t));
        item.root_values.insert(item.root_values.end(), values, values + spec.sizes[t]);
      }
      order.items.push_back(&item);
      order.is_to_run.push_back(true);
    }
  }
  for (size_t i = 0; i < nodes_.size(); ++i) members_.push_back(NodeIndex{static_cast<int>(i)});
  for (const auto& item : items_) item->contributors = members_;
  for (const NodeIndex index : members_) {
    node(index).transport = transport::make_mem_transport(io_, network_);
    DataJobOptions job = job_options(index);
    const std::string address = job.data_addresses[static_cast<size_t>(job.self.value)];
    if (!node(index).transport->listen(address).is_ok()) std::abort();
    node(index).job =
        std::make_unique<DataJob>(io_, *node(index).transport, metrics_, std::move(job));
  }
  for (const NodeIndex index : members_) node(index).job->start();
}

RecoveryCluster::~RecoveryCluster() {
  for (Node& each : nodes_) each.job.reset();
  while (poll()) {
  }
}

DataJobOptions RecoveryCluster::job_options(NodeIndex self) {
  DataJobOptions options;
  options.job = "survivors";
  options.epoch = epoch_;
  options.chunk_bytes = 4096;
  options.staging_bytes = options_.staging_bytes;
  options.timeout_ms = 600'000;
  options.pass_threads = &pass_threads_;
  options.turns = &turns_;
  options.policy = core::DeathPolicy::kShrink;
  for (const NodeIndex member : members_) {
    if (member == self) options.self = NodeIndex{static_cast<int>(options.node_ids.size())};
    options.node_ids.push_back("n" + std::to_string(member.value));
    options.data_addresses.push_back("survivors:" + std::to_string(1000 + member.value));
  }
  options.events.on_done = [this, self](Seq seq, double) { on_done(self, seq); };
  options.events.on_failed = [this](Seq, const Status& status) { fail(status.message()); };
  options.events.on_channel_lost = [](NodeIndex, const Status&, bool) {};
  return options;
}

bool RecoveryCluster::poll() {
  io_.restart();
  return io_.poll_one() > 0;
}

bool RecoveryCluster::turn() {
  const NodeIndex index =
      members_[static_cast<size_t>(draw(0, static_cast<int>(members_.size()) - 1))];
  launch_next(index, draw(0, 3) == 0 ? Track::kDecreed : Track::kLockable);
  if (draw(0, 3) == 0) fetch_next();
  const bool moved = poll();
  check_bounds();
  return moved || !is_over();
}

bool RecoveryCluster::run_to_the_end() {
  for (int turns = 0; turn() && wrong_.empty(); ++turns) {
    if (turns > 200'000) fail("it stands still");
  }
  if (wrong_.empty()) check_end();
  return wrong_.empty();
}

void RecoveryCluster::launch_next(NodeIndex index, Track track) {
  Node& here = node(index);
  if (!here.late.empty()) {
    const auto [seq, item] = *here.late.begin();
    here.late.erase(here.late.begin());
    return launch(index, seq, *item);
  }
  const Order& order = orders_[core::index_of(track)];
  size_t& next = here.launched[core::index_of(track)];
  while (next < order.items.size() && !order.is_to_run[next]) ++next;
  if (next == order.items.size()) return;
  const Seq seq{core::first_of(track).value + next};
  // This is core's window.
  for (const auto& [other, item] : here.under_way) {
    if (core::track_of(other) != track) continue;
    const uint64_t window = static_cast<uint64_t>(core::window_of(track, 4));
    if (seq.value - other.value >= window) return;
    break;
  }
  ++next;
  launch(index, seq, *order.items[core::number_of(seq) - 1]);
}

void RecoveryCluster::launch(NodeIndex index, Seq seq, Item& item) {
  std::unique_ptr<Operation> operation = item.work->operation(index);
  operation->epoch = epoch_;
  operation->seq = seq;
  if (item.work->spec().op == ReduceOp::kAverage) operation->divisor = ranks_in(members_);
  if (core::track_of(seq) == Track::kDecreed) {
    const auto root = std::find(members_.begin(), members_.end(), operation->root_node);
    operation->root_node = NodeIndex{static_cast<int>(root - members_.begin())};
  }
  node(index).under_way[seq] = &item;
  node(index).job->run(std::move(operation));
}

void RecoveryCluster::fetch_next() {
  if (fetches_.empty()) return;
  const auto i = static_cast<size_t>(draw(0, static_cast<int>(fetches_.size()) - 1));
  const Fetch fetch = fetches_[i];
  if (!node(fetch.to).job->is_completing(fetch.seq)) return;  // has not launched it yet
  fetches_.erase(fetches_.begin() + static_cast<ptrdiff_t>(i));
  const std::span<const std::byte> chunk =
      node(fetch.from).job->final_chunk(fetch.seq, fetch.chunk);
  const Status taken = node(fetch.to).job->take_final(fetch.seq, fetch.chunk, chunk);
  if (!taken.is_ok()) fail(taken.message());
  ++fetched_;
}

// Tells the clients, which look at the results, and use their memory for something else at once.
void RecoveryCluster::on_done(NodeIndex index, Seq seq) {
  Node& here = node(index);
  const Track track = core::track_of(seq);
  Item* item = orders_[core::index_of(track)].items[core::number_of(seq) - 1];
  const std::string name = "node " + std::to_string(index.value) + ", epoch " +
                           std::to_string(epoch_.value) + ", " +
                           describe(track, core::number_of(seq));
  if (!item || here.results.contains(item)) return fail(name + " ended twice");
  here.under_way.erase(seq);
  const std::vector<float> want = expected(*item);
  for (const int rank : ranks_of(index)) {
    const std::vector<float> got = floats_of(item->work->output(Rank{rank}));
    for (size_t i = 0; i < want.size(); ++i) {
      if (std::fabs(got[i] - want[i]) <= 1e-6F * std::fabs(want[i])) continue;
      return fail(name + ": element " + std::to_string(i) + " is " + std::to_string(got[i]) +
                  " instead of " + std::to_string(want[i]));
    }
    here.results[item] = got;
    for (size_t t = 0; t < item->work->spec().sizes.size(); ++t) {
      const auto bytes = static_cast<size_t>(item->work->spec().sizes[t]) * sizeof(float);
      std::memset(item->work->output_of(Rank{rank}, t), 0xAB, bytes);
      const size_t given = item->work->input_bytes(Rank{rank}, t);
      if (given == 0) continue;  // a broadcast's tensor, on all but the root
      std::memset(const_cast<std::byte*>(item->work->input_of(Rank{rank}, t)), 0xCD, given);
    }
  }
}

// Rank r gives 2^((r + i) mod ranks) at element i (tests/engine/operation_fixture.h), so a sum says
// who contributed.
std::vector<float> RecoveryCluster::expected(const Item& item) const {
  if (item.work->spec().kind == CollectiveKind::kBroadcast) return item.root_values;
  const auto all = static_cast<int64_t>(item.work->ranks());
  std::vector<float> sums(static_cast<size_t>(elements_of(*item.work)));
  for (size_t i = 0; i < sums.size(); ++i) {
    for (const NodeIndex member : item.contributors) {
      for (const int rank : ranks_of(member)) {
        sums[i] += std::ldexp(1.0F, static_cast<int>((rank + static_cast<int64_t>(i)) % all));
      }
    }
    if (item.work->spec().op == ReduceOp::kAverage) {
      sums[i] /= static_cast<float>(ranks_in(item.contributors));
    }
  }
  return sums;
}

std::vector<int> RecoveryCluster::ranks_of(NodeIndex index) const {
  const auto i = static_cast<size_t>(index.value);
  const auto begin = options_.ranks_per_node.begin();
  std::vector<int> ranks(static_cast<size_t>(options_.ranks_per_node[i]));
  std::iota(ranks.begin(), ranks.end(),
            std::accumulate(begin, begin + static_cast<ptrdiff_t>(i), 0));
  return ranks;
}

int RecoveryCluster::ranks_in(const Members& members) const {
  return std::accumulate(members.begin(), members.end(), 0, [this](int ranks, NodeIndex member) {
    return ranks + options_.ranks_per_node[static_cast<size_t>(member.value)];
  });
}

bool RecoveryCluster::is_member(NodeIndex index) const {
  return std::find(members_.begin(), members_.end(), index) != members_.end();
}

bool RecoveryCluster::is_over() {
  if (!fetches_.empty()) return false;
  return std::all_of(members_.begin(), members_.end(), [&](NodeIndex member) {
    const Node& here = node(member);
    if (!here.under_way.empty() || !here.late.empty()) return false;
    return std::all_of(kBothTracks.begin(), kBothTracks.end(), [&](Track track) {
      const Order& order = orders_[core::index_of(track)];
      const auto next =
          order.is_to_run.begin() + static_cast<ptrdiff_t>(here.launched[core::index_of(track)]);
      return std::find(next, order.is_to_run.end(), true) == order.is_to_run.end();
    });
  });
}

bool RecoveryCluster::has_root(const Item& item) const {
  return item.work->spec().kind != CollectiveKind::kBroadcast ||
         is_member(item.work->operation(members_.front())->root_node);
}

// Rule R2: values that are held stay within the bound, or are one operation that is larger.
void RecoveryCluster::check_bounds() {
  for (const NodeIndex member : members_) {
    for (const Track track : kBothTracks) {
      const uint64_t share = track == Track::kLockable ? 3 : 1;
      auto most = static_cast<int64_t>(
          std::max<uint64_t>((options_.staging_bytes / 4 * share + 4095) / 4096 * 4096, 4096));
      for (const auto& item : items_) most = std::max(most, elements_of(*item->work) * 4 + 64);
      const int64_t held = node(member).job->unstable_bytes(track);
      if (held > most) fail("node " + std::to_string(member.value) + " holds too much");
    }
  }
}

void RecoveryCluster::check_end() {
  for (const NodeIndex member : members_) {
    for (const Track track : kBothTracks) {
      if (node(member).job->unstable_bytes(track) != 0) {
        fail("node " + std::to_string(member.value) + " holds what is stable");
      }
    }
  }
  if (unstable_bytes() != 0) fail("the metric counts what nobody holds");
  for (const auto& item : items_) {
    const auto& first = node(members_.front()).results;
    const auto result = first.find(item.get());
    for (const NodeIndex member : members_) {
      const auto& results = node(member).results;
      const auto other = results.find(item.get());
      const bool same = (result == first.end()) == (other == results.end()) &&
                        (result == first.end() || result->second == other->second);
      if (!same)
        fail("nodes " + std::to_string(members_.front().value) + " and " +
             std::to_string(member.value) + " have diverged");
    }
    if (result == first.end() && has_root(*item)) fail("a submission never ended");
  }
}

void RecoveryCluster::kill(int victim) {
  const NodeIndex dead{victim};
  node(dead).job.reset();
  node(dead).transport.reset();
  std::erase(members_, dead);
  Members before = members_;
  before.insert(std::lower_bound(before.begin(), before.end(), dead), dead);
  // The nodes hear of the death one after the other, and some frames are still on the way.
  Members to_seal = members_;
  std::shuffle(to_seal.begin(), to_seal.end(), random_);
  for (const NodeIndex index : to_seal) {
    for (int turns = draw(0, 12); turns > 0; --turns) poll();
    node(index).job->seal();
  }
  ++epoch_.value;
  fetches_.clear();
  std::map<NodeIndex, std::unique_ptr<DataJob>> next;
  for (const NodeIndex index : members_) {
    next[index] =
        std::make_unique<DataJob>(io_, *node(index).transport, metrics_, job_options(index));
    node(index).under_way.clear();
    node(index).late.clear();
    node(index).launched = {};
  }
  for (const Track track : kBothTracks) {
    std::map<NodeIndex, core::Report> reports;
    for (const NodeIndex index : members_) reports[index] = node(index).job->report(track);
    if (track == Track::kDecreed) core::extend_to_last_launched(reports);
    decide(track, before, reports, next);
  }
  for (auto& [index, job] : next) node(index).job = std::move(job);
  for (const NodeIndex index : members_) node(index).job->start();
}

void RecoveryCluster::decide(Track track, const Members& before_death,
                             const std::map<NodeIndex, core::Report>& reports,
                             std::map<NodeIndex, std::unique_ptr<DataJob>>& next) {
  // The tracks are handled one at a time; their order makes no difference to what is held.
  std::map<NodeIndex, core::NodeReport> whole;
  for (const auto& [index, report] : reports) whole[index].tracks[0] = report;
  const core::Decision decided =
      core::decide(epoch_, before_death, whole, core::DeathPolicy::kShrink);
  if (decided.ends_job) {
    return fail(describe(track, decided.irrecoverable.value) + " is lost for good");
  }
  const core::TrackDecision& decision = decided.tracks[0];
  for (auto& [index, job] : next) job->carry_over(*node(index).job, track, decision);

  Order& order = orders_[core::index_of(track)];
  const Order before = std::exchange(order, {});
  for (size_t i = 0; i < decision.operations.size(); ++i) {
    Item* item = before.items[decision.first.value - 1 + i];
    const core::OperationVerdict& operation = decision.operations[i];
    const Seq seq{core::first_of(track).value + i};
    order.items.push_back(item);
    if (operation.verdict == core::Verdict::kComplete) {
      ++completed_;
      order.is_to_run.push_back(false);
      for (const auto& [index, report] : reports) {
        if (decision.first.value + i <= report.freed.value) continue;
        const core::Holding& held =
            report.operations[decision.first.value + i - report.freed.value - 1];
        if (held.chunks.empty()) {
          node(index).late[seq] = item;
        } else if (!held.delivered) {
          node(index).under_way[seq] = item;
        }
        for (size_t chunk = 0; chunk < operation.servers.size(); ++chunk) {
          if (!held.chunks.empty() && held.chunks[chunk]) continue;
          fetches_.push_back({seq, static_cast<uint32_t>(chunk), operation.servers[chunk], index});
        }
      }
      continue;
    }
    ++repeated_;
    item->contributors = members_;
    order.is_to_run.push_back(has_root(*item));
    if (has_root(*item)) continue;
    for (auto& [index, job] : next) job->abandon(seq);
  }
  for (size_t i = decision.returned().value - 1; i < before.items.size(); ++i) {
    if (!has_root(*before.items[i])) continue;
    before.items[i]->contributors = members_;
    order.items.push_back(before.items[i]);
    order.is_to_run.push_back(true);
  }
}

}  // namespace rueda::engine::testing
