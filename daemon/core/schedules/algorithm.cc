#include "daemon/core/schedules/algorithm.h"

#include <algorithm>
#include <array>
#include <bit>

#include "daemon/base/check.h"
#include "daemon/core/model/tuning.h"

namespace rueda::core {
namespace {

struct Named {
  AlgorithmChoice choice;
  const char* name;
};
constexpr std::array kChoices{
    Named{AlgorithmChoice::kAuto, "auto"},
    Named{AlgorithmChoice::kTable, "table"},
    Named{AlgorithmChoice::kRing, "ring"},
    Named{AlgorithmChoice::kRecursiveDoubling, "recursive-doubling"},
    Named{AlgorithmChoice::kHalvingDoubling, "halving-doubling"},
    Named{AlgorithmChoice::kDirect, "direct"},
    Named{AlgorithmChoice::kCentral, "central"},
};

// The largest part of a node for which the model holds. From there on a ring's chunks overlap,
// which the model does not know of.
constexpr int64_t kMaxOfOneChunk = 128 << 10;

// The costs of a network of 10 Gbit/s, and of one core's additions, for tables that must not be
// measured.
constexpr TransferCosts kUsualCosts{25e-6, 0.8e-9, 0.1e-9};

Algorithm only(AlgorithmChoice choice) {
  switch (choice) {
    case AlgorithmChoice::kRecursiveDoubling: return Algorithm::kRecursiveDoubling;
    case AlgorithmChoice::kHalvingDoubling: return Algorithm::kHalvingDoubling;
    case AlgorithmChoice::kDirect: return Algorithm::kDirect;
    case AlgorithmChoice::kCentral: return Algorithm::kCentral;
    default: return Algorithm::kRing;
  }
}

}  // namespace

const char* to_string(Algorithm algorithm) {
  switch (algorithm) {
    case Algorithm::kRing: return "ring";
    case Algorithm::kRecursiveDoubling: return "recursive-doubling";
    case Algorithm::kHalvingDoubling: return "halving-doubling";
    case Algorithm::kDirect: return "direct";
    case Algorithm::kCentral: return "central";
  }
  return "unknown";
}

const char* to_string(AlgorithmChoice choice) {
  for (const Named& item : kChoices) {
    if (item.choice == choice) return item.name;
  }
  return "unknown";
}

Result<AlgorithmChoice> parse_algorithm(const std::string& name) {
  std::string names;
  for (const Named& item : kChoices) {
    if (name == item.name) return item.choice;
    names += (names.empty() ? "" : ", ") + std::string(item.name);
  }
  return Status(Code::kInvalidArgument,
                "there is no algorithm \"" + name + "\"; there are " + names);
}

Algorithm algorithm_for(const AlgorithmTable& table, int64_t bytes) {
  RUEDA_CHECK(!table.empty());
  for (const AlgorithmLine& line : table) {
    if (bytes <= line.up_to_bytes) return line.algorithm;
  }
  return table.back().algorithm;
}

Algorithm tuned_algorithm_for(const AlgorithmTable& table, int64_t bytes, int32_t cutover_log2,
                              AlgorithmChoice choice, int nodes) {
  if (cutover_log2 == 0 || table.size() == 1) return algorithm_for(table, bytes);
  if (cutover_log2 == kRingAlways || always_rings(choice, nodes, bytes)) return Algorithm::kRing;
  if (cutover_log2 > 0) return algorithm_for(table, bytes >> std::min(cutover_log2, 62));
  const int shift = std::min(-cutover_log2, 62);
  return algorithm_for(table, bytes > (INT64_MAX >> shift) ? INT64_MAX : bytes << shift);
}

double cost_s(Algorithm algorithm, int nodes, int64_t bytes, const TransferCosts& costs) {
  RUEDA_CHECK(nodes >= 2);
  const double n = nodes;
  const auto s = static_cast<double>(bytes);
  const double both = costs.s_per_byte + costs.add_s_per_byte;
  const int doublings = std::bit_width(static_cast<unsigned>(nodes)) - 1;
  // Nodes beyond a power of two hand their values to another node first, and get the result from
  // it.
  const bool folds = nodes != 1 << doublings;
  const double fold = folds ? 2 * costs.latency_s + s * (costs.s_per_byte + both) : 0;
  const double core = 1 << doublings;
  switch (algorithm) {
    case Algorithm::kRing:
      return (n - 1) * (2 * costs.latency_s + s / n * (costs.s_per_byte + both));
    case Algorithm::kRecursiveDoubling: return doublings * (costs.latency_s + s * both) + fold;
    case Algorithm::kHalvingDoubling:
      return 2 * doublings * costs.latency_s + s * (core - 1) / core * (costs.s_per_byte + both) +
             fold;
    case Algorithm::kDirect:
      return 2 * costs.latency_s + s * (n - 1) / n * (costs.s_per_byte + both);
    case Algorithm::kCentral: return 2 * costs.latency_s + (n - 1) * s * (costs.s_per_byte + both);
  }
  return 0;
}

AlgorithmTable make_table(int nodes, const TransferCosts& costs) {
  AlgorithmTable table;
  for (int64_t bytes = 64; bytes <= nodes * kMaxOfOneChunk; bytes *= 2) {
    Algorithm best = Algorithm::kRing;
    for (const Algorithm other : exchanges_of(AlgorithmChoice::kAuto)) {
      if (cost_s(other, nodes, bytes, costs) < cost_s(best, nodes, bytes, costs)) best = other;
    }
    if (best == Algorithm::kRing) break;
    if (!table.empty() && table.back().algorithm == best) {
      table.back().up_to_bytes = bytes;
    } else {
      table.push_back({bytes, best});
    }
  }
  table.push_back({INT64_MAX, Algorithm::kRing});
  return table;
}

AlgorithmTable fixed_table(AlgorithmChoice choice, int nodes) {
  RUEDA_CHECK(choice != AlgorithmChoice::kAuto);
  if (choice == AlgorithmChoice::kTable) return make_table(nodes, kUsualCosts);
  return {{INT64_MAX, only(choice)}};
}

bool always_rings(AlgorithmChoice choice, int nodes, int64_t bytes) {
  const bool is_by_size = choice == AlgorithmChoice::kAuto || choice == AlgorithmChoice::kTable;
  return is_by_size ? bytes > nodes * kMaxOfOneChunk : only(choice) == Algorithm::kRing;
}

std::vector<Algorithm> exchanges_of(AlgorithmChoice choice) {
  if (choice == AlgorithmChoice::kAuto || choice == AlgorithmChoice::kTable) {
    return {Algorithm::kRecursiveDoubling, Algorithm::kHalvingDoubling};
  }
  const Algorithm one = only(choice);
  if (one == Algorithm::kRing) return {};
  return {one};
}

}  // namespace rueda::core
