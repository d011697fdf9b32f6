#include "tests/client/fake_daemon.h"

#include <atomic>
#include <cstdlib>
#include <cstring>

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "client/include/rueda/rueda.h"
#include "daemon/base/check.h"
#include "daemon/base/dtype.h"

namespace rueda::client {
namespace {

std::atomic_ref<uint64_t> atomic(uint64_t& value) { return std::atomic_ref<uint64_t>(value); }

rueda_abi_ring& ring(std::byte* data) { return *reinterpret_cast<rueda_abi_ring*>(data); }

UniqueFd make_memfd(size_t bytes, bool seals) {
  UniqueFd memfd(::memfd_create("fake-ring", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  RUEDA_CHECK(::ftruncate(memfd.get(), static_cast<off_t>(bytes)) == 0);
  if (seals) RUEDA_CHECK(::fcntl(memfd.get(), F_ADD_SEALS, F_SEAL_SHRINK) == 0);
  return memfd;
}

std::byte* map_fd(int fd, size_t bytes) {
  void* data = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  RUEDA_CHECK(data != MAP_FAILED);
  return static_cast<std::byte*>(data);
}

void ring_bell(int eventfd) {
  const uint64_t one = 1;
  RUEDA_CHECK(::write(eventfd, &one, sizeof(one)) == sizeof(one));
}

void scale(std::byte* data, size_t elements, uint8_t dtype, double factor) {
  if (factor == 1.0 || dtype != RUEDA_FLOAT32) return;
  for (size_t i = 0; i < elements; ++i) {
    float value = 0;
    std::memcpy(&value, data + i * sizeof(float), sizeof(float));
    value = static_cast<float>(value * factor);
    std::memcpy(data + i * sizeof(float), &value, sizeof(float));
  }
}

}  // namespace

FakeDaemon::FakeDaemon() : FakeDaemon(Options()) {}

FakeDaemon::FakeDaemon(Options options) : options_(std::move(options)) {
  static std::atomic<int> counter{0};
  path_ = "@rueda-fake-" + std::to_string(::getpid()) + "-" + std::to_string(++counter);
  listener_ = UniqueFd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  wakeup_ = UniqueFd(::eventfd(0, EFD_CLOEXEC));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path + 1, path_.data() + 1, path_.size() - 1);
  auto bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + path_.size());
  RUEDA_CHECK(::bind(listener_.get(), reinterpret_cast<sockaddr*>(&address), bytes) == 0);
  RUEDA_CHECK(::listen(listener_.get(), 8) == 0);
  thread_ = std::thread([this] { run(); });
}

FakeDaemon::~FakeDaemon() {
  {
    std::lock_guard lock(mutex_);
    stops_ = true;
    ring_bell(wakeup_.get());
  }
  thread_.join();
}

Config FakeDaemon::config() const {
  Config config;
  config.socket_path = path_;
  config.job_id = "job";
  config.token = std::string(RUEDA_ABI_TOKEN_BYTES, 'k');
  config.rank = options_.rank;
  config.local_rank = options_.rank;
  config.timeout_ms = 20'000;
  return config;
}

void FakeDaemon::set_environment() const {
  ::setenv("RUEDA_SOCKET", path_.c_str(), 1);
  ::setenv("RUEDA_JOB_ID", "job", 1);
  ::setenv("RUEDA_JOB_TOKEN", std::string(64, 'a').c_str(), 1);
  ::setenv("RANK", std::to_string(options_.rank).c_str(), 1);
  ::setenv("LOCAL_RANK", std::to_string(options_.rank).c_str(), 1);
}

FakeDaemon::Counts FakeDaemon::counts() const {
  std::lock_guard lock(mutex_);
  return counts_;
}

std::vector<rueda_abi_submission> FakeDaemon::submissions() const {
  std::lock_guard lock(mutex_);
  return seen_;
}

void FakeDaemon::run() {
  for (;;) {
    pollfd events[2] = {{.fd = listener_.get(), .events = POLLIN, .revents = 0},
                        {.fd = wakeup_.get(), .events = POLLIN, .revents = 0}};
    ::poll(events, 2, -1);
    {
      std::lock_guard lock(mutex_);
      if (stops_) return;
      if (events[1].revents != 0) {
        uint64_t count = 0;
        (void)!::read(wakeup_.get(), &count, sizeof(count));
      }
      if (events[0].revents == 0) continue;
      connection_ = UniqueFd(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
      is_detached_ = false;
    }
    serve_connection();
    std::lock_guard lock(mutex_);
    if (is_detached_) {
      ++counts_.detaches;
    } else {
      ++counts_.lost;
    }
    close_locked();
    changed_.notify_all();
    if (stops_) return;
  }
}

void FakeDaemon::serve_connection() {
  for (;;) {
    int fd = 0, doorbell = 0;
    {
      std::lock_guard lock(mutex_);
      if (stops_ || !connection_.is_open()) return;
      if (submission_ring_.data != nullptr) {
        // The daemon announces that it sleeps, then looks at the ring once more.
        std::atomic_ref<uint32_t>(ring(submission_ring_.data).consumer_waiting).store(1);
        std::atomic_thread_fence(std::memory_order_seq_cst);
        drain_submissions_locked();
      }
      fd = connection_.get();
      doorbell = daemon_doorbell_.get();
    }
    pollfd events[3] = {{.fd = wakeup_.get(), .events = POLLIN, .revents = 0},
                        {.fd = fd, .events = POLLIN, .revents = 0},
                        {.fd = doorbell, .events = POLLIN, .revents = 0}};
    ::poll(events, 3, -1);
    uint64_t count = 0;
    if (events[0].revents != 0) {
      (void)!::read(wakeup_.get(), &count, sizeof(count));
      continue;
    }
    if (events[2].revents != 0) (void)!::read(doorbell, &count, sizeof(count));
    if (events[1].revents == 0) continue;

    rueda_abi_header header;
    iovec io{.iov_base = &header, .iov_len = sizeof(header)};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))];
    msghdr message{};
    message.msg_iov = &io;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
    if (::recvmsg(fd, &message, MSG_WAITALL | MSG_CMSG_CLOEXEC) != sizeof(header)) return;
    UniqueFd descriptor;
    if (cmsghdr* c = CMSG_FIRSTHDR(&message)) {
      int received = -1;
      std::memcpy(&received, CMSG_DATA(c), sizeof(int));
      descriptor = UniqueFd(received);
    }
    std::string body(header.body_bytes, '\0');
    if (!body.empty() &&
        ::recv(fd, body.data(), body.size(), MSG_WAITALL) != static_cast<ssize_t>(body.size())) {
      return;
    }
    if (!on_message(header, body, descriptor)) return;
  }
}

