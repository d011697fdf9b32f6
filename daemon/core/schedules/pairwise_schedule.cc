#include "daemon/core/schedules/pairwise_schedule.h"

#include <algorithm>
#include <bit>

#include "daemon/base/check.h"

namespace rueda::core {
namespace {

class Builder {
 public:
  Builder(int nodes, NodeIndex self, int blocks) : nodes_(nodes), self_(self.value) {
    program_.blocks = blocks;
  }

  void send(int to, BlockRange blocks, bool is_final) {
    program_.sends.push_back(
        {NodeIndex{to}, blocks, static_cast<int>(program_.receives.size()), is_final});
  }
  void add(int from, BlockRange blocks, bool becomes_final) {
    program_.receives.push_back({NodeIndex{from}, blocks, true, false, becomes_final});
  }
  void add_all(BlockRange blocks) {
    for (int node = 0; node < nodes_; ++node) {
      if (node != self_) program_.receives.push_back({NodeIndex{node}, blocks, true, true, true});
    }
    program_.receives.back().joins_next = false;
  }
  void take(int from, BlockRange blocks) {
    program_.receives.push_back({NodeIndex{from}, blocks, false, false, false});
  }

  void recursive_doubling() { among_power_of_two(&Builder::double_recursively); }
  void halving_doubling() { among_power_of_two(&Builder::halve_and_double); }

  // The first nodes, as many as there are blocks, are servers.
  void push_and_pull() {
    const auto is_server = [this](int node) { return node < program_.blocks; };
    for (int i = 1; i < nodes_; ++i) {
      const int server = after_self(i);
      if (is_server(server)) send(server, block(server), false);
    }
    if (is_server(self_)) {
      add_all(block(self_));
      for (int i = 1; i < nodes_; ++i) send(after_self(i), block(self_), true);
    }
    for (int server = 0; is_server(server); ++server) {
      if (server != self_) take(server, block(server));
    }
  }

  PairwiseProgram done() { return std::move(program_); }

 private:
  BlockRange all() const { return {0, program_.blocks}; }
  static BlockRange block(int index) { return {index, index + 1}; }
  int after_self(int steps) const { return (self_ + steps) % nodes_; }

  void among_power_of_two(void (Builder::*run)(int core)) {
    const int core = static_cast<int>(std::bit_floor(static_cast<unsigned>(nodes_)));
    if (self_ >= core) {
      send(self_ - core, all(), false);
      take(self_ - core, all());
      return;
    }
    const bool has_guest = self_ + core < nodes_;
    if (has_guest) add(self_ + core, all(), false);
    (this->*run)(core);
    if (has_guest) send(self_ + core, all(), true);
  }

  void double_recursively(int core) {
    for (int distance = 1; distance < core; distance *= 2) {
      send(self_ ^ distance, all(), false);
      add(self_ ^ distance, all(), distance * 2 == core);
    }
  }

  void halve_and_double(int core) {
    BlockRange mine = all();
    std::vector<BlockRange> others;  // The index is the step.
    for (int distance = 1; distance < core; distance *= 2) {
      const int middle = (mine.begin + mine.end) / 2;
      BlockRange given{middle, mine.end};
      BlockRange kept{mine.begin, middle};
      if (self_ & distance) std::swap(given, kept);
      send(self_ ^ distance, given, false);
      add(self_ ^ distance, kept, distance * 2 == core);
      others.push_back(given);
      mine = kept;
    }
    for (int distance = core / 2; distance > 0; distance /= 2) {
      send(self_ ^ distance, mine, true);
      take(self_ ^ distance, others.back());
      mine = {std::min(mine.begin, others.back().begin), std::max(mine.end, others.back().end)};
      others.pop_back();
    }
  }

  const int nodes_;
  const int self_;
  PairwiseProgram program_;
};

int blocks_of(Algorithm algorithm, int nodes, int servers) {
  switch (algorithm) {
    case Algorithm::kHalvingDoubling:
      return static_cast<int>(std::bit_floor(static_cast<unsigned>(nodes)));
    case Algorithm::kDirect: return nodes;
    case Algorithm::kCentral: return std::clamp(servers, 1, nodes);
    default: return 1;
  }
}

void make_ascending(std::vector<NodeIndex>& nodes) {
  std::sort(nodes.begin(), nodes.end());
  nodes.erase(std::unique(nodes.begin(), nodes.end()), nodes.end());
}

}  // namespace

PairwiseProgram make_exchange(Algorithm algorithm, int nodes, NodeIndex self, int servers) {
  RUEDA_CHECK(nodes >= 2 && self.value >= 0 && self.value < nodes);
  Builder builder(nodes, self, blocks_of(algorithm, nodes, servers));
  switch (algorithm) {
    case Algorithm::kRecursiveDoubling: builder.recursive_doubling(); break;
    case Algorithm::kHalvingDoubling: builder.halving_doubling(); break;
    case Algorithm::kDirect:
    case Algorithm::kCentral: builder.push_and_pull(); break;
    case Algorithm::kRing: RUEDA_CHECK(false);
  }
  return builder.done();
}

PairwisePeers peers_of(const std::vector<Algorithm>& algorithms, int nodes, NodeIndex self,
                       int servers) {
  PairwisePeers peers;
  for (const Algorithm algorithm : algorithms) {
    const PairwiseProgram program = make_exchange(algorithm, nodes, self, servers);
    for (const PairwiseSend& item : program.sends) peers.to.push_back(item.to);
    for (const PairwiseReceive& item : program.receives) peers.from.push_back(item.from);
  }
  make_ascending(peers.to);
  make_ascending(peers.from);
  return peers;
}

}  // namespace rueda::core
