// Sets up a TCP transport, and strangers who dial it by hand.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/write.hpp>
#include <gtest/gtest.h>
#include <spdlog/sinks/base_sink.h>
#include <spdlog/spdlog.h>

#include "daemon/transport/tcp/address.h"
#include "daemon/transport/tcp/hello.h"
#include "daemon/transport/tcp/tcp_transport.h"

namespace rueda::transport::testing {

namespace asio = boost::asio;
using boost::system::error_code;

struct Reader : ReceiveEvents {
  void on_frame(const FrameHeader& header, std::span<std::byte>) override {
    slots.push_back(header.slot);
  }
  void on_closed(const Status& status) override { closed = status; }
  std::vector<uint32_t> slots;
  std::optional<Status> closed;
};

struct Writer : SendEvents {
  void on_sent(uint64_t) override {}
  void on_slot_free(uint32_t slot) override { freed.push_back(slot); }
  void on_closed(const Status& status) override { closed = status; }
  std::vector<uint32_t> freed;
  std::optional<Status> closed;
};

// Collects what is logged while it lives.
class LogCapture : public spdlog::sinks::base_sink<std::mutex> {
 public:
  static std::shared_ptr<LogCapture> install() {
    auto capture = std::make_shared<LogCapture>();
    spdlog::set_default_logger(std::make_shared<spdlog::logger>("test", capture));
    return capture;
  }
  int count(const std::string& text) const {
    int lines = 0;
    for (const std::string& line : lines_) lines += line.find(text) != std::string::npos ? 1 : 0;
    return lines;
  }

 protected:
  void sink_it_(const spdlog::details::log_msg& message) override {
    lines_.emplace_back(message.payload.begin(), message.payload.end());
  }
  void flush_() override {}

 private:
  std::vector<std::string> lines_;
};

class TcpTransportTest : public ::testing::Test {
 protected:
  static constexpr int64_t kHelloTimeoutMs = 50;

  void SetUp() override {
    transport_ = make_tcp_transport(io_, {.hello_timeout_ms = kHelloTimeoutMs});
    address_ = transport_->listen("127.0.0.1:0").value();
    key_ = transport_->register_region(memory_).value();
    token_.fill(std::byte{9});
  }

  bool run_until(const std::function<bool()>& done) {
    const auto give_up = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (!done()) {
      if (std::chrono::steady_clock::now() > give_up) return false;
      io_.run_one_for(std::chrono::milliseconds(100));
    }
    return true;
  }

  // Returns a stranger's own end, which is blocking: the kernel completes the connection without
  // our loop.
  asio::ip::tcp::socket dial() {
    asio::ip::tcp::socket socket(io_);
    socket.connect(*tcp::numeric_endpoint(tcp::parse_host_port(address_).value()));
    socket.set_option(asio::ip::tcp::no_delay(true));
    return socket;
  }

  void expect_channel() {
    AcceptOptions options;
    options.id = id_;
    options.token = token_;
    options.slots = {memory_.data(), 2, 64, key_};
    options.timeout_ms = 20'000;
    options.events = &reader_;
    transport_->expect(options, [this](Result<std::unique_ptr<ReceiveChannel>> result) {
      ASSERT_TRUE(result.is_ok()) << result.status().to_string();
      channel_ = std::move(result).value();
    });
  }

  tcp::Hello hello() const {
    tcp::Hello message;
    message.id = id_;
    message.slot_count = 2;
    message.slot_bytes = 64;
    sign(message, token_);
    return message;
  }

  // Opens the channel by hand, as a peer of another make would.
  asio::ip::tcp::socket open_by_hand() {
    expect_channel();
    asio::ip::tcp::socket socket = dial();
    const tcp::Hello message = hello();
    asio::write(socket, asio::buffer(&message, sizeof(message)));
    await_welcome(socket, message);
    return socket;
  }

  void await_welcome(asio::ip::tcp::socket& socket, const tcp::Hello& message) {
    const tcp::HelloReply reply = await_reply(socket);
    EXPECT_TRUE(is_authentic(reply, message, token_));
    EXPECT_EQ(reply.answer, tcp::HelloAnswer::kWelcome);
    tcp::HelloConfirm confirm;
    sign(confirm, message, reply, token_);
    asio::write(socket, asio::buffer(&confirm, sizeof(confirm)));
    EXPECT_TRUE(run_until([this] { return channel_ != nullptr; }));
    keys_ = make_keys(message, reply, token_);
  }
  tcp::HelloReply await_reply(asio::ip::tcp::socket& socket) {
    tcp::HelloReply reply;
    EXPECT_TRUE(run_until([&] { return socket.available() >= sizeof(reply); }));
    asio::read(socket, asio::buffer(&reply, sizeof(reply)));
    EXPECT_TRUE(check_reply(reply).is_ok());
    return reply;
  }

  // Lets what has arrived on loopback be read.
  void take_what_has_come() {
    while (io_.poll() != 0) {
    }
  }

  bool run_until_rejected(uint64_t count) {
    return run_until([this, count] { return transport_->rejected() >= count; });
  }

  static bool is_hung_up(asio::ip::tcp::socket& socket) {
    char byte = 0;
    error_code error;
    asio::read(socket, asio::buffer(&byte, 1), error);
    return static_cast<bool>(error);
  }

  std::shared_ptr<LogCapture> log_ = LogCapture::install();
  asio::io_context io_{1};
  asio::executor_work_guard<asio::io_context::executor_type> work_ = asio::make_work_guard(io_);
  const ChannelId id_{JobKey(7), 3, 0, 1, 0};
  JobToken token_;
  std::vector<std::byte> memory_ = std::vector<std::byte>(128);
  std::unique_ptr<Transport> transport_;
  std::string address_;
  RegionKey key_;
  Reader reader_;
  std::unique_ptr<ReceiveChannel> channel_;
  ChannelKeys keys_;  // Of the channel that was opened by hand.
};

}  // namespace rueda::transport::testing
