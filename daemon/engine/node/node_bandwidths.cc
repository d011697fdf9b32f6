#include "daemon/engine/node/node_bandwidths.h"

#include <algorithm>
#include <cmath>
#include <set>

namespace rueda::engine {

std::vector<std::pair<std::string, std::string>> NodeBandwidths::unreachable() const {
  std::vector<std::pair<std::string, std::string>> pairs;
  for (size_t from = 0; from < node_ids.size(); ++from) {
    for (size_t to = 0; to < node_ids.size(); ++to) {
      if (from == to || bytes_per_second[from][to] > 0) continue;
      pairs.emplace_back(node_ids[from], node_ids[to]);
    }
  }
  return pairs;
}

Result<core::Bandwidths> NodeBandwidths::of(const core::Layout& layout) const {
  std::vector<size_t> places;
  for (int32_t i = 0; i < layout.node_count(); ++i) {
    const std::string& id = layout.node(NodeIndex{i}).node_id;
    const auto found = std::find(node_ids.begin(), node_ids.end(), id);
    if (found == node_ids.end()) {
      return Status(Code::kNotFound, "node " + id +
                                         " is not among the nodes whose bandwidths are "
                                         "known");
    }
    places.push_back(static_cast<size_t>(found - node_ids.begin()));
  }
  core::Bandwidths bandwidths;
  for (const size_t from : places) {
    std::vector<double>& row = bandwidths.emplace_back();
    for (const size_t to : places) row.push_back(bytes_per_second[from][to]);
  }
  return bandwidths;
}

Status check(const NodeBandwidths& bandwidths) {
  const std::vector<std::string>& ids = bandwidths.node_ids;
  if (std::set<std::string>(ids.begin(), ids.end()).size() != ids.size()) {
    return {Code::kInvalidArgument, "bandwidths name a node twice"};
  }
  const auto is_wrong = [&](const std::vector<double>& row) {
    return row.size() != ids.size() || !std::all_of(row.begin(), row.end(), [](double value) {
             return std::isfinite(value) && value >= 0;
           });
  };
  const core::Bandwidths& rows = bandwidths.bytes_per_second;
  if (rows.size() != ids.size() || std::any_of(rows.begin(), rows.end(), is_wrong)) {
    return {Code::kInvalidArgument, "bandwidths do not have a number, none below 0, for each pair"};
  }
  return Status::ok();
}

}  // namespace rueda::engine
