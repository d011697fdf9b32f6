// Runs a few Recovery cores and a network without delay, for tests that tell a story. Nodes can be
// killed or frozen, links cut one way; time passes only when the test says so.
#pragma once

#include <algorithm>
#include <deque>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "daemon/core/recovery/recovery.h"
#include "tests/core/builders.h"

namespace rueda::core {

class RecoveryCluster {
 public:
  // Holds what one node was told to do so far.
  struct Node {
    std::optional<Recovery> core;
    bool alive = true;
    bool frozen = false;
    int seals = 0;
    std::vector<NextEpoch> epochs;
    std::vector<CompletedOperation> deliveries;
    std::vector<Seq> freed_partials;
    std::vector<Seq> freed_finals;
    std::vector<JobEnd> ends;
    std::deque<RecoveryMessage> inbox;
  };

  // Makes node i with ranks_by_node[i] ranks. A witness is the last node.
  explicit RecoveryCluster(const std::vector<int>& ranks_by_node,
                           RecoveryOptions options = shrink())
      : layout_(layout_of(ranks_by_node)) {
    const int count = layout_.node_count() + (options.has_witness ? 1 : 0);
    nodes_.resize(static_cast<size_t>(count));
    for (int i = 0; i < count; ++i) node(i).core.emplace(layout_, NodeIndex{i}, options);
    for (int i = 0; i < count; ++i) {
      RecoveryOutput output;
      core(i).start(now_, output);
      carry_out(i, output);
    }
    settle();
  }

  static RecoveryOptions shrink() {
    RecoveryOptions options;
    options.policy = DeathPolicy::kShrink;
    return options;
  }

  Node& node(int index) { return nodes_[static_cast<size_t>(index)]; }
  Recovery& core(int index) { return *node(index).core; }
  TicksMs now() const { return now_; }

  void kill(int index) { node(index).alive = false; }
  void freeze(int index) { node(index).frozen = true; }
  void thaw(int index) {
    node(index).frozen = false;
    settle();
  }
  void cut(int from, int to) { cut_.insert({from, to}); }
  void heal() { cut_.clear(); }

  // Delivers the messages on their way, until no node has anything to say.
  void settle() {
    for (bool moved = true; moved;) {
      moved = false;
      for (int i = 0; i < static_cast<int>(nodes_.size()); ++i) {
        Node& at = node(i);
        while (at.alive && !at.frozen && !at.inbox.empty()) {
          const RecoveryMessage message = std::move(at.inbox.front());
          at.inbox.pop_front();
          RecoveryOutput output;
          at.core->on_message(now_, message, output);
          carry_out(i, output);
          moved = true;
        }
      }
    }
  }

  void pass(TicksMs duration) {
    const TicksMs end = now_ + duration;
    while (true) {
      int first = -1;
      TicksMs at = end;
      for (int i = 0; i < static_cast<int>(nodes_.size()); ++i) {
        const auto deadline = core(i).deadline();
        if (!node(i).alive || node(i).frozen || !deadline || *deadline > at) continue;
        if (first >= 0 && *deadline == at) continue;
        first = i;
        at = *deadline;
      }
      now_ = std::max(now_, at);
      if (first < 0) return;
      RecoveryOutput output;
      core(first).on_time(now_, output);
      carry_out(first, output);
      settle();
    }
  }

  void suspect(int index, int other) {
    RecoveryOutput output;
    core(index).on_suspicion(now_, NodeIndex{other}, "lost node n" + std::to_string(other), output);
    carry_out(index, output);
    settle();
  }

  // Launches an operation, which has as many chunks as its epoch has members.
  void launch(int index, uint64_t seq, int64_t bytes = 10) {
    RecoveryOutput output;
    core(index).on_launched(now_, Seq{seq}, bytes, core(index).members().size(), {}, output);
    carry_out(index, output);
    settle();
  }
  void launch_on(const std::vector<int>& indices, uint64_t seq, int64_t bytes = 10) {
    for (const int index : indices) launch(index, seq, bytes);
  }
  void chunk(int index, uint64_t seq, size_t chunk) {
    RecoveryOutput output;
    core(index).on_chunk(now_, Seq{seq}, chunk, output);
    carry_out(index, output);
    settle();
  }
  void complete(int index, uint64_t seq) {
    const size_t chunks = core(index).members().size();
    for (size_t i = 0; i < chunks; ++i) chunk(index, seq, i);
  }
  void stable(int index, uint64_t seq) {
    RecoveryOutput output;
    core(index).on_stable(now_, Seq{seq}, output);
    carry_out(index, output);
    settle();
  }
  void message(int index, const RecoveryMessage& message) {
    node(index).inbox.push_back(message);
    settle();
  }

 private:
  void carry_out(int index, const RecoveryOutput& output) {
    Node& at = node(index);
    at.seals += output.sealed;
    if (output.next) at.epochs.push_back(*output.next);
    const auto append = [](auto& to, const auto& from) {
      to.insert(to.end(), from.begin(), from.end());
    };
    append(at.deliveries, output.deliveries);
    append(at.freed_partials, output.freed_partials);
    append(at.freed_finals, output.freed_finals);
    if (output.ended) at.ends.push_back(*output.ended);
    for (const auto& [to, message] : output.sends) {
      if (!cut_.contains({index, to.value})) node(to.value).inbox.push_back(message);
    }
    if (!output.sealed) return;
    RecoveryOutput stopped;
    at.core->on_stopped(now_, {}, {}, stopped);
    carry_out(index, stopped);
  }

  Layout layout_;
  std::vector<Node> nodes_;
  std::set<std::pair<int, int>> cut_;
  TicksMs now_ = 1'000;
};

}  // namespace rueda::core
