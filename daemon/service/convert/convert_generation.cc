#include "daemon/service/convert/convert_generation.h"

#include <utility>

#include "daemon/base/host_port.h"
#include "daemon/base/limits.h"
#include "daemon/base/one_line.h"
#include "daemon/service/convert/convert_plan.h"
#include "daemon/service/convert/convert_settings.h"
#include "rueda/v1/control.pb.h"

namespace rueda::service {
namespace {

constexpr size_t kMaxReasonBytes = 1024;

void fill(const core::MemberId& from, v1::GenerationMember& to) {
  to.set_node_id(from.node_id);
  to.set_incarnation(from.incarnation);
}

void fill(core::Ballot from, v1::GenerationBallot& to) {
  to.set_round(from.round);
  to.set_node(from.node.value);
}

void fill(const core::Generation& from, v1::Generation& to) {
  to.set_epoch(from.epoch.value);
  to.set_reason(from.reason);
  for (const core::GenerationNode& node : from.nodes) {
    v1::Generation::Node& out = *to.add_nodes();
    fill(node.id, *out.mutable_member());
    out.set_control_address(node.control_address);
    for (const core::GenerationSlot& slot : node.slots) {
      v1::Generation::Slot& added = *out.add_slots();
      added.set_slot(slot.slot.value);
      added.set_rank(slot.rank.value);
    }
  }
}

struct GenerationWriter {
  v1::GenerationMessage& to;

