#include "daemon/engine/channels/link_measurement.h"

#include <algorithm>
#include <deque>
#include <optional>

#include <boost/asio/executor_work_guard.hpp>
#include <gtest/gtest.h>

#include "daemon/transport/tcp/tcp_transport.h"
#include "tests/transport/mem/mem_transport.h"

namespace rueda::engine {
namespace {

// A sink that gives slots back at a pace of its own, as a link of that pace would.
class PacedReader final : public transport::ReceiveEvents {
 public:
  PacedReader(boost::asio::io_context& io, transport::Transport& transport,
              const LinkMeasurement& measurement, double bytes_per_second)
      : memory_(size_t{32} * (128 << 10)), timer_(io), bytes_per_second_(bytes_per_second) {
    transport::AcceptOptions options;
    options.id = measurement.channel();
    options.token = measurement.token;
    options.slots = {memory_.data(), 32, 128 << 10, transport.register_region(memory_).value()};
    options.timeout_ms = 5'000;
    options.events = this;
    transport.expect(options, [this](auto channel) { channel_ = std::move(channel).value(); });
  }

  bool is_closed() const { return is_closed_; }

  // Returns the fastest pace at which it gave slots back, over any time that is long enough to be
  // measured.
  double fastest() const {
    constexpr double kLongEnoughS = 0.15;
    double fastest = 0;
    for (size_t i = 0; i < released_at_s_.size(); ++i) {
      for (size_t j = i + 1; j < released_at_s_.size(); ++j) {
        const double seconds = released_at_s_[j] - released_at_s_[i];
        if (seconds < kLongEnoughS) continue;
        fastest = std::max(fastest, static_cast<double>((j - i) * (128 << 10)) / seconds);
      }
    }
    return fastest;
  }

 private:
  uint64_t released_bytes() const { return released_ * (128 << 10); }

  void on_frame(const transport::FrameHeader& header, std::span<std::byte>) override {
    held_.push_back(header.slot);
    if (bytes_per_second_ == 0 || began_s_ > 0) return;
    began_s_ = steady_now_s();
    tick();
  }
  void on_closed(const Status&) override {
    is_closed_ = true;
    timer_.cancel();
  }

  void tick() {
    timer_.expires_after(std::chrono::milliseconds(2));
    timer_.async_wait([this](const boost::system::error_code& error) {
      if (error) return;
      const auto due = bytes_per_second_ * (steady_now_s() - began_s_);
      while (!held_.empty() && static_cast<double>(released_bytes()) < due) {
        channel_->release(held_.front());
        held_.pop_front();
        ++released_;
        released_at_s_.push_back(steady_now_s());
      }
      tick();
    });
  }

  std::vector<std::byte> memory_;
  boost::asio::steady_timer timer_;
  const double bytes_per_second_;
  std::unique_ptr<transport::ReceiveChannel> channel_;
  std::deque<uint32_t> held_;
  double began_s_ = 0;
  uint64_t released_ = 0;
  std::vector<double> released_at_s_;
  bool is_closed_ = false;
};

class LinkMeasurementTest : public ::testing::TestWithParam<const char*> {
 protected:
  LinkMeasurementTest() {
    const auto network = transport::make_mem_network();
    const bool is_mem = std::string(GetParam()) == "mem";
    for (auto* transport : {&from_, &to_}) {
      *transport =
          is_mem ? transport::make_mem_transport(io_, network) : transport::make_tcp_transport(io_);
    }
    address_ = to_->listen(is_mem ? "to:1" : "127.0.0.1:0").value();
    measurement_.token.fill(std::byte{7});
  }

  void start_source() {
    source_ = std::make_unique<LinkSource>(io_, *from_, measurement_, address_,
                                           [this](Result<double> result) {
                                             source_.reset();
                                             result_ = std::move(result);
                                           });
  }
  void start_sink() {
    sink_ = std::make_unique<LinkSink>(io_, *to_, measurement_, [this] { sink_.reset(); });
  }
  bool run_until(const std::function<bool()>& done) {
    const double give_up = steady_now_s() + 20;
    while (!done() && steady_now_s() < give_up) io_.run_one_for(std::chrono::milliseconds(20));
    return done();
  }

