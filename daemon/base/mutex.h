// A mutex, a lock and a condition that clang's -Wthread-safety understands: the type system knows
// which lock a field is guarded by, and which a function needs (tests/lint.sh asks clang). For GCC
// the attributes are nothing, and the classes are those of the standard library.
//
//   Mutex mutex_;
//   int count_ RUEDA_GUARDED_BY(mutex_) = 0;       touched only by who holds mutex_
//   void add() RUEDA_REQUIRES(mutex_);             called only by who holds mutex_
//   void take() RUEDA_EXCLUDES(mutex_);            called only by who does not: it locks mutex_
//   Mutex& mutex() RUEDA_RETURN_CAPABILITY(name);  returns the mutex that clang knows by this name
//
// A lambda is a function of its own to clang: where one touches guarded fields it says
// RUEDA_REQUIRES(mutex_), too, behind its parameters.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>

#ifdef __clang__
#define RUEDA_THREAD_ATTRIBUTE(attribute) __attribute__((attribute))
#else
#define RUEDA_THREAD_ATTRIBUTE(attribute)
#endif

#define RUEDA_GUARDED_BY(mutex) RUEDA_THREAD_ATTRIBUTE(guarded_by(mutex))
#define RUEDA_REQUIRES(...) RUEDA_THREAD_ATTRIBUTE(requires_capability(__VA_ARGS__))
#define RUEDA_EXCLUDES(...) RUEDA_THREAD_ATTRIBUTE(locks_excluded(__VA_ARGS__))
#define RUEDA_RETURN_CAPABILITY(mutex) RUEDA_THREAD_ATTRIBUTE(lock_returned(mutex))

namespace rueda {

class RUEDA_THREAD_ATTRIBUTE(capability("mutex")) Mutex {
 public:
  Mutex() = default;
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;

  // Takes the mutex if nobody has it, and returns whether it did. The caller makes a MutexLock that
  // adopts it.
  bool try_lock() RUEDA_THREAD_ATTRIBUTE(try_acquire_capability(true)) { return mutex_.try_lock(); }

  // Tells clang that the calling thread holds this mutex, where it was taken under a name that
  // clang cannot see to be the same. Nothing is checked, and nothing happens at run time.
  void assume_held() const RUEDA_THREAD_ATTRIBUTE(assert_capability(this)) {}

 private:
  friend class MutexLock;
  friend class MutexUnlock;
  std::mutex mutex_;
};

// Says that a MutexLock adopts a mutex that the calling thread has taken by try_lock().
struct Adopt {};
inline constexpr Adopt kAdopt;

// Holds a mutex from its construction to its end, but while it is unlocked.
class RUEDA_THREAD_ATTRIBUTE(scoped_lockable) MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) RUEDA_THREAD_ATTRIBUTE(acquire_capability(mutex))
      : lock_(mutex.mutex_) {}
  MutexLock(Mutex& mutex, Adopt) RUEDA_REQUIRES(mutex) : lock_(mutex.mutex_, std::adopt_lock) {}
  ~MutexLock() RUEDA_THREAD_ATTRIBUTE(release_capability()) {}
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

  void lock() RUEDA_THREAD_ATTRIBUTE(acquire_capability()) { lock_.lock(); }
  void unlock() RUEDA_THREAD_ATTRIBUTE(release_capability()) { lock_.unlock(); }

 private:
  friend class Condition;
  std::unique_lock<std::mutex> lock_;
};

// Gives up a mutex, which the calling thread holds, from its construction to its end. It is for a
// function that is called with the mutex held.
class RUEDA_THREAD_ATTRIBUTE(scoped_lockable) MutexUnlock {
 public:
  explicit MutexUnlock(Mutex& mutex) RUEDA_THREAD_ATTRIBUTE(release_capability(mutex))
      : mutex_(mutex.mutex_) {
    mutex_.unlock();
  }
  ~MutexUnlock() RUEDA_THREAD_ATTRIBUTE(release_capability()) { mutex_.lock(); }
  MutexUnlock(const MutexUnlock&) = delete;
  MutexUnlock& operator=(const MutexUnlock&) = delete;

 private:
  std::mutex& mutex_;
};

// A condition to wait for, with the mutex locked before and after. A wait may end for no reason, so
// it stands in a loop that asks for what is waited for.
class Condition {
 public:
  void wait(MutexLock& lock) { changed_.wait(lock.lock_); }
  // Returns false once the time has passed.
  template <class Clock, class Duration>
  bool wait_until(MutexLock& lock, const std::chrono::time_point<Clock, Duration>& when) {
    return changed_.wait_until(lock.lock_, when) == std::cv_status::no_timeout;
  }
  template <class Rep, class Period>
  bool wait_for(MutexLock& lock, const std::chrono::duration<Rep, Period>& time) {
    return changed_.wait_for(lock.lock_, time) == std::cv_status::no_timeout;
  }
  void notify_one() { changed_.notify_one(); }
  void notify_all() { changed_.notify_all(); }

 private:
  std::condition_variable changed_;
};

}  // namespace rueda
