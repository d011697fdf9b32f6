// Models the channels on which nodes tell each other of transfers, and on which the data goes. A
// channel keeps its order, loses nothing and repeats nothing; it and the control links overtake
// each other. What is on its way when an epoch ends arrives later all the same.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "tests/sim/setup/event_queue.h"
#include "tests/sim/setup/random_choices.h"
#include "tests/sim/world/world.h"

namespace rueda::sim {

class TransferPlane {
 public:
  TransferPlane(EventQueue& queue, RandomChoices& choices, World& world)
      : queue_(queue), choices_(choices), world_(world) {}

  // Carries out what the node's core says of transfers.
  void on_output(int node, const core::Output& output);
  // Returns when other nodes have all that the node has sent so far.
  TicksMs quiet_at(int node) const;
  const std::string& violation() const { return violation_; }
  uint64_t met() const { return met_; }

 private:
  using Key = std::pair<uint32_t, core::TransferKey>;  // Begins with the epoch.

  void launch(int node, const core::TransferLaunch& launch);
  void send(int node, uint32_t epoch, const core::TransferSend& send);
  void done(int node, const core::TransferLaunch& launch);

  EventQueue& queue_;
  RandomChoices& choices_;
  World& world_;
  std::map<std::pair<int, int>, TicksMs> last_;  // When the last message so far arrives.
  std::set<Key> received_;  // The transfers that were launched at their destinations.
  std::set<Key> sent_;      // The same at their sources.
  std::string violation_;
  uint64_t met_ = 0;
};

}  // namespace rueda::sim
