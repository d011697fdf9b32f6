// Matches the lines of a scenario against phrases such as "RANKS submits NAMES": words in capitals
// stand for something, the others for themselves.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace rueda::sim {

using Words = std::vector<std::string>;

// Splits a line into words. Blanks separate words, quotes keep them together, # begins a comment.
Words split_words(const std::string& line);

// Returns what the capitals stand for, in order, or nullopt if the line is not of this phrase.
//  RANKS  "rank 3" or "every rank"     NODES  "n1" or "every node"     NODE  "n1"
//  NUMBER a number                     WORD   any one word
//  NAMES  one word or more, up to the phrase's next word
std::optional<std::vector<Words>> match(const std::string& phrase, const Words& line);

}  // namespace rueda::sim
