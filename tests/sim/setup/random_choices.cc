#include "tests/sim/setup/random_choices.h"

#include <algorithm>

namespace rueda::sim {
namespace {

constexpr const char* kNames[kDecisionCount] = {"message",  "repeat", "turn",  "think", "order",
                                                "complete", "notice", "stop",  "held",  "channel",
                                                "go",       "record", "carry", "copy",  "receive"};
constexpr int kMaxSubjects = 64;  // the most nodes or ranks of a run

}  // namespace

const char* to_string(Decision decision) { return kNames[static_cast<int>(decision)]; }

std::string DecisionKey::text() const {
  return std::string(to_string(what)) + " " + std::to_string(a) + " " + std::to_string(b) + " #" +
         std::to_string(n);
}

uint64_t mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15ull;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

RandomChoices::RandomChoices(uint64_t seed)
    : seed_(mix(seed)), counts_(kDecisionCount * kMaxSubjects * kMaxSubjects) {}

RandomChoices::RandomChoices(const std::vector<Choice>& script) : RandomChoices(uint64_t{0}) {
  script_.emplace();
  for (const Choice& choice : script) script_->emplace(choice.key.packed(), choice.value);
}

int RandomChoices::draw(Decision what, int a, int b, int low, int high) {
  const size_t kind = static_cast<size_t>(what);
  const size_t cell =
      (kind * kMaxSubjects + static_cast<size_t>(a)) * kMaxSubjects + static_cast<size_t>(b);
  const DecisionKey key{what, a, b, counts_[cell]++};
  int value = low;
  if (script_) {
    const auto it = script_->find(key.packed());
    if (it != script_->end()) value = std::clamp(it->second, low, high);
  } else {
    const uint64_t span = static_cast<uint64_t>(high - low) + 1;
    value = low + static_cast<int>(mix(seed_ ^ mix(key.packed())) % span);
  }
  if (recording_ && value != low) taken_.push_back({key, value});
  return value;
}

}  // namespace rueda::sim
