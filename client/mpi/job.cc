#include "client/mpi/job.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <utility>

#include "client/mpi/constants.h"
#include "client/mpi/errors.h"

namespace rueda::mpi {

Job& Job::of_process() {
  static auto* job = new Job;
  return *job;
}

int Job::begin() {
  MutexLock lock(mutex_);
  if (state_ == State::kRunning) return MPIABI_SUCCESS;
  state_ = State::kRunning;
  is_ours_ = rueda_is_initialized() == 0;
  const int begun = rueda_init(nullptr);
  if (begun < 0) {
    const int code = error_of_rueda(begun);
    const std::string problem = "this process could not join its job: " + text_of(code);
    std::fprintf(stderr, "librueda_mpi: %s\n", problem.c_str());
    is_ours_ = false;
    communicators_[MPIABI_COMM_WORLD] = std::make_shared<Communicator>(problem);
    return code;
  }
  if (rueda_size() == 1 && std::getenv("RUEDA_JOB_ID") == nullptr) {
    // Each of several processes would be a job of its own, and its sums would be its own values.
    const std::string problem =
        "nobody has started this process as a rank of Rueda: start it by ruedarun -np N";
    std::fprintf(stderr, "librueda_mpi: %s\n", problem.c_str());
    communicators_[MPIABI_COMM_WORLD] = std::make_shared<Communicator>(problem);
    return error_of(MPIABI_ERR_OTHER, problem);
  }
  std::vector<int32_t> all(static_cast<size_t>(rueda_size()));
  std::iota(all.begin(), all.end(), 0);
  communicators_[MPIABI_COMM_WORLD] = std::make_shared<Communicator>(0, std::move(all), 0);
  return MPIABI_SUCCESS;
}

int Job::end() {
  bool is_ours = false;
  {
    MutexLock lock(mutex_);
    if (state_ != State::kRunning) return MPIABI_SUCCESS;
    state_ = State::kEnded;
    is_ours = is_ours_;
    communicators_.clear();
  }
  if (!is_ours) return MPIABI_SUCCESS;
  const int left = rueda_shutdown();
  return left < 0 ? error_of_rueda(left) : MPIABI_SUCCESS;
}

bool Job::has_begun() const {
  MutexLock lock(mutex_);
  return state_ != State::kBefore;
}

bool Job::has_ended() const {
  MutexLock lock(mutex_);
  return state_ == State::kEnded;
}

std::shared_ptr<const Communicator> Job::find(Handle handle) const {
  MutexLock lock(mutex_);
  const auto found = communicators_.find(handle);
  if (found != communicators_.end()) return found->second;
  if (state_ == State::kBefore) {
    return std::make_shared<Communicator>("MPI_Init_thread has not been called");
  }
  if (state_ == State::kEnded) {
    return std::make_shared<Communicator>("MPI_Finalize has been called");
  }
  return std::make_shared<Communicator>(
      "there is no such communicator: librueda_mpi has MPI_COMM_WORLD, and what MPI_Comm_split has "
      "made of it");
}

int Job::split(Handle parent, int color, int key, Handle* made) {
  std::shared_ptr<const Communicator> communicator;
  int code = MPIABI_SUCCESS;
  if (parent != MPIABI_COMM_WORLD) {
    code = error_of(MPIABI_ERR_COMM, "librueda_mpi splits MPI_COMM_WORLD alone");
  } else if (color < 0 && color != MPIABI_UNDEFINED) {
    code = error_of(MPIABI_ERR_ARG, "MPI_Comm_split takes a color of 0 or more, or MPI_UNDEFINED");
  } else {
    code = find(parent)->check();
    MutexLock lock(splits_mutex_);
    if (code == MPIABI_SUCCESS) code = make(color, key, &communicator);
  }
  if (code != MPIABI_SUCCESS) communicator = std::make_shared<Communicator>(text_of(code));
  *made = communicator ? add(std::move(communicator)) : MPIABI_COMM_NULL;
  return code;
}

int Job::make(int color, int key, std::shared_ptr<const Communicator>* made) {
  const uint32_t number = ++splits_;
  const auto size = static_cast<size_t>(rueda_size());
  const Member mine{color, key};
  std::vector<Member> members(size);
  const std::string name = "mpi.split." + std::to_string(number);
  const int64_t shape = 2;
  const rueda_tensor tensor{name.c_str(), &mine, members.data(), &shape, 1, RUEDA_INT32, 0};
  const int gathered = rueda_allgather(&tensor, nullptr, -1);
  if (gathered < 0) return error_of_rueda(gathered);

  std::map<int32_t, std::vector<int32_t>> groups;
  for (size_t rank = 0; rank < size; ++rank) {
    if (members[rank].color != MPIABI_UNDEFINED) {
      groups[members[rank].color].push_back(static_cast<int32_t>(rank));
    }
  }
  // All ranks have the same groups here, and make all of their sets, in the same order.
  for (auto& [of_group, ranks] : groups) {
    uint32_t set = 0;
    if (const int code = set_of(ranks, &set); code != MPIABI_SUCCESS) return code;
    if (of_group != color) continue;
    std::stable_sort(ranks.begin(), ranks.end(), [&members](int32_t a, int32_t b) {
      return members[static_cast<size_t>(a)].key < members[static_cast<size_t>(b)].key;
    });
    *made = std::make_shared<Communicator>(number, ranks, set);
  }
  return MPIABI_SUCCESS;
}

int Job::set_of(std::vector<int32_t> ranks, uint32_t* set) {
  *set = 0;
  if (ranks.size() == 1 || static_cast<int>(ranks.size()) == rueda_size()) return MPIABI_SUCCESS;
  const auto [found, is_new] = sets_.try_emplace(std::move(ranks), 0);
  if (is_new) {
    const auto count = static_cast<int32_t>(found->first.size());
    const int added = rueda_process_set_add(found->first.data(), count, &found->second);
    if (added < 0) {
      sets_.erase(found);
      return error_of_rueda(added);
    }
  }
  *set = found->second;
  return MPIABI_SUCCESS;
}

Handle Job::add(std::shared_ptr<const Communicator> communicator) {
  MutexLock lock(mutex_);
  communicators_[++next_] = std::move(communicator);
  return next_;
}

int Job::free(Handle* handle) {
  MutexLock lock(mutex_);
  // XLA frees its communicators after MPI_Finalize, which has forgotten them.
  if (state_ != State::kEnded &&
      (*handle == MPIABI_COMM_WORLD || communicators_.erase(*handle) == 0)) {
    return error_of(MPIABI_ERR_COMM, "MPI_Comm_free takes what MPI_Comm_split has made");
  }
  *handle = MPIABI_COMM_NULL;
  return MPIABI_SUCCESS;
}

}  // namespace rueda::mpi