bool FakeDaemon::on_message(const rueda_abi_header& header, const std::string& body,
                            UniqueFd& descriptor) {
  std::lock_guard lock(mutex_);
  if (header.type == RUEDA_ABI_ATTACH) {
    rueda_abi_attach attach{};
    std::memcpy(&attach, body.data(), std::min(body.size(), sizeof(attach)));
    attach_locked(attach);
    changed_.notify_all();
    return options_.attach_code == 0;
  }
  if (!options_.answers) return true;
  if (header.type == RUEDA_ABI_INTERN) {
    rueda_abi_intern intern;
    std::memcpy(&intern, body.data(), sizeof(intern));
    ++counts_.interns;
    if (std::string(intern.name) == "refused") {
      reply_locked(RUEDA_ERR_INVALID_ARGUMENT, 0, "tensor 'refused' is refused by the test");
    } else {
      tensors_.push_back(intern);
      reply_locked(0, static_cast<uint32_t>(tensors_.size() - 1), "");
    }
  } else if (header.type == RUEDA_ABI_ARENA_ADD) {
    rueda_abi_arena arena;
    std::memcpy(&arena, body.data(), sizeof(arena));
    auto id = static_cast<uint32_t>(100 + counts_.arenas_added++);
    arenas_[id] = {map_fd(descriptor.get(), arena.bytes), arena.bytes};
    reply_locked(0, id, "");
  } else if (header.type == RUEDA_ABI_ARENA_REMOVE) {
    rueda_abi_arena arena;
    std::memcpy(&arena, body.data(), sizeof(arena));
    RUEDA_CHECK(arenas_.count(arena.arena_id) == 1);
    ::munmap(arenas_[arena.arena_id].data, arenas_[arena.arena_id].bytes);
    arenas_.erase(arena.arena_id);
    ++counts_.arenas_removed;
    reply_locked(0, 0, "");
  } else if (header.type == RUEDA_ABI_DETACH) {
    is_detached_ = true;
    reply_locked(0, 0, "");
    return false;
  } else if (header.type == RUEDA_ABI_RESET) {
    is_detached_ = true;  // the connection stays until the client closes it
    reply_locked(0, 0, "");
  }
  changed_.notify_all();
  return true;
}

