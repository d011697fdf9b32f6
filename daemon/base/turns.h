// Turns share a loop out among parties, such as users or jobs: by deficit round robin, so that
// whoever has much to do has no more of the loop than others while they have something to do.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>

#include "daemon/base/lifetime.h"

namespace rueda {

// A party works at once while it has credit. Without credit it waits in a line, from whose front
// the parties get a quantum of credit each, one in a turn of the loop. Once nobody waits, all have
// a whole quantum again: a party that is alone pays for its turns with one handler a quantum.
// Everything here belongs to one loop.
class Turns {
 public:
  class Party;

  // `quantum` is what a turn may cost, in whatever unit the parties are charged in. Work that waits
  // in a turn goes on for `longest` at most, however little it is charged.
  Turns(boost::asio::io_context& loop, int64_t quantum, std::chrono::microseconds longest)
      : loop_(loop), quantum_(quantum), longest_(longest) {}
  // Drops work that waits.
  ~Turns();
  Turns(const Turns&) = delete;
  Turns& operator=(const Turns&) = delete;

  // Returns the party of that name, which is forgotten when nobody holds it. A party must not be
  // used once the Turns have ended.
  std::shared_ptr<Party> party(const std::string& name);

 private:
  void wait(const std::shared_ptr<Party>& party);
  void post_turn();
  void give_turn();
  void end_turn(std::shared_ptr<Party> party);

  boost::asio::io_context& loop_;
  const int64_t quantum_;
  const std::chrono::microseconds longest_;
  std::map<std::string, std::weak_ptr<Party>> parties_;
  std::deque<std::shared_ptr<Party>> line_;  // Those whose work waits; none is in it twice.
  Lifetime lifetime_;
};

class Turns::Party : public std::enable_shared_from_this<Turns::Party> {
 public:
  Party(Turns& turns, int64_t credit) : turns_(turns), credit_(credit) {}

  // Returns whether the party may begin work, or go on with it, now. If not, it has to wait().
  bool may_work() const { return credit_ > 0 && (has_turn_ || waiting_.empty()); }
  // The party has worked for this much. It may be more than the credit: then the next turn has
  // less.
  void charge(int64_t cost) { credit_ -= cost; }
  // The turn is over, whatever is left of the credit.
  void end_turn() { credit_ = std::min<int64_t>(credit_, 0); }
  // Does the work in one of the party's next turns, in the order of these calls.
  void wait(std::function<void()> work) {
    waiting_.push_back(std::move(work));
    if (waiting_.size() == 1 && !has_turn_) turns_.wait(shared_from_this());
  }

 private:
  friend class Turns;

  Turns& turns_;
  int64_t credit_;
  bool has_turn_ = false;
  std::deque<std::function<void()>> waiting_;
};

inline Turns::~Turns() {
  // Work may hold its party.
  for (const std::shared_ptr<Party>& party : line_) {
    const auto dropped = std::exchange(party->waiting_, {});
  }
}

inline std::shared_ptr<Turns::Party> Turns::party(const std::string& name) {
  std::weak_ptr<Party>& known = parties_[name];
  std::shared_ptr<Party> found = known.lock();
  if (found) return found;
  std::erase_if(parties_,
                [&](const auto& entry) { return entry.second.expired() && entry.first != name; });
  found = std::make_shared<Party>(*this, quantum_);
  known = found;
  return found;
}

inline void Turns::wait(const std::shared_ptr<Party>& party) {
  line_.push_back(party);
  if (line_.size() == 1) post_turn();
}

inline void Turns::post_turn() {
  boost::asio::post(loop_, lifetime_.guard([this] { give_turn(); }));
}

inline void Turns::give_turn() {
  const std::shared_ptr<Party> party = line_.front();
  const Lifetime::Watch life = lifetime_.watch();
  party->has_turn_ = true;
  party->credit_ = std::min(party->credit_ + quantum_, quantum_);
  const auto began = std::chrono::steady_clock::now();
  try {
    while (party->credit_ > 0 && !party->waiting_.empty()) {
      const std::function<void()> work = std::move(party->waiting_.front());
      party->waiting_.pop_front();
      work();
      if (!life.lasts()) return;
      if (std::chrono::steady_clock::now() - began >= longest_) break;
    }
  } catch (...) {
    if (life.lasts()) end_turn(party);
    throw;
  }
  end_turn(party);
}

// The party stood at the front of the line during its turn, so that nobody else posted one.
inline void Turns::end_turn(std::shared_ptr<Party> party) {
  party->has_turn_ = false;
  line_.pop_front();
  if (!party->waiting_.empty()) line_.push_back(std::move(party));
  if (!line_.empty()) return post_turn();
  for (const auto& [name, known] : parties_) {
    if (const std::shared_ptr<Party> one = known.lock()) one->credit_ = quantum_;
  }
}

}  // namespace rueda
