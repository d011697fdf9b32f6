#include "daemon/service/convert/convert_stall.h"

#include <string>
#include <variant>

#include "daemon/base/limits.h"
#include "daemon/base/one_line.h"

namespace rueda::service {
namespace {

// This age is larger than any job's, and sums of such ages stay far from overflow in 64 bits.
constexpr int64_t kMaxAgeMs = int64_t{1} << 50;
// The ranks that are missing may be others in every stall.
constexpr size_t kMaxActivities = core::kMaxStalls * core::kMaxStallRanks;

Status broken_stall(const std::string& what) {
  return Status(Code::kInvalidArgument, "a message on stalls has " + what);
}

// --- Writing

void fill(const core::NearMiss& from, v1::NearMiss& to) {
  to.set_rank(from.rank.value);
  to.set_name(from.name);
  to.set_process_set(from.process_set);
}

void fill(const core::RankActivity& from, v1::RankActivity& to) {
  to.set_rank(from.rank.value);
  to.set_has_left(from.has_left);
  to.set_last_submitted(from.last_submitted);
  to.set_submitted_set(from.submitted_set);
  to.set_submitted_ago_ms(from.submitted_ago_ms);
  to.set_last_completed(from.last_completed);
  to.set_completed_set(from.completed_set);
  to.set_completed_ago_ms(from.completed_ago_ms);
}

void fill(const core::Stall& from, v1::StallNotice::Stall& to) {
  to.set_tensor(from.tensor);
  to.set_age_ms(from.age_ms);
  to.set_is_news(from.is_news);
  for (Rank rank : from.submitted) to.add_submitted(rank.value);
  for (Rank rank : from.missing) to.add_missing(rank.value);
  to.set_more_submitted(from.more_submitted);
  to.set_more_missing(from.more_missing);
  for (const core::NearMiss& miss : from.near_misses) fill(miss, *to.add_near_misses());
}

struct Writer {
  v1::JobMessage& to;

  void operator()(const core::StallReport& from) const {
    v1::StallReport& report = *to.mutable_stall_report();
    for (const core::StallReport::Tensor& item : from.tensors) {
      v1::StallReport::Tensor& tensor = *report.add_tensors();
      tensor.set_name(item.name);
      tensor.set_age_ms(item.age_ms);
    }
  }
  void operator()(const core::StallQuery& from) const {
    v1::StallQuery& query = *to.mutable_stall_query();
    query.set_round(from.round);
    query.set_wants_near_misses(from.wants_near_misses);
    for (const std::string& name : from.names) query.add_names(name);
  }
  void operator()(const core::StallAnswer& from) const {
    v1::StallAnswer& answer = *to.mutable_stall_answer();
    answer.set_round(from.round);
    for (const core::StallAnswer::Tensor& item : from.tensors) {
      v1::StallAnswer::Tensor& tensor = *answer.add_tensors();
      for (Rank rank : item.submitted) tensor.add_submitted(rank.value);
      for (const core::NearMiss& miss : item.near_misses) fill(miss, *tensor.add_near_misses());
    }
    for (const core::RankActivity& activity : from.ranks) fill(activity, *answer.add_ranks());
  }
  void operator()(const core::StallNotice& from) const {
    v1::StallNotice& notice = *to.mutable_stall_notice();
    for (const core::Stall& stall : from.stalls) fill(stall, *notice.add_stalls());
    for (const core::RankActivity& activity : from.ranks) fill(activity, *notice.add_ranks());
  }
};

// --- Reading: the first error is kept

class Reader {
 public:
  void check(bool is_good, const char* what) {
    if (!is_good && status_.is_ok()) status_ = broken_stall(what);
  }
  // Returns true if that many entries may be read; a list that is too long is not looked at.
  bool may_read(int count, size_t most) {
    check(count <= static_cast<int>(most), "too many entries");
    return status_.is_ok();
  }
  std::string name(const std::string& from, bool may_be_empty = false) {
    check(from.size() <= limits::kMaxTensorNameBytes && (may_be_empty || !from.empty()),
          "a tensor name that is empty or too long");
    check(is_one_line(from), "a tensor name that is not printable");
    return from;
  }
  TicksMs age(int64_t from) {
    check(from >= 0 && from <= kMaxAgeMs, "an impossible age");
    return from;
  }
  Rank rank(int32_t from) {
    check(from >= 0 && from < limits::kMaxRanks, "an impossible rank");
    return Rank{from};
  }
  int count(int32_t from) {
    check(from >= 0 && from <= limits::kMaxRanks, "an impossible number of ranks");
    return from;
  }
  template <class From>
  std::vector<Rank> ranks(const From& from) {
    std::vector<Rank> to;
    if (!may_read(from.size(), core::kMaxStallRanks)) return to;
    for (int32_t value : from) to.push_back(rank(value));
    return to;
  }
  template <class From>
  std::vector<core::NearMiss> near_misses(const From& from) {
    std::vector<core::NearMiss> to;
    if (!may_read(from.size(), core::kMaxNearMisses)) return to;
    for (const v1::NearMiss& miss : from) {
      to.push_back({rank(miss.rank()), name(miss.name()), miss.process_set()});
    }
    return to;
  }
  template <class From>
  std::vector<core::RankActivity> activities(const From& from) {
    std::vector<core::RankActivity> to;
    if (!may_read(from.size(), kMaxActivities)) return to;
    for (const v1::RankActivity& item : from) {
      to.push_back({rank(item.rank()), item.has_left(), name(item.last_submitted(), true),
                    item.submitted_set(), age(item.submitted_ago_ms()),
                    name(item.last_completed(), true), item.completed_set(),
                    age(item.completed_ago_ms())});
    }
    return to;
  }
  Result<core::StallMessage> end(core::StallMessage message) {
    if (!status_.is_ok()) return status_;
    return message;
  }

