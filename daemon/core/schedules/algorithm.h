// The ways in which an all-reduce may go between nodes, and which of them is the quickest for how
// many bytes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "daemon/base/status.h"

namespace rueda::core {

enum class Algorithm : uint8_t {
  kRing,               // The ring is in core/schedules/ring_schedule.h.
  kRecursiveDoubling,  // This and the next three are in core/schedules/pairwise_schedule.h.
  kHalvingDoubling,
  kDirect,
  kCentral,
};

// Returns the name that parse_algorithm() takes.
const char* to_string(Algorithm algorithm);

// The choice that a job is told; all of its nodes must be told the same.
enum class AlgorithmChoice : uint8_t {
  kAuto,   // The table is made from costs measured when the job starts.
  kTable,  // The table is made from fixed costs, so that two runs choose alike.
  // Each of these makes the job use this one algorithm always.
  kRing,
  kRecursiveDoubling,
  kHalvingDoubling,
  kDirect,
  kCentral,
};

// Returns "auto", "table", "ring", "recursive-doubling", "halving-doubling", "direct" or "central".
const char* to_string(AlgorithmChoice choice);
// Returns the choice with this name. The error lists the names that there are.
Result<AlgorithmChoice> parse_algorithm(const std::string& name);

// A line of a table. Lines ascend by bytes; the last line is for all that is larger, too.
struct AlgorithmLine {
  int64_t up_to_bytes = 0;
  Algorithm algorithm = Algorithm::kRing;

  bool operator==(const AlgorithmLine&) const = default;
};
using AlgorithmTable = std::vector<AlgorithmLine>;

// Returns the algorithm for so many bytes. The table must not be empty.
Algorithm algorithm_for(const AlgorithmTable& table, int64_t bytes);

// Returns the algorithm for so many bytes with the cut-overs moved to 2^cutover_log2 times the
// bytes, within what always_rings() leaves; with kRingAlways (tuning.h) that is the ring. A table
// of one line is somebody's explicit choice, and is not moved.
Algorithm tuned_algorithm_for(const AlgorithmTable& table, int64_t bytes, int32_t cutover_log2,
                              AlgorithmChoice choice, int nodes);

// The costs of a message between two nodes (Hockney's model), and of adding what has come.
struct TransferCosts {
  double latency_s = 0;
  double s_per_byte = 0;
  double add_s_per_byte = 0;
};

// Returns the seconds that an all-reduce of so many bytes takes among `nodes`, which must be 2 or
// more.
double cost_s(Algorithm algorithm, int nodes, int64_t bytes, const TransferCosts& costs);

// Returns a table with the quickest of the ring, recursive doubling and halving-doubling for each
// power of two of bytes. From the first size on for which the ring is quickest, it has the ring.
AlgorithmTable make_table(int nodes, const TransferCosts& costs);

// Returns the table that needs no measurements: that of kTable for so many nodes, or one with a
// single algorithm. The choice must not be kAuto.
AlgorithmTable fixed_table(AlgorithmChoice choice, int nodes);

// Returns whether an operation of so many bytes goes round the ring, whatever is measured.
bool always_rings(AlgorithmChoice choice, int nodes, int64_t bytes);

// Returns the algorithms, beside the ring, that the choice may lead to; empty if there are none.
std::vector<Algorithm> exchanges_of(AlgorithmChoice choice);

}  // namespace rueda::core
