// Measures ways to send over TCP that a daemon could take: send() and recv() beside epoll, as it
// does, MSG_ZEROCOPY, and io_uring. One thread sends to another, which may be in another network
// namespace; loopback makes MSG_ZEROCOPY copy all the same.
//
//   socket_bench                                              # over loopback
//   socket_bench 10.99.0.2 /var/run/netns/fb                  # run in fa; the reader listens in fb
//
// Prints Markdown. For each size: frames one way, microseconds each; CPU seconds of both threads
// for 10^9 bytes; system calls of both threads a frame. Then the same of a round trip. Exit codes:
// 0; 1 an error.
#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/errqueue.h>
#include <linux/io_uring.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace {

[[noreturn]] void fail(const char* what) {
  std::fprintf(stderr, "socket_bench: %s: %s\n", what, std::strerror(errno));
  std::exit(1);
}

long checked(long result, const char* what) {
  if (result < 0) fail(what);
  return result;
}

// One end of a connection. One thread uses it. Its calls are counted.
class End {
 public:
  explicit End(int socket) : socket_(socket) {}
  virtual ~End() { ::close(socket_); }
  End(const End&) = delete;
  End& operator=(const End&) = delete;
  // Both return when the kernel has taken, or given, all of the bytes.
  virtual void send(const std::byte* data, size_t bytes) = 0;
  virtual void receive(std::byte* data, size_t bytes) = 0;
  // Returns once the kernel does not read any more what was sent.
  virtual void settle() {}
  uint64_t calls() const { return calls_; }

 protected:
  const int socket_;
  uint64_t calls_ = 0;
};

// As ruedad does it: a call that does not wait, and epoll where it would have to.
class EpollEnd : public End {
 public:
  explicit EpollEnd(int socket, int flags = 0) : End(socket), flags_(flags) {
    checked(::fcntl(socket, F_SETFL, O_NONBLOCK), "fcntl");
    epoll_ = static_cast<int>(checked(::epoll_create1(0), "epoll_create1"));
    epoll_event event{.events = EPOLLIN | EPOLLOUT | EPOLLET, .data = {}};
    checked(::epoll_ctl(epoll_, EPOLL_CTL_ADD, socket, &event), "epoll_ctl");
  }
  ~EpollEnd() override { ::close(epoll_); }
  void send(const std::byte* data, size_t bytes) override {
    go_on(bytes, true, [&](size_t done) {
      return ::send(socket_, data + done, bytes - done, flags_ | MSG_NOSIGNAL);
    });
  }
  void receive(std::byte* data, size_t bytes) override {
    go_on(bytes, false, [&](size_t done) { return ::recv(socket_, data + done, bytes - done, 0); });
  }

 protected:
  // A call of send() has taken something.
  virtual void note_sent() {}
  void sleep() {
    epoll_event event;
    ++calls_;
    if (::epoll_wait(epoll_, &event, 1, -1) < 0 && errno != EINTR) fail("epoll_wait");
  }

 private:
  template <class Call>
  void go_on(size_t bytes, bool sends, Call call) {
    for (size_t done = 0; done < bytes;) {
      ++calls_;
      const ssize_t got = call(done);
      if (got == 0) fail("the other end has gone");
      if (got > 0) {
        done += static_cast<size_t>(got);
        if (sends) note_sent();
      } else if (errno == EAGAIN || errno == ENOBUFS) {
        sleep();
      } else {
        fail("send or recv");
      }
    }
  }
  const int flags_;
  int epoll_;
};

// Sends without a copy, where the kernel can. Every send is told of on the error queue.
class ZeroCopyEnd final : public EpollEnd {
 public:
  explicit ZeroCopyEnd(int socket) : EpollEnd(socket, MSG_ZEROCOPY) {
    const int on = 1;
    checked(::setsockopt(socket, SOL_SOCKET, SO_ZEROCOPY, &on, sizeof(on)), "SO_ZEROCOPY");
  }
  void settle() override {
    while (told_ < sent_) {
      if (!hear()) sleep();
    }
  }
  bool has_copied() const { return has_copied_; }

 private:
  static constexpr uint32_t kMostUntold = 32;
  void note_sent() override {
    if (++sent_ - told_ > kMostUntold) hear();
  }
  // Returns whether there was news.
  bool hear() {
    std::array<char, 256> control;
    msghdr message{};
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    ++calls_;
    if (::recvmsg(socket_, &message, MSG_ERRQUEUE) < 0) return false;
    for (cmsghdr* at = CMSG_FIRSTHDR(&message); at; at = CMSG_NXTHDR(&message, at)) {
      sock_extended_err told;
      std::memcpy(&told, CMSG_DATA(at), sizeof(told));
      if (told.ee_origin != SO_EE_ORIGIN_ZEROCOPY) continue;
      told_ += told.ee_data - told.ee_info + 1;
      has_copied_ |= (told.ee_code & SO_EE_CODE_ZEROCOPY_COPIED) != 0;
    }
    return true;
  }
  uint32_t sent_ = 0;
  uint32_t told_ = 0;
  bool has_copied_ = false;
};

