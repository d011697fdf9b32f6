#include "client/src/start/config.h"

#include <charconv>
#include <cstdlib>
#include <string_view>

#include "client/abi/rueda_abi.h"
#include "client/src/start/launched.h"
#include "client/src/start/own_token.h"

namespace rueda::client {
namespace {

constexpr const char* kDefaultSocket = "/run/rueda/ruedad.sock";
constexpr const char* kUseRuedarun =
    "; start the program with ruedarun, for instance: ruedarun -np 4 PROGRAM";

// Returns a variable's value, or null if it is not set or empty.
const char* environment(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr && *value != '\0' ? value : nullptr;
}

Status missing(const char* name) {
  return {Code::kInvalidArgument, std::string(name) + " is not set" + kUseRuedarun};
}

Result<int64_t> parse_number(const char* name, std::string_view text, int64_t max,
                             const std::string& remedy = kUseRuedarun) {
  int64_t value = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 0 || value > max) {
    return Status{Code::kInvalidArgument, std::string(name) + "=\"" + std::string(text) +
                                              "\" is not a number from 0 to " +
                                              std::to_string(max) + remedy};
  }
  return value;
}

Result<int32_t> resolve_rank(int32_t given, const char* name) {
  if (given >= 0) return given;
  const char* text = environment(name);
  if (text == nullptr) return missing(name);
  Result<int64_t> value = parse_number(name, text, INT32_MAX);
  if (!value.is_ok()) return value.status();
  return static_cast<int32_t>(value.value());
}

Result<int64_t> resolve_timeout(int64_t given_ms) {
  if (given_ms < 0) {
    return Status{Code::kInvalidArgument, "rueda_init_options.timeout_ms is negative"};
  }
  if (given_ms > 0) return given_ms;
  const char* text = environment("RUEDA_START_TIMEOUT_MS");
  if (text == nullptr) return Config{}.timeout_ms;
  Result<int64_t> named_ms = parse_number("RUEDA_START_TIMEOUT_MS", text, 1'000'000'000);
  if (named_ms.is_ok() && named_ms.value() == 0) return Config{}.timeout_ms;
  return named_ms;
}

Result<int64_t> resolve_device_staging() {
  constexpr const char* kName = "RUEDA_DEVICE_STAGING_BYTES";
  const char* text = environment(kName);
  if (text == nullptr) return Config{}.device_staging_bytes;
  return parse_number(kName, text, int64_t{1} << 40, ": give bytes, or unset it");
}

// Finds this process's place in a job that mpirun, srun, torchrun or the like started, or nobody.
Result<Config> join(Config config) {
  Result<std::map<std::string, std::string>> joined =
      join_launched(config.socket_path, config.timeout_ms);
  if (!joined.is_ok()) return joined.status();
  std::map<std::string, std::string>& variables = joined.value();
  Result<std::string> token = parse_token(variables["RUEDA_JOB_TOKEN"]);
  Result<int64_t> rank = parse_number("RANK", variables["RANK"], INT32_MAX);
  Result<int64_t> local_rank = parse_number("LOCAL_RANK", variables["LOCAL_RANK"], INT32_MAX);
  if (!token.is_ok()) return token.status();
  if (!rank.is_ok()) return rank.status();
  if (!local_rank.is_ok()) return local_rank.status();
  // A rank that is alone may have a private daemon.
  if (const std::string& socket = variables["RUEDA_SOCKET"]; !socket.empty()) {
    config.socket_path = socket;
  }
  config.job_id = variables["RUEDA_JOB_ID"];
  config.token = token.value();
  config.rank = static_cast<int32_t>(rank.value());
  config.local_rank = static_cast<int32_t>(local_rank.value());
  return config;
}

}  // namespace

Result<Config> resolve_config(const rueda_init_options* options) {
  rueda_init_options given{};
  given.rank = -1;
  given.local_rank = -1;
  if (options != nullptr) {
    if (options->struct_bytes < sizeof(given)) {
      return Status{Code::kInvalidArgument,
                    "rueda_init_options.struct_bytes must be sizeof(rueda_init_options)"};
    }
    given = *options;
  }

  Config config;
  const char* socket = given.socket != nullptr ? given.socket : environment("RUEDA_SOCKET");
  config.socket_path = socket != nullptr ? socket : kDefaultSocket;
  Result<int64_t> timeout_ms = resolve_timeout(given.timeout_ms);
  if (!timeout_ms.is_ok()) return timeout_ms.status();
  config.timeout_ms = timeout_ms.value();
  const Result<int64_t> staging = resolve_device_staging();
  if (!staging.is_ok()) return staging.status();
  config.device_staging_bytes = staging.value();

  const char* job_id = given.job_id != nullptr ? given.job_id : environment("RUEDA_JOB_ID");
  if (job_id == nullptr && is_launched_by_others()) return join(std::move(config));
  const bool is_given = given.job_token != nullptr || given.rank >= 0 || given.local_rank >= 0;
  if (job_id == nullptr && !is_given && is_launched_by_nobody()) return join(std::move(config));
  if (job_id == nullptr || *job_id == '\0') return missing("RUEDA_JOB_ID");
  config.job_id = job_id;
  if (config.job_id.size() >= RUEDA_ABI_JOB_ID_BYTES) {
    return Status{Code::kInvalidArgument,
                  "the job id \"" + config.job_id + "\" is longer than 63 bytes; shorten it"};
  }

  Result<std::string> token = own_token(given.job_token, config.job_id);
  if (!token.is_ok()) return token.status();
  config.token = token.value();

  Result<int32_t> rank = resolve_rank(given.rank, "RANK");
  if (!rank.is_ok()) return rank.status();
  config.rank = rank.value();
  Result<int32_t> local_rank = resolve_rank(given.local_rank, "LOCAL_RANK");
  if (!local_rank.is_ok()) return local_rank.status();
  config.local_rank = local_rank.value();
  config.is_elastic = environment("RUEDA_ELASTIC") != nullptr;
  return config;
}

}  // namespace rueda::client
