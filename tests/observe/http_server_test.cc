#include "daemon/observe/http_server.h"

#include <atomic>
#include <chrono>
#include <mutex>
#include <stdexcept>
#include <string_view>
#include <thread>
#include <vector>

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

namespace rueda::observe {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

// A plain socket, so that the test can send what a well-behaved client would not. Receiving stops
// after kReceiveTimeoutSeconds, so that a server that is silent fails a test instead of hanging it.
class Client {
 public:
  static constexpr int kReceiveTimeoutSeconds = 60;

  explicit Client(const std::string& address) : fd_(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(static_cast<uint16_t>(std::stoi(address.substr(address.rfind(':') + 1))));
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const timeval timeout{kReceiveTimeoutSeconds, 0};
    setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout);
    is_connected_ = connect(fd_, reinterpret_cast<const sockaddr*>(&to), sizeof to) == 0;
  }
  ~Client() { close(fd_); }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  bool is_connected() const { return is_connected_; }

  void send(std::string_view text) {
    while (!text.empty()) {
      const ssize_t sent = ::send(fd_, text.data(), text.size(), MSG_NOSIGNAL);
      if (sent <= 0) return;  // the server may close early, by design
      text.remove_prefix(static_cast<size_t>(sent));
    }
  }

  void end_sending() { shutdown(fd_, SHUT_WR); }

  // Receives everything until the server closes.
  std::string receive_all() {
    while (receive_some()) {
    }
    return std::exchange(received_, {});
  }

  // Receives one reply with a Content-Length; the connection stays usable.
  std::string receive_reply(bool has_body = true) {
    while (true) {
      const size_t header_end = received_.find("\r\n\r\n");
      if (header_end != std::string::npos) {
        const size_t length_at = received_.find("Content-Length: ");
        const size_t body_bytes =
            has_body && length_at < header_end ? std::stoul(received_.substr(length_at + 16)) : 0;
        const size_t reply_bytes = header_end + 4 + body_bytes;
        if (received_.size() >= reply_bytes) {
          const std::string reply = received_.substr(0, reply_bytes);
          received_.erase(0, reply_bytes);
          return reply;
        }
      }
      if (!receive_some()) return "closed after: " + received_;
    }
  }

 private:
  bool receive_some() {
    char buffer[4096];
    const ssize_t bytes = recv(fd_, buffer, sizeof buffer, 0);
    if (bytes <= 0) return false;
    received_.append(buffer, static_cast<size_t>(bytes));
    return true;
  }

  int fd_;
  bool is_connected_ = false;
  std::string received_;
};

class HttpServerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    server_ = HttpServer::create({.metrics = [] { return std::string("rueda_clients 4\n"); },
                                  .ready = [this] { return is_ready_.load(); },
                                  .ailment = {}});
    Result<std::string> started = server_->start("127.0.0.1:0");
    ASSERT_TRUE(started.is_ok()) << started.status().to_string();
    address_ = started.value();
  }

  std::string ask(const std::string& request) {
    Client client(address_);
    client.send(request);
    client.end_sending();
    return client.receive_all();
  }

  std::string get(const std::string& path) {
    return ask("GET " + path + " HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
  }

  std::atomic<bool> is_ready_{true};
  std::unique_ptr<HttpServer> server_;
  std::string address_;
};

TEST_F(HttpServerTest, ServesMetrics) {
  EXPECT_THAT(address_, AllOf(StartsWith("127.0.0.1:"), Not(EndsWith(":0"))));
  EXPECT_THAT(get("/metrics"),
              AllOf(StartsWith("HTTP/1.1 200 OK\r\n"),
                    HasSubstr("Content-Type: text/plain; version=0.0.4; charset=utf-8\r\n"),
                    EndsWith("\r\n\r\nrueda_clients 4\n")));
  EXPECT_THAT(get("/metrics?x=1"), StartsWith("HTTP/1.1 200 OK\r\n"));
}

