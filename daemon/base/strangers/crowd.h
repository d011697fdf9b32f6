// A crowd of those who have come and are not known yet, such as connections that have not said who
// they are. If there are too many, one of the address that has most of them has to go, and of these
// the one that has been there longest: a stranger who comes again and again pushes out himself, and
// never keeps others out.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>

namespace rueda {

template <class Id>
class Crowd {
 public:
  // Adds a member, which must not be there already.
  void add(const Id& id, const std::string& address) {
    const uint64_t number = ++last_number_;
    members_[id] = {number, address};
    by_address_[address].emplace(number, id);
  }
  void remove(const Id& id) {
    const auto it = members_.find(id);
    if (it == members_.end()) return;
    const auto at = by_address_.find(it->second.second);
    at->second.erase({it->second.first, id});
    if (at->second.empty()) by_address_.erase(at);
    members_.erase(it);
  }
  bool contains(const Id& id) const { return members_.contains(id); }
  size_t size() const { return members_.size(); }
  size_t size_of(const std::string& address) const {
    const auto it = by_address_.find(address);
    return it == by_address_.end() ? 0 : it->second.size();
  }
  // Returns who has to go first, or none if nobody is here. Of addresses with equally many members,
  // it is the one with the oldest member.
  std::optional<Id> next_to_go() const {
    const std::set<std::pair<uint64_t, Id>>* fullest = nullptr;
    for (const auto& [address, here] : by_address_) {
      if (fullest == nullptr || here.size() > fullest->size() ||
          (here.size() == fullest->size() && *here.begin() < *fullest->begin())) {
        fullest = &here;
      }
    }
    return fullest == nullptr ? std::nullopt : std::optional(fullest->begin()->second);
  }
  // Returns the oldest member of the address, or nothing if there is none.
  std::optional<Id> oldest_of(const std::string& address) const {
    const auto it = by_address_.find(address);
    return it == by_address_.end() ? std::nullopt : std::optional(it->second.begin()->second);
  }

 private:
  uint64_t last_number_ = 0;
  std::map<Id, std::pair<uint64_t, std::string>> members_;
  std::map<std::string, std::set<std::pair<uint64_t, Id>>> by_address_;
};

}  // namespace rueda
