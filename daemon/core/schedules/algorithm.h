// How an all-reduce goes between nodes, and which way is the quickest for how many bytes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "daemon/base/status.h"

namespace rueda::core {

enum class Algorithm : uint8_t {
  kRing,               // core/schedules/ring_schedule.h
  kRecursiveDoubling,  // the others: core/schedules/pairwise_schedule.h
  kHalvingDoubling,
  kDirect,
  kCentral,
};

// As below.
const char* to_string(Algorithm algorithm);

// What a job is told; all of its nodes the same.
enum class AlgorithmChoice : uint8_t {
  kAuto,   // by what the network and the machine measure when the job starts
  kTable,  // by fixed sizes: two runs choose alike
  // Always this one.
  kRing,
  kRecursiveDoubling,
  kHalvingDoubling,
  kDirect,
  kCentral,
};

// "auto", "table", "ring", "recursive-doubling", "halving-doubling", "direct", "central".
const char* to_string(AlgorithmChoice choice);
// The error lists the names.
Result<AlgorithmChoice> parse_algorithm(const std::string& name);

// Ascending; the last line is for all that is larger, too.
struct AlgorithmLine {
  int64_t up_to_bytes = 0;
  Algorithm algorithm = Algorithm::kRing;

  bool operator==(const AlgorithmLine&) const = default;
};
using AlgorithmTable = std::vector<AlgorithmLine>;

// The table is not empty.
Algorithm algorithm_for(const AlgorithmTable& table, int64_t bytes);

// The same with the cut-overs moved to 2^cutover_log2 times the bytes, within what always_rings()
// leaves; kRingAlways (tuning.h): the ring. A table of one line is somebody's word, and stays.
Algorithm tuned_algorithm_for(const AlgorithmTable& table, int64_t bytes, int32_t cutover_log2,
                              AlgorithmChoice choice, int nodes);

// Of a message between two nodes (Hockney's model), and of adding what has come.
struct TransferCosts {
  double latency_s = 0;
  double s_per_byte = 0;
  double add_s_per_byte = 0;
};

// Of an all-reduce of so many bytes among `nodes`, 2 or more.
double cost_s(Algorithm algorithm, int nodes, int64_t bytes, const TransferCosts& costs);

// The quickest for each power of two of bytes, of the ring, recursive doubling and
// halving-doubling; from the first size on for which the ring is, the ring.
AlgorithmTable make_table(int nodes, const TransferCosts& costs);

// Without measurements: that of kTable for so many nodes, or the one algorithm. Not of kAuto.
AlgorithmTable fixed_table(AlgorithmChoice choice, int nodes);

// Whether an operation of so many bytes goes round the ring, whatever is measured.
bool always_rings(AlgorithmChoice choice, int nodes, int64_t bytes);

// What the choice may come to beside the ring; empty: nothing.
std::vector<Algorithm> exchanges_of(AlgorithmChoice choice);

}  // namespace rueda::core
