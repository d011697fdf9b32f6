#include "daemon/session/users/doors.h"

#include <algorithm>
#include <chrono>
#include <deque>
#include <map>
#include <optional>
#include <system_error>
#include <thread>

#include <pthread.h>
#include <spdlog/spdlog.h>

#include "daemon/base/mutex.h"

namespace rueda::session {
namespace {

using DoorClock = std::chrono::steady_clock;

// A thread without work ends after this time, so that a principal that comes again soon finds it.
constexpr std::chrono::milliseconds kDoorIdle{1000};

}  // namespace

struct Doors::State : std::enable_shared_from_this<Doors::State> {
  struct Item {
    Principal principal;
    Work work;
  };
  struct Door {
    std::deque<Item> queue;
    Condition has_work;
    // It is the door's thread's; a thread with an older one has been given up.
    uint64_t generation = 0;
    bool has_thread = false;
    bool is_busy = false;
    bool may_be_given_up = true;
    Principal principal;  // Whose work is being done.
    DoorClock::time_point busy_since;
  };
  // Without a principal it is the door that those share who find no door of their own.
  using Key = std::pair<std::optional<Principal>, Purpose>;

  explicit State(const DoorLimits& given) : limits(given) {}

  Door& door_of(const Principal& principal, Purpose purpose) RUEDA_REQUIRES(mutex);
  void give_thread(const std::shared_ptr<Door>& door) RUEDA_REQUIRES(mutex);
  void serve(const std::shared_ptr<Door>& door, uint64_t generation);
  void watch();
  bool may_give_up(const Principal& principal) const RUEDA_REQUIRES(mutex) {
    const auto found = stuck_of.find(principal);
    return stuck < limits.stuck &&
           (found == stuck_of.end() || found->second < limits.stuck_of_principal);
  }
  void came_back(const Principal& principal) RUEDA_REQUIRES(mutex) {
    --stuck;
    if (--stuck_of[principal] == 0) stuck_of.erase(principal);
  }

