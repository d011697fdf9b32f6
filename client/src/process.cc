#include "client/src/process.h"

#include <atomic>
#include <cstdlib>
#include <vector>

#include <pthread.h>

namespace rueda::client {
namespace {

constexpr int64_t kShutdownTimeoutMs = 5000;
constexpr int64_t kExitTimeoutMs = 1000;

struct Process {
  std::mutex mutex;  // attach, detach, and the list of retired allocators
  std::atomic<Session*> session{nullptr};
  std::atomic<bool> is_forked_child{false};  // of a process that was attached
  // Sessions that ended while blocks of rueda_alloc were live: their memory stays until it is
  // freed.
  std::vector<std::shared_ptr<ArenaAllocator>> retired;
};

// Never destroyed: threads and Python's finalizers may outlive static destructors.
Process& process() {
  static Process* instance = new Process;
  return *instance;
}

// A child that kept the socket open would hide its parent's death from the daemon.
void after_fork_in_child() {
  Session* session = process().session.load();
  if (session == nullptr) return;
  process().is_forked_child.store(true);
  session->close_in_child();
}

// A program that ends well without rueda_shutdown is no casualty, unless it leaves work behind. One
// that exits with an error is: the others must not read that it has left as planned.
void at_exit(int status, void*) {
  if (status != 0) return;
  Session* session = process().session.load();
  if (session != nullptr && !is_forked_child()) session->detach_if_idle(kExitTimeoutMs);
}

void install_hooks() {
  static const bool is_installed = [] {
    ::pthread_atfork(nullptr, nullptr, after_fork_in_child);
    ::on_exit(at_exit, nullptr);
    return true;
  }();
  (void)is_installed;
}

Status forked_child() {
  return {Code::kInvalidArgument,
          "this is a forked child of a process that uses Rueda, and cannot share its connection; "
          "use Rueda in the parent only, or start the child with exec"};
}

}  // namespace

bool is_forked_child() { return process().is_forked_child.load(std::memory_order_relaxed); }

Result<Session*> process_session() {
  if (is_forked_child()) return forked_child();
  return process().session.load();
}

Session* usable_session() { return is_forked_child() ? nullptr : process().session.load(); }

Status attach_process(const rueda_init_options* options) {
  if (is_forked_child()) return forked_child();
  std::lock_guard lock(process().mutex);
  if (process().session.load() != nullptr) return Status::ok();
  Result<Config> config = resolve_config(options);
  if (!config.is_ok()) return config.status();
  Result<std::unique_ptr<Session>> session = Session::attach(config.value());
  if (!session.is_ok()) return session.status();
  install_hooks();
  process().session.store(std::move(session).value().release());
  return Status::ok();
}

Status detach_process() {
  if (is_forked_child()) return Status::ok();
  std::lock_guard lock(process().mutex);
  std::unique_ptr<Session> session(process().session.exchange(nullptr));
  if (session == nullptr) return Status::ok();
  Status status = session->detach(kShutdownTimeoutMs);
  std::shared_ptr<ArenaAllocator> allocator = session->allocator();
  session.reset();
  if (!allocator->is_idle()) process().retired.push_back(std::move(allocator));
  return status;
}

Status free_memory(void* memory) {
  if (memory == nullptr) return Status::ok();
  Result<Session*> session = process_session();
  if (!session.is_ok()) return session.status();
  Status status{Code::kNotFound, "the pointer is not one that rueda_alloc returned"};
  if (session.value() != nullptr) status = session.value()->free(memory);
  if (status.code() != Code::kNotFound) return status;
  std::lock_guard lock(process().mutex);
  auto& retired = process().retired;
  for (auto& allocator : retired) {
    if (!allocator->free(memory, ArenaAllocator::IfIdle::kMayReturn).is_ok()) continue;
    std::erase_if(retired, [](const auto& entry) { return entry->is_idle(); });
    return Status::ok();
  }
  return status;
}

}  // namespace rueda::client
