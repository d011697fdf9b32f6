#include "tests/sim/scenario/scenario_grammar.h"

#include <algorithm>
#include <cctype>

namespace rueda::sim {
namespace {

bool is_number(const std::string& word) {
  return !word.empty() && std::all_of(word.begin(), word.end(),
                                      [](unsigned char c) { return std::isdigit(c) != 0; });
}

bool is_node(const std::string& word) {
  return word.size() > 1 && word[0] == 'n' && is_number(word.substr(1));
}

// Returns how many words from `begin` on the capitals take, or 0 if they cannot stand there.
size_t taken_by(const std::string& capitals, const Words& line, size_t begin,
                const std::string& next_word) {
  const auto is = [&](size_t i, const char* word) { return i < line.size() && line[i] == word; };
  if (begin >= line.size()) return 0;
  if (capitals == "RANKS") {
    const bool one = is(begin, "rank") && begin + 1 < line.size() && is_number(line[begin + 1]);
    return one || (is(begin, "every") && is(begin + 1, "rank")) ? 2 : 0;
  }
  if (capitals == "NODES" && is(begin, "every") && is(begin + 1, "node")) return 2;
  if (capitals == "NODES" || capitals == "NODE") return is_node(line[begin]) ? 1 : 0;
  if (capitals == "NUMBER") return is_number(line[begin]) ? 1 : 0;
  if (capitals == "WORD") return 1;
  size_t end = begin;
  while (end < line.size() && line[end] != next_word) ++end;
  return end - begin;
}

bool is_capitals(const std::string& word) {
  return std::all_of(word.begin(), word.end(),
                     [](unsigned char c) { return std::isupper(c) != 0; });
}

}  // namespace

Words split_words(const std::string& line) {
  Words words;
  for (size_t i = 0; i < line.size() && line[i] != '#';) {
    if (std::isspace(static_cast<unsigned char>(line[i])) != 0) {
      ++i;
      continue;
    }
    const bool quoted = line[i] == '"';
    const size_t begin = quoted ? i + 1 : i;
    const size_t end = std::min(line.find_first_of(quoted ? "\"" : " \t", begin), line.size());
    words.push_back(line.substr(begin, end - begin));
    i = end + (quoted ? 1 : 0);
  }
  return words;
}

std::optional<std::vector<Words>> match(const std::string& phrase, const Words& line) {
  const Words pattern = split_words(phrase);
  std::vector<Words> meanings;
  size_t at = 0;
  for (size_t i = 0; i < pattern.size(); ++i) {
    if (!is_capitals(pattern[i])) {
      if (at >= line.size() || line[at++] != pattern[i]) return std::nullopt;
      continue;
    }
    const std::string next_word = i + 1 < pattern.size() ? pattern[i + 1] : "";
    const size_t count = taken_by(pattern[i], line, at, next_word);
    if (count == 0) return std::nullopt;
    meanings.emplace_back(line.begin() + static_cast<std::ptrdiff_t>(at),
                          line.begin() + static_cast<std::ptrdiff_t>(at + count));
    at += count;
  }
  if (at != line.size()) return std::nullopt;
  return meanings;
}

}  // namespace rueda::sim
