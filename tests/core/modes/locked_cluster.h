// Runs a cluster in mode `locked` whose data plane completes every operation that all nodes have
// launched as the same batch.
#pragma once

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "tests/core/job/job_cluster.h"

namespace rueda::core {

class LockedTest : public testing::Test {
 protected:
  void start(const std::vector<int>& ranks_by_node, int64_t threshold_bytes = 1 << 20) {
    JobOptions options;
    options.agreement.mode = Coordination::kLocked;
    options.agreement.fusion.threshold_bytes = threshold_bytes;
    cluster_.emplace(ranks_by_node, options);
    cluster_->start();
    ranks_ = cluster_->layout().world_size();
  }

  // Completes on every node what every node has launched, as the data plane does.
  void complete_launched() {
    for (bool moved = true; moved;) {
      cluster_->settle();
      moved = false;
      for (auto& [seq, launches] : under_way()) {
        if (launches.size() != static_cast<size_t>(cluster_->layout().node_count())) continue;
        if (!is_same_everywhere(seq)) continue;
        for (const int node : launches) {
          done_.insert({node, seq});
          cluster_->step(node, OperationDone{Seq{seq}});
        }
        moved = true;
        break;
      }
    }
  }
  // Returns whether the last launches by this number mean the same batch on all nodes.
  bool is_same_everywhere(uint64_t seq) {
    std::set<uint64_t> meant;
    for (int node = 0; node < cluster_->layout().node_count(); ++node) {
      const std::vector<Launch>& launches = cluster_->node(node).launches;
      const auto last = std::find_if(launches.rbegin(), launches.rend(),
                                     [&](const Launch& launch) { return launch.seq.value == seq; });
      meant.insert(last->plan_hash);
    }
    return meant.size() == 1;
  }
  void step(const std::vector<DescriptorPtr>& tensors) {
    for (const DescriptorPtr& item : tensors) cluster_->submit_everywhere(item);
    complete_launched();
  }
  void lock(const std::vector<DescriptorPtr>& tensors) {
    for (int i = 0; i < 3; ++i) step(tensors);
    for (int node = 0; node < cluster_->layout().node_count(); ++node) {
      ASSERT_TRUE(is_locked(node)) << node;
    }
  }
  bool is_locked(int node) { return cluster_->node(node).core->is_locked(); }
  // Returns the operations under way, by the last launch of each that was neither cancelled nor
  // completed.
  std::map<uint64_t, std::vector<int>> under_way() {
    std::map<uint64_t, std::vector<int>> found;
    for (int node = 0; node < cluster_->layout().node_count(); ++node) {
      uint32_t generation = 0;
      uint64_t first = UINT64_MAX;
      for (const Cancel& cancel : cluster_->node(node).cancels) {
        generation = cancel.generation;
        first = cancel.first.value;
      }
      for (const Launch& launch : cluster_->node(node).launches) {
        const bool lockable = track_of(launch.seq) == Track::kLockable;
        if (lockable && launch.seq.value >= first && launch.generation < generation) continue;
        if (!done_.contains({node, launch.seq.value})) found[launch.seq.value].push_back(node);
      }
    }
    return found;
  }

  std::optional<Cluster> cluster_;
  std::set<std::pair<int, uint64_t>> done_;
  int ranks_ = 0;
};

}  // namespace rueda::core
