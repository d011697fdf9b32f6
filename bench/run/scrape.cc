#include "bench/run/scrape.h"

#include <cstdlib>
#include <memory>

#include <netdb.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

namespace rueda::bench {
namespace {

// Returns a connected socket, or -1.
int connect_to(const std::string& host, const std::string& port) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (getaddrinfo(host.c_str(), port.c_str(), &hints, &found) != 0) return -1;
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> list(found, freeaddrinfo);
  for (const addrinfo* entry = list.get(); entry != nullptr; entry = entry->ai_next) {
    const int fd = socket(entry->ai_family, entry->ai_socktype | SOCK_CLOEXEC, 0);
    if (fd < 0) continue;
    const timeval limit{.tv_sec = 2, .tv_usec = 0};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
    if (connect(fd, entry->ai_addr, entry->ai_addrlen) == 0) return fd;
    close(fd);
  }
  return -1;
}

std::string_view next_token(std::string_view* text, char separator) {
  const size_t end = std::min(text->find(separator), text->size());
  const std::string_view token = text->substr(0, end);
  text->remove_prefix(std::min(end + 1, text->size()));
  return token;
}

}  // namespace

std::optional<double> sum_of_samples(std::string_view text, std::string_view metric,
                                     std::string_view label) {
  std::optional<double> sum;
  while (!text.empty()) {
    const std::string_view line = next_token(&text, '\n');
    if (!line.starts_with(metric) || line.size() == metric.size()) continue;
    const char after = line[metric.size()];
    const size_t labels_end = line.rfind('}');
    if (after != '{' || labels_end == std::string_view::npos) continue;
    std::string_view labels = line.substr(metric.size() + 1, labels_end - metric.size() - 1);
    bool matches = false;
    while (!labels.empty()) matches = next_token(&labels, ',') == label || matches;
    if (!matches) continue;
    sum = sum.value_or(0) + std::strtod(std::string(line.substr(labels_end + 1)).c_str(), nullptr);
  }
  return sum;
}

std::optional<std::string> fetch_metrics(const std::string& address) {
  const size_t colon = address.rfind(':');
  if (colon == std::string::npos) return std::nullopt;
  std::string host = address.substr(0, colon);
  if (host.size() > 2 && host.front() == '[') host = host.substr(1, host.size() - 2);
  const int fd = connect_to(host, address.substr(colon + 1));
  if (fd < 0) return std::nullopt;
  // The request is HTTP/1.0, so the answer ends with the connection and is never sent in chunks.
  const std::string request = "GET /metrics HTTP/1.0\r\nHost: " + address + "\r\n\r\n";
  std::string answer;
  if (send(fd, request.data(), request.size(), MSG_NOSIGNAL) ==
      static_cast<ssize_t>(request.size())) {
    char block[16384];
    ssize_t got = 0;
    while ((got = recv(fd, block, sizeof(block), 0)) > 0) {
      answer.append(block, static_cast<size_t>(got));
    }
  }
  close(fd);
  const size_t body = answer.find("\r\n\r\n");
  const bool ok = answer.starts_with("HTTP/1.") && answer.substr(8, 5) == " 200 ";
  if (!ok || body == std::string::npos) return std::nullopt;
  return answer.substr(body + 4);
}

std::vector<std::string> http_addresses() {
  std::vector<std::string> addresses;
  const char* value = std::getenv("RUEDA_HTTP_ADDRESSES");
  std::string_view text = value != nullptr ? value : "";
  while (!text.empty()) {
    const std::string_view address = next_token(&text, ',');
    if (!address.empty()) addresses.emplace_back(address);
  }
  return addresses;
}

std::optional<double> order_messages(const std::vector<std::string>& addresses) {
  std::optional<double> sum;
  for (const std::string& address : addresses) {
    const auto metrics = fetch_metrics(address);
    if (!metrics) return std::nullopt;
    const auto here = sum_of_samples(*metrics, "rueda_control_messages_total", "kind=\"order\"");
    if (!here) return std::nullopt;
    sum = sum.value_or(0) + *here;
  }
  return sum;
}

}  // namespace rueda::bench
