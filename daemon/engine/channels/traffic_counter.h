// Adds what a data job sends to and receives from its neighbours to the metrics of each neighbour.
// The counter belongs to its data loop.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "daemon/base/ids.h"
#include "daemon/observe/metrics.h"

namespace rueda::engine {

class TrafficCounter {
 public:
  // `metrics`, `transport` (the transport's name) and `node_ids` (by node) outlive the object.
  TrafficCounter(observe::Metrics& metrics, const char* transport,
                 const std::vector<std::string>& node_ids)
      : metrics_(metrics), transport_(transport), node_ids_(node_ids) {}

  // Adds so many bytes of the peer, which has a metric from its first call on.
  void count(NodeIndex peer, uint64_t sent, uint64_t received) {
    std::shared_ptr<observe::PeerMetrics>& series = series_[peer];
    if (!series) {
      series = metrics_.peer(node_ids_[static_cast<size_t>(peer.value)], transport_);
    }
    series->sent_bytes.Increment(static_cast<double>(sent));
    series->received_bytes.Increment(static_cast<double>(received));
  }

 private:
  observe::Metrics& metrics_;
  const char* const transport_;
  const std::vector<std::string>& node_ids_;
  // Those of the peers that have been counted so far.
  std::map<NodeIndex, std::shared_ptr<observe::PeerMetrics>> series_;
};

}  // namespace rueda::engine
