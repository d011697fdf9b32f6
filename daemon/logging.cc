#include "daemon/logging.h"

#include <chrono>
#include <memory>

#include <nlohmann/json.hpp>
#include <spdlog/formatter.h>
#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

namespace rueda {
namespace {

// spdlog's pattern does not escape the message; this does, and mends what is not UTF-8.
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

}  // namespace

void set_up_logging(const std::string& level, const std::string& format) {
  auto logger = spdlog::stderr_color_mt("ruedad");
  if (format == "json") {
    logger->set_formatter(std::make_unique<JsonFormatter>());
  } else {
    logger->set_pattern("%Y-%m-%d %H:%M:%S.%e %^%l%$ %v");
  }
  logger->set_level(spdlog::level::from_str(level));
  spdlog::set_default_logger(std::move(logger));
}

}  // namespace rueda
