// Tests the client's side of calls against a daemon that the test plays, and against a server on a
// thread of its own.
#include "daemon/local/client.h"

#include <condition_variable>
#include <functional>
#include <future>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <gmock/gmock.h>
#include <sys/socket.h>

#include "daemon/local/server.h"

namespace rueda::local {
namespace {

using security::Action;
using std::chrono::milliseconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr milliseconds kLong{60'000};

std::pair<UniqueFd, UniqueFd> socket_pair() {
  int ends[2];
  EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
  return {UniqueFd(ends[0]), UniqueFd(ends[1])};
}

// Asks, and is answered by these bytes and the end of the connection.
CallStatus ask_and_hear(const std::string& answer, std::string& reply) {
  auto [daemon, client] = socket_pair();
  EXPECT_EQ(::send(daemon.get(), answer.data(), answer.size(), 0),
            static_cast<ssize_t>(answer.size()));
  EXPECT_EQ(::shutdown(daemon.get(), SHUT_WR), 0);
  return ask_bytes(client.get(), Method::kDescribe, "request", reply, kLong);
}

TEST(Ask, AnAnswerIsAMessageAndAStatus) {
  std::string reply;
  const CallStatus good =
      ask_and_hear(make_frame(Kind::kMessage, 0, "reply") + make_frame(CallStatus{}), reply);
  EXPECT_TRUE(good.is_ok()) << good.text;
  EXPECT_EQ(reply, "reply");
  const CallStatus bad = ask_and_hear(make_frame(CallStatus{CallCode::kNotFound, "none"}), reply);
  EXPECT_EQ(bad.code, CallCode::kNotFound);
  EXPECT_EQ(bad.text, "none");
}

TEST(Ask, WhatIsNoAnswerIsUnavailable) {
  std::string reply;
  const std::string message = make_frame(Kind::kMessage, 0, "reply");
  std::string too_long = message;
  too_long[11] = '\x7f';
  for (const std::string& answer :
       {std::string(), message, message.substr(0, 18), message + message, make_frame(CallStatus{}),
        make_frame(Method::kDescribe, "x"), std::string("HTTP/2 400 Bad Request"), too_long}) {
    const CallStatus status = ask_and_hear(answer, reply);
    EXPECT_EQ(status.code, CallCode::kUnavailable) << answer;
    EXPECT_FALSE(status.text.empty());
  }
}

TEST(Ask, AnotherVersionIsNamed) {
  std::string answer = make_frame(Kind::kMessage, 0, "reply");
  answer[4] = 2;
  std::string reply;
  const CallStatus status = ask_and_hear(answer, reply);
  EXPECT_EQ(status.code, CallCode::kFailedPrecondition);
  EXPECT_THAT(status.text, HasSubstr("the daemon speaks version 2 "));
  EXPECT_THAT(status.text, HasSubstr("version 1: upgrade the older of the two"));
}

TEST(Ask, ADaemonThatStandsStillIsGivenUp) {
  auto [daemon, client] = socket_pair();
  std::string reply;
  for (const size_t bytes : {size_t{10}, size_t{10} << 20}) {
    EXPECT_EQ(
        ask_bytes(client.get(), Method::kRun, std::string(bytes, 'x'), reply, milliseconds(30))
            .code,
        CallCode::kDeadlineExceeded);
  }
}

TEST(Ask, ARefusalIsHeardBeforeTheRequestIsTaken) {
  auto [daemon, client] = socket_pair();
  const std::string refusal = make_frame(CallStatus{CallCode::kResourceExhausted, "too long"});
  ASSERT_EQ(::send(daemon.get(), refusal.data(), refusal.size(), 0),
            static_cast<ssize_t>(refusal.size()));
  std::string reply;
  const CallStatus status =
      ask_bytes(client.get(), Method::kRun, std::string(10 << 20, 'x'), reply, kLong);
  EXPECT_EQ(status.code, CallCode::kResourceExhausted);
  EXPECT_EQ(status.text, "too long");
}

// A server on a thread of its own, and what clients hear of it.
class StreamTest : public ::testing::Test {
 protected:
  class Echo final : public Receiver {
   public:
    explicit Echo(std::shared_ptr<Call> call) : call_(std::move(call)) {}
    void on_message(const std::string& message) override {
      if (message == "fail") return call_->finish({CallCode::kInvalidArgument, "as you like"});
      call_->send(message);
      call_->next();
    }
    void on_end() override { call_->finish({}); }

   private:
    const std::shared_ptr<Call> call_;
  };

  StreamTest() {
    server_->serve(Action::kRunJob,
                   {false, [](const std::shared_ptr<Call>& call, const std::string& request) {
                      const auto echo = std::make_shared<Echo>(call);
                      call->set_receiver(echo);
                      echo->on_message(request);
                    }});
    server_->serve(Action::kDescribe,
                   {false, [](const std::shared_ptr<Call>& call, const std::string& request) {
                      call->send(request);
                      call->finish({});
                    }});
    thread_ = std::thread([this] { loop_.run(); });
  }
  ~StreamTest() override {
    std::promise<void> stopped;
    server_->stop([&] { stopped.set_value(); });
    stopped.get_future().wait();
    work_.reset();
    thread_.join();
  }
  UniqueFd connect() {
    auto [daemon, client] = socket_pair();
    security::Caller caller;
    caller.kind = security::Caller::Kind::kOperator;
    server_->adopt(std::move(daemon), caller);
    return std::move(client);
  }
  std::unique_ptr<Stream> open(UniqueFd connection, const std::string& request) {
    auto stream = std::make_unique<Stream>(std::move(connection), Method::kRun, request,
                                           Stream::Events{[this](const std::string& message) {
                                                            const std::lock_guard lock(mutex_);
                                                            heard_.push_back(message);
                                                            changed_.notify_all();
                                                          },
                                                          [this](const CallStatus& status) {
                                                            const std::lock_guard lock(mutex_);
                                                            EXPECT_FALSE(end_) << "it is told once";
                                                            end_ = status;
                                                            changed_.notify_all();
                                                          }});
    stream->start();
    return stream;
  }
  void wait_until(const std::function<bool()>& condition) {
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(changed_.wait_for(lock, kLong, condition));
  }

  boost::asio::io_context loop_{1};
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> work_ =
      boost::asio::make_work_guard(loop_);
  std::optional<Server> server_{std::in_place, loop_};
  std::thread thread_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::string> heard_;
  std::optional<CallStatus> end_;
};

TEST_F(StreamTest, MessagesGoBothWays) {
  const auto stream = open(connect(), "one");
  stream->send("two");
  stream->send(std::string(60'000, 'x'));
  stream->finish();
  stream->send("not any more");
  wait_until([&] { return end_.has_value(); });
  EXPECT_TRUE(end_->is_ok()) << end_->text;
  EXPECT_THAT(heard_, ElementsAre("one", "two", std::string(60'000, 'x')));
}

TEST_F(StreamTest, ThousandsOfMessagesComeInOrder) {
  const auto stream = open(connect(), "0");
  for (int i = 1; i < 3000; ++i) stream->send(std::to_string(i));
  wait_until([&] { return heard_.size() == 3000; });
  for (int i = 0; i < 3000; ++i) EXPECT_EQ(heard_[static_cast<size_t>(i)], std::to_string(i));
}

TEST_F(StreamTest, TheDaemonMayEndIt) {
  const auto stream = open(connect(), "one");
  stream->send("fail");
  wait_until([&] { return end_.has_value(); });
  EXPECT_EQ(end_->code, CallCode::kInvalidArgument);
  EXPECT_EQ(end_->text, "as you like");
}

TEST_F(StreamTest, ItCanBeBrokenOff) {
  auto stream = open(connect(), "one");
  wait_until([&] { return heard_.size() == 1; });
  stream.reset();
  ASSERT_TRUE(end_.has_value());
  EXPECT_EQ(end_->code, CallCode::kCancelled);
}

TEST_F(StreamTest, TheEndOfTheConnectionIsTold) {
  auto [daemon, client] = socket_pair();
  const auto stream = open(std::move(client), "one");
  daemon.reset();
  wait_until([&] { return end_.has_value(); });
  EXPECT_EQ(end_->code, CallCode::kUnavailable);
}

TEST_F(StreamTest, ManyThreadsMayAsk) {
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([this, i] {
      const UniqueFd connection = connect();
      for (int k = 0; k < 50; ++k) {
        std::string reply;
        const std::string request = std::to_string(i * 1000 + k);
        EXPECT_TRUE(ask_bytes(connection.get(), Method::kDescribe, request, reply, kLong).is_ok());
        EXPECT_EQ(reply, request);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace rueda::local
