#include "bench/run/scrape.h"

#include <cstdlib>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

namespace rueda::bench {
namespace {

constexpr char kText[] =
    "# HELP rueda_control_messages_total Messages sent\n"
    "# TYPE rueda_control_messages_total counter\n"
    "rueda_control_messages_total{kind=\"order\",peer=\"node1\"} 12\n"
    "rueda_control_messages_total{peer=\"node2\",kind=\"order\"} 30\n"
    "rueda_control_messages_total{kind=\"heartbeat\"} 1000\n"
    "rueda_control_messages_total_other{kind=\"order\"} 5\n";

TEST(ScrapeTest, SumsTheSamplesWithTheLabel) {
  EXPECT_EQ(sum_of_samples(kText, "rueda_control_messages_total", "kind=\"order\""), 42);
  EXPECT_EQ(sum_of_samples(kText, "rueda_control_messages_total", "kind=\"heartbeat\""), 1000);
  EXPECT_EQ(sum_of_samples(kText, "rueda_control_messages_total", "kind=\"lock\""), std::nullopt);
  EXPECT_EQ(sum_of_samples(kText, "rueda_ring_seconds", "kind=\"order\""), std::nullopt);
  EXPECT_EQ(sum_of_samples("", "x", "y"), std::nullopt);
}

TEST(ScrapeTest, AddressesFromTheEnvironment) {
  setenv("RUEDA_HTTP_ADDRESSES", "127.0.0.1:1,,[::1]:2", 1);
  EXPECT_THAT(http_addresses(), testing::ElementsAre("127.0.0.1:1", "[::1]:2"));
  unsetenv("RUEDA_HTTP_ADDRESSES");
  EXPECT_THAT(http_addresses(), testing::IsEmpty());
  EXPECT_EQ(order_messages({}), std::nullopt);
}

// Answers one request on a free port of the loopback with `answer`.
class OneShotServer {
 public:
  explicit OneShotServer(std::string answer) : fd_(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof(address);
    bind(fd_, reinterpret_cast<sockaddr*>(&address), length);
    listen(fd_, 1);
    getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &length);
    address_ = "127.0.0.1:" + std::to_string(ntohs(address.sin_port));
    thread_ = std::thread([this, text = std::move(answer)] {
      const int client = accept(fd_, nullptr, nullptr);
      char request[1024];
      (void)!recv(client, request, sizeof(request), 0);
      (void)!send(client, text.data(), text.size(), MSG_NOSIGNAL);
      close(client);
    });
  }
  ~OneShotServer() {
    thread_.join();
    close(fd_);
  }
  const std::string& address() const { return address_; }

 private:
  int fd_;
  std::string address_;
  std::thread thread_;
};

TEST(ScrapeTest, FetchesOverHttp) {
  OneShotServer server(std::string("HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n") + kText);
  EXPECT_EQ(order_messages({server.address()}), 42);
}

TEST(ScrapeTest, AnErrorPageIsNoMetric) {
  OneShotServer server(std::string("HTTP/1.1 404 Not Found\r\n\r\n") + kText);
  EXPECT_EQ(fetch_metrics(server.address()), std::nullopt);
}

TEST(ScrapeTest, NobodyThere) {
  EXPECT_EQ(fetch_metrics("127.0.0.1:1"), std::nullopt);
  EXPECT_EQ(fetch_metrics("no-port"), std::nullopt);
}

}  // namespace
}  // namespace rueda::bench
