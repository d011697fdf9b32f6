// Predicts what a training step takes on a cluster, from what moving and adding bytes costs.
//
// The model: gradients become ready as bench/base/models.h says. A node has one data plane, which
// takes what is ready and not yet sent, up to the fusion threshold, as one operation, and then what
// has become ready meanwhile. An operation takes the longest of three things that overlap: its
// bytes on the slowest link, the CPU time of the cores that move and add them, and, for a ring, its
// hops. A step ends when the last gradient has come back. It has no negotiation and no load
// imbalance, which `rueda-sim --mode` has; so it says what the data plane allows, and no job is
// faster.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

namespace rueda::scale {

// What is measured on this machine (bench/characterise.py costs) or assumed.
struct DataPlaneCosts {
  double hop_us = 0;            // from a node to the next, of a message without bytes
  double operation_us = 0;      // of an operation, whatever its size and the number of nodes
  double rank_ns_per_byte = 0;  // CPU time of a node for each byte of each of its ranks' tensors
  double wire_ns_per_byte = 0;  // CPU time of a node for each byte that it sends, and receives
};

enum class Algorithm { kRing, kCentral };

struct Cluster {
  std::string name;
  int nodes = 2;
  int gpus_per_node = 1;
  double nic_gbit = 0;  // each way; 0: no limit
  // Cores of a node that move and add bytes; if shared_cores is set, all nodes share that many.
  double cores_per_node = 1;
  double shared_cores = 0;
  // The share of the wire's CPU time that is left where the card moves the bytes (RDMA); 1 for TCP.
  double wire_cpu_share = 1;
  Algorithm algorithm = Algorithm::kRing;
  int64_t fusion_bytes = 64 << 20;
  double compute_ms = 0;
  int images = 0;                 // of a step of one GPU; 0: nobody asks
  std::vector<int64_t> elements;  // float32, in the order in which gradients become ready
  std::vector<double> ready;      // when, as shares of compute_ms
};

struct Prediction {
  double step_ms = 0;
  double exposed_ms = 0;  // beyond compute_ms
  double efficiency = 0;  // compute_ms as a share of step_ms
  int operations = 0;
};

Prediction predict(const Cluster& cluster, const DataPlaneCosts& costs);

// Read what a file holds. They throw std::runtime_error, which names what is wrong with it.
DataPlaneCosts parse_costs(const nlohmann::json& json);
Cluster parse_cluster(const nlohmann::json& json);
// Reads a file with a list of clusters and one of costs, and returns a line a cluster.
std::vector<nlohmann::ordered_json> predict_file(const std::string& clusters,
                                                 const std::string& costs);

}  // namespace rueda::scale
