#include "daemon/core/schedules/ring_order.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <map>
#include <numeric>
#include <tuple>

#include "daemon/base/check.h"

namespace rueda::core {
namespace {

constexpr size_t kMaxEnumerated = 8;
constexpr size_t kMaxImproved = 32;
// Each improvement betters the order, so that they would end by themselves; but nobody has proven
// how soon.
constexpr int kMaxImprovements = 200;
// An order must be faster by this factor. Measurements of equal links differ by less, so with equal
// links nodes ascend, and two runs give the same ring.
constexpr double kMuchFaster = 1.25;
// So many of the greedy orders are improved. There are always as many, because this is not more
// than kMaxEnumerated.
constexpr size_t kImproved = 8;

using Order = std::vector<int>;

// Fields are compared in this order: the first that is larger, or smaller, wins.
struct Score {
  double slowest = 0;
  double sum = 0;
  bool operator<(const Score& other) const {
    return std::tie(slowest, sum) < std::tie(other.slowest, other.sum);
  }
};

class Rings {
 public:
  Rings(const std::vector<std::string>& racks, const Bandwidths& bandwidths)
      : bandwidths_(bandwidths) {
    std::map<std::string, int> numbers;
    for (const std::string& rack : racks) {
      const bool is_known = !rack.empty() && numbers.contains(rack);
      rack_of_.push_back(is_known ? numbers[rack] : racks_);
      if (is_known) continue;
      if (!rack.empty()) numbers[rack] = racks_;
      ++racks_;
    }
  }

  size_t size() const { return rack_of_.size(); }

  // Racks are numbered by their first nodes.
  Order by_racks() const {
    Order order(size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(),
                     [&](int a, int b) { return rack_of(a) < rack_of(b); });
    return order;
  }

  // Returns the best of all orders that keep racks together, which are tried in lexicographic
  // order.
  Order best() const {
    Order order(size());
    std::iota(order.begin(), order.end(), 0);
    Order best;
    Score best_score;
    do {
      if (!keeps_racks_together(order)) continue;
      const Score its = score(order);
      if (!best.empty() && !(best_score < its)) continue;
      best = order;
      best_score = its;
    } while (std::next_permutation(order.begin() + 1, order.end()));
    return best;
  }

  // Goes on from `start` over the fastest link to a node of the same rack; once there is none left,
  // to any other node. The result is turned so that it begins with node 0.
  Order greedy(int start) const {
    Order order{start};
    std::vector<bool> is_placed(size());
    is_placed[static_cast<size_t>(start)] = true;
    while (order.size() < size()) {
      const int last = order.back();
      int next = -1;
      for (int node = 0; node < static_cast<int>(size()); ++node) {
        if (is_placed[static_cast<size_t>(node)]) continue;
        const auto rank = [&](int candidate) {
          return std::pair(rack_of(candidate) == rack_of(last), link(last, candidate));
        };
        if (next < 0 || rank(next) < rank(node)) next = node;
      }
      is_placed[static_cast<size_t>(next)] = true;
      order.push_back(next);
    }
    std::rotate(order.begin(), std::find(order.begin(), order.end(), 0), order.end());
    return order;
  }

  bool is_much_faster(const Order& order, const Order& than) const {
    return score(order).slowest > kMuchFaster * score(than).slowest;
  }

  // Returns the best of the orders that the most promising greedy ones are improved to.
  Order improved() const {
    std::vector<Order> orders;
    for (int start = 0; start < static_cast<int>(size()); ++start) orders.push_back(greedy(start));
    const auto is_better = [&](const Order& a, const Order& b) { return score(b) < score(a); };
    std::stable_sort(orders.begin(), orders.end(), is_better);
    orders.resize(kImproved);
    for (Order& order : orders) {
      for (int i = 0; i < kMaxImprovements && improve_once(order); ++i) {
      }
    }
    return *std::min_element(orders.begin(), orders.end(), is_better);
  }

 private:
  int rack_of(int node) const { return rack_of_[static_cast<size_t>(node)]; }
  double link(int from, int to) const {
    return bandwidths_[static_cast<size_t>(from)][static_cast<size_t>(to)];
  }

  Score score(const Order& order) const {
    Score score{std::numeric_limits<double>::infinity(), 0};
    for (size_t i = 0; i < order.size(); ++i) {
      const double bandwidth = link(order[i], order[(i + 1) % order.size()]);
      score.slowest = std::min(score.slowest, bandwidth);
      score.sum += bandwidth;
    }
    return score;
  }

  bool keeps_racks_together(const Order& order) const {
    int borders = 0;
    for (size_t i = 0; i < order.size(); ++i) {
      if (rack_of(order[i]) != rack_of(order[(i + 1) % order.size()])) ++borders;
    }
    return borders == (racks_ > 1 ? racks_ : 0);
  }

  bool take_if_better(Order& order, const Order& other) const {
    if (!keeps_racks_together(other) || !(score(order) < score(other))) return false;
    order = other;
    return true;
  }

  // Makes the first change that betters the order. Node 0 stays where it is, because a ring has no
  // beginning.
  bool improve_once(Order& order) const {
    const auto n = static_cast<ptrdiff_t>(order.size());
    for (ptrdiff_t i = 1; i < n; ++i) {
      for (ptrdiff_t j = 1; j < n; ++j) {
        Order other = order;
        if (i < j) {
          std::reverse(other.begin() + i, other.begin() + j + 1);
          if (take_if_better(order, other)) return true;
          other = order;
        }
        const int moved = other[static_cast<size_t>(i)];
        other.erase(other.begin() + i);
        other.insert(other.begin() + j, moved);
        if (i != j && take_if_better(order, other)) return true;
      }
    }
    return false;
  }

  const Bandwidths& bandwidths_;
  std::vector<int> rack_of_;
  int racks_ = 0;
};

}  // namespace

std::vector<int> ring_order(const std::vector<std::string>& racks, const Bandwidths& bandwidths) {
  RUEDA_CHECK(!racks.empty() && (bandwidths.empty() || bandwidths.size() == racks.size()));
  const Rings rings(racks, bandwidths);
  const Order plain = rings.by_racks();
  if (bandwidths.empty()) return plain;
  const Order fast = rings.size() <= kMaxEnumerated ? rings.best()
                     : rings.size() <= kMaxImproved ? rings.improved()
                                                    : rings.greedy(0);
  return rings.is_much_faster(fast, plain) ? fast : plain;
}

}  // namespace rueda::core
