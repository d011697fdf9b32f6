#include "tests/session/raw_client.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <filesystem>

#include <fcntl.h>
#include <sys/un.h>

#include "daemon/session/records/ring.h"

namespace rueda::session {

RawRing::RawRing(int memfd, size_t map_bytes) : bytes(map_bytes) {
  void* mapped = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, memfd, 0);
  EXPECT_NE(mapped, MAP_FAILED);
  memory = static_cast<std::byte*>(mapped);
}

RawClient::RawClient(const std::string& path)
    : socket_(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.data(), path.size());
  if (path[0] == '@') address.sun_path[0] = '\0';
  auto bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + path.size());
  EXPECT_EQ(::connect(fd(), reinterpret_cast<sockaddr*>(&address), bytes), 0) << path;
}

void RawClient::send_bytes(const void* data, size_t bytes) {
  ASSERT_EQ(::send(fd(), data, bytes, MSG_NOSIGNAL), static_cast<ssize_t>(bytes));
}

void RawClient::send(uint16_t type, const void* body, size_t body_bytes,
                     std::vector<int> descriptors) {
  rueda_abi_header header{RUEDA_ABI_MAGIC, RUEDA_ABI_VERSION, type,
                          static_cast<uint32_t>(body_bytes), 0};
  iovec pieces[2] = {{&header, sizeof(header)}, {const_cast<void*>(body), body_bytes}};
  msghdr message{};
  message.msg_iov = pieces;
  message.msg_iovlen = 2;
  alignas(cmsghdr) char control[CMSG_SPACE(16 * sizeof(int))] = {};
  if (!descriptors.empty()) {
    size_t payload_bytes = descriptors.size() * sizeof(int);
    message.msg_control = control;
    message.msg_controllen = CMSG_SPACE(payload_bytes);
    cmsghdr* part = CMSG_FIRSTHDR(&message);
    part->cmsg_level = SOL_SOCKET;
    part->cmsg_type = SCM_RIGHTS;
    part->cmsg_len = CMSG_LEN(payload_bytes);
    std::memcpy(CMSG_DATA(part), descriptors.data(), payload_bytes);
  }
  ASSERT_EQ(::sendmsg(fd(), &message, MSG_NOSIGNAL),
            static_cast<ssize_t>(sizeof(header) + body_bytes));
}

bool RawClient::send_with(const void* data, size_t bytes, const std::vector<int>& descriptors,
                          int flags) {
  iovec piece{const_cast<void*>(data), bytes};
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  std::vector<char> control(CMSG_SPACE(descriptors.size() * sizeof(int)));
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  cmsghdr* part = CMSG_FIRSTHDR(&message);
  part->cmsg_level = SOL_SOCKET;
  part->cmsg_type = SCM_RIGHTS;
  part->cmsg_len = CMSG_LEN(descriptors.size() * sizeof(int));
  std::memcpy(CMSG_DATA(part), descriptors.data(), descriptors.size() * sizeof(int));
  return ::sendmsg(fd(), &message, MSG_NOSIGNAL | flags) == static_cast<ssize_t>(bytes);
}

void RawClient::send_attach(int rank) {
  rueda_abi_attach body{};
  std::strcpy(body.job_id, "job-1");
  std::memset(body.token, 0xab, sizeof(body.token));
  body.rank = rank;
  body.local_rank = rank;
  send(RUEDA_ABI_ATTACH, &body, sizeof(body));
}

std::optional<RawMessage> RawClient::try_receive() {
  for (;;) {
    RawMessage message;
    if (inbox_.size() >= sizeof(rueda_abi_header)) {
      std::memcpy(&message.header, inbox_.data(), sizeof(message.header));
      size_t whole = sizeof(message.header) + message.header.body_bytes;
      if (inbox_.size() >= whole) {
        message.body.assign(inbox_.begin() + sizeof(message.header), inbox_.begin() + whole);
        inbox_.erase(inbox_.begin(), inbox_.begin() + whole);
        message.descriptors = std::move(descriptors_);
        descriptors_.clear();
        return message;
      }
    }
    std::array<std::byte, 512> piece;
    iovec vector{piece.data(), piece.size()};
    alignas(cmsghdr) char control[CMSG_SPACE(8 * sizeof(int))];
    msghdr got_message{};
    got_message.msg_iov = &vector;
    got_message.msg_iovlen = 1;
    got_message.msg_control = control;
    got_message.msg_controllen = sizeof(control);
    ssize_t got = ::recvmsg(fd(), &got_message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (got <= 0) return std::nullopt;
    inbox_.insert(inbox_.end(), piece.begin(), piece.begin() + got);
    if (cmsghdr* part = CMSG_FIRSTHDR(&got_message); part != nullptr) {
      size_t count = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
      for (size_t i = 0; i < count; ++i) {
        int received;
        std::memcpy(&received, CMSG_DATA(part) + i * sizeof(int), sizeof(int));
        descriptors_.emplace_back(received);
      }
    }
  }
}

bool RawClient::is_closed() {
  while (try_receive()) {
  }
  char byte;
  ssize_t got = ::recv(fd(), &byte, 1, MSG_DONTWAIT | MSG_PEEK);
  return got == 0 || (got < 0 && errno == ECONNRESET);
}

void RawClient::adopt(RawMessage& reply) {
  ASSERT_EQ(reply.descriptors.size(), 4u);
  capacity = reply.as<rueda_abi_attach_reply>().submission_capacity;
  submissions = RawRing(reply.descriptors[0].get(), submission_ring_bytes(capacity));
  completions = RawRing(reply.descriptors[1].get(), completion_ring_bytes(capacity));
  daemon_doorbell = std::move(reply.descriptors[2]);
  client_doorbell = std::move(reply.descriptors[3]);
}

void RawClient::push(const rueda_abi_submission& record) {
  std::atomic_ref tail(submissions.header().tail);
  uint64_t index = tail.load();
  submissions.record<rueda_abi_submission>(index % capacity) = record;
  tail.store(index + 1);
  std::atomic_ref waiting(submissions.header().consumer_waiting);
  uint32_t expected = 1;
  if (waiting.compare_exchange_strong(expected, 0)) ring_daemon();
}

void RawClient::ring_daemon() {
  uint64_t one = 1;
  ASSERT_EQ(::write(daemon_doorbell.get(), &one, sizeof(one)), 8);
}

bool RawClient::take_ring() {
  uint64_t value = 0;
  return ::read(client_doorbell.get(), &value, sizeof(value)) == 8;
}

Status RecordingEvents::on_attach(Session& session) {
  attaches.push_back(session.attach());
  sessions.push_back(&session);
  if (during_attach) during_attach(session);
  return attach_answer;
}

void RecordingEvents::on_submit(Session& session, const Submission& submission) {
  submissions.push_back(submission);
  if (during_submit) during_submit(session);
}

SessionTest::SessionTest() {
  static std::atomic<int> next{0};
  path_ = std::filesystem::temp_directory_path() /
          ("rueda-test-" + std::to_string(::getpid()) + "-" + std::to_string(next++) + ".sock");
}

SessionTest::~SessionTest() = default;

void SessionTest::start_server(uint32_t ring_capacity, int64_t handshake_timeout_ms) {
  ServerOptions options{{{path_, ""}}, ring_capacity, handshake_timeout_ms};
  options.sockets.insert(options.sockets.end(), more_sockets_.begin(), more_sockets_.end());
  options.ledger = std::make_shared<Ledger>(quota_);
  options.refuses_early_descriptors = !is_old_kernel_;
  server_ = SessionServer::create(loop_, options, events_,
                                  [this](UniqueFd socket, const Credentials& peer, const auto&) {
                                    handed_off_.emplace_back(std::move(socket), peer);
                                  });
  Status status = server_->listen();
  ASSERT_TRUE(status.is_ok()) << status.to_string();
}

void SessionTest::pump_until(const std::function<bool()>& condition, const char* what) {
  auto give_up = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > give_up) FAIL() << "never came: " << what;
    loop_.restart();
    loop_.run_one_for(std::chrono::milliseconds(50));
  }
}