  boost::asio::io_context io_{1};
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> work_ =
      boost::asio::make_work_guard(io_);
  std::unique_ptr<transport::Transport> from_;
  std::unique_ptr<transport::Transport> to_;
  std::string address_;
  LinkMeasurement measurement_{99, 3, {}};
  std::unique_ptr<LinkSource> source_;
  std::unique_ptr<LinkSink> sink_;
  std::optional<Result<double>> result_;
};

INSTANTIATE_TEST_SUITE_P(Transports, LinkMeasurementTest, ::testing::Values("mem", "tcp"),
                         [](const auto& which) { return std::string(which.param); });

TEST_P(LinkMeasurementTest, EndsSoonAndLeavesNothing) {
  start_sink();
  EXPECT_FALSE(sink_->is_connected());
  start_source();
  ASSERT_TRUE(run_until([&] { return sink_->is_connected(); }));
  const double began_s = steady_now_s();
  ASSERT_TRUE(run_until([&] { return result_.has_value(); }));
  ASSERT_TRUE(result_->is_ok()) << result_->status().message();
  EXPECT_GT(result_->value(), 1e6);
  EXPECT_GT(steady_now_s() - began_s, 0.25) << "too short to say anything";
  EXPECT_TRUE(run_until([&] { return sink_ == nullptr; })) << "the sink hears that it is over";
}

// At the beginning all slots are free, whatever the pace, and they must not count.
TEST_P(LinkMeasurementTest, SaysThePaceOfTheReader) {
  for (const double pace : {5e6, 100e6}) {
    PacedReader reader(io_, *to_, measurement_, pace);
    start_source();
    ASSERT_TRUE(run_until([&] { return result_.has_value(); }));
    ASSERT_TRUE(result_->is_ok()) << result_->status().message();
    EXPECT_GT(result_->value(), 0.3 * pace);
    EXPECT_LT(result_->value(), 1.3 * reader.fastest()) << "more than came";
    result_.reset();
    ++measurement_.pair;
    ASSERT_TRUE(run_until([&] { return reader.is_closed(); }));
  }
}

// The deadline allows two or three frames in all: far fewer than the measurement wants.
TEST_P(LinkMeasurementTest, ASlowLinkIsMeasuredUntilTheDeadline) {
  PacedReader reader(io_, *to_, measurement_, 1e5);
  start_source();
  const double began_s = steady_now_s();
  ASSERT_TRUE(run_until([&] { return result_.has_value(); }));
  ASSERT_TRUE(result_->is_ok()) << result_->status().message();
  EXPECT_NEAR(result_->value(), 1e5, 5e4);
  EXPECT_GT(steady_now_s() - began_s, 2.9);
}

TEST_P(LinkMeasurementTest, WhatIsNeverGivenBackIsAnError) {
  PacedReader reader(io_, *to_, measurement_, 0);
  start_source();
  ASSERT_TRUE(run_until([&] { return result_.has_value(); }));
  EXPECT_EQ(result_->status().code(), Code::kTimeout);
  EXPECT_EQ(result_->status().message(), "nothing came through in 3000 ms");
}

TEST_P(LinkMeasurementTest, NobodyWhoExpectsItIsAnError) {
  start_source();
  ASSERT_TRUE(run_until([&] { return result_.has_value(); }));
  EXPECT_EQ(result_->status().code(), Code::kTimeout) << result_->status().message();
}

TEST_P(LinkMeasurementTest, AnotherTokenIsAnError) {
  start_sink();
  measurement_.token.fill(std::byte{8});
  start_source();
  ASSERT_TRUE(run_until([&] { return result_.has_value(); }));
  EXPECT_FALSE(result_->is_ok());
}

TEST_P(LinkMeasurementTest, EitherEndMayGoAtAnyTime) {
  start_sink();
  start_source();
  source_.reset();
  sink_.reset();
  ++measurement_.pair;  // frames of the last measurement may still arrive
  start_sink();
  start_source();
  const double under_way_s = steady_now_s() + 0.05;
  ASSERT_TRUE(run_until([&] { return sink_->is_connected() && steady_now_s() > under_way_s; }));
  sink_.reset();
  ASSERT_TRUE(run_until([&] { return result_.has_value(); }));
  EXPECT_EQ(result_->status().code(), Code::kNodeLost) << result_->status().message();
}

}  // namespace
}  // namespace rueda::engine