// One call submits an operation and waits for its end.
class UringEnd final : public End {
 public:
  explicit UringEnd(int socket) : End(socket) {
    io_uring_params params{};
    params.flags = IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN;
    ring_ = static_cast<int>(checked(::syscall(SYS_io_uring_setup, 8, &params), "io_uring_setup"));
    const size_t bytes = std::max(params.sq_off.array + params.sq_entries * sizeof(uint32_t),
                                  params.cq_off.cqes + params.cq_entries * sizeof(io_uring_cqe));
    auto* const rings = static_cast<std::byte*>(map(bytes, IORING_OFF_SQ_RING));
    entries_ =
        static_cast<io_uring_sqe*>(map(params.sq_entries * sizeof(io_uring_sqe), IORING_OFF_SQES));
    sq_tail_ = reinterpret_cast<uint32_t*>(rings + params.sq_off.tail);
    sq_mask_ = *reinterpret_cast<uint32_t*>(rings + params.sq_off.ring_mask);
    sq_array_ = reinterpret_cast<uint32_t*>(rings + params.sq_off.array);
    cq_head_ = reinterpret_cast<uint32_t*>(rings + params.cq_off.head);
    cq_tail_ = reinterpret_cast<uint32_t*>(rings + params.cq_off.tail);
    cq_mask_ = *reinterpret_cast<uint32_t*>(rings + params.cq_off.ring_mask);
    cqes_ = reinterpret_cast<io_uring_cqe*>(rings + params.cq_off.cqes);
  }
  ~UringEnd() override { ::close(ring_); }
  void send(const std::byte* data, size_t bytes) override {
    go_on(IORING_OP_SEND, const_cast<std::byte*>(data), bytes);
  }
  void receive(std::byte* data, size_t bytes) override { go_on(IORING_OP_RECV, data, bytes); }

 private:
  void* map(size_t bytes, off_t at) const {
    void* const made =
        ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, ring_, at);
    if (made == MAP_FAILED) fail("mmap of io_uring");
    return made;
  }
  void go_on(uint8_t what, std::byte* data, size_t bytes) {
    for (size_t done = 0; done < bytes;) {
      const uint32_t tail = *sq_tail_;
      io_uring_sqe& entry = entries_[tail & sq_mask_];
      entry = {};
      entry.opcode = what;
      entry.fd = socket_;
      entry.addr = reinterpret_cast<uint64_t>(data + done);
      entry.len = static_cast<uint32_t>(bytes - done);
      entry.msg_flags = MSG_WAITALL | MSG_NOSIGNAL;
      sq_array_[tail & sq_mask_] = tail & sq_mask_;
      std::atomic_ref(*sq_tail_).store(tail + 1, std::memory_order_release);
      ++calls_;
      checked(::syscall(SYS_io_uring_enter, ring_, 1, 1, IORING_ENTER_GETEVENTS, nullptr, 0),
              "io_uring_enter");
      const uint32_t head = *cq_head_;
      if (std::atomic_ref(*cq_tail_).load(std::memory_order_acquire) == head) continue;
      const int32_t result = cqes_[head & cq_mask_].res;
      std::atomic_ref(*cq_head_).store(head + 1, std::memory_order_release);
      if (result <= 0) {
        errno = -result;
        fail("an operation of io_uring");
      }
      done += static_cast<size_t>(result);
    }
  }
  int ring_;
  io_uring_sqe* entries_;
  uint32_t *sq_tail_, *sq_array_, *cq_head_, *cq_tail_;
  uint32_t sq_mask_, cq_mask_;
  io_uring_cqe* cqes_;
};

enum class Way : uint8_t { kEpoll, kZeroCopy, kUring };
constexpr std::array kWays = {Way::kEpoll, Way::kZeroCopy, Way::kUring};

const char* name_of(Way way) {
  switch (way) {
    case Way::kEpoll: return "send, recv and epoll";
    case Way::kZeroCopy: return "MSG_ZEROCOPY";
    case Way::kUring: return "io_uring";
  }
  return "";
}

std::unique_ptr<End> end_of(Way way, int socket) {
  const int on = 1;
  checked(::setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)), "TCP_NODELAY");
  switch (way) {
    case Way::kEpoll: return std::make_unique<EpollEnd>(socket);
    case Way::kZeroCopy: return std::make_unique<ZeroCopyEnd>(socket);
    case Way::kUring: return std::make_unique<UringEnd>(socket);
  }
  return nullptr;
}

