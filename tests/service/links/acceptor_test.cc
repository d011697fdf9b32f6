#include "daemon/service/links/acceptor.h"

#include <condition_variable>
#include <future>
#include <vector>

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include "tests/support/processes.h"

namespace rueda::service {
namespace {

// A client's connection.
class Client {
 public:
  // Machine 1 has the address 127.0.0.1, machine 2 has 127.0.0.2, and so on.
  explicit Client(uint16_t port, uint32_t machine = 1)
      : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in from{};
    from.sin_family = AF_INET;
    from.sin_addr.s_addr = htonl(INADDR_LOOPBACK - 1 + machine);
    EXPECT_EQ(::bind(socket_.get(), reinterpret_cast<const sockaddr*>(&from), sizeof(from)), 0);
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(port);
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    is_connected_ =
        ::connect(socket_.get(), reinterpret_cast<const sockaddr*>(&to), sizeof(to)) == 0;
  }
  bool is_connected() const { return is_connected_; }
  // Returns the connection's name as gRPC has it.
  std::string name() const {
    sockaddr_in own{};
    socklen_t size = sizeof(own);
    EXPECT_EQ(::getsockname(socket_.get(), reinterpret_cast<sockaddr*>(&own), &size), 0);
    return "ipv4:127.0.0.1:" + std::to_string(ntohs(own.sin_port));
  }
  bool send(size_t bytes) {
    const std::string text(bytes, 'x');
    return ::send(socket_.get(), text.data(), text.size(), MSG_NOSIGNAL) ==
           static_cast<ssize_t>(bytes);
  }
  bool is_closed_within(int ms) const {
    pollfd socket{socket_.get(), POLLRDHUP, 0};
    return ::poll(&socket, 1, ms) == 1;
  }
  void close() { socket_.reset(); }

 private:
  UniqueFd socket_;
  bool is_connected_ = false;
};

// Takes connections as gRPC does, and reads nothing.
class AcceptorTest : public ::testing::Test {
 protected:
  void listen(const AcceptorLimits& limits) {
    acceptor_.emplace(limits);
    const Result<uint16_t> bound = acceptor_->bind("127.0.0.1", 0);
    ASSERT_TRUE(bound.is_ok()) << bound.status().message();
    port_ = bound.value();
    acceptor_->start([this](UniqueFd socket) {
      const std::lock_guard lock(mutex_);
      taken_.push_back(std::move(socket));
      changed_.notify_all();
    });
  }
  void TearDown() override { acceptor_.reset(); }
  std::unique_ptr<Client> client() {
    const size_t before = count();
    auto made = std::make_unique<Client>(port_);
    EXPECT_TRUE(made->is_connected());
    EXPECT_TRUE(wait_for(before + 1));
    return made;
  }
  size_t count() {
    const std::lock_guard lock(mutex_);
    return taken_.size();
  }
  // Returns whether one of the first `count` connections is of that machine.
  bool is_machine_among(size_t count, uint32_t machine) {
    const std::lock_guard lock(mutex_);
    for (size_t i = 0; i < count; ++i) {
      sockaddr_in from{};
      socklen_t size = sizeof(from);
      ::getpeername(taken_[i].get(), reinterpret_cast<sockaddr*>(&from), &size);
      if (from.sin_addr.s_addr == htonl(INADDR_LOOPBACK - 1 + machine)) return true;
    }
    return false;
  }
  bool wait_for(size_t count) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(60),
                             [&] { return taken_.size() >= count; });
  }

  std::optional<Acceptor> acceptor_;
  uint16_t port_ = 0;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<UniqueFd> taken_;
};

