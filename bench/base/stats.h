// From the times of all ranks to the numbers of one row.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace rueda::bench {

// The mean of the two middle values when there is an even number; 0 of nothing.
double median(std::vector<double> values);
// Nearest rank: the smallest value that at least `percent` of the values do not exceed; 0 of
// nothing.
double percentile(std::vector<double> values, double percent);
// For each iteration the time of the rank that took longest. All ranks have equally many.
std::vector<double> slowest_of_ranks(const std::vector<std::vector<double>>& times_by_rank);
// The largest of the ranks' mean times; 0 of nothing. It is below the mean of slowest_of_ranks
// where ranks take turns at being late.
double slowest_pace(const std::vector<std::vector<double>>& times_by_rank);

// Bytes a second of one buffer, in 10^9.
double algbw_GBps(uint64_t bytes, double time_us);

}  // namespace rueda::bench
