// Plants the mistakes of daemon/core/model/mutants.h one after the other, and expects a checker of
// a simulator to find each.
#pragma once

#include <iomanip>
#include <iostream>
#include <span>
#include <string>

#include <gtest/gtest.h>

#include "daemon/core/model/mutants.h"
#include "tests/sim/setup/seeds.h"

namespace rueda::sim {

struct PlantedMutant {
  core::Mutant mutant;
  const char* what;
  const char* checker;  // The checker that must find it.
};

class MutantsTest : public testing::Test {
 protected:
  ~MutantsTest() override { core::planted_mutant = core::Mutant::kNone; }

  // `run` runs a seed and returns what was violated, which begins with the checker's name and a
  // colon; "" if nothing was.
  template <class Run>
  static void expect_each_is_found(std::span<const PlantedMutant> planted, Run run) {
    std::cout << std::left << std::setw(32) << "mutant" << std::setw(20) << "checker"
              << "seeds needed\n";
    for (const PlantedMutant& one : planted) {
      core::planted_mutant = one.mutant;
      std::string violation;
      uint64_t seed = 0;
      while (violation.empty() && seed < kSeedsOfAChange / 2) violation = run(++seed);
      const std::string checker = violation.substr(0, violation.find(':'));
      EXPECT_EQ(checker, one.checker) << one.what << ": " << violation;
      std::cout << std::setw(32) << one.what << std::setw(20) << checker << seed << '\n';
    }
  }
  // The build for mutants, with none planted, is the code as shipped.
  template <class Run>
  static void expect_nothing_is_found(uint64_t seeds, Run run) {
    for (uint64_t seed = 1; seed <= seeds; ++seed) ASSERT_EQ(run(seed), "");
  }
};

}  // namespace rueda::sim