TEST_F(AcceptorTest, TheOldestStrangerGoesAndWhomAJobNeedsStays) {
  AcceptorLimits limits;
  limits.strangers = 2;
  listen(limits);
  const auto needed = client();
  acceptor_->keep(needed->name(), true);
  const auto first = client();
  const auto second = client();
  const auto third = client();
  EXPECT_TRUE(first->is_closed_within(60'000));
  EXPECT_FALSE(needed->is_closed_within(0) || second->is_closed_within(0) ||
               third->is_closed_within(0));
  acceptor_->keep(needed->name(), false);  // makes it the youngest of the strangers
  EXPECT_TRUE(second->is_closed_within(60'000));
  EXPECT_FALSE(needed->is_closed_within(0) || third->is_closed_within(0));
  acceptor_->keep("ipv4:127.0.0.1:1", true);
  acceptor_->keep("unix:", true);
  EXPECT_FALSE(needed->is_closed_within(0) || third->is_closed_within(0));
}

// What a stranger does costs the daemon more than it costs the stranger.
TEST_F(AcceptorTest, StrangersComeNoFasterThanTheyMay) {
  AcceptorLimits limits;
  limits.arrivals = 4;
  limits.arrivals_a_second = 20;
  const auto begin = std::chrono::steady_clock::now();
  listen(limits);
  std::vector<std::unique_ptr<Client>> clients;
  for (int i = 0; i < 40; ++i) clients.push_back(std::make_unique<Client>(port_));
  const auto may_have_come = [&] {
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - begin;
    return 4 + static_cast<size_t>(elapsed.count() * 20) + 1;
  };
  for (size_t wanted = 4; wanted <= 40; wanted += 4) {
    ASSERT_TRUE(wait_for(wanted));
    const size_t came = count();
    EXPECT_LE(came, may_have_come());
  }
}

// Somebody who connects without end once had everybody else wait behind a thousand of his own.
TEST_F(AcceptorTest, MachinesAreLetInByTurns) {
  AcceptorLimits limits;
  limits.arrivals = 1;
  limits.arrivals_a_second = 4;
  listen(limits);
  std::vector<std::unique_ptr<Client>> clients;
  for (int i = 0; i < 30; ++i) clients.push_back(std::make_unique<Client>(port_));
  ASSERT_TRUE(wait_for(1));
  clients.push_back(std::make_unique<Client>(port_, 2));
  ASSERT_TRUE(wait_for(4));
  EXPECT_TRUE(is_machine_among(4, 2));
}

TEST_F(AcceptorTest, WhoFindsNoPlaceAmongThoseWhoWaitIsClosed) {
  AcceptorLimits limits;
  limits.arrivals = 1;
  limits.arrivals_a_second = 0.001;
  limits.waiting = 2;
  listen(limits);
  const auto first = client();
  std::vector<std::unique_ptr<Client>> clients;
  for (int i = 0; i < 3; ++i) clients.push_back(std::make_unique<Client>(port_));
  EXPECT_TRUE(clients[2]->is_closed_within(60'000));
  EXPECT_FALSE(clients[0]->is_closed_within(0) || clients[1]->is_closed_within(0));
  const Client other(port_, 2);
  EXPECT_TRUE(clients[1]->is_closed_within(60'000));
  EXPECT_FALSE(other.is_closed_within(0) || clients[0]->is_closed_within(0));
}

TEST_F(AcceptorTest, WhoHasGoneMeanwhileTakesNobodysTurn) {
  AcceptorLimits limits;
  limits.arrivals = 1;
  limits.arrivals_a_second = 1;
  listen(limits);
  const auto first = client();
  const auto begin = std::chrono::steady_clock::now();
  std::vector<std::unique_ptr<Client>> clients;
  for (int i = 0; i < 50; ++i) clients.push_back(std::make_unique<Client>(port_));
  clients.clear();
  const auto next = client();
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - begin;
  EXPECT_LT(elapsed.count(), 25) << "it has waited for those who have gone";
}

TEST_F(AcceptorTest, WhomAJobNeedsTakesNobodysTurn) {
  AcceptorLimits limits;
  limits.arrivals = 1;
  limits.arrivals_a_second = 0.001;
  listen(limits);
  for (int i = 0; i < 3; ++i) {
    const auto next = client();
    // The acceptor knows the connection before it hands it over.
    acceptor_->keep(next->name(), true);
  }
  EXPECT_EQ(count(), 3u);
}

TEST_F(AcceptorTest, AStrangerWhoCallsTooFastIsCutOff) {
  AcceptorLimits limits;
  limits.calls = 10;
  limits.calls_a_second = 0;
  listen(limits);
  const auto needed = client();
  acceptor_->keep(needed->name(), true);
  const auto stranger = client();
  const auto other = client();
  for (int i = 0; i < 100; ++i) EXPECT_TRUE(acceptor_->may_call(needed->name(), 8));
  EXPECT_TRUE(acceptor_->may_call(stranger->name(), 8));
  EXPECT_TRUE(acceptor_->may_call(stranger->name(), 2));
  EXPECT_TRUE(acceptor_->may_call(other->name(), 8));
  EXPECT_FALSE(acceptor_->may_call(stranger->name(), 1));
  EXPECT_TRUE(stranger->is_closed_within(60'000));
  EXPECT_FALSE(needed->is_closed_within(0) || other->is_closed_within(0));
  // It is forgotten, and nobody else is meant.
  EXPECT_TRUE(acceptor_->may_call(stranger->name(), 1));
  EXPECT_TRUE(acceptor_->may_call("unix:", 1));
}

TEST_F(AcceptorTest, AStrangerWhoSendsTooMuchIsCutOff) {
  AcceptorLimits limits;
  limits.bytes = 64 << 10;
  limits.bytes_a_second = 0;
  listen(limits);
  const auto needed = client();
  acceptor_->keep(needed->name(), true);
  const auto stranger = client();
  ASSERT_TRUE(needed->send(128 << 10));
  ASSERT_TRUE(stranger->send(32 << 10));
  EXPECT_FALSE(stranger->is_closed_within(0));
  (void)stranger->send(96 << 10);
  EXPECT_TRUE(stranger->is_closed_within(60'000));
  EXPECT_FALSE(needed->is_closed_within(0));
}

TEST_F(AcceptorTest, AllStrangersTogetherMaySendSoMuch) {
  AcceptorLimits limits;
  limits.bytes_a_second = 0;
  limits.all_bytes = 256 << 10;
  listen(limits);
  const auto little = client();
  ASSERT_TRUE(little->send(8 << 10));
  std::vector<std::unique_ptr<Client>> many;
  for (int i = 0; i < 6; ++i) {
    many.push_back(client());
    (void)many.back()->send(64 << 10);
  }
  int closed = 0;
  while (closed < 2) {
    closed = 0;
    for (const auto& one : many) closed += one->is_closed_within(1) ? 1 : 0;
  }
  EXPECT_FALSE(little->is_closed_within(0)) << "who sent most goes";
}

TEST_F(AcceptorTest, AConnectionThatEndsIsForgotten) {
  listen({});
  const size_t before = open_descriptors();
  auto one = client();
  one->close();
  {
    const std::lock_guard lock(mutex_);
    (void)::shutdown(taken_[0].get(), SHUT_RDWR);  // gRPC does this when it has read the end
    taken_[0].reset();
  }
  while (open_descriptors() > before) std::this_thread::yield();  // the acceptor's own has gone
}

// gRPC's own listener was once deaf for good after that.
TEST_F(AcceptorTest, AcceptsAgainWhenDescriptorsAreBack) {
  listen({});
  Client early(port_);
  ASSERT_TRUE(wait_for(1));
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  std::vector<UniqueFd> all;
  rlimit few = before;
  few.rlim_cur = 64;
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
  UniqueFd waiting(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  for (;;) {
    UniqueFd one(::dup(0));
    if (!one.is_open()) break;
    all.push_back(std::move(one));
  }
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(port_);
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ASSERT_EQ(::connect(waiting.get(), reinterpret_cast<const sockaddr*>(&to), sizeof(to)), 0);
  std::this_thread::sleep_for(std::chrono::milliseconds(150));  // it has failed to accept by now
  EXPECT_EQ(count(), 1u);
  all.clear();
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_TRUE(wait_for(2));
}

// A launcher tells others of the port before its daemon can serve.
TEST_F(AcceptorTest, ConnectionsWaitInAPortThatIsOpenBeforeThereIsAnAcceptor) {
  Result<Listener> open = listen_on("127.0.0.1", 0);
  ASSERT_TRUE(open.is_ok()) << open.status().message();
  const uint16_t port = open.value().port;
  const Client early(port);
  ASSERT_TRUE(early.is_connected());
  Acceptor acceptor;
  EXPECT_EQ(acceptor.take(std::move(open).value()).value(), port);
  std::promise<void> taken;
  acceptor.start([&](UniqueFd) { taken.set_value(); });
  EXPECT_EQ(taken.get_future().wait_for(std::chrono::seconds(20)), std::future_status::ready);
}

TEST_F(AcceptorTest, SaysWhatIsWrongWithAnAddress) {
  listen({});
  const auto message = [](const std::string& host, uint16_t port) {
    Acceptor acceptor;
    return acceptor.bind(host, port).status().message();
  };
  EXPECT_NE(message("127.0.0.1", port_).find("taken by another program"), std::string::npos);
  EXPECT_NE(message("192.0.2.1", 0).find("--listen-host"), std::string::npos);
  EXPECT_NE(message("no such host", 0).find("--listen-host"), std::string::npos);
}

TEST(Machine, OfAnIpv6AddressItIsTheNetwork) {
  EXPECT_EQ(machine_of("ipv4:10.0.0.1:1"), machine_of("ipv4:10.0.0.1:2"));
  EXPECT_NE(machine_of("ipv4:10.0.0.1:1"), machine_of("ipv4:10.0.0.2:1"));
  EXPECT_EQ(machine_of("ipv6:%5B2001:db8::1%5D:1"), machine_of("ipv6:%5B2001:db8::2%5D:9"));
  EXPECT_NE(machine_of("ipv6:%5B2001:db8::1%5D:1"), machine_of("ipv6:%5B2001:db9::1%5D:1"));
  EXPECT_EQ(machine_of("ipv6:%5Bfe80::1%25eth0%5D:1"), machine_of("ipv6:%5Bfe80::2%5D:1"));
  EXPECT_EQ(machine_of("unix:"), "unix:");
}

}  // namespace
}  // namespace rueda::service
