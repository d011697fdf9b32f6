// Turns the times of all ranks into the numbers of one row.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace rueda::bench {

// Returns the median, which is the mean of the two middle values of an even number of values, or 0
// if there are none.
double median(std::vector<double> values);
// Returns the nearest-rank percentile: the smallest value that at least `percent` of the values do
// not exceed; 0 if there are none.
double percentile(std::vector<double> values, double percent);
// Returns, for each iteration, the time of the rank that took longest. All ranks have equally many
// times.
std::vector<double> slowest_of_ranks(const std::vector<std::vector<double>>& times_by_rank);
// Returns the largest of the ranks' mean times; 0 if there are none. It is below the mean of
// slowest_of_ranks() where ranks take turns at being late.
double slowest_pace(const std::vector<std::vector<double>>& times_by_rank);

// Returns the bytes of one buffer a second, in 10^9.
double algbw_GBps(uint64_t bytes, double time_us);

}  // namespace rueda::bench
