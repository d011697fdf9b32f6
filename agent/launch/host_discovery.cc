#include "agent/launch/host_discovery.h"

#include <sstream>
#include <utility>

#include <fcntl.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include "agent/base/text.h"
#include "daemon/base/limits.h"
#include "daemon/base/one_line.h"

namespace rueda::agent {
namespace {

constexpr size_t kMaxOutputBytes = size_t{1} << 20;
constexpr size_t kShownBytes = 200;
constexpr const char* kSpace = " \t\r";

std::string lower(std::string text) {
  for (char& letter : text) {
    if (letter >= 'A' && letter <= 'Z') letter = static_cast<char>(letter - 'A' + 'a');
  }
  return text;
}

std::string trimmed(const std::string& text) {
  const size_t begin = text.find_first_not_of(kSpace);
  if (begin == std::string::npos) return "";
  return text.substr(begin, text.find_last_not_of(kSpace) - begin + 1);
}

}  // namespace

Result<int> slots_of_host(const std::string& output, const std::set<std::string>& names) {
  std::istringstream lines(output);
  int slots = 0;
  for (std::string line; std::getline(lines, line);) {
    const std::string word = trimmed(line);
    if (word.empty() || word[0] == '#') continue;
    // The colons of an address of IPv6 are in brackets.
    const bool has_slots = word.find(':', word.rfind(']') + 1) != std::string::npos;
    const auto parsed = parse_host_port(has_slots ? word : word + ":1");
    const bool is_host =
        parsed && !parsed->host.empty() && parsed->host.find_first_of(kSpace) == std::string::npos;
    if (!is_host || parsed->port < 0 || parsed->port > limits::kMaxLocalRanks) {
      return Status(Code::kInvalidArgument, "it printed \"" + one_line(word, kShownBytes) +
                                                "\", and a line is HOST:SLOTS, 0 to " +
                                                std::to_string(limits::kMaxLocalRanks) + " slots");
    }
    if (names.contains(lower(parsed->host))) slots = parsed->port;
  }
  return slots;
}

std::set<std::string> names_of_this_host() {
  std::set<std::string> names{"localhost"};
  char name[256] = {};
  if (::gethostname(name, sizeof(name) - 1) == 0) {
    const std::string whole = lower(name);
    names.insert(whole);
    names.insert(whole.substr(0, whole.find('.')));
  }
  ifaddrs* addresses = nullptr;
  if (::getifaddrs(&addresses) != 0) return names;
  for (const ifaddrs* one = addresses; one != nullptr; one = one->ifa_next) {
    if (one->ifa_addr == nullptr) continue;
    const int family = one->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    const auto bytes =
        static_cast<socklen_t>(family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6));
    char host[NI_MAXHOST] = {};
    const int rc =
        ::getnameinfo(one->ifa_addr, bytes, host, sizeof(host), nullptr, 0, NI_NUMERICHOST);
    if (rc == 0) names.insert(host);
  }
  ::freeifaddrs(addresses);
  return names;
}

HostDiscovery::HostDiscovery(boost::asio::io_context& loop, std::string script, Events events,
                             Limits limits)
    : loop_(loop),
      script_(std::move(script)),
      events_(std::move(events)),
      limits_(limits),
      names_(names_of_this_host()),
      timer_(loop),
      output_(loop) {}

HostDiscovery::~HostDiscovery() { stop(); }

std::string HostDiscovery::names_text() const {
  std::string text;
  for (const std::string& name : names_) text += (text.empty() ? "" : ", ") + name;
  return text;
}

void HostDiscovery::stop() {
  timer_.cancel();
  boost::system::error_code ignored;
  output_.close(ignored);
  watch_.reset();
  if (child_.pid <= 0) return;
  ::kill(-child_.pid, SIGKILL);
  reap(child_);
  child_ = Child();
}

void HostDiscovery::ask() {
  text_.clear();
  has_output_ended_ = false;
  has_exited_ = false;
  Result<Pipe> pipe = make_pipe();
  if (!pipe.is_ok()) return conclude(pipe.status());
  ::fcntl(pipe.value().read_end.get(), F_SETFL, O_NONBLOCK);
  SpawnRequest request;
  request.argv = {"/bin/sh", "-c", script_};
  request.stdout_fd = pipe.value().write_end.get();
  request.stderr_fd = STDERR_FILENO;
  request.parent_death_signal = SIGKILL;
  Result<Child> child = spawn(request);
  if (!child.is_ok()) return conclude(child.status());
  child_ = std::move(child).value();
  output_.assign(pipe.value().read_end.release());
  read();
  watch_ = std::make_unique<ExitWatch>(loop_);
  watch_->start(UniqueFd(::fcntl(child_.pidfd.get(), F_DUPFD_CLOEXEC, 0)), [this] {
    has_exited_ = true;
    look_at_end();
  });
  timer_.expires_after(limits_.patience);
  timer_.async_wait([this, run = run_](const boost::system::error_code& error) {
    if (error || run != run_) return;
    conclude(Status(Code::kTimeout, "it did not end, and close its output, within " +
                                        std::to_string(limits_.patience.count()) + " ms"));
  });
}

void HostDiscovery::read() {
  output_.async_read_some(
      boost::asio::buffer(chunk_),
      [this, run = run_](const boost::system::error_code& error, size_t bytes) {
        if (run != run_) return;
        text_.append(chunk_.data(), bytes);
        if (text_.size() > kMaxOutputBytes) {
          return conclude(Status(Code::kResourceExhausted, "it printed more than 1 MiB"));
        }
        if (!error) return read();
        has_output_ended_ = true;
        look_at_end();
      });
}

void HostDiscovery::look_at_end() {
  if (!has_output_ended_ || !has_exited_) return;
  const Result<ExitStatus> status = peek_exit(child_);
  if (!status.is_ok()) return conclude(status.status());
  if (!status.value().is_success()) {
    return conclude(Status(Code::kUnavailable, "it " + status.value().to_string()));
  }
  conclude(slots_of_host(text_, names_));
}

void HostDiscovery::conclude(const Result<int>& answer) {
  stop();
  ++run_;
  timer_.expires_after(limits_.interval);
  timer_.async_wait([this](const boost::system::error_code& error) {
    if (!error) ask();
  });
  if (!answer.is_ok()) {
    // What it said before stays true until it says something else.
    const std::string& why = answer.status().message();
    if (std::exchange(failure_, why) != why) {
      events_.on_note("--host-discovery-script " + script_ + ": " + why +
                      (slots_ ? "; going on with " + std::to_string(*slots_) + " slots here" : ""));
    }
    return;
  }
  failure_.clear();
  if (std::exchange(slots_, answer.value()) != answer.value()) events_.on_slots(answer.value());
}

}  // namespace rueda::agent
