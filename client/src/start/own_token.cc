#include "client/src/start/own_token.h"

#include <charconv>
#include <cstdlib>
#include <optional>

#include <unistd.h>

#include "client/abi/rueda_abi.h"
#include "daemon/base/os/sealed_text.h"

namespace rueda::client {
namespace {

constexpr char kFdVariable[] = "RUEDA_JOB_TOKEN_FD";
constexpr char kVariable[] = "RUEDA_JOB_TOKEN";
constexpr size_t kDigits = 2 * RUEDA_ABI_TOKEN_BYTES;

// The last token that came by a descriptor. A child of fork() that has not exec'd has it, too, as
// it has all of the parent's memory.
struct Kept {
  std::string job;
  std::string token;
};
Kept& kept() {
  static Kept kept;
  return kept;
}

const char* variable(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr && *value != '\0' ? value : nullptr;
}

std::optional<std::string> decode_hex(std::string_view text) {
  std::string bytes;
  if (text.size() != kDigits) return std::nullopt;
  for (size_t i = 0; i < text.size(); i += 2) {
    unsigned byte = 0;
    auto [end, error] = std::from_chars(text.data() + i, text.data() + i + 2, byte, 16);
    if (error != std::errc() || end != text.data() + i + 2) return std::nullopt;
    bytes.push_back(static_cast<char>(byte));
  }
  return bytes;
}

// Takes the token from the descriptor, if the number is still that of ruedarun's. It may be any
// other file's by now, which is then left alone.
std::optional<std::string> take_from(std::string_view number) {
  int fd = -1;
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), fd);
  if (error != std::errc() || end != number.data() + number.size() || fd < 0) return std::nullopt;
  const Result<std::string> text = read_sealed_text(fd, kDigits);
  if (!text.is_ok()) return std::nullopt;
  std::optional<std::string> token = decode_hex(text.value());
  if (!token) return std::nullopt;
  ::close(fd);
  ::unsetenv(kFdVariable);
  return token;
}

Status lost(const std::string& number) {
  return {Code::kInvalidArgument,
          std::string(kFdVariable) + "=" + number +
              " is not the descriptor of this rank's token: what has started this program closes "
              "descriptors, as Python's subprocess does without close_fds=False; have it leave "
              "them open, or start the job with \"ruedarun --token-in-environment\""};
}

Status missing() {
  return {Code::kInvalidArgument,
          std::string("neither ") + kFdVariable + " nor " + kVariable +
              " is set; start the program with ruedarun, for instance: ruedarun -np 4 PROGRAM. A "
              "program that a rank has started, or has become by exec, is no rank: librueda takes "
              "the token once, unless \"ruedarun --token-in-environment\" has given it"};
}

}  // namespace

Result<std::string> parse_token(std::string_view text) {
  std::optional<std::string> decoded = decode_hex(text);
  if (decoded) return *decoded;
  return Status{Code::kInvalidArgument,
                std::string(kVariable) +
                    " is not 64 hexadecimal digits; start the program with ruedarun, for "
                    "instance: ruedarun -np 4 PROGRAM"};
}

Result<std::string> own_token(const char* given, const std::string& job) {
  if (given != nullptr) return parse_token(given);
  const char* const number = variable(kFdVariable);
  if (number != nullptr) {
    if (std::optional<std::string> token = take_from(number)) {
      kept() = {job, *token};
      return *token;
    }
  }
  if (const char* const text = variable(kVariable); text != nullptr) return parse_token(text);
  // A program may have put the variable back that was removed.
  if (!kept().token.empty() && kept().job == job) return kept().token;
  return number != nullptr ? lost(number) : missing();
}

}  // namespace rueda::client
