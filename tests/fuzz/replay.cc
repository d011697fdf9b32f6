// Replays a fuzzer's corpus, and inputs that are made from it: a test without libFuzzer, which
// needs clang. Each line of the corpus is one input, in hexadecimal digits.
//
// Run it as NAME_replay CORPUS.txt; RUEDA_TEST_SCALE says how many inputs are made of each (100).

#include <cstdint>
#include <cstdio>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "tests/support/scale.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace {

using Input = std::vector<uint8_t>;

int value_of(char digit) {
  if (digit >= '0' && digit <= '9') return digit - '0';
  return digit >= 'a' && digit <= 'f' ? digit - 'a' + 10 : -1;
}

bool read_line(const std::string& line, Input& input) {
  if (line.size() % 2 != 0) return false;
  for (size_t i = 0; i < line.size(); i += 2) {
    const int high = value_of(line[i]);
    const int low = value_of(line[i + 1]);
    if (high < 0 || low < 0) return false;
    input.push_back(static_cast<uint8_t>(16 * high + low));
  }
  return true;
}

// Returns an input with a few bytes changed, an end cut off, or the end of another input in its
// place.
Input made_of(const Input& input, const std::vector<Input>& all, std::mt19937_64& random) {
  Input made = input;
  switch (random() % 4) {
    case 0: made.resize(random() % (made.size() + 1)); break;
    case 1: {
      const Input& other = all[random() % all.size()];
      made.resize(random() % (made.size() + 1));
      const size_t from = random() % (other.size() + 1);
      made.insert(made.end(), other.begin() + static_cast<std::ptrdiff_t>(from), other.end());
      break;
    }
    default:
      for (uint64_t i = 0; i < 1 + random() % 4 && !made.empty(); ++i) {
        made[random() % made.size()] = static_cast<uint8_t>(random());
      }
  }
  return made;
}

}  // namespace

int main(int argc, char** argv) {
  std::ifstream file(argc == 2 ? argv[1] : "");
  std::vector<Input> inputs;
  for (std::string line; std::getline(file, line);) {
    inputs.emplace_back();
    if (!read_line(line, inputs.back())) {
      std::fprintf(stderr, "%s: input %zu is not of hexadecimal digits\n", argv[1], inputs.size());
      return 1;
    }
  }
  if (inputs.empty()) {
    std::fprintf(stderr, "usage: %s CORPUS.txt, with an input at least\n", argv[0]);
    return 1;
  }
  std::mt19937_64 random(1);
  uint64_t runs = 0;
  for (const Input& input : inputs) {
    LLVMFuzzerTestOneInput(input.data(), input.size());
    ++runs;
    for (uint64_t i = rueda::testing_support::scaled(100); i > 0; --i, ++runs) {
      const Input made = made_of(input, inputs, random);
      LLVMFuzzerTestOneInput(made.data(), made.size());
    }
  }
  std::printf("%zu inputs, %llu runs\n", inputs.size(), static_cast<unsigned long long>(runs));
  return 0;
}