void FakeDaemon::attach_locked(const rueda_abi_attach& attach) {
  ++counts_.attaches;
  rueda_abi_attach_reply reply{};
  reply.code = options_.attach_code;
  std::strncpy(reply.text, options_.attach_text.c_str(), sizeof(reply.text) - 1);
  reply.submission_capacity = options_.submission_capacity;
  reply.completion_capacity = options_.completion_capacity;
  if (reply.code != 0) {
    send_locked(RUEDA_ABI_ATTACH_REPLY, &reply, sizeof(reply));
    return;
  }
  size_t submission_bytes =
      RUEDA_ABI_RING_HEADER_BYTES + options_.submission_capacity * sizeof(rueda_abi_submission);
  size_t completion_bytes =
      RUEDA_ABI_RING_HEADER_BYTES +
      options_.completion_capacity * (sizeof(rueda_abi_completion) + RUEDA_ABI_TEXT_BYTES);
  UniqueFd submission_fd = make_memfd(submission_bytes, options_.seals_rings);
  UniqueFd completion_fd = make_memfd(completion_bytes, options_.seals_rings);
  submission_ring_ = {map_fd(submission_fd.get(), submission_bytes), submission_bytes};
  completion_ring_ = {map_fd(completion_fd.get(), completion_bytes), completion_bytes};
  submissions_taken_ = 0;
  daemon_doorbell_ = UniqueFd(::eventfd(0, EFD_CLOEXEC));
  client_doorbell_ = UniqueFd(::eventfd(0, EFD_CLOEXEC));
  send_locked(
      RUEDA_ABI_ATTACH_REPLY, &reply, sizeof(reply),
      {submission_fd.get(), completion_fd.get(), daemon_doorbell_.get(), client_doorbell_.get()});
  if (!options_.starts) return;
  rueda_abi_started started{};
  started.epoch = 1;
  started.rank = attach.rank;
  started.local_rank = attach.local_rank;
  started.world_size = options_.world_size;
  started.local_size = options_.world_size;
  started.node_index = 0;
  started.node_count = 1;
  std::strncpy(started.node_id, "fake-node", sizeof(started.node_id) - 1);
  send_locked(RUEDA_ABI_STARTED, &started, sizeof(started));
}

void FakeDaemon::drain_submissions_locked() {
  rueda_abi_ring& header = ring(submission_ring_.data);
  uint64_t& head = submissions_taken_;  // like the daemon, it trusts its own index alone
  const uint64_t tail = atomic(header.tail).load(std::memory_order_acquire);
  for (; head != tail; ++head) {
    rueda_abi_submission record;
    std::memcpy(&record,
                submission_ring_.data + RUEDA_ABI_RING_HEADER_BYTES +
                    (head % options_.submission_capacity) * sizeof(record),
                sizeof(record));
    atomic(header.head).store(head + 1, std::memory_order_release);
    ++counts_.submissions;
    seen_.push_back(record);
    if (options_.completes) {
      finish_locked(record, 0, "");
    } else {
      held_.emplace(record.ticket, record);
    }
  }
  changed_.notify_all();
}

void FakeDaemon::finish_locked(const rueda_abi_submission& record, int32_t code,
                               const std::string& text) {
  RUEDA_CHECK(record.tensor_id < tensors_.size());
  const rueda_abi_intern& tensor = tensors_[record.tensor_id];
  size_t elements = tensor.kind == static_cast<uint8_t>(CollectiveKind::kBarrier) ? 0 : 1;
  for (int i = 0; i < tensor.ndim; ++i) elements *= static_cast<size_t>(tensor.dims[i]);
  size_t bytes = elements * element_bytes(static_cast<DType>(tensor.dtype));
  if (code == 0 && bytes > 0) {
    const Mapping& out = arenas_.at(record.output_arena);
    RUEDA_CHECK(record.output_offset + bytes <= out.bytes);
    std::byte* target = out.data + record.output_offset;
    if (tensor.kind == static_cast<uint8_t>(CollectiveKind::kBroadcast) &&
        tensor.root != options_.rank) {
      std::memset(target, 0x11, bytes);  // stands for what the root has sent
    } else {
      const Mapping& in = arenas_.at(record.input_arena);
      RUEDA_CHECK(record.input_offset + bytes <= in.bytes);
      std::memmove(target, in.data + record.input_offset, bytes);
      scale(target, elements, tensor.dtype, tensor.prescale * tensor.postscale);
    }
  }
  rueda_abi_completion completion{};
  completion.ticket = record.ticket;
  completion.code = code;
  completion.epoch = 1;
  completion.contributors = static_cast<uint32_t>(options_.world_size);
  completion.seq = static_cast<uint64_t>(counts_.submissions);
  completion.text_bytes = static_cast<uint32_t>(text.size());
  push_locked(completion, text, true);
}

