// Sets up spdlog's default logger: text for people or one JSON object a line, on standard error.
#pragma once

#include <string>

namespace rueda {

// level: spdlog's names. format: "text" or "json".
void set_up_logging(const std::string& level, const std::string& format);

}  // namespace rueda
