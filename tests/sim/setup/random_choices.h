// Makes every random decision of a run that its setup leaves open: how long a message travels,
// which tensor a process submits next. A decision has a name, and its value follows from the seed
// and that name alone, so that taking one event out of a run leaves the other decisions as they
// were.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

namespace rueda::sim {

enum class Decision : uint8_t {
  kMessage,   // (from, to): ticks a message is on its way
  kRepeat,    // (from, to): whether it comes twice, and how many ticks later
  kTurn,      // (node): ticks until a turn ends
  kThink,     // (rank): ticks between two acts of a training process
  kOrder,     // (rank): how far ahead of its turn a tensor is submitted
  kComplete,  // (node): ticks from an operation's last launch to its end on this node
  kNotice,    // (who, whom): ticks until a loss is noticed
  kStop,      // (node): ticks until the data plane of a sealed epoch stands still
  kHeld,      // (node): whether it has a final chunk of what is under way then
  kChannel,   // (who, whom): whether a lost node's data channel is seen to break
  kGo,        // (node): ticks until the job is closed where all ranks have left
  kRecord,    // (from, to): ticks a message about a transfer is on its way
  kCarry,     // (from, to): whether a send's data goes with its offer
  kCopy,      // (from, to): ticks until a transfer's data is there
  kReceive,   // (rank): whether it receives before it sends
};
inline constexpr int kDecisionCount = 15;
const char* to_string(Decision decision);

// Names the n-th decision of its kind about (a, b), n from 0.
struct DecisionKey {
  Decision what;
  int a;
  int b;
  uint32_t n;

  uint64_t packed() const {
    return (static_cast<uint64_t>(what) << 56) | (static_cast<uint64_t>(a & 0xfff) << 44) |
           (static_cast<uint64_t>(b & 0xfff) << 32) | n;
  }
  // Returns a text such as "message 0 1 #3".
  std::string text() const;
};

struct Choice {
  DecisionKey key;
  int value;
};

// Applies splitmix64's finisher: each bit of the result depends on each bit of the argument.
uint64_t mix(uint64_t x);

class RandomChoices {
 public:
  explicit RandomChoices(uint64_t seed);
  // Takes only these decisions as given; each other decision is the lowest that it can be.
  explicit RandomChoices(const std::vector<Choice>& script);

  // Draws a number from low to high. Low is the quiet choice: no delay, no fault, nothing special.
  int draw(Decision what, int a, int b, int low, int high);
  bool chance(Decision what, int a, int b, int percent) {
    return draw(what, a, b, 0, 99) >= 100 - percent;
  }

  // Records what is drawn and is not the quiet choice, in order.
  void record() { recording_ = true; }
  const std::vector<Choice>& taken() const { return taken_; }

 private:
  uint64_t seed_ = 0;
  std::optional<std::unordered_map<uint64_t, int>> script_;
  std::vector<uint32_t> counts_;  // by (what, a, b)
  bool recording_ = false;
  std::vector<Choice> taken_;
};

}  // namespace rueda::sim