  const DoorLimits limits;
  Mutex mutex;
  std::map<Key, std::shared_ptr<Door>> doors RUEDA_GUARDED_BY(mutex);
  std::map<Principal, size_t> stuck_of RUEDA_GUARDED_BY(mutex);
  size_t stuck RUEDA_GUARDED_BY(mutex) = 0;
  uint64_t abandoned RUEDA_GUARDED_BY(mutex) = 0;
  size_t pending RUEDA_GUARDED_BY(mutex) =
      0;  // Work that is queued, or under way on a thread that is not given up.
  Condition has_pending;
  bool is_watched RUEDA_GUARDED_BY(mutex) = false;
  bool is_over RUEDA_GUARDED_BY(mutex) = false;
};

Doors::State::Door& Doors::State::door_of(const Principal& principal, Purpose purpose) {
  Key key{principal, purpose};
  if (!doors.contains(key) && doors.size() >= limits.threads) key.first.reset();
  std::shared_ptr<Door>& door = doors[key];
  if (!door) {
    door = std::make_shared<Door>();
    door->may_be_given_up = purpose == Purpose::kDescriptors;
  }
  return *door;
}

// Gives the door a thread. If none can be made, watch() tries again.
void Doors::State::give_thread(const std::shared_ptr<Door>& door) {
  try {
    std::thread([self = shared_from_this(), door, generation = door->generation] {
      ::pthread_setname_np(::pthread_self(), "rueda-door");
      self->serve(door, generation);
    }).detach();
    door->has_thread = true;
  } catch (const std::system_error&) {
    door->has_thread = false;
  }
}

void Doors::State::serve(const std::shared_ptr<Door>& door, uint64_t generation) {
  MutexLock lock(mutex);
  for (;;) {
    const auto until = DoorClock::now() + kDoorIdle;
    bool is_in_time = true;
    while (is_in_time && !is_over && door->queue.empty()) {
      is_in_time = door->has_work.wait_until(lock, until);
    }
    if (door->queue.empty() || is_over) break;
    {
      Item item = std::move(door->queue.front());
      door->queue.pop_front();
      door->is_busy = true;
      door->principal = item.principal;
      door->busy_since = DoorClock::now();
      lock.unlock();
      item.work();
      item.work = nullptr;
      lock.lock();
      if (door->generation != generation) return came_back(item.principal);
    }
    door->is_busy = false;
    --pending;
  }
  door->has_thread = false;
  std::erase_if(doors, [&](const auto& entry) { return entry.second == door; });
}

void Doors::State::watch() {
  MutexLock lock(mutex);
  while (!is_over) {
    while (!is_over && pending == 0) has_pending.wait(lock);
    const auto until =
        DoorClock::now() + std::chrono::milliseconds(std::max<int64_t>(limits.stuck_ms / 4, 1));
    for (bool is_in_time = true; is_in_time && !is_over;) {
      is_in_time = has_pending.wait_until(lock, until);
    }
    const auto stuck_before = DoorClock::now() - std::chrono::milliseconds(limits.stuck_ms);
    for (auto& [key, door] : doors) {
      if (door->is_busy && door->may_be_given_up && door->busy_since < stuck_before &&
          may_give_up(door->principal)) {
        ++door->generation;
        door->is_busy = door->has_thread = false;
        --pending;
        ++stuck;
        ++stuck_of[door->principal];
        ++abandoned;
        spdlog::warn(
            "a descriptor of {} keeps whoever closes it waiting (a socket with SO_LINGER, or a "
            "file of a file system that does not answer): its thread is given up, {} of these now "
            "and at most {}{}",
            door->principal.to_string(), stuck_of[door->principal], limits.stuck_of_principal,
            may_give_up(door->principal) ? "" : "; no more is taken until one of them comes back");
      }
      if (!door->has_thread && !door->queue.empty()) give_thread(door);
    }
  }
}

Doors::Doors(const DoorLimits& limits) : state_(std::make_shared<State>(limits)) {}

Doors::~Doors() {
  const MutexLock lock(state_->mutex);
  state_->is_over = true;
  state_->has_pending.notify_all();
  for (auto& [key, door] : state_->doors) door->has_work.notify_all();
}

Doors& Doors::of_process() {
  static auto& doors = *new Doors;
  return doors;
}

void Doors::run(const Principal& principal, Work work, Purpose purpose) {
  const MutexLock lock(state_->mutex);
  State::Door& door = state_->door_of(principal, purpose);
  door.queue.push_back({principal, std::move(work)});
  ++state_->pending;
  if (!std::exchange(state_->is_watched, true)) {
    try {
      std::thread([state = state_] {
        ::pthread_setname_np(::pthread_self(), "rueda-doorman");
        state->watch();
      }).detach();
    } catch (const std::system_error&) {
      state_->is_watched = false;
    }
  }
  if (!door.has_thread) {
    const auto found = std::find_if(state_->doors.begin(), state_->doors.end(),
                                    [&](const auto& entry) { return entry.second.get() == &door; });
    // A thread that is stuck beyond the limits is not replaced: new work waits for it.
    if (!door.is_busy) state_->give_thread(found->second);
  }
  door.has_work.notify_one();
  if (state_->pending == 1) state_->has_pending.notify_all();
}

bool Doors::is_refused(const Principal& principal) const {
  const MutexLock lock(state_->mutex);
  return state_->stuck_of.contains(principal) && !state_->may_give_up(principal);
}

uint64_t Doors::abandoned() const {
  const MutexLock lock(state_->mutex);
  return state_->abandoned;
}

void ForeignFd::reset() noexcept {
  if (!fd_.is_open()) return;
  const int fd = fd_.release();
  try {
    Doors::of_process().run(
        principal_, [fd, until_closed = std::exchange(until_closed_, nullptr)] { ::close(fd); });
  } catch (const std::bad_alloc&) {
    // No memory was left to hand the descriptor to a door. It stays open, because closing it here
    // could take for ever.
  }
}

}  // namespace rueda::session
