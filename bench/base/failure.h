// What ends the program: one sentence for the user, thrown, and printed by main.
#pragma once

#include <stdexcept>

namespace rueda::bench {

class Failure : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace rueda::bench