void FakeDaemon::push_locked(const rueda_abi_completion& record, const std::string& text,
                             bool rings) {
  rueda_abi_ring& header = ring(completion_ring_.data);
  uint64_t tail = header.tail;
  RUEDA_CHECK(tail - atomic(header.head).load(std::memory_order_acquire) <
              options_.completion_capacity);
  size_t index = tail % options_.completion_capacity;
  std::byte* records = completion_ring_.data + RUEDA_ABI_RING_HEADER_BYTES;
  std::memcpy(records + index * sizeof(record), &record, sizeof(record));
  std::byte* texts = records + options_.completion_capacity * sizeof(record);
  std::memcpy(texts + index * RUEDA_ABI_TEXT_BYTES, text.data(),
              std::min<size_t>(text.size(), RUEDA_ABI_TEXT_BYTES));
  atomic(header.tail).store(tail + 1, std::memory_order_release);
  std::atomic_thread_fence(std::memory_order_seq_cst);
  std::atomic_ref<uint32_t> waiting(header.consumer_waiting);
  if (rings && waiting.exchange(0) == 1) ring_bell(client_doorbell_.get());
}

void FakeDaemon::set_completes(bool completes) {
  std::lock_guard lock(mutex_);
  options_.completes = completes;
  if (!completes) return;
  for (const auto& [ticket, record] : held_) finish_locked(record, 0, "");
  held_.clear();
}

void FakeDaemon::complete(uint64_t ticket, int32_t code, const std::string& text) {
  std::lock_guard lock(mutex_);
  finish_locked(held_.at(ticket), code, text);
  held_.erase(ticket);
}

void FakeDaemon::push_raw(const rueda_abi_completion& record, const std::string& text, bool rings) {
  std::lock_guard lock(mutex_);
  push_locked(record, text, rings);
}

void FakeDaemon::fail_job(int32_t code, const std::string& text) {
  std::lock_guard lock(mutex_);
  rueda_abi_status status{};
  status.code = code;
  std::strncpy(status.text, text.c_str(), sizeof(status.text) - 1);
  send_locked(RUEDA_ABI_FAILED, &status, sizeof(status));
}

void FakeDaemon::damage_completion_ring() {
  std::lock_guard lock(mutex_);
  atomic(ring(completion_ring_.data).tail).store(uint64_t{1} << 60);
  ring_bell(client_doorbell_.get());
}

void FakeDaemon::damage_submission_ring() {
  std::lock_guard lock(mutex_);
  atomic(ring(submission_ring_.data).head).store(uint64_t{1} << 60);
}

bool FakeDaemon::is_client_asleep() {
  std::lock_guard lock(mutex_);
  return std::atomic_ref(ring(completion_ring_.data).consumer_waiting).load() != 0;
}

void FakeDaemon::drop() {
  std::lock_guard lock(mutex_);
  ::shutdown(connection_.get(), SHUT_RDWR);
}

void FakeDaemon::send_raw(const void* bytes, size_t size) {
  std::lock_guard lock(mutex_);
  RUEDA_CHECK(::send(connection_.get(), bytes, size, MSG_NOSIGNAL) == static_cast<ssize_t>(size));
}

void FakeDaemon::reply_locked(int32_t code, uint32_t value, const std::string& text) {
  rueda_abi_status status{};
  status.code = code;
  status.value = value;
  std::strncpy(status.text, text.c_str(), sizeof(status.text) - 1);
  send_locked(RUEDA_ABI_REPLY, &status, sizeof(status));
}

void FakeDaemon::send_locked(uint16_t type, const void* body, size_t bytes,
                             const std::vector<int>& fds) {
  rueda_abi_header header{.magic = RUEDA_ABI_MAGIC,
                          .version = options_.version,
                          .type = type,
                          .body_bytes = static_cast<uint32_t>(bytes),
                          .reserved = 0};
  iovec io[2] = {{.iov_base = &header, .iov_len = sizeof(header)},
                 {.iov_base = const_cast<void*>(body), .iov_len = bytes}};
  alignas(cmsghdr) char control[CMSG_SPACE(4 * sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = io;
  message.msg_iovlen = 2;
  if (!fds.empty()) {
    message.msg_control = control;
    message.msg_controllen = CMSG_SPACE(fds.size() * sizeof(int));
    cmsghdr* rights = CMSG_FIRSTHDR(&message);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(fds.size() * sizeof(int));
    std::memcpy(CMSG_DATA(rights), fds.data(), fds.size() * sizeof(int));
  }
  (void)::sendmsg(connection_.get(), &message, MSG_NOSIGNAL);
}

void FakeDaemon::close_locked() {
  connection_.reset();
  daemon_doorbell_.reset();
  client_doorbell_.reset();
  for (Mapping* mapping : {&submission_ring_, &completion_ring_}) {
    if (mapping->data != nullptr) ::munmap(mapping->data, mapping->bytes);
    *mapping = {};
  }
  for (auto& [id, arena] : arenas_) ::munmap(arena.data, arena.bytes);
  arenas_.clear();
  tensors_.clear();
  held_.clear();
}

}  // namespace rueda::client
