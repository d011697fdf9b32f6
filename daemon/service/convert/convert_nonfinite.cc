#include "daemon/service/convert/convert_nonfinite.h"

#include <variant>

#include "daemon/base/limits.h"
#include "daemon/base/one_line.h"

namespace rueda::service {
namespace {

void fill(const engine::Nonfinite& from, v1::Nonfinite& to) {
  to.set_step(from.step);
  to.set_rank(from.rank.value);
  to.set_submission(from.submission);
  to.set_element(from.element);
  to.set_value(static_cast<uint32_t>(from.kind));
  to.set_tensor(from.tensor);
  to.set_process_set(from.process_set);
}

void fill(const engine::FoundNonfinite& from, v1::NonfiniteMessage& to) {
  fill(from.value, *to.mutable_found());
}
void fill(const engine::FirstNonfinite& from, v1::NonfiniteMessage& to) {
  fill(from.value, *to.mutable_first());
}
void fill(const engine::AskNonfinite&, v1::NonfiniteMessage& to) { to.mutable_ask(); }
void fill(const engine::NoNonfinite&, v1::NonfiniteMessage& to) { to.mutable_none(); }

Result<engine::Nonfinite> read(const v1::Nonfinite& from) {
  if (from.rank() < 0 || from.rank() >= limits::kMaxRanks || from.step() == 0 ||
      from.value() >= engine::kNonfiniteKindCount ||
      from.tensor().size() > limits::kMaxTensorNameBytes || !is_one_line(from.tensor())) {
    return Status(Code::kInvalidArgument, "a value that is not finite cannot be as it was told");
  }
  return engine::Nonfinite{from.step(),
                           Rank{from.rank()},
                           from.submission(),
                           from.element(),
                           static_cast<engine::NonfiniteKind>(from.value()),
                           from.tensor(),
                           from.process_set()};
}

}  // namespace

v1::NonfiniteMessage to_proto(const engine::NonfiniteMessage& message) {
  v1::NonfiniteMessage to;
  to.set_job_id(message.job);
  std::visit([&](const auto& body) { fill(body, to); }, message.body);
  return to;
}

Result<engine::NonfiniteMessage> from_proto(const v1::NonfiniteMessage& message) {
  switch (message.body_case()) {
    case v1::NonfiniteMessage::kFound: {
      Result<engine::Nonfinite> value = read(message.found());
      if (!value.is_ok()) return value.status();
      return engine::NonfiniteMessage{message.job_id(),
                                      engine::FoundNonfinite{std::move(value).value()}};
    }
    case v1::NonfiniteMessage::kFirst: {
      Result<engine::Nonfinite> value = read(message.first());
      if (!value.is_ok()) return value.status();
      return engine::NonfiniteMessage{message.job_id(),
                                      engine::FirstNonfinite{std::move(value).value()}};
    }
    case v1::NonfiniteMessage::kAsk:
      return engine::NonfiniteMessage{message.job_id(), engine::AskNonfinite{}};
    case v1::NonfiniteMessage::kNone:
      return engine::NonfiniteMessage{message.job_id(), engine::NoNonfinite{}};
    case v1::NonfiniteMessage::BODY_NOT_SET: break;
  }
  return Status(Code::kInvalidArgument, "a message of the finite check has no body");
}

}  // namespace rueda::service
