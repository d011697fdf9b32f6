// What the connections of one principal hold together, in bytes, and who waits until it is less.
#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <utility>

namespace rueda::local {

// Everything here belongs to one loop.
class Budget {
 public:
  explicit Budget(size_t most_bytes) : most_bytes_(most_bytes) {}

  // One may go beyond the budget: what is asked is whether there is any room left.
  bool has_room() const { return used_bytes_ < most_bytes_; }
  void add(size_t bytes) { used_bytes_ += bytes; }
  // Calls those that wait, as long as there is room.
  void remove(size_t bytes) {
    used_bytes_ -= bytes;
    for (size_t count = waiting_.size(); count > 0 && has_room() && !waiting_.empty(); --count) {
      const std::function<void()> first = std::move(waiting_.front().then);
      waiting_.pop_front();
      first();
    }
  }
  // Calls `then` once there is room; it has to ask again, and may wait again. `key` stands for who
  // waits.
  void wait(const void* key, std::function<void()> then) {
    waiting_.push_back({key, std::move(then)});
  }
  // Somebody who may wait goes away.
  void leave(const void* key) {
    std::erase_if(waiting_, [&](const Waiting& one) { return one.key == key; });
  }

 private:
  struct Waiting {
    const void* key;
    std::function<void()> then;
  };

  const size_t most_bytes_;
  size_t used_bytes_ = 0;
  std::deque<Waiting> waiting_;
};

}  // namespace rueda::local
