#include "program.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <thread>

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon/base/check.h"
#include "daemon/base/clock.h"

namespace rueda::test {
namespace {

constexpr double kDeadlineSeconds = 20;

// Reads what is there, and drops the stream at its end.
void read_into(UniqueFd& fd, std::string& text) {
  char buffer[65536];
  const ssize_t got = ::read(fd.get(), buffer, sizeof(buffer));
  if (got <= 0) {
    fd.reset();
  } else {
    text.append(buffer, static_cast<size_t>(got));
  }
}

}  // namespace

Program::Program(std::vector<std::string> argv,
                 std::vector<std::pair<std::string, std::string>> environment) {
  auto out = agent::make_pipe();
  auto err = agent::make_pipe();
  RUEDA_CHECK(out.is_ok() && err.is_ok());
  agent::SpawnRequest request;
  request.argv = std::move(argv);
  request.environment = std::move(environment);
  request.stdout_fd = out.value().write_end.get();
  request.stderr_fd = err.value().write_end.get();
  request.parent_death_signal = SIGKILL;
  auto child = agent::spawn(request);
  RUEDA_CHECK(child.is_ok());
  child_ = std::move(child).value();
  out_fd_ = std::move(out.value().read_end);
  err_fd_ = std::move(err.value().read_end);
}

Program::~Program() {
  if (is_reaped_) return;
  ::kill(child_.pid, SIGKILL);
  ::waitpid(child_.pid, nullptr, 0);
}

void Program::send_signal(int signal) {
  if (!is_reaped_) ::kill(child_.pid, signal);
}

bool Program::read_some(double deadline_s) {
  pollfd fds[2] = {{out_fd_.get(), POLLIN, 0}, {err_fd_.get(), POLLIN, 0}};
  const double left_s = deadline_s - steady_now_s();
  if ((fds[0].fd < 0 && fds[1].fd < 0) || left_s <= 0) return false;
  ::poll(fds, 2, static_cast<int>(left_s * 1000) + 1);
  if (fds[0].revents != 0) read_into(out_fd_, out_);
  if (fds[1].revents != 0) read_into(err_fd_, err_);
  return true;
}

bool Program::wait_for_output(const std::string& text) {
  const double deadline_s = steady_now_s() + kDeadlineSeconds;
  while (out_.find(text) == std::string::npos && err_.find(text) == std::string::npos) {
    if (!read_some(deadline_s)) return false;
  }
  return true;
}

bool Program::wait_until_half_full() {
  const double deadline_s = steady_now_s() + kDeadlineSeconds;
  const int capacity_bytes = ::fcntl(out_fd_.get(), F_GETPIPE_SZ);
  int held_bytes = 0;
  while (::ioctl(out_fd_.get(), FIONREAD, &held_bytes) == 0 && held_bytes <= capacity_bytes / 2) {
    if (steady_now_s() > deadline_s) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return true;
}

int Program::wait_until(double deadline_s) {
  pollfd ended{child_.pidfd.get(), POLLIN, 0};
  const double left_s = std::max(0.0, deadline_s - steady_now_s());
  if (::poll(&ended, 1, static_cast<int>(left_s * 1000) + 1) != 1) return -1;
  const auto status = agent::peek_exit(child_);
  agent::reap(child_);
  is_reaped_ = true;
  return status.is_ok() ? status.value().shell_code() : -1;
}

int Program::wait() {
  const double deadline_s = steady_now_s() + kDeadlineSeconds;
  while (read_some(deadline_s)) {
  }
  return wait_until(deadline_s);
}

int Program::wait_without_reading() { return wait_until(steady_now_s() + kDeadlineSeconds); }

bool is_gone(pid_t pid) {
  const double deadline_s = steady_now_s() + kDeadlineSeconds;
  while (steady_now_s() < deadline_s) {
    std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
    std::string stat;
    std::getline(file, stat);
    const size_t name_end = stat.rfind(')');
    if (name_end == std::string::npos || stat.substr(name_end, 3) == ") Z") return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return false;
}

std::string unique_socket() {
  static int count = 0;
  return "@rueda-test-" + std::to_string(::getpid()) + "-" + std::to_string(++count);
}

int number_after(const std::string& text, const std::string& key) {
  const size_t found = text.find(key);
  return found == std::string::npos ? 0 : std::atoi(text.c_str() + found + key.size());
}

}  // namespace rueda::test
