// Models the control links between daemons: streams that keep their order and overtake each other,
// that repeat a message now and then, and that can be held up or lost (docs/protocol.md, Links).
#pragma once

#include <vector>

#include "tests/sim/setup/event_queue.h"
#include "tests/sim/setup/random_choices.h"

namespace rueda::sim {

class Network {
 public:
  Network(EventQueue& queue, RandomChoices& choices, int nodes);

  void send(int from, int to, const core::Message& message);
  // Makes messages that are sent from now on arrive at that time or later.
  void hold(int from, int to, TicksMs until);
  // Cuts the link between the two: messages on their way never arrive, and both nodes are told,
  // each in its own time. Until `join` nothing passes.
  void cut(int a, int b, const Status& status);
  void join(int a, int b);
  // Tells `node` that `lost` is gone, after everything that `lost` had sent before.
  void tell_lost(int node, int lost, const Status& status);
  // Returns whether the message is still to arrive, because its link has not been cut meanwhile.
  bool arrives(int from, int to, uint32_t incarnation) const {
    return stream(from, to).incarnation == incarnation;
  }

 private:
  struct Stream {
    TicksMs last = 0;  // the time when the last message so far arrives
    uint32_t incarnation = 1;
    bool is_cut = false;
  };
  Stream& stream(int from, int to) { return streams_[static_cast<size_t>(from * nodes_ + to)]; }
  const Stream& stream(int from, int to) const {
    return streams_[static_cast<size_t>(from * nodes_ + to)];
  }

  EventQueue& queue_;
  RandomChoices& choices_;
  const int nodes_;
  std::vector<Stream> streams_;
};

}  // namespace rueda::sim
