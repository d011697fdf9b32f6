#include "daemon/local/line.h"

#include <algorithm>
#include <utility>

namespace rueda::local {
namespace {

// A shorter rest is not worth a timer.
constexpr std::chrono::milliseconds kLeastRest{2};
constexpr std::chrono::seconds kLongestRest{1};

}  // namespace

void Line::enter(const std::string& principal, const void* key, std::function<void()> begin) {
  std::deque<Waiting>& mine = waiting_[principal];
  if (mine.empty()) order_.push_back(principal);
  mine.push_back({key, std::move(begin)});
  if (!is_taken_) take_next();
}

void Line::leave(const std::string& principal, const void* key) {
  const auto found = waiting_.find(principal);
  if (found == waiting_.end()) return;
  std::erase_if(found->second, [&](const Waiting& one) { return one.key == key; });
  if (!found->second.empty()) return;
  waiting_.erase(found);
  std::erase(order_, principal);
}

void Line::done(std::chrono::nanoseconds rest) {
  if (rest < kLeastRest) {
    is_taken_ = false;
    return take_next();
  }
  rest_.expires_after(std::min<std::chrono::nanoseconds>(rest, kLongestRest));
  rest_.async_wait(lifetime_.guard([this](const boost::system::error_code& error) {
    if (error) return;
    is_taken_ = false;
    take_next();
  }));
}

void Line::take_next() {
  if (is_taken_ || order_.empty()) return;
  const std::string principal = std::move(order_.front());
  order_.pop_front();
  std::deque<Waiting>& mine = waiting_.at(principal);
  const std::function<void()> begin = std::move(mine.front().begin);
  mine.pop_front();
  if (mine.empty()) {
    waiting_.erase(principal);
  } else {
    order_.push_back(principal);
  }
  is_taken_ = true;
  begin();
}

}  // namespace rueda::local
