// Wraps librueda for the bench: one rank of a job, its buffers, and what the ranks tell each other.
// Errors are thrown as Failure and end the program in main.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <rueda/rueda.h>

#include "bench/base/failure.h"

namespace rueda::bench {

// The process is attached from construction to destruction. The object is for one thread.
class Job {
 public:
  explicit Job(int64_t timeout_ms);
  ~Job();
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  int rank() const { return rank_; }
  int nranks() const { return nranks_; }
  int nnodes() const { return nnodes_; }

  // Sets the wire dtype of all later reductions.
  void set_wire(rueda_wire_dtype wire) { wire_ = wire; }

  rueda_handle allreduce_async(const rueda_tensor& tensor, rueda_op op);
  void wait(rueda_handle handle, const char* name);
  void allreduce(const rueda_tensor& tensor, rueda_op op);
  void broadcast(const rueda_tensor& tensor, int root);
  void reduce(const rueda_tensor& tensor, rueda_op op, int root);
  // Gathers parts of all ranks, which have equal sizes.
  void allgather(const rueda_tensor& tensor);
  void reduce_scatter(const rueda_tensor& tensor, rueda_op op);
  void alltoall(const rueda_tensor& tensor);
  void gather(const rueda_tensor& tensor, int root);
  void scatter(const rueda_tensor& tensor, int root);
  // Declares that every step consists of these tensors, none of which is computed from another one.
  // The call is collective.
  void declare(std::span<const rueda_tensor> step, rueda_op op);
  void barrier();
  // Returns when all ranks have called it. It is an allreduce of one element, as in software
  // barriers.
  void synchronize();

  // Returns the rows of all ranks, by rank; all rows have the same length. It uses broadcasts, so
  // that a reduction that is wrong cannot falsify what the ranks say of it.
  std::vector<std::vector<int64_t>> gather(std::span<const int64_t> row);

 private:
  rueda_reduce_options reduce_options(rueda_op op) const;

  int64_t timeout_ms_;
  rueda_wire_dtype wire_ = RUEDA_WIRE_SAME;
  int rank_ = 0;
  int nranks_ = 1;
  int nnodes_ = 1;
};

// Holds memory for tensors, 64-byte aligned and pre-faulted. Its pointer is never null, also for 0
// bytes. It must end before the Job.
class Buffer {
 public:
  // Allocates the memory: with `foreign` it is ordinary memory, which librueda has to copy;
  // otherwise it is rueda_alloc's.
  Buffer(size_t bytes, bool foreign);
  ~Buffer();
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  std::byte* data() const { return static_cast<std::byte*>(data_); }

 private:
  void* data_ = nullptr;
  bool foreign_;
};

}  // namespace rueda::bench
