// R2 where traffic has stopped, so that frames no longer say what is stable. Node 0 sends an
// acknowledgement round the ring twice: "operations up to seq are complete" waits at each node
// until that is true there, so behind the last node it is true everywhere; then it goes on until
// all nodes know. There is one for each track. The object belongs to its data loop.
#pragma once

#include <array>
#include <optional>

#include "daemon/engine/channels/retained_finals.h"
#include "daemon/engine/channels/ring_link.h"

namespace rueda::engine {

class Acknowledgements {
 public:
  // `self` is a node of a ring of `nodes` nodes. The link must outlive the object.
  Acknowledgements(NodeIndex self, int nodes, RingLink& link)
      : self_(self), nodes_(nodes), link_(link) {}

  // Begins an acknowledgement, on node 0, if there is something to say and none is under way.
  void begin(core::Track track, const RetainedFinals& held);
  // Takes an acknowledgement that has come; it waits for pass(). Returns false if it is impossible.
  // `held` is of its track, or null if nothing is held.
  [[nodiscard]] bool take(const transport::FrameHeader& header, const RetainedFinals* held);
  // Passes on the acknowledgement that waits here, if its operations are complete.
  void pass(core::Track track, RetainedFinals& held);

 private:
  struct Place {
    // It waits until its operations are complete here.
    std::optional<transport::FrameHeader> waiting;
    bool is_under_way = false;  // On node 0: it has not been round once.
  };
  Place& place(core::Track track) { return places_[core::index_of(track)]; }

  const NodeIndex self_;
  const int nodes_;
  RingLink& link_;
  std::array<Place, core::kTracks> places_;
};

}  // namespace rueda::engine
