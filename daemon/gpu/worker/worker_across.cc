// A GPU worker's communicators, which connect its first device with those of other nodes.
#include <algorithm>
#include <utility>

#include "daemon/gpu/worker/worker.h"

namespace rueda::gpu {

Status Worker::make_id(Packet& packet) {
  CommunicatorBody body;
  if (!packet.take(body) || !packet.is_taken()) return broken("a communicator to be made");
  const Result<CommunicatorId> id = devices_.at(0).make_communicator_id();
  Packet reply(WorkerMessage::kIdMade);
  reply.add(id.is_ok() ? id.value() : CommunicatorId{});
  add_outcome(reply, body.communicator, id.status());
  answer(std::move(reply));
  return Status::ok();
}

Status Worker::connect(Packet& packet) {
  ConnectBody body;
  if (!packet.take(body) || !packet.is_taken() || body.size < 1 || body.rank < 0 ||
      body.rank >= body.size || members_.contains(body.communicator)) {
    return broken("a communicator to be connected");
  }
  if (members_.size() >= kMaxCommunicators) {
    return broken("more than " + std::to_string(kMaxCommunicators) + " communicators");
  }
  auto made = devices_.at(0).connect(body.id, body.rank, body.size);
  Member& member = members_[body.communicator];
  member.failed = made.status();
  // The code must not be kUnavailable, because calls that return it are made again.
  if (member.failed.code() == Code::kUnavailable) {
    member.failed = {Code::kNotFound, member.failed.message()};
  }
  if (made.is_ok()) member.communicator = std::move(made).value();
  member.size = body.size;
  member.timeout_ms = body.timeout_ms;
  return Status::ok();
}

Status Worker::disconnect(Packet& packet) {
  CommunicatorBody body;
  if (!packet.take(body) || !packet.is_taken() || members_.erase(body.communicator) == 0) {
    return broken("a communicator to be left");
  }
  return Status::ok();
}

Status Worker::across(Packet& packet) {
  AcrossBody body;
  if (!packet.take(body) || !packet.is_taken() || body.dtype >= kDTypeCount ||
      body.op >= kElementwiseOpCount) {
    return broken("what is to go across");
  }
  const auto dtype = static_cast<DType>(body.dtype);
  const auto found = members_.find(body.communicator);
  if (found == members_.end() || body.root >= found->second.size) {
    return broken("a communicator that is not there");
  }
  const Member& member = found->second;
  const Result<Line*> line_there = line(body.stream);
  if (!line_there.is_ok()) return line_there.status();
  Line& own = *line_there.value();
  own.goes_across = true;
  if (Status status = begin(own); !status.is_ok()) return status;
  const uint64_t size = element_bytes(dtype);
  const uint64_t bytes = std::min(body.count, UINT64_MAX / size) * size;
  const Result<DeviceAddress> at = device_address(body.at, bytes);
  const Status failed = member.failed.is_ok() ? at.status() : member.failed;
  if (!failed.is_ok()) return queue_work(own, [failed](Stream&) { return failed; });
  return queue_work(own, [communicator = member.communicator.get(), at = at.value(), body, bytes,
                          dtype](Stream& stream) {
    if (body.root >= 0) return communicator->broadcast(stream, at, bytes, body.root);
    return communicator->all_reduce(stream, at, body.count, dtype, static_cast<ReduceOp>(body.op));
  });
}

// Work on a stream may never end once a communicator has failed.
void Worker::look_at_communicators(TicksMs now) {
  for (auto& [number, member] : members_) {
    if (is_over_ || !member.communicator) continue;
    const Status health = member.communicator->health();
    if (health.is_ok()) {
      has_moved_ = has_moved_ || !member.is_there;
      member.is_there = true;
    } else if (health.code() != Code::kUnavailable) {
      stop(health);
    } else if (!member.since) {
      member.since = now;
    } else if (!member.is_there && now - *member.since > member.timeout_ms) {
      stop({Code::kTimeout, "the GPUs of " + std::to_string(member.size) +
                                " nodes have not found each other in " +
                                std::to_string(member.timeout_ms) + " ms: " + health.message()});
    }
  }
}

}  // namespace rueda::gpu