  void operator()(const core::Present& from) const {
    v1::GenerationPresent& present = *to.mutable_present();
    present.set_number(from.number);
    for (const core::OfferedSlot& slot : from.offer.slots) {
      v1::GenerationPresent::Slot& added = *present.add_slots();
      added.set_slot(slot.slot.value);
      added.set_survives(slot.survives);
    }
    present.set_forms(from.forms);
    present.set_awaited(from.awaited);
    present.set_reason(from.reason);
    present.set_finished(from.finished);
    fill_settings(from.settings, *present.mutable_settings());
  }
  void operator()(const core::Heard& from) const {
    to.mutable_heard()->set_leader(from.leader);
    to.mutable_heard()->set_finished(from.finished);
    to.mutable_heard()->set_refusal(from.refusal);
  }
  void operator()(const core::PrepareGeneration& from) const {
    fill(from.ballot, *to.mutable_prepare());
  }
  void operator()(const core::PromiseGeneration& from) const {
    fill(from.ballot, *to.mutable_promise()->mutable_ballot());
    fill(from.accepted_in, *to.mutable_promise()->mutable_accepted_in());
    if (from.accepted) fill(*from.accepted, *to.mutable_promise()->mutable_accepted());
  }
  void operator()(const core::AcceptGeneration& from) const {
    fill(from.ballot, *to.mutable_accept()->mutable_ballot());
    fill(*from.generation, *to.mutable_accept()->mutable_generation());
  }
  void operator()(const core::AcceptedGeneration& from) const {
    fill(from.ballot, *to.mutable_accepted());
  }
  void operator()(const core::RefuseGeneration& from) const {
    fill(from.promised, *to.mutable_refuse());
  }
  void operator()(const core::LearnGeneration& from) const {
    fill(*from.generation, *to.mutable_learn());
  }
  void operator()(const core::EndGenerations& from) const {
    to.mutable_end()->set_text(from.why.message());
    to.mutable_end()->set_origin_node(from.why.origin().node_id);
    to.mutable_end()->set_is_answer(from.is_answer);
  }
};

core::Ballot read(const v1::GenerationBallot& from) {
  return {from.round(), NodeIndex{from.node()}};
}

Result<core::MemberId> read(const v1::GenerationMember& from) {
  if (from.node_id().empty() || from.node_id().size() > limits::kMaxNodeIdBytes ||
      !is_one_line(from.node_id())) {
    return broken("a node id that is none");
  }
  return core::MemberId{from.node_id(), from.incarnation()};
}

Result<core::GenerationPtr> read(const v1::Generation& from) {
  auto to = std::make_shared<core::Generation>();
  to->epoch = Epoch{from.epoch()};
  to->reason = one_line(from.reason(), kMaxReasonBytes);
  for (const v1::Generation::Node& node : from.nodes()) {
    Result<core::MemberId> id = read(node.member());
    if (!id.is_ok()) return id.status();
    core::GenerationNode& added = to->nodes.emplace_back();
    added.id = std::move(id).value();
    added.control_address = one_line(node.control_address());
    for (const v1::Generation::Slot& slot : node.slots()) {
      if (slot.slot() < 0 || slot.slot() >= limits::kMaxLocalRanks)
        return broken("a slot that is none");
      added.slots.push_back({core::Slot{slot.slot()}, Rank{slot.rank()}});
    }
  }
  if (const Result<core::Layout> layout = to->layout(); !layout.is_ok()) {
    return broken("ranks that cannot be: " + layout.status().message());
  }
  return core::GenerationPtr(std::move(to));
}

Result<core::GenerationMessage> read_present(const v1::GenerationPresent& from,
                                             core::GenerationMessage to) {
  core::Present present;
  present.number = from.number();
  present.offer.id = to.from;
  present.offer.control_address = to.from_address;
  for (const v1::GenerationPresent::Slot& slot : from.slots()) {
    present.offer.slots.push_back({core::Slot{slot.slot()}, slot.survives()});
  }
  present.forms = from.forms();
  present.awaited = from.awaited();
  present.reason = one_line(from.reason(), kMaxReasonBytes);
  present.finished = from.finished();
  Result<core::Settings> settings = read_settings(from.settings());
  if (!settings.is_ok()) return settings.status();
  present.settings = std::move(settings).value();
  to.body = std::move(present);
  return to;
}

Result<core::GenerationMessage> read_promise(const v1::GenerationPromise& from,
                                             core::GenerationMessage to) {
  core::PromiseGeneration promise{read(from.ballot()), read(from.accepted_in()), nullptr, {}};
  if (from.has_accepted()) {
    Result<core::GenerationPtr> accepted = read(from.accepted());
    if (!accepted.is_ok()) return accepted.status();
    promise.accepted = std::move(accepted).value();
  }
  to.body = std::move(promise);
  return to;
}

}  // namespace

std::string encode(const core::GenerationMessage& message) {
  v1::GenerationMessage to;
  fill(message.from, *to.mutable_from());
  to.set_from_address(message.from_address);
  to.set_epoch(message.epoch.value);
  std::visit(GenerationWriter{to}, message.body);
  return to.SerializeAsString();
}

Result<core::GenerationMessage> decode_generation_message(const std::string& bytes) {
  v1::GenerationMessage from;
  if (!from.ParseFromString(bytes)) return broken("bytes that are none");
  Result<core::MemberId> sender = read(from.from());
  if (!sender.is_ok()) return sender.status();
  core::GenerationMessage to{std::move(sender).value(), from.from_address(), Epoch{from.epoch()},
                             core::Heard{}};
  if (!parse_dial_address(to.from_address).is_ok()) return broken("an address that is none");
  switch (from.body_case()) {
    case v1::GenerationMessage::kPresent: return read_present(from.present(), std::move(to));
    case v1::GenerationMessage::kPromise: return read_promise(from.promise(), std::move(to));
    case v1::GenerationMessage::kHeard:
      to.body = core::Heard{one_line(from.heard().leader()), from.heard().finished(),
                            one_line(from.heard().refusal(), kMaxReasonBytes)};
      return to;
    case v1::GenerationMessage::kPrepare:
      to.body = core::PrepareGeneration{read(from.prepare())};
      return to;
    case v1::GenerationMessage::kAccepted:
      to.body = core::AcceptedGeneration{read(from.accepted())};
      return to;
    case v1::GenerationMessage::kRefuse:
      to.body = core::RefuseGeneration{read(from.refuse())};
      return to;
    case v1::GenerationMessage::kAccept: {
      Result<core::GenerationPtr> next = read(from.accept().generation());
      if (!next.is_ok()) return next.status();
      to.body = core::AcceptGeneration{read(from.accept().ballot()), std::move(next).value()};
      return to;
    }
    case v1::GenerationMessage::kLearn: {
      Result<core::GenerationPtr> learnt = read(from.learn());
      if (!learnt.is_ok()) return learnt.status();
      to.body = core::LearnGeneration{std::move(learnt).value()};
      return to;
    }
    case v1::GenerationMessage::kEnd:
      to.body = core::EndGenerations{
          Status(Code::kShutDown, one_line(from.end().text(), kMaxReasonBytes),
                 Origin{one_line(from.end().origin_node(), kShownNameBytes), {}, true}),
          from.end().is_answer()};
      return to;
    case v1::GenerationMessage::BODY_NOT_SET: break;
  }
  return broken("no body that this version knows");
}

std::string encode(const core::GenerationVotes& votes) {
  v1::GenerationVotes to;
  to.set_lives(votes.lives);
  if (votes.known) fill(*votes.known, *to.mutable_known());
  fill(votes.promised, *to.mutable_promised());
  fill(votes.accepted_in, *to.mutable_accepted_in());
  if (votes.accepted) fill(*votes.accepted, *to.mutable_accepted());
  for (const core::Slot slot : votes.survivors) to.add_survivors(slot.value);
  to.set_finished(votes.finished);
  return to.SerializeAsString();
}

Result<core::GenerationVotes> decode_generation_votes(const std::string& bytes) {
  v1::GenerationVotes from;
  if (!from.ParseFromString(bytes)) return broken("votes that are none");
  core::GenerationVotes to{from.lives(), nullptr, read(from.promised()), read(from.accepted_in()),
                           nullptr,      {},      from.finished()};
  for (const int32_t slot : from.survivors()) {
    if (slot < 0 || slot >= limits::kMaxLocalRanks) return broken("a slot that is none");
    to.survivors.insert(core::Slot{slot});
  }
  if (from.has_known()) {
    Result<core::GenerationPtr> known = read(from.known());
    if (!known.is_ok()) return known.status();
    to.known = std::move(known).value();
  }
  if (from.has_accepted()) {
    Result<core::GenerationPtr> accepted = read(from.accepted());
    if (!accepted.is_ok()) return accepted.status();
    to.accepted = std::move(accepted).value();
  }
  return to;
}

}  // namespace rueda::service
