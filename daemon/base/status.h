// Status and Result tell one room that something went wrong in another. No exception crosses a
// room's door.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "daemon/base/check.h"
#include "daemon/base/ids.h"

namespace rueda {

// The values are those of the C ABI (client/include/rueda/rueda.h, RUEDA_ERR_*), negated there.
enum class Code : int {
  kOk = 0,
  kInvalidArgument = 1,     // The caller passed something that can never work.
  kMismatch = 2,            // Ranks disagree on a tensor's descriptor.
  kDuplicateName = 3,       // A name came again while its first submission is in flight.
  kTimeout = 4,             // A deadline passed.
  kRankLost = 5,            // A training process died or broke the rules.
  kNodeLost = 6,            // A node daemon died or cannot be reached.
  kDaemonLost = 7,          // This process's own daemon died.
  kShutDown = 8,            // The job, the rank or the daemon has been shut down.
  kVersion = 9,             // The two sides speak different versions.
  kPermission = 10,         // The user or the token is wrong.
  kNotFound = 11,           // There is no such job, arena, tensor or daemon.
  kResourceExhausted = 12,  // A bound was reached (memory, descriptors, queue).
  kUnavailable = 13,        // It cannot be done now; trying again later may work.
  kInternal = 14,           // This is our bug, reported instead of guessed around.
};

const char* to_string(Code code);

// The one who is to blame: a node, a rank, both or nobody in particular.
struct Origin {
  std::string node_id;
  std::optional<Rank> rank;
  // Somebody has asked for the end of the job, which is then nobody's fault, and final.
  bool is_by_request = false;

  bool operator==(const Origin&) const = default;
};

// The outcome of something that may fail. Ok is a null pointer, because it is copied a thousand
// times a step, and an error never.
class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(Code code, std::string message, Origin origin = {})
      : error_(code == Code::kOk ? nullptr
                                 : std::make_shared<const Error>(
                                       Error{code, std::move(message), std::move(origin)})) {}

  static Status ok() { return {}; }

  bool is_ok() const { return error_ == nullptr; }
  Code code() const { return error_ ? error_->code : Code::kOk; }
  // Returns one sentence that names the culprit and, where there is one, the remedy.
  const std::string& message() const { return error().message; }
  const Origin& origin() const { return error().origin; }
  bool is_retryable() const { return code() == Code::kUnavailable; }
  // Returns text for logs, such as "MISMATCH: tensor ...".
  std::string to_string() const;

  bool operator==(const Status& other) const { return error() == other.error(); }

 private:
  struct Error {
    Code code = Code::kOk;
    std::string message;
    Origin origin;

    bool operator==(const Error&) const = default;
  };
  // Returns an error with empty texts if the status is ok.
  const Error& error() const;

  std::shared_ptr<const Error> error_;
};

// Holds a value, or the Status that says why there is none.
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::move(value)) {}        // NOLINT: conversion is the point
  Result(Status status) : state_(std::move(status)) {  // NOLINT: conversion is the point
    RUEDA_CHECK(!std::get<Status>(state_).is_ok());
  }

  bool is_ok() const { return std::holds_alternative<T>(state_); }
  T& value() & { return std::get<T>(state_); }
  const T& value() const& { return std::get<T>(state_); }
  T&& value() && { return std::get<T>(std::move(state_)); }
  Status status() const { return is_ok() ? Status::ok() : std::get<Status>(state_); }

 private:
  std::variant<T, Status> state_;
};

// Returns, for an errno, "what: No such file or directory" or the like. Any thread may call it.
std::string errno_text(const std::string& what, int error);

}  // namespace rueda
