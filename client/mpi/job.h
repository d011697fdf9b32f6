// The process's part in MPI: whether it has begun and ended, and its communicators.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "client/mpi/abi.h"
#include "client/mpi/communicator.h"
#include "daemon/base/mutex.h"

namespace rueda::mpi {

// Thread-safe. Functions that return int return an MPI error code, 0 for success.
class Job {
 public:
  // Never destroyed: XLA frees communicators at the very end of the process.
  static Job& of_process();

  // Joins the job by rueda_init, with what ruedarun put into the environment; does nothing if the
  // process has joined it already. After an error the world is a communicator that fails with its
  // sentence, because XLA does not look at this function's result.
  int begin() RUEDA_EXCLUDES(mutex_);
  // Leaves the job, if begin() joined it.
  int end() RUEDA_EXCLUDES(mutex_);
  bool has_begun() const RUEDA_EXCLUDES(mutex_);
  bool has_ended() const RUEDA_EXCLUDES(mutex_);

  // Returns the communicator of a handle, or one that fails with a sentence.
  std::shared_ptr<const Communicator> find(Handle handle) const RUEDA_EXCLUDES(mutex_);

  // Divides the world: ranks that give the same color >= 0 get a communicator of theirs, ordered by
  // `key`, then by rank; ranks that give MPI_UNDEFINED get none. All ranks of the job make the
  // call, and wait for each other. After an error *made is a communicator that fails with its
  // sentence.
  int split(Handle parent, int color, int key, Handle* made) RUEDA_EXCLUDES(mutex_, splits_mutex_);

  // Forgets a communicator.
  int free(Handle* handle) RUEDA_EXCLUDES(mutex_);

 private:
  enum class State { kBefore, kRunning, kEnded };
  struct Member {
    int32_t color;
    int32_t key;
  };

  int make(int color, int key, std::shared_ptr<const Communicator>* made)
      RUEDA_REQUIRES(splits_mutex_);
  int set_of(std::vector<int32_t> ranks, uint32_t* set) RUEDA_REQUIRES(splits_mutex_);
  Handle add(std::shared_ptr<const Communicator> communicator) RUEDA_EXCLUDES(mutex_);

  mutable Mutex mutex_;
  State state_ RUEDA_GUARDED_BY(mutex_) = State::kBefore;
  bool is_ours_ RUEDA_GUARDED_BY(mutex_) = false;  // begin() joined the job
  std::map<Handle, std::shared_ptr<const Communicator>> communicators_ RUEDA_GUARDED_BY(mutex_);
  Handle next_ RUEDA_GUARDED_BY(mutex_) = 1 << 16;  // above all constants

  // Splits are one after the other, as they wait for all ranks, and all ranks make the same ones.
  Mutex splits_mutex_;
  uint32_t splits_ RUEDA_GUARDED_BY(splits_mutex_) = 0;
  // The process sets that were made here, by their ranks in ascending order. They stay until the
  // process ends, because communicators of the same ranks come again and all ranks take part in a
  // removal.
  std::map<std::vector<int32_t>, uint32_t> sets_ RUEDA_GUARDED_BY(splits_mutex_);
};

}  // namespace rueda::mpi
