// Makes an all-reduce by a ring over MPI's point-to-point messages, in the manner of
// baidu-allreduce. It shows what the algorithm alone is worth, without an MPI library's own choice
// of an algorithm.
#pragma once

#include <cstddef>
#include <vector>

#include <mpi.h>

namespace rueda::bench {

// Sums `count` floats over all ranks of `group`, in place: a reduce-scatter around the ring, then
// an all-gather. `scratch` is kept between calls, and grows to the largest segment. MPI ends the
// program on errors.
void ring_allreduce(float* data, size_t count, std::vector<float>* scratch, MPI_Comm group);

}  // namespace rueda::bench