// A listener that has once run into the limit of descriptors must not stay deaf.
TEST_F(HttpServerTest, AcceptsAgainWhenDescriptorsAreBack) {
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  Client early(address_);
  early.send("GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n");
  ASSERT_THAT(early.receive_reply(), StartsWith("HTTP/1.1 200 "));
  const int lowest = ::dup(0);
  ASSERT_GE(lowest, 0);
  ::close(lowest);
  const int mine = ::socket(AF_INET, SOCK_STREAM, 0);  // takes the last descriptor
  rlimit none = before;
  none.rlim_cur = static_cast<rlim_t>(lowest) + 1;
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(static_cast<uint16_t>(std::stoi(address_.substr(address_.rfind(':') + 1))));
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ASSERT_EQ(::connect(mine, reinterpret_cast<const sockaddr*>(&to), sizeof to), 0);
  const std::string request = "GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
  ASSERT_EQ(::send(mine, request.data(), request.size(), MSG_NOSIGNAL),
            static_cast<ssize_t>(request.size()));
  pollfd readable{mine, POLLIN, 0};
  // The client gets the place of `early`, which makes room; the test waits for the answer without a
  // deadline of its own.
  EXPECT_EQ(::poll(&readable, 1, 60'000), 1);
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  ::close(mine);
  EXPECT_THAT(get("/healthz"), StartsWith("HTTP/1.1 200 "));
}

TEST_F(HttpServerTest, ReadinessFollowsTheHandlerAndHealthDoesNot) {
  EXPECT_THAT(get("/readyz"), StartsWith("HTTP/1.1 200 "));
  is_ready_ = false;
  EXPECT_THAT(get("/readyz"), StartsWith("HTTP/1.1 503 "));
  EXPECT_THAT(get("/healthz"), StartsWith("HTTP/1.1 200 "));
}

TEST_F(HttpServerTest, UnknownPathIs404AndSaysWhatThereIs) {
  EXPECT_THAT(get("/"), AllOf(StartsWith("HTTP/1.1 404 "), HasSubstr("/metrics")));
  EXPECT_THAT(get("/metricsx"), StartsWith("HTTP/1.1 404 "));
}

TEST_F(HttpServerTest, OtherMethodsAre405) {
  const std::string reply = ask("DELETE /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_THAT(reply, AllOf(StartsWith("HTTP/1.1 405 "), HasSubstr("Allow: GET, HEAD\r\n")));
}

TEST_F(HttpServerTest, PostWithALargeBodyIs405AndClosed) {
  const std::string body(3 << 20, 'x');
  const std::string reply =
      ask("POST /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: " + std::to_string(body.size()) +
          "\r\n\r\n" + body.substr(0, 1000));
  EXPECT_THAT(reply, AllOf(StartsWith("HTTP/1.1 405 "), HasSubstr("Connection: close\r\n")));
}

TEST_F(HttpServerTest, GetWithABodyIs400) {
  EXPECT_THAT(ask("GET /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello"),
              StartsWith("HTTP/1.1 400 "));
}

TEST_F(HttpServerTest, HeadHasTheLengthAndNoBody) {
  Client client(address_);
  client.send("HEAD /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_THAT(client.receive_reply(false),
              AllOf(StartsWith("HTTP/1.1 200 OK\r\n"), HasSubstr("Content-Length: 16\r\n"),
                    EndsWith("\r\n\r\n")));
  client.send("HEAD /nowhere HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
  EXPECT_THAT(client.receive_all(), AllOf(StartsWith("HTTP/1.1 404 "), EndsWith("\r\n\r\n")));
}

TEST_F(HttpServerTest, KeepsAConnectionAndAnswersPipelinedRequestsInOrder) {
  Client client(address_);
  for (int round = 0; round < 3; ++round) {
    client.send("GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n");
    EXPECT_THAT(client.receive_reply(), AllOf(StartsWith("HTTP/1.1 200 "), EndsWith("ok\n")));
  }
  client.send("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\nGET /nowhere HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_THAT(client.receive_reply(), StartsWith("HTTP/1.1 200 "));
  EXPECT_THAT(client.receive_reply(), StartsWith("HTTP/1.1 404 "));
}

TEST_F(HttpServerTest, Http10IsClosedUnlessAskedOtherwise) {
  Client client(address_);
  client.send("GET /healthz HTTP/1.0\r\n\r\n");
  EXPECT_THAT(client.receive_all(), AllOf(StartsWith("HTTP/1.0 200 "), EndsWith("ok\n")));
  Client keeps(address_);
  keeps.send("GET /healthz HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
  EXPECT_THAT(keeps.receive_reply(), HasSubstr("Connection: keep-alive\r\n"));
}

TEST_F(HttpServerTest, GarbageIs400AndHarmless) {
  EXPECT_THAT(ask("hello\r\n\r\n"), StartsWith("HTTP/1.1 400 "));
  EXPECT_THAT(ask(std::string("\x16\x03\x01\0\xa5\x01\0\0\xa1\x03\x03\r\n", 13)),
              StartsWith("HTTP/1.1 400 "));
  EXPECT_THAT(ask("GET /metrics HTTP/9.9\r\n\r\n"), StartsWith("HTTP/1.1 400 "));
  EXPECT_THAT(ask("GET /metrics HT"), StartsWith("HTTP/1.1 400 "));
  EXPECT_EQ(ask(""), "");
  EXPECT_THAT(get("/healthz"), StartsWith("HTTP/1.1 200 "));
}

TEST(HttpServer, WhoIsRefusedIsNamed) {
  std::mutex mutex;
  std::vector<std::string> refused;
  HttpHandlers handlers{.metrics = [] { return std::string("x 1\n"); },
                        .ready = [] { return true; },
                        .refused =
                            [&](const std::string& who, const std::string& why) {
                              const std::lock_guard lock(mutex);
                              refused.push_back(who + ": " + why);
                            },
                        .ailment = {}};
  const auto server = HttpServer::create(std::move(handlers));
  const Result<std::string> address = server->start("127.0.0.1:0");
  ASSERT_TRUE(address.is_ok());
  for (const char* const request : {"hello\r\n\r\n", "GET /metrics HTTP/1.1\r\n\r\n"}) {
    Client client(address.value());
    client.send(request);
    client.end_sending();
    client.receive_all();
  }
  const std::lock_guard lock(mutex);
  ASSERT_EQ(refused.size(), 1u);
  EXPECT_THAT(refused.front(), StartsWith("127.0.0.1: "));
}

TEST_F(HttpServerTest, HeaderPastTheLimitIs431) {
  EXPECT_THAT(ask("GET /metrics HTTP/1.1\r\nX: " + std::string(9000, 'x') + "\r\n\r\n"),
              StartsWith("HTTP/1.1 431 "));
  EXPECT_THAT(ask("GET /metrics HTTP/1.1\r\nX: " + std::string(100'000, 'x')),
              StartsWith("HTTP/1.1 431 "));
}

// 80 sockets of a stranger once made the kubelet restart the daemon.
TEST_F(HttpServerTest, HealthIsAnsweredWhileIdleConnectionsTakeAllPlaces) {
  std::vector<std::unique_ptr<Client>> clients;
  for (int i = 0; i < 200; ++i) {
    clients.push_back(std::make_unique<Client>(address_));
    ASSERT_TRUE(clients.back()->is_connected());
    clients.back()->send(i % 2 == 0 ? "GET /healthz HT"
                                    : "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n");
  }
  EXPECT_THAT(get("/healthz"), StartsWith("HTTP/1.1 200 "));
  clients[0]->end_sending();
  EXPECT_EQ(clients[0]->receive_all(), "") << "the oldest has gone";
  EXPECT_THAT(clients[199]->receive_reply(), StartsWith("HTTP/1.1 200 ")) << "the youngest has not";
}

TEST(HttpServer, KeepAliveDoesNotKeepAConnectionForEver) {
  const auto server = HttpServer::create(
      {.metrics = [] { return ""; }, .ready = [] { return true; }, .ailment = {}},
      {.life = std::chrono::milliseconds(50)});
  const Result<std::string> started = server->start("127.0.0.1:0");
  ASSERT_TRUE(started.is_ok());
  Client client(started.value());
  std::string reply;
  do {
    client.send("GET /readyz HTTP/1.1\r\nHost: x\r\n\r\n");
    reply = client.receive_reply();
    ASSERT_THAT(reply, StartsWith("HTTP/1.1 200 "));
  } while (reply.find("Connection: close") == std::string::npos);
  client.end_sending();
  EXPECT_EQ(client.receive_all(), "");
}

TEST(HttpServer, HealthSaysWhatAilsTheDaemon) {
  std::atomic<bool> ails{false};
  const auto server = HttpServer::create(
      {.metrics = [] { return ""; },
       .ready = [] { return true; },
       .ailment = [&] { return ails ? "the control loop has not turned for 12 s" : ""; }});
  const Result<std::string> started = server->start("127.0.0.1:0");
  ASSERT_TRUE(started.is_ok());
  Client client(started.value());
  client.send("GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_THAT(client.receive_reply(), StartsWith("HTTP/1.1 200 "));
  ails = true;
  client.send("GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_THAT(client.receive_reply(),
              AllOf(StartsWith("HTTP/1.1 503 "), HasSubstr("has not turned for 12 s")));
}

TEST(HttpServer, ASilentConnectionIsClosedAtTheDeadline) {
  const auto server = HttpServer::create(
      {.metrics = [] { return ""; }, .ready = [] { return true; }, .ailment = {}},
      {.max_connections = 64, .deadline = std::chrono::milliseconds(50)});
  Result<std::string> started = server->start("127.0.0.1:0");
  ASSERT_TRUE(started.is_ok());
  Client says_nothing(started.value());
  EXPECT_EQ(says_nothing.receive_all(), "");
  Client stops_halfway(started.value());
  stops_halfway.send("GET /metr");
  EXPECT_EQ(stops_halfway.receive_all(), "");
}

TEST_F(HttpServerTest, ConcurrentScrapes) {
  constexpr int kThreads = 8;
  std::atomic<int> good{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&] {
      for (int round = 0; round < 20; ++round) {
        if (get("/metrics").ends_with("rueda_clients 4\n")) ++good;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(good, kThreads * 20);
}

// Making metrics occupies the loops of the daemon, and anybody may ask for them.
TEST(HttpServer, MetricsAreMadeATenthOfTheTimeHoweverManyAsk) {
  constexpr auto kMaking = std::chrono::milliseconds(20);
  std::atomic<int> made{0};
  const auto server = HttpServer::create({.metrics =
                                              [&] {
                                                std::this_thread::sleep_for(kMaking);
                                                return std::to_string(++made) + '\n';
                                              },
                                          .ready = [] { return true; },
                                          .ailment = {}});
  const std::string address = server->start("127.0.0.1:0").value();
  const auto began = std::chrono::steady_clock::now();
  std::atomic<int> too_old{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&] {
      Client client(address);
      for (int round = 0; round < 4; ++round) {
        const int before = made;
        client.send("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
        const std::string reply = client.receive_reply();
        if (std::stoi(reply.substr(reply.find("\r\n\r\n") + 4)) <= before) ++too_old;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  const auto took = std::chrono::steady_clock::now() - began;
  EXPECT_LE(made, 2 + took / (10 * kMaking)) << "32 were asked for";
  EXPECT_EQ(too_old, 0) << "who asks is to hear what has happened before";
}

TEST_F(HttpServerTest, APortTakenIsAnErrorThatNamesIt) {
  const std::string port = address_.substr(address_.rfind(':') + 1);
  const auto second = HttpServer::create(
      {.metrics = [] { return ""; }, .ready = [] { return true; }, .ailment = {}});
  const Result<std::string> started = second->start(address_);
  ASSERT_FALSE(started.is_ok());
  EXPECT_EQ(started.status().code(), Code::kResourceExhausted);
  EXPECT_THAT(started.status().message(), AllOf(HasSubstr(port), HasSubstr("taken")));
  EXPECT_TRUE(second->start("127.0.0.1:0").is_ok());
}

TEST_F(HttpServerTest, AddressesThatCannotWorkAreErrors) {
  const auto server = HttpServer::create(
      {.metrics = [] { return ""; }, .ready = [] { return true; }, .ailment = {}});
  for (const char* address : {"", "127.0.0.1", "127.0.0.1:", "127.0.0.1:http", "127.0.0.1:65536",
                              "127.0.0.1:-1", "192.0.2.1:0"}) {
    const Result<std::string> started = server->start(address);
    ASSERT_FALSE(started.is_ok()) << address;
    EXPECT_EQ(started.status().code(), Code::kInvalidArgument) << address;
    EXPECT_THAT(started.status().message(), HasSubstr(std::string("'") + address + "'"));
  }
}

TEST_F(HttpServerTest, StopFreesThePortWithConnectionsOpen) {
  Client idle(address_);
  idle.send("GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n");
  ASSERT_THAT(idle.receive_reply(), StartsWith("HTTP/1.1 200 "));
  EXPECT_FALSE(server_->start("127.0.0.1:0").is_ok()) << "it runs already";
  server_->stop();
  server_->stop();
  EXPECT_EQ(idle.receive_all(), "");
  EXPECT_FALSE(Client(address_).is_connected());
  const Result<std::string> again = server_->start(address_);
  ASSERT_TRUE(again.is_ok()) << again.status().to_string();
  EXPECT_EQ(again.value(), address_);
  EXPECT_THAT(get("/healthz"), StartsWith("HTTP/1.1 200 "));
}

TEST(HttpServer, AHandlerThatThrowsIs500) {
  const auto server = HttpServer::create(
      {.metrics = []() -> std::string { throw std::runtime_error("no metrics today"); },
       .ready = [] { return true; },
       .ailment = {}});
  Result<std::string> started = server->start("127.0.0.1:0");
  ASSERT_TRUE(started.is_ok());
  Client client(started.value());
  client.send("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_THAT(client.receive_reply(),
              AllOf(StartsWith("HTTP/1.1 500 "), HasSubstr("no metrics today")));
}

}  // namespace
}  // namespace rueda::observe
