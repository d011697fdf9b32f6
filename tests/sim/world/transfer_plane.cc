#include "tests/sim/world/transfer_plane.h"

#include <algorithm>

#include "tests/sim/setup/names.h"

namespace rueda::sim {

void TransferPlane::on_output(int node, const core::Output& output) {
  for (const core::TransferLaunch& item : output.transfers) launch(node, item);
  const uint32_t epoch = world_.node(node).epoch;
  for (const core::TransferSend& item : output.transfer_sends) send(node, epoch, item);
}

TicksMs TransferPlane::quiet_at(int node) const {
  TicksMs quiet = 0;
  for (const auto& [way, last] : last_) {
    if (way.first == node) quiet = std::max(quiet, last);
  }
  return quiet;
}

void TransferPlane::send(int node, uint32_t epoch, const core::TransferSend& send) {
  const int to = send.to.value;
  core::TransferMessage message = send.message;
  if (auto* offer = std::get_if<core::TransferOffer>(&message)) {
    offer->carried = choices_.draw(Decision::kCarry, node, to, 0, 1) == 1;
  }
  TicksMs& last = last_[{node, to}];
  last = std::max(last, queue_.now() + choices_.draw(Decision::kRecord, node, to, 1, 40));
  queue_.at(last, to,
            core::TransferMessageArrived{NodeIndex{node}, Epoch{epoch}, send.process_set, message});
}

void TransferPlane::launch(int node, const core::TransferLaunch& launch) {
  const Key key{launch.epoch.value, launch.key};
  if (launch.destination) {
    ++met_;
    if (!received_.insert(key).second) {
      violation_ = "transfers: a message went to two receives on " + name_of(node);
    }
  }
  if (launch.source && !sent_.insert(key).second) {
    violation_ = "transfers: a message was sent twice by " + name_of(node);
  }
  if (launch.carried || launch.key.from == launch.key.to) return done(node, launch);
  // The data leaves when the source is told to send, and is there some time later.
  if (!launch.source) return;
  if (!received_.contains(key)) {
    violation_ = "transfers: " + name_of(node) + " sends where nobody receives";
  }
  done(node, launch);
  done(launch.key.to.value, launch);
}

void TransferPlane::done(int node, const core::TransferLaunch& launch) {
  const int delay =
      choices_.draw(Decision::kCopy, launch.key.from.value, launch.key.to.value, 0, 30);
  queue_.at(queue_.now() + delay, node, launch.epoch.value, core::TransferDone{launch.key});
}

}  // namespace rueda::sim
