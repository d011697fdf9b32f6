// A communicator: some ranks of the job in an order, and the collectives and messages among them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <rueda/rueda.h>

#include "client/mpi/types.h"

namespace rueda::mpi {

// Functions that return int return an MPI error code, 0 for success. Thread-safe, as it never
// changes; but two collectives of one communicator may not run at the same time in a process, which
// MPI forbids, too: librueda then refuses the second one if it is like the first.
class Communicator {
 public:
  // `number` is the same on all ranks of the job for communicators that were made together, and
  // differs from those of others. `ranks` are the members' ranks in the job, by their places here.
  // `process_set` has the same ranks, and is ignored if there is but one.
  Communicator(uint32_t number, std::vector<int32_t> ranks, uint32_t process_set);

  // A communicator that could not be made, whose functions all fail with this sentence. XLA does
  // not look whether MPI_Comm_split has failed, but at what comes after it.
  explicit Communicator(std::string problem);

  // Returns 0, or the error of a communicator that could not be made.
  int check() const;
  // The place of this process, and the number of places.
  int rank() const { return mine_; }
  int size() const { return static_cast<int>(ranks_.size()); }

  // Reduces `count` elements of all ranks. `input` and `output` may be the same.
  int allreduce(const void* input, void* output, int64_t count, Type type, Operator op) const;
  // Gathers `count` elements of each rank, in the order of places.
  int allgather(const void* input, void* output, int64_t count, Type type) const;
  // Reduces counts[0] + counts[1] + ... elements, of which the rank in place i gets counts[i], in
  // the order of places.
  int reduce_scatter(const void* input, void* output, const int* counts, Type type,
                     Operator op) const;

  // Returns 0 if there is such a place, or an error.
  int check_place(int place) const;
  // Begin to send to, or to receive from, a place. Messages between two ranks with the same tag
  // match in the order in which they were begun.
  int send(const void* data, int64_t count, Type type, int place, int tag,
           rueda_handle* handle) const;
  int receive(void* data, int64_t count, Type type, int place, int tag, rueda_handle* handle) const;

 private:
  std::string name_of(const char* what, const Type& type, const char* op, int64_t count) const;
  int64_t tag_of(int tag) const;

  std::string problem_;  // "" but in a communicator that could not be made
  uint32_t number_ = 0;
  std::vector<int32_t> ranks_;
  uint32_t process_set_ = 0;
  int mine_ = 0;
  std::vector<size_t> by_rank_;  // the places, in ascending order of their ranks
  bool is_ascending_ = true;     // by_rank_ is 0, 1, 2, ...
};

}  // namespace rueda::mpi
