// This file has SessionImpl's requests: arenas, tensors, device memory, the timeline.
#include <algorithm>
#include <utility>

#include <fcntl.h>

#include "daemon/session/session_impl.h"
#include "daemon/session/text.h"

namespace rueda::session {

void SessionImpl::handle_arena_add() {
  auto request = incoming_->reader.body_as<rueda_abi_arena>();
  size_t descriptors = incoming_->reader.descriptors().size();
  if (descriptors != 1 || request.reserved != 0) {
    return answer(Status(Code::kInvalidArgument,
                         "an arena comes with one descriptor and a reserved field of 0, not " +
                             std::to_string(descriptors) + " descriptors"));
  }
  Result<ArenaMemory> arena = std::move(*incoming_->arena);
  incoming_->arena.reset();
  if (!arena.is_ok()) return answer(arena.status());
  Result<uint32_t> id = arenas_.add(std::move(arena).value());
  answer(id.status(), id.is_ok() ? id.value() : 0);
}

void SessionImpl::handle_arena_remove() {
  auto request = incoming_->reader.body_as<rueda_abi_arena>();
  const Arena* arena = arenas_.find(request.arena_id).get();
  const auto uses = [arena](const Place& place) { return arena != nullptr && place.uses(arena); };
  const bool is_used = std::any_of(places_.begin(), places_.end(), [&](const Place& place) {
    return place.is_in_flight && uses(place);
  });
  if (is_used) {
    return answer(Status(Code::kUnavailable, "arena " + std::to_string(request.arena_id) +
                                                 " is in use by a submission: wait for it"));
  }
  for (Place& place : places_) {
    if (uses(place)) place = {};
  }
  answer(arenas_.remove(request.arena_id));
}

void SessionImpl::handle_intern() {
  Result<uint32_t> id =
      tensors_.intern(incoming_->reader.body_as<rueda_abi_intern>(), attach_.rank);
  answer(id.status(), id.is_ok() ? id.value() : 0);
}

void SessionImpl::handle_process_set() {
  Result<uint32_t> id = tensors_.intern(incoming_->reader.body_as<rueda_abi_process_set>());
  answer(id.status(), id.is_ok() ? id.value() : 0);
}

void SessionImpl::handle_plan() {
  Result<uint32_t> id = tensors_.intern(incoming_->reader.body_as<rueda_abi_plan>());
  answer(id.status(), id.is_ok() ? id.value() : 0);
}

void SessionImpl::handle_counts() {
  answer(tensors_.take_counts(incoming_->reader.body_as<rueda_abi_counts>()));
}

void SessionImpl::handle_forget() {
  const auto request = incoming_->reader.body_as<rueda_abi_forget>();
  // The checked forms in these places describe the old tensor of this id.
  for (Place& place : places_) {
    if (place.record.tensor_id != request.tensor_id) continue;
    place.submission.content = 0;
    if (!place.is_in_flight) place.submission.descriptor.reset();
  }
  answer(tensors_.forget(request.tensor_id));
}

void SessionImpl::handle_timeline() {
  const auto request = incoming_->reader.body_as<rueda_abi_timeline>();
  const std::optional<std::string_view> path = field_text(request.path);
  if (!path || request.begins > 1 || request.chunks > 1 || path->empty() == (request.begins == 1)) {
    return fail(std::string("asked for a timeline that cannot be") + kCorrupt);
  }
  const TimelineWish wish{request.begins == 1, request.chunks == 1, std::string(*path)};
  answer(setup_.events.on_timeline(*this, wish));
}

void SessionImpl::handle_device_add() {
  ask_for(devices_.add(incoming_->reader.body_as<rueda_abi_device_memory>(),
                       incoming_->reader.descriptors()));
}

void SessionImpl::handle_device_join() {
  ask_for(devices_.join(incoming_->reader.body_as<rueda_abi_device_join>()));
}

void SessionImpl::ask_for(Result<DeviceMemory> memory) {
  if (!memory.is_ok()) return answer(memory.status());
  if (replies_.size() >= kMaxAwaitedReplies) {
    return fail("asks for more than it waits for" + std::string(kCorrupt));
  }
  Reply awaited{.status = {}, .value = memory.value().id, .is_known = false, .to_seal = {}};
  if (memory.value().kind == RUEDA_ABI_DEVICE_STAGING) {
    const Account account{setup_.options.ledger, attach_.peer.uid};
    Result<Charge> paid = charge(account, Resource::kPinnedBytes, memory.value().bytes);
    if (!paid.is_ok()) {
      devices_.answer(memory.value().id, false);
      return answer(paid.status());
    }
    pinned_.emplace(memory.value().id, std::move(paid).value());
  }
  if (memory.value().is_host()) {
    awaited.to_seal =
        ForeignFd(UniqueFd(::fcntl(memory.value().fd.get(), F_DUPFD_CLOEXEC, 0)), attach_.peer.uid);
  }
  replies_.push_back(std::move(awaited));
  setup_.events.on_device_memory(*this, std::move(memory).value());
}

void SessionImpl::device_memory_added(uint32_t id, const Status& status) {
  devices_.answer(id, status.is_ok());
  if (!status.is_ok()) pinned_.erase(id);
  for (Reply& awaited : replies_) {
    if (awaited.is_known || awaited.value != id) continue;
    seal_at_door(std::move(awaited.to_seal));
    awaited = Reply{status, status.is_ok() ? id : 0, true, {}};
    break;
  }
  send_replies();
}

// Seals memory that the worker has mapped. If the sealing fails, nothing else is done: only the
// worker of the client's own job pays for that.
void SessionImpl::seal_at_door(ForeignFd memory) {
  if (!memory.is_open()) return;
  Doors::of_process().run(attach_.peer.uid,
                          [sealed = std::make_shared<ForeignFd>(std::move(memory))] {
                            (void)seal_memfd(sealed->get(), "memory in place of a GPU's");
                          });
}

void SessionImpl::handle_device_remove() {
  const auto request = incoming_->reader.body_as<rueda_abi_device_remove>();
  const uint32_t id = request.memory_id;
  const bool is_used = std::any_of(places_.begin(), places_.end(), [&](const Place& place) {
    return place.is_in_flight && place.uses_device(id);
  });
  if (is_used || request.reserved != 0) {
    return answer(Status(Code::kUnavailable, "device memory " + std::to_string(id) +
                                                 " is in use by a submission: wait for it"));
  }
  const Status removed = devices_.remove(id);
  if (removed.is_ok()) {
    pinned_.erase(id);
    for (Place& place : places_) {
      if (place.uses_device(id)) place = {};
    }
    setup_.events.on_device_memory_removed(*this, id);
  }
  answer(removed);
}

}  // namespace rueda::session
