// Makes faults happen when their time has come: deaths, freezes, partitions, and who notices what.
#pragma once

#include "tests/sim/world/data_plane.h"
#include "tests/sim/world/network.h"
#include "tests/sim/world/training.h"

namespace rueda::sim {

class Faults {
 public:
  Faults(const RunSetup& setup, EventQueue& queue, RandomChoices& choices, World& world,
         Network& network, DataPlane& data_plane, Training& training);

  // Puts the setup's faults on the queue.
  void plan();
  void begin(const FaultSetup& fault);
  // Handles a fault that has lasted for as long as a link bears.
  void time_out(const FaultSetup& fault);
  // Lets the daemon of a node that has left the job stop.
  void go(int node);
  // Ends the fault; the caller feeds its backlog to a node that thaws.
  void end(const FaultSetup& fault);

 private:
  void kill_rank(int rank);
  void kill_node(int node);
  bool is_witness(int node) const { return node >= world_.node_count(); }
  // Returns whether the two daemons have a control link.
  bool linked(int a, int b) const;

  const RunSetup& setup_;
  EventQueue& queue_;
  RandomChoices& choices_;
  World& world_;
  Network& network_;
  DataPlane& data_plane_;
  Training& training_;
};

}  // namespace rueda::sim