RawMessage SessionTest::receive(RawClient& client) {
  std::optional<RawMessage> message;
  pump_until([&] { return (message = client.try_receive()).has_value(); }, "a message");
  return message ? std::move(*message) : RawMessage{};
}

rueda_abi_status SessionTest::request(RawClient& client, uint16_t type, const void* body,
                                      size_t body_bytes, std::vector<int> descriptors) {
  client.send(type, body, body_bytes, std::move(descriptors));
  RawMessage message = receive(client);
  EXPECT_EQ(message.header.type, RUEDA_ABI_REPLY);
  return message.as<rueda_abi_status>();
}

std::unique_ptr<RawClient> SessionTest::attach(int rank) {
  auto client = std::make_unique<RawClient>(path_);
  client->send_attach(rank);
  RawMessage reply = receive(*client);
  EXPECT_EQ(reply.header.type, RUEDA_ABI_ATTACH_REPLY);
  EXPECT_EQ(reply.as<rueda_abi_attach_reply>().code, 0);
  client->adopt(reply);
  return client;
}

uint32_t SessionTest::add_arena(RawClient& client, size_t bytes) {
  UniqueFd memfd = make_memfd(bytes);
  rueda_abi_arena body{bytes, 0, 0};
  rueda_abi_status reply = request(client, RUEDA_ABI_ARENA_ADD, &body, sizeof(body), {memfd.get()});
  EXPECT_EQ(reply.code, 0) << reply.text;
  return reply.value;
}

uint32_t SessionTest::intern(RawClient& client, const rueda_abi_intern& tensor) {
  rueda_abi_status reply = request(client, RUEDA_ABI_INTERN, &tensor, sizeof(tensor));
  EXPECT_EQ(reply.code, 0) << reply.text;
  return reply.value;
}

void SessionTest::pump_until_lost(const std::string& text) {
  pump_until([&] { return !events_.lost.empty(); }, "on_lost");
  ASSERT_EQ(events_.lost.size(), 1u);
  EXPECT_EQ(events_.lost[0].code(), Code::kRankLost);
  EXPECT_THAT(events_.lost[0].message(), ::testing::HasSubstr(text));
  EXPECT_THAT(events_.lost[0].message(),
              ::testing::HasSubstr("(pid " + std::to_string(::getpid()) + ")"));
}

UniqueFd make_memfd(size_t bytes, int seals) {
  UniqueFd fd(::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  EXPECT_EQ(::ftruncate(fd.get(), static_cast<off_t>(bytes)), 0);
  EXPECT_TRUE(bytes == 0 || ::fallocate(fd.get(), 0, 0, static_cast<off_t>(bytes)) == 0);
  EXPECT_EQ(::fcntl(fd.get(), F_ADD_SEALS, seals), 0);
  return fd;
}

rueda_abi_intern make_tensor(const std::string& name, std::vector<int64_t> dims) {
  rueda_abi_intern tensor{};
  tensor.root = -1;
  tensor.prescale = tensor.postscale = 1.0;
  tensor.ndim = static_cast<uint8_t>(dims.size());
  std::copy(dims.begin(), dims.end(), tensor.dims);
  std::memcpy(tensor.name, name.data(), name.size());
  return tensor;
}

int count_open_fds() {
  auto entries = std::filesystem::directory_iterator("/proc/self/fd");
  return static_cast<int>(std::distance(begin(entries), end(entries)));
}

}  // namespace rueda::session
