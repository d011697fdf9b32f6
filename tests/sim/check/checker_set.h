// Holds the checkers of a run: some for each process set, each of which sees only what is about its
// set, as if the set were a job by itself.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tests/sim/check/checkers.h"
#include "tests/sim/setup/setup.h"

namespace rueda::sim {

class CheckerSet {
 public:
  explicit CheckerSet(const RunSetup& setup);

  // These correspond to the functions of Checkers.
  void before_step(NodeIndex node, const core::JobCore& core, const core::Event& event);
  void after_step(NodeIndex node, const core::JobCore& core, const core::Output& output);
  void on_witness(const core::Output& output) { sets_.front()->checkers.on_witness(output); }
  void on_node_died(NodeIndex node);
  void on_rank_died(Rank rank);
  void at_end();

  std::string violation() const;
  void violated(const std::string& what) { sets_.front()->checkers.violated(what); }

  bool anything_open() const;
  uint64_t messages_while_locked() const { return sum(&Checkers::messages_while_locked); }
  uint64_t locked_launches() const { return sum(&Checkers::locked_launches); }
  uint64_t cancels() const { return sum(&Checkers::cancels); }
  uint64_t order_messages() const { return sum(&Checkers::order_messages); }
  uint64_t recovered() const { return sum(&Checkers::recovered); }
  uint64_t completed_by_decision() const { return sum(&Checkers::completed_by_decision); }
  uint64_t repeated() const { return sum(&Checkers::repeated); }

 private:
  struct Set {
    Set(const RunSetup& setup, uint32_t set)
        : id(set),
          layout(setup.layout_of(set)),
          checkers(layout, setup.window, set, setup.has_witness) {}
    const uint32_t id;
    const core::Layout layout;
    Checkers checkers;
  };

  uint64_t sum(uint64_t (Checkers::*count)() const) const;
  Rank rank_of(NodeIndex node, LocalRank local) const;
  // Returns the set in which the rank has the ticket open, or that of all ranks.
  const Set& owner_of(Rank rank, Ticket ticket) const;
  static LocalRank place_in(const Set& set, NodeIndex node, Rank rank);
  core::Output part_of(const Set& set, NodeIndex node, const core::Output& output) const;

  std::vector<std::unique_ptr<Set>> sets_;  // by id of the set
};

}  // namespace rueda::sim
