#include "tests/sim/world/network.h"

namespace rueda::sim {

Network::Network(EventQueue& queue, RandomChoices& choices, int nodes)
    : queue_(queue),
      choices_(choices),
      nodes_(nodes),
      streams_(static_cast<size_t>(nodes * nodes)) {}

void Network::send(int from, int to, const core::Message& message) {
  Stream& on = stream(from, to);
  if (on.is_cut) return;
  const int delay = choices_.draw(Decision::kMessage, from, to, 1, 40);
  on.last = std::max(on.last, queue_.now() + delay);
  SimEvent arrival{SimEvent::Kind::kEvent, to, 0, core::MessageArrived{message}};
  arrival.incarnation = on.incarnation;
  queue_.at(on.last, arrival);
  const int again = choices_.draw(Decision::kRepeat, from, to, 0, 99) - 94;
  if (again <= 0) return;
  on.last += again;
  queue_.at(on.last, std::move(arrival));
}

void Network::hold(int from, int to, TicksMs until) {
  Stream& on = stream(from, to);
  on.last = std::max(on.last, until);
}

void Network::cut(int a, int b, const Status& status) {
  for (Stream* on : {&stream(a, b), &stream(b, a)}) {
    ++on->incarnation;
    on->is_cut = true;
    on->last = queue_.now();
  }
  tell_lost(a, b, status);
  tell_lost(b, a, status);
}

void Network::join(int a, int b) {
  stream(a, b).is_cut = false;
  stream(b, a).is_cut = false;
}

void Network::tell_lost(int node, int lost, const Status& status) {
  Stream& on = stream(lost, node);
  on.last = std::max(on.last, queue_.now() + choices_.draw(Decision::kNotice, node, lost, 1, 50));
  queue_.at(on.last, node, core::NodeLost{NodeIndex{lost}, status});
}

}  // namespace rueda::sim