struct Place {
  std::string address = "127.0.0.1";
  std::string netns;  // The file of the reader's network namespace; empty: this one.
};

struct Result {
  double us = 0;
  double cpu_s_per_gb = 0;
  double calls = 0;
  bool has_copied = false;
};

double cpu_s() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) / 1e6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

int listen_at(const Place& place, sockaddr_in& address) {
  if (!place.netns.empty()) {
    const int file = static_cast<int>(checked(::open(place.netns.c_str(), O_RDONLY), "open netns"));
    checked(::setns(file, CLONE_NEWNET), "setns");
    ::close(file);
  }
  const int listener = static_cast<int>(checked(::socket(AF_INET, SOCK_STREAM, 0), "socket"));
  address.sin_family = AF_INET;
  if (::inet_pton(AF_INET, place.address.c_str(), &address.sin_addr) != 1) fail("address");
  socklen_t bytes = sizeof(address);
  checked(::bind(listener, reinterpret_cast<sockaddr*>(&address), bytes), "bind");
  checked(::listen(listener, 1), "listen");
  checked(::getsockname(listener, reinterpret_cast<sockaddr*>(&address), &bytes), "getsockname");
  return listener;
}

// Sends `count` frames; with `answers` each is sent back before the next.
Result measure(Way way, const Place& place, size_t bytes, int count, bool answers) {
  const int warm_up = count / 10;
  sockaddr_in address{};
  std::atomic<bool> listens = false;
  uint64_t reader_calls = 0;
  std::thread reader([&] {
    const int listener = listen_at(place, address);
    listens = true;
    const auto end =
        end_of(way, static_cast<int>(checked(::accept(listener, nullptr, nullptr), "accept")));
    ::close(listener);
    std::vector<std::byte> memory(bytes);
    for (int i = 0; i < warm_up + count; ++i) {
      end->receive(memory.data(), bytes);
      if (answers) end->send(memory.data(), bytes);
      if (i + 1 == warm_up) reader_calls = end->calls();
    }
    end->settle();
    std::byte over{};
    end->send(&over, 1);
    end->settle();
    reader_calls = end->calls() - reader_calls;
  });
  while (!listens) std::this_thread::yield();
  const int socket = static_cast<int>(checked(::socket(AF_INET, SOCK_STREAM, 0), "socket"));
  checked(::connect(socket, reinterpret_cast<sockaddr*>(&address), sizeof(address)), "connect");
  const auto end = end_of(way, socket);
  std::vector<std::byte> memory(bytes, std::byte{1});
  double began_cpu_s = 0;
  uint64_t calls = 0;
  std::chrono::steady_clock::time_point began;
  for (int i = 0; i < warm_up + count; ++i) {
    if (i == warm_up) {
      began = std::chrono::steady_clock::now();
      began_cpu_s = cpu_s();
      calls = end->calls();
    }
    end->send(memory.data(), bytes);
    if (answers) end->receive(memory.data(), bytes);
  }
  std::byte over{};
  end->receive(&over, 1);
  end->settle();
  const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - began;
  calls = end->calls() - calls;
  reader.join();
  const double used_s = cpu_s() - began_cpu_s;
  const auto* const zero_copy = dynamic_cast<const ZeroCopyEnd*>(end.get());
  return {took.count() / count,
          used_s / (static_cast<double>(bytes) * count * (answers ? 2 : 1) / 1e9),
          static_cast<double>(calls + reader_calls) / count,
          zero_copy != nullptr && zero_copy->has_copied()};
}

}  // namespace

int main(int argc, char** argv) {
  Place place;
  if (argc == 2 || argc > 3) {
    std::fprintf(stderr, "usage: %s [ADDRESS NAMESPACE-FILE]\n", argv[0]);
    return 1;
  }
  if (argc == 3) place = {argv[1], argv[2]};
  std::printf(
      "| bytes | way | one way, µs | CPU s/GB | calls | round trip, µs | CPU s/GB | calls |\n");
  std::printf("|---|---|---|---|---|---|---|---|\n");
  for (const size_t bytes : {size_t{4} << 10, size_t{256} << 10, size_t{1} << 20}) {
    const int count = static_cast<int>(std::max<size_t>(300, (size_t{1} << 28) / bytes / 4));
    for (const Way way : kWays) {
      const Result one_way = measure(way, place, bytes, count, false);
      const Result both = measure(way, place, bytes, count / 2, true);
      std::printf("| %zu | %s%s | %.1f | %.2f | %.1f | %.1f | %.2f | %.1f |\n", bytes, name_of(way),
                  one_way.has_copied ? ", which copied" : "", one_way.us, one_way.cpu_s_per_gb,
                  one_way.calls, both.us, both.cpu_s_per_gb, both.calls);
    }
  }
  return 0;
}
