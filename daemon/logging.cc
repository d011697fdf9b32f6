#include "daemon/logging.h"

#include <cerrno>
#include <deque>
#include <memory>
#include <string_view>
#include <thread>
#include <utility>

#include <nlohmann/json.hpp>
#include <poll.h>
#include <pthread.h>
#include <spdlog/formatter.h>
#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/sink.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include "daemon/base/mutex.h"
#include "daemon/base/one_line.h"

namespace rueda {
namespace {

constexpr size_t kMaxLine = 8 << 10;

// spdlog's pattern does not escape the message; this formatter does, and repairs text that is not
// UTF-8.
class JsonFormatter final : public spdlog::formatter {
 public:
  void format(const spdlog::details::log_msg& message, spdlog::memory_buf_t& out) override {
    using nlohmann::json;
    const auto since_epoch = message.time.time_since_epoch();
    const auto level = spdlog::level::to_string_view(message.level);
    const json line = {
        {"time", std::chrono::duration<double>(since_epoch).count()},
        {"level", std::string(level.data(), level.size())},
        {"message", std::string(message.payload.data(), message.payload.size())},
    };
    const std::string text = line.dump(-1, ' ', false, json::error_handler_t::replace) + '\n';
    out.append(text.data(), text.data() + text.size());
  }
  std::unique_ptr<spdlog::formatter> clone() const override {
    return std::make_unique<JsonFormatter>();
  }
};

// Writes all of the text. Returns false if the descriptor takes no more.
bool write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(fd, text.data(), text.size());
    if (written >= 0) {
      text.remove_prefix(static_cast<size_t>(written));
      // Another process that shares the descriptor has made it non-blocking.
    } else if (errno == EAGAIN) {
      pollfd room{fd, POLLOUT, 0};
      (void)::poll(&room, 1, -1);
    } else if (errno != EINTR) {
      return false;
    }
  }
  return true;
}

// The lines that wait for a descriptor. The writing thread holds the object too, and may be stuck
// in a write for ever: nobody waits for that thread.
class Backlog {
 public:
  Backlog(int fd, std::unique_ptr<spdlog::formatter> formatter)
      : fd_(fd), formatter_(std::move(formatter)) {}

  void add(const spdlog::details::log_msg& message) {
    const MutexLock lock(mutex_);
    if (bytes_ + message.payload.size() > kMaxLogBytes) {
      ++lost_;
      return;
    }
    lines_.push_back(formatted(message));
    bytes_ += lines_.back().size();
    changed_.notify_all();
  }

  uint64_t lost() const {
    const MutexLock lock(mutex_);
    return lost_;
  }

  void flush(std::chrono::milliseconds patience) {
    MutexLock lock(mutex_);
    const auto until = std::chrono::steady_clock::now() + patience;
    while (!lines_.empty() || is_writing_) {
      if (!changed_.wait_until(lock, until)) return;
    }
  }

  void set_formatter(std::unique_ptr<spdlog::formatter> formatter) {
    const MutexLock lock(mutex_);
    formatter_ = std::move(formatter);
  }

  [[noreturn]] void write_for_ever() {
    MutexLock lock(mutex_);
    for (;;) {
      while (lines_.empty()) changed_.wait(lock);
      is_writing_ = true;
      const std::string line = std::move(lines_.front());
      lines_.pop_front();
      lock.unlock();
      const bool is_written = write_all(fd_, line);
      lock.lock();
      bytes_ -= line.size();
      if (!is_written) ++lost_;
      // All waiting lines are written, and lines have been dropped since the last report.
      if (is_written && lines_.empty() && told_ != lost_) tell_of_lost();
      is_writing_ = false;
      changed_.notify_all();
    }
  }

 private:
  // Formats a message, whatever its text and whoever wrote it, as one line.
  std::string formatted(spdlog::details::log_msg message) RUEDA_REQUIRES(mutex_) {
    const std::string line = one_line({message.payload.data(), message.payload.size()}, kMaxLine);
    message.payload = line;
    spdlog::memory_buf_t text;
    formatter_->format(message, text);
    return {text.data(), text.size()};
  }

  void tell_of_lost() RUEDA_REQUIRES(mutex_) {
    const std::string text = std::to_string(lost_ - std::exchange(told_, lost_)) +
                             " lines of this log are missing before this one: who reads it did not "
                             "keep up, or there was no room for it";
    lines_.push_back(formatted({"ruedad", spdlog::level::warn, text}));
    bytes_ += lines_.back().size();
  }

  const int fd_;
  mutable Mutex mutex_;
  Condition changed_;
  std::unique_ptr<spdlog::formatter> formatter_ RUEDA_GUARDED_BY(mutex_);
  std::deque<std::string> lines_ RUEDA_GUARDED_BY(mutex_);
  // The bytes of `lines_`, and of the line that is being written.
  size_t bytes_ RUEDA_GUARDED_BY(mutex_) = 0;
  bool is_writing_ RUEDA_GUARDED_BY(mutex_) = false;
  uint64_t lost_ RUEDA_GUARDED_BY(mutex_) = 0;
  uint64_t told_ RUEDA_GUARDED_BY(mutex_) = 0;  // Dropped lines that the log has reported.
};

class BacklogSink final : public spdlog::sinks::sink {
 public:
  explicit BacklogSink(std::shared_ptr<Backlog> backlog) : backlog_(std::move(backlog)) {}
  void log(const spdlog::details::log_msg& message) override { backlog_->add(message); }
  void flush() override {}
  void set_pattern(const std::string& pattern) override {
    set_formatter(std::make_unique<spdlog::pattern_formatter>(pattern));
  }
  void set_formatter(std::unique_ptr<spdlog::formatter> formatter) override {
    backlog_->set_formatter(std::move(formatter));
  }

 private:
  const std::shared_ptr<Backlog> backlog_;
};

// Returns the backlog of the process, which is null until logging is set up.
std::shared_ptr<Backlog>& process_backlog() {
  static std::shared_ptr<Backlog> backlog;
  return backlog;
}

}  // namespace

void set_up_logging(const std::string& level, const std::string& format) {
  std::unique_ptr<spdlog::formatter> formatter;
  if (format == "json") {
    formatter = std::make_unique<JsonFormatter>();
  } else {
    formatter = std::make_unique<spdlog::pattern_formatter>("%Y-%m-%d %H:%M:%S.%e %l %v");
  }
  const auto backlog = std::make_shared<Backlog>(STDERR_FILENO, formatter->clone());
  process_backlog() = backlog;
  std::thread writer([backlog] {
    ::pthread_setname_np(::pthread_self(), "rueda-log");
    backlog->write_for_ever();
  });
  writer.detach();
  auto logger = std::make_shared<spdlog::logger>("ruedad", std::make_shared<BacklogSink>(backlog));
  logger->set_formatter(std::move(formatter));
  logger->set_level(spdlog::level::from_str(level));
  spdlog::set_default_logger(std::move(logger));
}

uint64_t log_lines_lost() { return process_backlog() ? process_backlog()->lost() : 0; }

void flush_log(std::chrono::milliseconds patience) {
  if (process_backlog()) process_backlog()->flush(patience);
}

}  // namespace rueda