 private:
  Status status_;
};

}  // namespace

void put_stall(const core::StallMessage& from, v1::JobMessage& to) { std::visit(Writer{to}, from); }

Result<core::StallMessage> read_stall(const v1::StallReport& from) {
  Reader reader;
  core::StallReport to;
  if (reader.may_read(from.tensors_size(), core::kMaxStalls)) {
    for (const v1::StallReport::Tensor& tensor : from.tensors()) {
      to.tensors.push_back({reader.name(tensor.name()), reader.age(tensor.age_ms())});
    }
  }
  return reader.end(std::move(to));
}

Result<core::StallMessage> read_stall(const v1::StallQuery& from) {
  Reader reader;
  core::StallQuery to{from.round(), from.wants_near_misses(), {}};
  if (reader.may_read(from.names_size(), core::kMaxStalls)) {
    for (const std::string& name : from.names()) to.names.push_back(reader.name(name));
  }
  return reader.end(std::move(to));
}

Result<core::StallMessage> read_stall(const v1::StallAnswer& from) {
  Reader reader;
  core::StallAnswer to;
  to.round = from.round();
  if (reader.may_read(from.tensors_size(), core::kMaxStalls)) {
    for (const v1::StallAnswer::Tensor& tensor : from.tensors()) {
      to.tensors.push_back(
          {reader.ranks(tensor.submitted()), reader.near_misses(tensor.near_misses())});
    }
  }
  to.ranks = reader.activities(from.ranks());
  return reader.end(std::move(to));
}

Result<core::StallMessage> read_stall(const v1::StallNotice& from) {
  Reader reader;
  core::StallNotice to;
  if (reader.may_read(from.stalls_size(), core::kMaxStalls)) {
    for (const v1::StallNotice::Stall& item : from.stalls()) {
      core::Stall stall;
      stall.tensor = reader.name(item.tensor());
      stall.age_ms = reader.age(item.age_ms());
      stall.is_news = item.is_news();
      stall.submitted = reader.ranks(item.submitted());
      stall.missing = reader.ranks(item.missing());
      stall.more_submitted = reader.count(item.more_submitted());
      stall.more_missing = reader.count(item.more_missing());
      stall.near_misses = reader.near_misses(item.near_misses());
      to.stalls.push_back(std::move(stall));
    }
  }
  to.ranks = reader.activities(from.ranks());
  return reader.end(std::move(to));
}

}  // namespace rueda::service
