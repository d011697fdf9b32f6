#include "daemon/service/members/name_resolver.h"

#include <deque>
#include <system_error>
#include <thread>
#include <utility>

#include <pthread.h>

#include "daemon/base/mutex.h"

namespace rueda::service {
namespace {

// The most names that are being resolved at a time; the others wait for their turn.
constexpr int kMaxThreads = 4;

}  // namespace

struct NameResolver::State {
  struct Wanted {
    HostPort address;
    Callback done;
  };
  Mutex mutex;
  bool is_closed RUEDA_GUARDED_BY(mutex) = false;
  int threads RUEDA_GUARDED_BY(mutex) = 0;
  std::deque<Wanted> wanted RUEDA_GUARDED_BY(mutex);

  // Runs until no name is wanted: an idle daemon has none of these threads.
  void work() {
    MutexLock lock(mutex);
    while (!is_closed && !wanted.empty()) {
      const Wanted next = std::move(wanted.front());
      wanted.pop_front();
      lock.unlock();
      const Result<std::string> target = dial_target(next.address);
      lock.lock();
      // The mutex is held, so that nothing is called once the resolver has been destroyed.
      if (!is_closed) next.done(target);
    }
    --threads;
  }
};

NameResolver::NameResolver() : state_(std::make_shared<State>()) {}

NameResolver::~NameResolver() {
  const MutexLock lock(state_->mutex);
  state_->is_closed = true;
  state_->wanted.clear();
}

void NameResolver::resolve(const HostPort& address, Callback done) {
  if (is_numeric_host(address.host)) return done(dial_target(address));
  MutexLock lock(state_->mutex);
  if (state_->threads == kMaxThreads) {
    state_->wanted.push_back({address, std::move(done)});
    return;
  }
  try {
    std::thread([state = state_] {
      ::pthread_setname_np(::pthread_self(), "resolver");
      state->work();
    }).detach();
  } catch (const std::system_error& error) {
    if (state_->threads == 0) {
      lock.unlock();
      return done(Status(Code::kResourceExhausted,
                         "no thread can be started to look the host \"" + address.host + "\" up (" +
                             error.code().message() +
                             "): raise the limit of processes (ulimit -u, TasksMax, pids.max)"));
    }
    --state_->threads;  // The threads that run resolve the name.
  }
  ++state_->threads;
  state_->wanted.push_back({address, std::move(done)});
}

}  // namespace rueda::service
