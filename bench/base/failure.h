// Defines the exception that ends the program. It holds one sentence for the user, which main
// prints.
#pragma once

#include <stdexcept>

namespace rueda::bench {

class Failure : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace rueda::bench
