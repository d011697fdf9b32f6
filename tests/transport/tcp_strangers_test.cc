// Tests many strangers at the port, and what is left for neighbours.
#include <optional>
#include <string>
#include <vector>

#include <boost/asio/ip/tcp.hpp>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include "daemon/transport/tcp/address.h"
#include "daemon/transport/tcp/hello.h"
#include "tests/transport/tcp_fixture.h"

namespace rueda::transport {
namespace {

namespace asio = boost::asio;

class TcpStrangers : public testing::TcpTransportTest {};

TEST_F(TcpStrangers, AFloodOfStrangersIsBoundedAndDoesNotFloodTheLog) {
  transport_ = make_tcp_transport(io_, {.hello_timeout_ms = 20'000});
  address_ = transport_->listen("127.0.0.1:0").value();
  std::vector<asio::ip::tcp::socket> strangers;
  for (int i = 0; i < 100; ++i) strangers.push_back(dial());
  ASSERT_TRUE(run_until_rejected(36));
  io_.poll();
  EXPECT_EQ(transport_->rejected(), 36u);
  EXPECT_GE(log_->count("closed a connection"), 1);
  EXPECT_LT(log_->count("closed a connection"), 36);
  transport_->stop();
  for (asio::ip::tcp::socket& stranger : strangers) EXPECT_TRUE(is_hung_up(stranger));
}

// Whatever a stranger costs is paid by the loop that reduces.
TEST_F(TcpStrangers, StrangersComeNoFasterThanTheyMayAndANeighbourGetsInBehindThem) {
  transport_ = make_tcp_transport(io_, {.hello_timeout_ms = 20'000});
  key_ = transport_->register_region(memory_).value();
  const auto begin = std::chrono::steady_clock::now();
  address_ = transport_->listen("127.0.0.1:0").value();
  std::vector<asio::ip::tcp::socket> strangers;
  for (int i = 0; i < 700; ++i) strangers.push_back(dial());
  constexpr uint64_t kRoom = 64;
  for (const uint64_t wanted : {150u, 250u, 350u, 450u}) {
    ASSERT_TRUE(run_until_rejected(wanted));
    const uint64_t came = transport_->rejected() + kRoom;
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - begin;
    EXPECT_LE(came, 256 + static_cast<uint64_t>(elapsed.count() * 400) + 1);
  }
  asio::ip::tcp::socket neighbour = open_by_hand();
  EXPECT_NE(channel_, nullptr);
  EXPECT_GE(transport_->rejected(), 700 - kRoom);
}

TEST_F(TcpStrangers, ANeighbourGetsInBesideAFloodOfIdleConnections) {
  transport_ = make_tcp_transport(io_, {.hello_timeout_ms = 20'000});
  key_ = transport_->register_region(memory_).value();
  address_ = transport_->listen("127.0.0.1:0").value();
  std::vector<asio::ip::tcp::socket> strangers;
  for (int i = 0; i < 100; ++i) strangers.push_back(dial());
  ASSERT_TRUE(run_until_rejected(36));
  asio::ip::tcp::socket neighbour = open_by_hand();
  EXPECT_NE(channel_, nullptr);
}

TEST_F(TcpStrangers, AnEarlyNeighbourIsNotTurnedOutByAFloodOfIdleConnections) {
  transport_ = make_tcp_transport(io_, {.hello_timeout_ms = 20'000});
  key_ = transport_->register_region(memory_).value();
  address_ = transport_->listen("127.0.0.1:0").value();
  asio::ip::tcp::socket neighbour = dial();
  const tcp::Hello message = hello();
  asio::write(neighbour, asio::buffer(&message, sizeof(message)));
  take_what_has_come();
  std::vector<asio::ip::tcp::socket> strangers;
  for (int i = 0; i < 100; ++i) strangers.push_back(dial());
  ASSERT_TRUE(run_until_rejected(37));
  expect_channel();
  await_welcome(neighbour, message);
}

TEST_F(TcpStrangers, ASecondExpectationOfAnIdIsRefusedAndTheFirstIsServed) {
  expect_channel();
  AcceptOptions options;
  options.id = id_;
  options.slots = {memory_.data(), 2, 64, key_};
  options.timeout_ms = 20'000;
  options.events = &reader_;
  std::optional<Status> second;
  transport_->expect(
      options, [&](Result<std::unique_ptr<ReceiveChannel>> result) { second = result.status(); });
  asio::ip::tcp::socket peer = dial();
  const tcp::Hello message = hello();
  asio::write(peer, asio::buffer(&message, sizeof(message)));
  await_welcome(peer, message);
  ASSERT_TRUE(second);
  EXPECT_EQ(second->code(), Code::kUnavailable);
  EXPECT_NE(second->message().find("awaited or opened already"), std::string::npos);
}

TEST_F(TcpStrangers, AStrangersDescriptorIsTakenWhenNoneIsLeft) {
  asio::ip::tcp::socket stranger = dial();
  take_what_has_come();
  asio::ip::tcp::socket neighbour(io_, asio::ip::tcp::v4());
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const int first_free = ::dup(neighbour.native_handle());
  ASSERT_GT(first_free, 0);
  ::close(first_free);
  rlimit none_left = before;
  none_left.rlim_cur = static_cast<rlim_t>(first_free);
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none_left), 0);
  neighbour.connect(*tcp::numeric_endpoint(tcp::parse_host_port(address_).value()));
  const bool is_taken =
      run_until([&] { return log_->count("no descriptor is left for the next one") > 0; });
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_TRUE(is_taken);
  EXPECT_EQ(log_->count("cannot accept connections"), 0);
}

TEST_F(TcpStrangers, RunningOutOfDescriptorsIsLoggedAndSurvived) {
  asio::ip::tcp::socket stranger(io_, asio::ip::tcp::v4());
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const int first_free = ::dup(stranger.native_handle());
  ASSERT_GT(first_free, 0);
  ::close(first_free);
  rlimit none_left = before;
  none_left.rlim_cur = static_cast<rlim_t>(first_free);
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none_left), 0);
  stranger.connect(*tcp::numeric_endpoint(tcp::parse_host_port(address_).value()));
  const bool is_logged = run_until([&] { return log_->count("cannot accept connections") > 0; });
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_TRUE(is_logged);
  ASSERT_TRUE(run_until_rejected(1)) << "the connection was not accepted later";
  EXPECT_EQ(log_->count("cannot accept connections"), 1);
}

TEST_F(TcpStrangers, EarlyHellosCountAmongTheConnectionsThatAreBounded) {
  transport_ = make_tcp_transport(io_, {.hello_timeout_ms = 20'000});
  address_ = transport_->listen("127.0.0.1:0").value();
  std::vector<asio::ip::tcp::socket> strangers;
  for (int i = 0; i < 65; ++i) {
    strangers.push_back(dial());
    const tcp::Hello message = hello();
    asio::write(strangers.back(), asio::buffer(&message, sizeof(message)));
  }
  ASSERT_TRUE(run_until_rejected(1));
  transport_->stop();
  for (asio::ip::tcp::socket& stranger : strangers) EXPECT_TRUE(is_hung_up(stranger));
}

}  // namespace
}  // namespace rueda::transport
