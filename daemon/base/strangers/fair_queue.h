// A queue of those who have come and wait to be let in. Parties, such as machines, are let in by
// turns: whoever comes in crowds waits behind his own crowd, and others do not.
#pragma once

#include <cstddef>
#include <deque>
#include <list>
#include <map>
#include <optional>
#include <string>
#include <utility>

namespace rueda {

// It holds up to `most` items. An object belongs to one thread.
template <class Item>
class FairQueue {
 public:
  explicit FairQueue(size_t most) : most_(most) {}

  // Adds an item behind the others of its party. Returns an item that finds no place any more: the
  // last one of the party that has most, which may be this one.
  std::optional<Item> push(const std::string& party, Item item) {
    const auto [found, is_new] = places_.try_emplace(party);
    if (is_new) {
      line_.emplace_back(party);
      found->second = std::prev(line_.end());
    }
    found->second->items.push_back(std::move(item));
    if (++size_ <= most_) return std::nullopt;
    // A party that waits for its turn longer than another one of the same size keeps what it has.
    auto fullest = line_.begin();
    for (auto it = line_.begin(); it != line_.end(); ++it) {
      if (it->items.size() >= fullest->items.size()) fullest = it;
    }
    Item dropped = std::move(fullest->items.back());
    fullest->items.pop_back();
    --size_;
    if (fullest->items.empty()) forget(fullest);
    return dropped;
  }

  // Takes the oldest item of the party whose turn it is; nothing if nobody waits.
  std::optional<Item> pop() {
    if (line_.empty()) return std::nullopt;
    const auto first = line_.begin();
    Item item = std::move(first->items.front());
    first->items.pop_front();
    --size_;
    if (first->items.empty()) {
      forget(first);
    } else {
      line_.splice(line_.end(), line_, first);
    }
    return item;
  }

  size_t size() const { return size_; }
  void clear() {
    line_.clear();
    places_.clear();
    size_ = 0;
  }

 private:
  struct Party {
    explicit Party(std::string its_name) : name(std::move(its_name)) {}
    std::string name;
    std::deque<Item> items;
  };
  using Line = std::list<Party>;

  void forget(typename Line::iterator party) {
    places_.erase(party->name);
    line_.erase(party);
  }

  const size_t most_;
  size_t size_ = 0;
  Line line_;  // Parties that have items; whose turn comes next is in front.
  std::map<std::string, typename Line::iterator> places_;
};

}  // namespace rueda
