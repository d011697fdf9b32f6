#include "client/src/api/process.h"

#include <array>
#include <atomic>
#include <cstdlib>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include <pthread.h>
#include <unistd.h>

#include "daemon/base/mutex.h"

namespace rueda::client {
namespace {

constexpr int64_t kShutdownTimeoutMs = 5000;
constexpr int64_t kExitTimeoutMs = 1000;

constexpr size_t kMaxLeases = 4;

std::array<std::atomic<int>, kMaxLeases + 1> no_sockets() { return {-1, -1, -1, -1, -1}; }

struct Process {
  Mutex mutex;  // is held while the process attaches or detaches
  std::atomic<Session*> session{nullptr};
  std::atomic<bool> is_forked_child{false};  // true in a child of a process that was attached
  // Between two generations of an elastic job: the allocator of the one before, and the connections
  // because of which the daemon keeps its arenas, the newest last. There is more than one if a
  // session has ended before it had all of them.
  std::shared_ptr<ArenaAllocator> rested RUEDA_GUARDED_BY(mutex);
  std::vector<std::unique_ptr<Connection>> leases RUEDA_GUARDED_BY(mutex);
  // The sockets of the leases, and of the one that is about to be: a forked child closes them.
  std::array<std::atomic<int>, kMaxLeases + 1> lease_sockets = no_sockets();
  std::atomic<bool> leases_are_parents{false};
  // Allocators of sessions that have ended, or are ending, while blocks of rueda_alloc are live:
  // their memory stays until it is freed. The list has a mutex of its own, because rueda_shutdown
  // waits for callbacks, and these may free memory, or wait for a lock of their language whose
  // holder does.
  Mutex retired_mutex;
  std::vector<std::shared_ptr<ArenaAllocator>> retired RUEDA_GUARDED_BY(retired_mutex);
};

// The object is never destroyed: threads and Python's finalizers may outlive static destructors.
Process& process() {
  static Process* instance = new Process;
  return *instance;
}

// A child that kept the socket open would hide its parent's death from the daemon.
void after_fork_in_child() {
  Session* session = process().session.load();
  for (std::atomic<int>& lease : process().lease_sockets) {
    const int socket = lease.exchange(-1);
    if (socket < 0) continue;
    ::close(socket);
    process().leases_are_parents.store(true);
  }
  if (session == nullptr) return;
  process().is_forked_child.store(true);
  session->close_in_child();
}

// Says which sockets are those of leases, and that this one is about to be.
void note_leases(int next) RUEDA_REQUIRES(process().mutex) {
  size_t i = 0;
  for (const std::unique_ptr<Connection>& lease : process().leases) {
    process().lease_sockets[i++].store(lease->fd());
  }
  while (i < kMaxLeases) process().lease_sockets[i++].store(-1);
  process().lease_sockets[kMaxLeases].store(next);
}

// Ends leases, the oldest first, until so many are left.
void drop_leases(size_t left) RUEDA_REQUIRES(process().mutex) {
  // A forked child has closed its parent's sockets, whose numbers may be others' by now.
  if (process().leases_are_parents.exchange(false)) {
    for (std::unique_ptr<Connection>& lease : process().leases) (void)lease.release();
    process().leases.clear();
  }
  while (process().leases.size() > left) process().leases.erase(process().leases.begin());
  note_leases(-1);
}

// A program that ends with status 0 and without rueda_shutdown leaves the job as planned, unless
// work is in flight. A program that exits with an error counts as lost: the others must not read
// that it has left as planned.
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

// The tensor of DLPack. Its layout is the one that array libraries agree on; there is no header for
// it here.
struct DlTensor {
  void* data = nullptr;
  int32_t device_type = 1;  // kDLCPU: the host's memory
  int32_t device_id = 0;
  int32_t ndim = 1;
  uint8_t code = 1;  // unsigned integers
  uint8_t bits = 8;
  uint16_t lanes = 1;
  int64_t* shape = nullptr;
  int64_t* strides = nullptr;  // contiguous
  uint64_t byte_offset = 0;
};
struct DlManagedTensor {
  DlTensor tensor;
  void* manager = nullptr;
  void (*deleter)(DlManagedTensor*) = nullptr;
};
static_assert(sizeof(DlManagedTensor) == 64);

struct SharedTensor {
  DlManagedTensor managed;
  int64_t bytes = 0;
};

struct SharedMemory {
  struct Block {
    int tensors = 0;
    bool is_freed = false;  // rueda_free has been called
  };
  Mutex mutex;
  std::unordered_map<const void*, Block> blocks
      RUEDA_GUARDED_BY(mutex);  // blocks that have DLPack tensors
};

// The object is never destroyed: tensors may outlive static destructors, and the interpreter that
// made them.
SharedMemory& shared_memory() {
  static SharedMemory* instance = new SharedMemory;
  return *instance;
}

Status unknown_memory() {
  return {Code::kNotFound, "the pointer is not one that rueda_alloc returned"};
}

size_t block_bytes(const void* memory, Session* session) {
  std::optional<size_t> bytes;
  if (session != nullptr) bytes = session->allocator()->block_bytes(memory);
  if (bytes) return *bytes;
  const MutexLock lock(process().retired_mutex);
  for (const auto& allocator : process().retired) {
    bytes = allocator->block_bytes(memory);
    if (bytes) return *bytes;
  }
  return 0;
}

Status free_unshared(void* memory, Session* session) {
  Status status = unknown_memory();
  if (session != nullptr) status = session->free(memory);
  if (status.code() != Code::kNotFound) return status;
  const MutexLock lock(process().retired_mutex);
  auto& retired = process().retired;
  for (auto& allocator : retired) {
    if (!allocator->free(memory, ArenaAllocator::IfIdle::kKeep).is_ok()) continue;
    std::erase_if(retired, [](const auto& entry) { return entry->is_idle(); });
    return Status::ok();
  }
  return status;
}

void delete_shared(DlManagedTensor* managed) {
  const std::unique_ptr<SharedTensor> tensor(static_cast<SharedTensor*>(managed->manager));
  const Result<Session*> session = process_session();
  if (!session.is_ok()) return;  // in a forked child the memory belongs to the parent
  void* memory = managed->tensor.data;
  {
    const MutexLock lock(shared_memory().mutex);
    const auto shared = shared_memory().blocks.find(memory);
    if (shared == shared_memory().blocks.end() || --shared->second.tensors > 0) return;
    const bool is_freed = shared->second.is_freed;
    shared_memory().blocks.erase(shared);
    if (!is_freed) return;
  }
  (void)free_unshared(memory, session.value());
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
  const MutexLock lock(process().mutex);
  if (process().session.load() != nullptr) return Status::ok();
  Result<Config> config = resolve_config(options);
  if (!config.is_ok()) return config.status();
  Result<std::unique_ptr<Session>> session = Session::attach(config.value(), process().rested);
  if (!session.is_ok()) return session.status();
  {
    const MutexLock retiring(process().retired_mutex);
    std::erase(process().retired, std::exchange(process().rested, nullptr));
  }
  drop_leases(session.value()->has_all_arenas() ? 0 : kMaxLeases - 1);
  install_hooks();
  process().session.store(std::move(session).value().release());
  return Status::ok();
}

Status detach_process() {
  if (is_forked_child()) return Status::ok();
  const MutexLock lock(process().mutex);
  const Session* const attached = process().session.load();
  if (attached == nullptr) return Status::ok();
  note_leases(attached->socket());
  std::shared_ptr<ArenaAllocator> allocator = attached->allocator();
  {
    const MutexLock retiring(process().retired_mutex);
    process().retired.push_back(allocator);
  }
  std::unique_ptr<Session> session(process().session.exchange(nullptr));
  Status status = session->detach(kShutdownTimeoutMs);
  std::unique_ptr<Connection> lease = session->rest();
  const bool rests = lease != nullptr;
  if (rests) process().leases.push_back(std::move(lease));
  note_leases(-1);
  session.reset();
  if (rests) process().rested = allocator;
  const MutexLock retiring(process().retired_mutex);
  std::erase(process().retired, allocator);
  if (rests || !allocator->is_idle()) process().retired.push_back(std::move(allocator));
  return status;
}

Status free_memory(void* memory) {
  if (memory == nullptr) return Status::ok();
  Result<Session*> session = process_session();
  if (!session.is_ok()) return session.status();
  Status status = unknown_memory();
  {
    const MutexLock lock(shared_memory().mutex);
    const auto shared = shared_memory().blocks.find(memory);
    if (shared != shared_memory().blocks.end()) {
      if (std::exchange(shared->second.is_freed, true)) return status;
      return Status::ok();
    }
  }
  return free_unshared(memory, session.value());
}

Result<void*> share_memory(void* memory, size_t bytes) {
  Result<Session*> session = process_session();
  if (!session.is_ok()) return session.status();
  if (bytes == 0 || bytes > block_bytes(memory, session.value())) {
    return Status{Code::kInvalidArgument, "the memory is not inside one live block of rueda_alloc"};
  }
  auto tensor = std::make_unique<SharedTensor>();
  tensor->bytes = static_cast<int64_t>(bytes);
  tensor->managed.tensor.data = memory;
  tensor->managed.tensor.shape = &tensor->bytes;
  tensor->managed.manager = tensor.get();
  tensor->managed.deleter = delete_shared;
  const MutexLock lock(shared_memory().mutex);
  SharedMemory::Block& block = shared_memory().blocks[memory];
  if (block.is_freed) return unknown_memory();
  ++block.tensors;
  return static_cast<void*>(&tensor.release()->managed);
}

int shares_of_memory(const void* memory) {
  if (is_forked_child()) return 0;
  const MutexLock lock(shared_memory().mutex);
  const auto shared = shared_memory().blocks.find(memory);
  return shared == shared_memory().blocks.end() ? 0 : shared->second.tensors;
}

}  // namespace rueda::client
