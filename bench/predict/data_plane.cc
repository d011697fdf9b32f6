#include "bench/predict/data_plane.h"

#include <algorithm>
#include <fstream>
#include <set>
#include <stdexcept>

#include "bench/base/compute.h"
#include "bench/base/models.h"

namespace rueda::scale {
namespace {

constexpr double kBytesPerElement = 4;

// Returns how long an operation of so many bytes takes, from its first byte to its last.
double operation_ms(const Cluster& cluster, const DataPlaneCosts& costs, double bytes) {
  const double nodes = cluster.nodes;
  const bool is_ring = cluster.algorithm == Algorithm::kRing;
  // What the busiest node sends, and as much receives. The central node has all others' bytes.
  const double busiest = is_ring ? 2 * (nodes - 1) / nodes * bytes : (nodes - 1) * bytes;
  // What all nodes together send: the two add up to the same.
  const double sent = 2 * (nodes - 1) * bytes;
  const double link_ms = cluster.nic_gbit > 0 ? busiest * 8 / (cluster.nic_gbit * 1e6) : 0;
  const double wire_ns = costs.wire_ns_per_byte * cluster.wire_cpu_share;
  const double ranks_ns = costs.rank_ns_per_byte * cluster.gpus_per_node * bytes;
  const double cpu_ms = cluster.shared_cores > 0
                            ? (nodes * ranks_ns + wire_ns * sent) / cluster.shared_cores / 1e6
                            : (ranks_ns + wire_ns * busiest) / cluster.cores_per_node / 1e6;
  const double hops = cluster.nodes == 1 ? 0 : is_ring ? 2 * (nodes - 1) : 2;
  return std::max(link_ms, cpu_ms) + (costs.operation_us + hops * costs.hop_us) / 1e3;
}

[[noreturn]] void refuse(const std::string& what) { throw std::runtime_error(what); }

double number(const nlohmann::json& json, const char* key, double fallback, double least,
              double most) {
  const auto found = json.find(key);
  if (found == json.end()) return fallback;
  if (!found->is_number()) refuse(std::string("'") + key + "' is no number");
  const double value = found->get<double>();
  if (!(value >= least && value <= most)) {
    refuse(std::string("'") + key + "' is " + found->dump() + ", which is not between " +
           nlohmann::json(least).dump() + " and " + nlohmann::json(most).dump());
  }
  return value;
}

int whole(const nlohmann::json& json, const char* key, int fallback, int least, int most) {
  const double value = number(json, key, fallback, least, most);
  if (value != static_cast<int>(value)) refuse(std::string("'") + key + "' is no whole number");
  return static_cast<int>(value);
}

std::string text(const nlohmann::json& json, const char* key, const std::string& fallback) {
  const auto found = json.find(key);
  if (found == json.end()) return fallback;
  if (!found->is_string()) refuse(std::string("'") + key + "' is no string");
  return found->get<std::string>();
}

void check_keys(const nlohmann::json& json, const std::set<std::string>& known) {
  if (!json.is_object()) refuse("it is no JSON object");
  for (const auto& [key, value] : json.items()) {
    if (!known.contains(key)) refuse("'" + key + "' is no key that is known here");
  }
}

// Fills in the gradients of a named network, or of "parameters" that are ready evenly, in tensors
// of 4 million.
void set_gradients(const nlohmann::json& json, Cluster* cluster) {
  const std::string model = text(json, "model", "");
  const double parameters = number(json, "parameters", 0, 0, 1e13);
  if (model.empty() == (parameters == 0)) refuse("it needs 'model' or 'parameters', and not both");
  if (model.empty()) {
    constexpr double kTensor = 4e6;
    const auto count = static_cast<size_t>(std::max(1.0, parameters / kTensor));
    for (size_t i = 0; i < count; ++i) {
      cluster->elements.push_back(static_cast<int64_t>(parameters / static_cast<double>(count)));
      cluster->ready.push_back((1 + 2 * static_cast<double>(i + 1) / static_cast<double>(count)) /
                               3);
    }
    cluster->compute_ms = number(json, "compute_ms", -1, 0, 1e9);
    if (cluster->compute_ms < 0) refuse("'parameters' needs 'compute_ms'");
    return;
  }
  const auto list = bench::model_by_name(model);
  if (!list) refuse("'" + model + "' is no model: rueda-bench models --model lists them");
  const std::vector<double> shares = bench::ready_shares(*list);
  for (size_t i = list->size(); i-- > 0;) {
    cluster->elements.push_back((*list)[i].elements());
    cluster->ready.push_back(shares[i]);
  }
  const auto& known = bench::network_names();
  const bool has_time = std::find(known.begin(), known.end(), model) != known.end();
  if (has_time && cluster->images > 0) {
    cluster->compute_ms = bench::compute_on_p100(model).step_ms(cluster->images);
  }
  cluster->compute_ms = number(json, "compute_ms", cluster->compute_ms, 0, 1e9);
}

nlohmann::json read(const std::string& path) {
  std::ifstream file(path);
  if (!file) refuse(path + " cannot be read");
  auto json = nlohmann::json::parse(file, nullptr, false);
  if (json.is_discarded()) refuse(path + " is no JSON");
  return json;
}

}  // namespace

Prediction predict(const Cluster& cluster, const DataPlaneCosts& costs) {
  Prediction found;
  double now_ms = 0;
  for (size_t next = 0; next < cluster.elements.size();) {
    now_ms = std::max(now_ms, cluster.ready[next] * cluster.compute_ms);
    double bytes = 0;
    do {
      bytes += kBytesPerElement * static_cast<double>(cluster.elements[next++]);
    } while (next < cluster.elements.size() && cluster.ready[next] * cluster.compute_ms <= now_ms &&
             bytes + kBytesPerElement * static_cast<double>(cluster.elements[next]) <=
                 static_cast<double>(cluster.fusion_bytes));
    now_ms += operation_ms(cluster, costs, bytes);
    ++found.operations;
  }
  found.step_ms = std::max(now_ms, cluster.compute_ms);
  found.exposed_ms = found.step_ms - cluster.compute_ms;
  found.efficiency = found.step_ms > 0 ? cluster.compute_ms / found.step_ms : 1;
  return found;
}

DataPlaneCosts parse_costs(const nlohmann::json& json) {
  check_keys(json, {"hop_us", "operation_us", "rank_ns_per_byte", "wire_ns_per_byte", "busy_cores",
                    "source"});
  DataPlaneCosts costs;
  for (const auto& [key, value] : {std::pair<const char*, double*>{"hop_us", &costs.hop_us},
                                   {"operation_us", &costs.operation_us},
                                   {"rank_ns_per_byte", &costs.rank_ns_per_byte},
                                   {"wire_ns_per_byte", &costs.wire_ns_per_byte}}) {
    if (!json.contains(key)) refuse(std::string("it lacks '") + key + "'");
    *value = number(json, key, 0, 0, 1e6);
  }
  return costs;
}

Cluster parse_cluster(const nlohmann::json& json) {
  check_keys(json, {"name", "nodes", "gpus_per_node", "nic_gbit", "cores_per_node", "shared_cores",
                    "transport", "algorithm", "fusion_bytes", "model", "parameters", "images",
                    "compute_ms"});
  Cluster cluster;
  cluster.name = text(json, "name", "");
  cluster.nodes = whole(json, "nodes", cluster.nodes, 1, 1'000'000);
  cluster.gpus_per_node = whole(json, "gpus_per_node", cluster.gpus_per_node, 1, 1024);
  cluster.nic_gbit = number(json, "nic_gbit", cluster.nic_gbit, 0, 1e6);
  cluster.cores_per_node = number(json, "cores_per_node", cluster.cores_per_node, 0.01, 1e4);
  cluster.shared_cores = number(json, "shared_cores", cluster.shared_cores, 0, 1e6);
  cluster.images = whole(json, "images", 0, 0, 1'000'000);
  cluster.fusion_bytes = whole(json, "fusion_bytes", 64 << 20, 0, 1 << 30);
  const std::string transport = text(json, "transport", "tcp");
  if (transport != "tcp" && transport != "rdma") refuse("'transport' is neither tcp nor rdma");
  // The card moves the bytes, and the additions stay, which are counted with the ranks' bytes.
  if (transport == "rdma") cluster.wire_cpu_share = 0;
  const std::string algorithm = text(json, "algorithm", "ring");
  if (algorithm != "ring" && algorithm != "central")
    refuse("'algorithm' is neither ring nor central");
  if (algorithm == "central") cluster.algorithm = Algorithm::kCentral;
  set_gradients(json, &cluster);
  return cluster;
}

std::vector<nlohmann::ordered_json> predict_file(const std::string& clusters,
                                                 const std::string& costs) {
  const auto list = read(clusters);
  if (!list.is_array()) refuse(clusters + " holds no list of clusters");
  const DataPlaneCosts measured = [&] {
    try {
      return parse_costs(read(costs));
    } catch (const std::runtime_error& error) {
      refuse(costs + ": " + error.what());
    }
  }();
  std::vector<nlohmann::ordered_json> lines;
  for (size_t i = 0; i < list.size(); ++i) {
    try {
      const Cluster cluster = parse_cluster(list[i]);
      const Prediction found = predict(cluster, measured);
      nlohmann::ordered_json line{{"name", cluster.name},
                                  {"nodes", cluster.nodes},
                                  {"gpus", cluster.nodes * cluster.gpus_per_node},
                                  {"compute_ms", cluster.compute_ms},
                                  {"step_ms", found.step_ms},
                                  {"exposed_ms", found.exposed_ms},
                                  {"efficiency", found.efficiency},
                                  {"operations", found.operations}};
      lines.push_back(std::move(line));
    } catch (const std::runtime_error& error) {
      refuse(clusters + ", cluster " + std::to_string(i + 1) + ": " + error.what());
    }
  }
  return lines;
}

}  // namespace rueda::scale
