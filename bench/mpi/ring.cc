#include "bench/mpi/ring.h"

#include <algorithm>

namespace rueda::bench {
namespace {

// Cuts the buffer into as many segments as there are ranks; the first segments get one element
// more.
struct Segments {
  size_t count;
  size_t ranks;

  size_t first(size_t index) const {
    return index * (count / ranks) + std::min(index, count % ranks);
  }
  int length(size_t index) const { return static_cast<int>(first(index + 1) - first(index)); }
};

}  // namespace

void ring_allreduce(float* data, size_t count, std::vector<float>* scratch, MPI_Comm group) {
  int rank = 0;
  int ranks = 1;
  MPI_Comm_rank(group, &rank);
  MPI_Comm_size(group, &ranks);
  const Segments segments{count, static_cast<size_t>(ranks)};
  scratch->resize(std::max(scratch->size(), static_cast<size_t>(segments.length(0))));
  const int next = (rank + 1) % ranks;
  const int before = (rank + ranks - 1) % ranks;
  const auto segment = [&](int steps_back) {
    return static_cast<size_t>((rank - steps_back + 2 * ranks) % ranks);
  };

  for (int step = 0; step < ranks - 1; ++step) {
    const size_t out = segment(step);
    const size_t in = segment(step + 1);
    MPI_Request receiving;
    MPI_Irecv(scratch->data(), segments.length(in), MPI_FLOAT, before, 0, group, &receiving);
    MPI_Send(data + segments.first(out), segments.length(out), MPI_FLOAT, next, 0, group);
    MPI_Wait(&receiving, MPI_STATUS_IGNORE);
    float* sum = data + segments.first(in);
    for (int i = 0; i < segments.length(in); ++i) sum[i] += (*scratch)[static_cast<size_t>(i)];
  }
  for (int step = 0; step < ranks - 1; ++step) {
    const size_t out = segment(step - 1);
    const size_t in = segment(step);
    MPI_Sendrecv(data + segments.first(out), segments.length(out), MPI_FLOAT, next, 0,
                 data + segments.first(in), segments.length(in), MPI_FLOAT, before, 0, group,
                 MPI_STATUS_IGNORE);
  }
}

}  // namespace rueda::bench
