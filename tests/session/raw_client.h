// Plays a client that speaks the ABI by hand, right or wrong, and the server that it talks to. Both
// sides run on the test's thread: the server moves only inside pump functions, so that the test
// decides every order.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include "client/abi/rueda_abi.h"
#include "daemon/base/fd.h"
#include "daemon/session/session.h"

namespace rueda::session {

struct RawMessage {
  rueda_abi_header header{};
  std::vector<std::byte> body;
  std::vector<UniqueFd> descriptors;

  template <class Body>
  Body as() const {
    EXPECT_EQ(body.size(), sizeof(Body));
    Body result{};
    if (body.size() == sizeof(Body)) std::memcpy(&result, body.data(), sizeof(Body));
    return result;
  }
};

// The client's mapping of a ring.
struct RawRing {
  RawRing() = default;
  RawRing(int memfd, size_t map_bytes);
  RawRing(RawRing&& other) noexcept
      : memory(std::exchange(other.memory, nullptr)), bytes(other.bytes) {}
  RawRing& operator=(RawRing&& other) noexcept {
    std::swap(memory, other.memory);
    std::swap(bytes, other.bytes);
    return *this;
  }
  ~RawRing() {
    if (memory != nullptr) ::munmap(memory, bytes);
  }
  rueda_abi_ring& header() const { return *reinterpret_cast<rueda_abi_ring*>(memory); }
  template <class Record>
  Record& record(uint64_t index) const {
    return reinterpret_cast<Record*>(memory + RUEDA_ABI_RING_HEADER_BYTES)[index];
  }

  std::byte* memory = nullptr;
  size_t bytes = 0;
};

class RawClient {
 public:
  explicit RawClient(const std::string& path);

  int fd() const { return socket_.get(); }
  void close() { socket_.reset(); }
  void send_bytes(const void* data, size_t bytes);
  void send(uint16_t type, const void* body, size_t body_bytes, std::vector<int> descriptors = {});
  void send_attach(int rank = 0);
  // Sends bytes as they are, with descriptors. Returns whether they could be sent.
  bool send_with(const void* data, size_t bytes, const std::vector<int>& descriptors,
                 int flags = 0);
  // Returns a whole message if there is one.
  std::optional<RawMessage> try_receive();
  // Returns whether the server has closed, and everything it sent has been read.
  bool is_closed();

  // Takes over the rings and doorbells of a good attach reply.
  void adopt(RawMessage& reply);
  void push(const rueda_abi_submission& record);
  void ring_daemon();
  // Returns whether the client's doorbell has been rung, and takes the ring away.
  bool take_ring();

  RawRing submissions;
  RawRing completions;
  UniqueFd daemon_doorbell;
  UniqueFd client_doorbell;
  uint32_t capacity = 0;

 private:
  UniqueFd socket_;
  std::vector<std::byte> inbox_;
  std::vector<UniqueFd> descriptors_;
};

// An engine that records what happens.
class RecordingEvents : public SessionEvents {
 public:
  Status on_attach(Session& session) override;
  void on_submit(Session& session, const Submission& submission) override;
  void on_waiting(Session&, std::optional<Ticket> ticket) override { waiting.push_back(ticket); }
  void on_submissions_drained(Session&) override { ++drained; }
  Status on_timeline(Session&, const TimelineWish& wish) override {
    wishes.push_back(wish);
    return wish.begins ? Status::ok() : Status(Code::kInvalidArgument, "there is none");
  }
  void on_nonfinite_asked(Session& session) override { asking.push_back(&session); }
  void on_device_memory(Session&, DeviceMemory memory) override {
    memories.push_back(std::move(memory));
  }
  void on_device_memory_removed(Session&, uint32_t id) override { removed.push_back(id); }
  std::vector<DeviceMemory> memories;  // requests that are not answered
  std::vector<uint32_t> removed;
  std::vector<TimelineWish> wishes;
  std::vector<Session*> asking;
  void on_detached(Session&) override { ++detached; }
  void on_lost(Session&, const Status& status) override { lost.push_back(status); }

  Status attach_answer;
  std::function<void(Session&)> during_attach;
  std::function<void(Session&)> during_submit;
  std::vector<Session*> sessions;
  std::vector<Attach> attaches;
  std::vector<Submission> submissions;
  int drained = 0;
  std::vector<std::optional<Ticket>> waiting;
  int detached = 0;
  std::vector<Status> lost;
};

class SessionTest : public ::testing::Test {
 protected:
  SessionTest();
  ~SessionTest() override;

  void start_server(uint32_t ring_capacity = 16, int64_t handshake_timeout_ms = 60000);
  // The quota of each principal from the next start_server() on; its default is that of a large
  // machine.
  Quota quota_{uint64_t{1} << 40, 65536};
  // Where the server listens beside path_.
  std::vector<SocketPlace> more_sockets_;
  // If true, the server behaves as before Linux 6.16, where clients cannot be kept from sending
  // descriptors.
  bool is_old_kernel_ = false;
  // Runs the server until the condition holds; fails the test after a generous time.
  void pump_until(const std::function<bool()>& condition, const char* what);
  RawMessage receive(RawClient& client);
  rueda_abi_status request(RawClient& client, uint16_t type, const void* body, size_t body_bytes,
                           std::vector<int> descriptors = {});
  std::unique_ptr<RawClient> attach(int rank = 0);
  uint32_t add_arena(RawClient& client, size_t bytes);
  uint32_t intern(RawClient& client, const rueda_abi_intern& tensor);
  void pump_until_lost(const std::string& text);

  std::string path_;
  boost::asio::io_context loop_;
  RecordingEvents events_;
  std::vector<std::pair<UniqueFd, Credentials>> handed_off_;
  std::unique_ptr<SessionServer> server_;
};

UniqueFd make_memfd(size_t bytes, int seals = F_SEAL_SHRINK | F_SEAL_GROW);
rueda_abi_intern make_tensor(const std::string& name, std::vector<int64_t> dims);
int count_open_fds();

}  // namespace rueda::session
