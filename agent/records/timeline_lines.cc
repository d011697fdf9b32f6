#include "agent/records/timeline_lines.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cstdlib>

#include "daemon/base/dtype.h"

namespace rueda::agent {
namespace {

constexpr uint64_t kDecreedBit = uint64_t{1} << 63;

}  // namespace

void append_number(std::string& text, int64_t number) {
  std::array<char, 24> digits;
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), number).ptr;
  text.append(digits.data(), end);
}

void append_us(std::string& text, int64_t ns) {
  if (ns < 0) text += '-';
  append_number(text, std::abs(ns / 1000));
  const int64_t rest = std::abs(ns % 1000);
  const auto digit = [](int64_t value) { return static_cast<char>('0' + value % 10); };
  const std::array<char, 4> fraction{'.', digit(rest / 100), digit(rest / 10), digit(rest)};
  text.append(fraction.data(), fraction.size());
}

std::string upper_name(uint32_t collective) {
  if (collective >= kCollectiveKindCount) return "OPERATION";
  std::string name = to_string(static_cast<CollectiveKind>(collective));
  std::transform(name.begin(), name.end(), name.begin(),
                 [](unsigned char letter) { return static_cast<char>(std::toupper(letter)); });
  return name;
}

std::string operation_arguments(uint64_t number, uint32_t process_set) {
  std::string text = "\"operation\":\"";
  // A job numbers operations in two orders side by side; "b" marks the numbers of those with a
  // root, or without data.
  if ((number & kDecreedBit) != 0) text += 'b';
  append_number(text, static_cast<int64_t>(number & ~kDecreedBit));
  text += '"';
  if (process_set != 0) {
    text += ",\"process_set\":";
    append_number(text, process_set);
  }
  return text;
}

uint64_t count_events(const v1::TimelineBatch& batch) {
  uint64_t events = static_cast<uint64_t>(batch.track_size());
  for (const v1::TimelineBatch::Operation& operation : batch.operations()) {
    if (operation.tensors() >= static_cast<uint32_t>(batch.tensors_size())) continue;
    const auto& tensors = batch.tensors(static_cast<int>(operation.tensors()));
    OperationLines lines(operation);
    for (size_t left = static_cast<size_t>(tensors.track_size()); left > 0;) {
      const OperationLines::Stretch stretch = lines.next(left);
      events += stretch.tails.size() * stretch.tensors;
      left -= stretch.tensors;
    }
  }
  return events;
}

OperationLines::OperationLines(const v1::TimelineBatch::Operation& operation)
    : operation_(operation),
      kind_(upper_name(operation.kind())),
      arguments_(operation_arguments(operation.number(), operation.process_set())) {
  for (int i = 0; i < operation.ready_rank_size(); ++i) {
    if (cursors_.empty() || cursors_.back().rank != operation.ready_rank(i)) {
      cursors_.push_back({operation.ready_rank(i), i, i, operation.ready_tensors(i)});
    }
    cursors_.back().end = i + 1;
  }
  const int64_t launched_ns = operation.launched_ns();
  whole_ = span(launched_ns, launched_ns + operation.ended_after_ns(), kind_) + "}}";
}

std::string OperationLines::span(int64_t begin_ns, int64_t end_ns, std::string_view name) const {
  std::string text = "\"ph\":\"X\",\"ts\":";
  append_us(text, begin_ns);
  text += ",\"dur\":";
  append_us(text, std::max<int64_t>(end_ns - begin_ns, 0));
  text += ",\"name\":\"";
  text += name;
  text += "\",\"args\":{" + arguments_;
  return text;
}

OperationLines::Stretch OperationLines::next(size_t tensors_left) {
  Stretch stretch{tensors_left, {}};
  std::vector<Mark> marks;
  const int64_t launched_ns = operation_.launched_ns();
  for (Cursor& cursor : cursors_) {
    while (cursor.left == 0 && cursor.item + 1 < cursor.end) {
      cursor.left = operation_.ready_tensors(++cursor.item);
    }
    if (cursor.left == 0) continue;
    stretch.tensors = std::min(stretch.tensors, cursor.left);
    const auto before_ns = static_cast<int64_t>(operation_.ready_before_ns(cursor.item));
    if (before_ns > 0) marks.push_back({launched_ns - (before_ns - 1), cursor.rank});
  }
  for (Cursor& cursor : cursors_) cursor.left -= std::min(cursor.left, stretch.tensors);
  std::stable_sort(marks.begin(), marks.end(),
                   [](const Mark& a, const Mark& b) { return a.at_ns < b.at_ns; });
  if (!marks.empty()) {
    stretch.tails.push_back(span(marks.front().at_ns, launched_ns, "NEGOTIATE") +
                            ",\"collective\":\"" + kind_ + "\"}}");
  }
  for (const Mark& mark : marks) {
    std::string& text = stretch.tails.emplace_back("\"ph\":\"i\",\"s\":\"t\",\"ts\":");
    append_us(text, mark.at_ns);
    const std::string rank = std::to_string(mark.rank);
    text += ",\"name\":\"ready " + rank + "\",\"args\":{" + arguments_ + ",\"rank\":" + rank + "}}";
  }
  stretch.tails.push_back(whole_);
  stretch.tails.push_back(span(launched_ns, launched_ns + operation_.begun_after_ns(), "QUEUE") +
                          "}}");
  return stretch;
}

}  // namespace rueda::agent
