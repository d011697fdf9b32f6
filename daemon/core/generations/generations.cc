#include "daemon/core/generations/generations.h"

#include <algorithm>
#include <iterator>
#include <type_traits>

#include "daemon/base/limits.h"
#include "daemon/core/model/mutants.h"

namespace rueda::core {
namespace {

using Phase = BallotProposer<GenerationPtr, NoReport>::Phase;

// No job comes near it. A round beyond it is a mistake, or meant to leave no round for others.
constexpr uint64_t kMaxRound = uint64_t{1} << 32;
// An end is told to nodes that do not answer for so long.
constexpr TicksMs kEndIsToldForMs = 600'000;
// It is told ever more rarely, down to once in so many times the silence.
constexpr TicksMs kEndIsToldEvery = 4;
// Of so many nodes it is kept what they have said. A job's nodes may be followed by others.
constexpr size_t kMaxNodesHeard = 4 * static_cast<size_t>(limits::kMaxNodes);

// Returns whether it can become a node of a layout. It came from elsewhere.
bool is_sound(const NodeOffer& offer) {
  const std::string& node_id = offer.id.node_id;
  if (node_id.empty() || node_id.size() > limits::kMaxNodeIdBytes) return false;
  if (offer.slots.size() > static_cast<size_t>(limits::kMaxLocalRanks)) return false;
  for (size_t i = 0; i < offer.slots.size(); ++i) {
    if (offer.slots[i].slot < Slot{0} || offer.slots[i].slot >= Slot{limits::kMaxLocalRanks}) {
      return false;
    }
    if (i > 0 && offer.slots[i].slot <= offer.slots[i - 1].slot) return false;
  }
  return true;
}

}  // namespace

Generations::Generations(MemberId self, std::string control_address,
                         std::vector<std::string> contacts, GenerationOptions options)
    : self_(std::move(self)),
      control_address_(std::move(control_address)),
      options_(std::move(options)),
      first_contacts_(std::move(contacts)),
      contacts_(first_contacts_) {}

void Generations::begin_first(GenerationPtr first) {
  known_ = std::move(first);
  state_ = State::kRunning;
  const NodeIndex index = index_of_self();
  RUEDA_CHECK(index.value >= 0);
  note_contacts();
  for (const GenerationSlot& slot : known_->node(index).slots) survivors_.insert(slot.slot);
}

void Generations::resume(TicksMs now, const GenerationVotes& votes, GenerationsOutput& output) {
  lives_ = votes.lives + 1;
  finished_ = votes.finished;
  if (!votes.known) return;
  known_ = votes.known;
  note_contacts();
  if (!RUEDA_MUTANT(kVotesNotKept)) {
    if (votes.accepted) (void)acceptor_.accept(votes.accepted_in, votes.accepted);
    (void)acceptor_.promise(votes.promised);
  }
  const NodeIndex index = index_of_self();
  if (index.value < 0) return;
  survivors_ = votes.survivors;
  form(now, "the daemon of node " + self_.node_id + " has started again", output);
  // They may have taken it for lost.
  send_present_to_all(output);
}

// The members of the newest generation come first, the one who coordinates it before all others.
// They may all be gone while those who know better are at addresses that the launcher has named.
void Generations::note_contacts() {
  contacts_.clear();
  hint_.clear();
  contact_ = 0;
  for (const GenerationNode& node : known_->nodes) contacts_.push_back(node.control_address);
  for (const std::string& address : first_contacts_) {
    if (std::find(contacts_.begin(), contacts_.end(), address) == contacts_.end()) {
      contacts_.push_back(address);
    }
  }
}

// --- Who is there --------------------------------------------------------------------------------

void Generations::attach(TicksMs now, Slot slot, GenerationsOutput& output) {
  if (state_ == State::kOver) return;
  attached_.insert(slot);
  output.finished |= finished_;
  if (!waits_since_) {
    waits_since_ = now;
    contact_since_ = now;
  }
  next_present_ = now;
  on_time(now, output);
}

void Generations::lose(TicksMs now, Slot slot, GenerationsOutput& output) {
  survivors_.erase(slot);
  if (!RUEDA_MUTANT(kDeathWhileFormingIgnored)) attached_.erase(slot);
  if (attached_.empty()) waits_since_.reset();
  if (state_ != State::kForming) return;
  next_present_ = now;
  on_time(now, output);
}

void Generations::finish(TicksMs now, Slot slot, GenerationsOutput& output) {
  note_finished(survivors_.contains(slot), output);
  lose(now, slot, output);
}

void Generations::leave(GenerationsOutput& output) {
  if (!finished_ || !known_ || was_ended()) return;
  send_present_to_all(output);
  tell_newcomers(output);
}

void Generations::note_finished(bool finished, GenerationsOutput& output) {
  if (!finished || finished_) return;
  finished_ = true;
  output.finished = true;
  tell_newcomers(output);
}

void Generations::tell_newcomers(GenerationsOutput& output) {
  for (const auto& [node_id, heard] : newcomers_) {
    send_present(heard.said.offer.control_address, output);
  }
}

NodeOffer Generations::offer() const {
  NodeOffer out{self_, control_address_, {}};
  for (const Slot slot : attached_) out.slots.push_back({slot, survivors_.contains(slot)});
  if (RUEDA_MUTANT(kCountedBeforeItAttached)) {
    for (const Slot slot : survivors_) {
      if (!attached_.contains(slot)) out.slots.push_back({slot, true});
    }
  }
  return out;
}

std::vector<Slot> Generations::awaited_slots() const {
  std::vector<Slot> slots;
  std::set_difference(survivors_.begin(), survivors_.end(), attached_.begin(), attached_.end(),
                      std::back_inserter(slots));
  return slots;
}

bool Generations::has_newcomers() const {
  return std::any_of(attached_.begin(), attached_.end(),
                     [&](Slot slot) { return !survivors_.contains(slot); });
}

void Generations::note_newcomer(TicksMs now, const NodeOffer& offer, GenerationsOutput& output) {
  const auto it = newcomers_.find(offer.id.node_id);
  if (it != newcomers_.end() && it->second.said.offer.id.incarnation > offer.id.incarnation) return;
  newcomers_[offer.id.node_id] = {now, Present{0, offer, false, 0, {}, false, {}}};
  for (int i = 0; i < size_of_known(); ++i) {
    const MemberId& member = known_->node(NodeIndex{i}).id;
    // The daemon that was a member has been followed by another.
    if (member.node_id == offer.id.node_id && member.incarnation < offer.id.incarnation) {
      gone_.insert(NodeIndex{i});
      heard_.erase(NodeIndex{i});
    }
  }
  tell_of_newcomers(now, output);
}

std::string Generations::refusal_of(const Present& present) const {
  if (!known_ || known_->find(present.offer.id).value >= 0) return {};
  return difference(options_.job, {self_.node_id, options_.settings},
                    {present.offer.id.node_id, present.settings})
      .value_or("");
}

// A member is one whose settings have been compared: who refuses it is wrong.
void Generations::on_refused(const std::string& why, GenerationsOutput& output) {
  if (state_ == State::kOutside) give_up(Status(Code::kMismatch, why), output);
}

void Generations::tell_of_newcomers(TicksMs now, GenerationsOutput& output) {
  // The coordinator alone tells: it is the one who will propose, and a newcomer that it does not
  // hear would only end one generation after the other.
  if (state_ != State::kRunning || index_of_self() != NodeIndex{0} || finished_) return;
  if (known_->world_size() >= options_.max_ranks) return;
  const auto tell = [&](const NodeOffer& offer) {
    for (const OfferedSlot& slot : offer.slots) {
      if (slot.survives) continue;
      output.hosts_changed |= told_.emplace(offer.id, slot.slot).second;
    }
  };
  if (has_newcomers()) tell(offer());
  for (const auto& [node_id, heard] : newcomers_) {
    if (now - heard.at <= options_.silence_ms) tell(heard.said.offer);
  }
}

void Generations::end_running(TicksMs now, const std::string& reason, GenerationsOutput& output) {
  if (state_ == State::kRunning) form(now, reason, output);
}

void Generations::form(TicksMs now, const std::string& reason, GenerationsOutput& output) {
  state_ = State::kForming;
  reason_ = reason;
  forming_since_ = now;
  leader_ = NodeIndex{0};
  leader_heard_ = now;
  leads_since_ = now;
  gone_.clear();  // Links that were lost before may have been mended.
  if (!attached_.empty()) waits_since_ = now;
  next_present_ = now;
  on_time(now, output);
}

void Generations::lose_node(TicksMs now, const MemberId& node, GenerationsOutput& output) {
  const NodeIndex index = known_ ? known_->find(node) : NodeIndex{-1};
  if (index.value < 0 || index == index_of_self()) return;
  gone_.insert(index);
  heard_.erase(index);
  if (state_ == State::kForming) on_time(now, output);
}

std::string Generations::listener() const {
  switch (state_) {
    case State::kForming: return leads() ? "" : known_->node(leader_).control_address;
    case State::kRunning:
      return has_newcomers() && index_of_self() != NodeIndex{0}
                 ? known_->nodes.front().control_address
                 : "";
    case State::kOutside:
      if (attached_.empty() || contacts_.empty()) return "";
      return hint_.empty() ? contacts_[contact_ % contacts_.size()] : hint_;
    case State::kOver: break;
  }
  return "";
}

void Generations::present(TicksMs now, GenerationsOutput& output) {
  next_present_ = now + options_.interval_ms;
  if (state_ == State::kOutside && now - contact_since_ > options_.silence_ms) {
    ++contact_;
    contact_since_ = now;
    hint_.clear();
  }
  std::string to = listener();
  // Who leads and gets nowhere may be one of those whom the others have left out: it asks around.
  const bool is_stuck = leads() && proposer_.phase() == Phase::kIdle;
  if (is_stuck && now - leads_since_ > options_.silence_ms) to = next_contact();
  if (to.empty() || to == control_address_) return;
  send_present(to, output);
}

void Generations::send_present(const std::string& to, GenerationsOutput& output) {
  const bool forms = state_ == State::kForming;
  // A daemon that follows another is not taken for behind it.
  const uint64_t number = (uint64_t{lives_} << 32) | ++presents_;
  send(
      to,
      Present{number, offer(), forms, forms ? awaited() : 0, reason_, finished_, options_.settings},
      output);
}

void Generations::send_present_to_all(GenerationsOutput& output) {
  for (const GenerationNode& node : known_->nodes) {
    if (node.id != self_) send_present(node.control_address, output);
  }
}

std::string Generations::leader_address() const {
  switch (state_) {
    case State::kForming: return known_->node(leader_).control_address;
    case State::kRunning: return known_->nodes.front().control_address;
    default: return "";
  }
}

// Only the one who proposes can take a newcomer in, so it is looked for.
void Generations::follow(TicksMs now, const std::string& leader) {
  if (state_ == State::kForming) {
    // The node that this one follows follows another, which may hear this one again.
    for (NodeIndex voter{0}; voter < leader_; ++voter.value) {
      if (known_->node(voter).control_address != leader) continue;
      gone_.erase(voter);
      leader_ = voter;
      leader_heard_ = now;
    }
  }
  if (state_ != State::kOutside) return;
  contact_since_ = leader.empty() ? now - options_.silence_ms - 1 : now;
  hint_ = leader;
}

void Generations::lead_or_follow(TicksMs now) {
  const NodeIndex self = index_of_self();
  while (leader_ < self && (gone_.contains(leader_) || now - leader_heard_ > options_.silence_ms)) {
    ++leader_.value;
    leader_heard_ = now;
    leads_since_ = now;
    next_present_ = now;
  }
}

void Generations::note_word(TicksMs now, NodeIndex from) {
  gone_.erase(from);
  if (from == leader_) leader_heard_ = now;
  if (state_ != State::kForming || from >= leader_) return;
  leader_ = from;
  leader_heard_ = now;
  proposer_.give_up();
}

// --- The end -------------------------------------------------------------------------------------

void Generations::give_up(Status why, GenerationsOutput& output) {
  state_ = State::kOver;
  why_over_ = std::move(why);
  output.over = why_over_;
}

void Generations::end(TicksMs now, const Status& why, GenerationsOutput& output) {
  if (was_ended()) return;
  note_end(now, why, output);
  tell_end(now, output);
}

void Generations::note_end(TicksMs now, const Status& why, GenerationsOutput& output) {
  if (state_ == State::kOver) {
    why_over_ = why;  // It is over here already, and others hear from here why.
  } else if (!RUEDA_MUTANT(kEndNotFinal)) {
    give_up(why, output);
  }
  ended_at_ = now;
  if (RUEDA_MUTANT(kEndNotTold)) return;
  untold_.insert(contacts_.begin(), contacts_.end());
  for (const auto& [node_id, heard] : newcomers_) untold_.insert(heard.said.offer.control_address);
  // They may have begun it, of which this node has not heard.
  if (const GenerationPtr& accepted = acceptor_.accepted()) {
    for (const GenerationNode& node : accepted->nodes) untold_.insert(node.control_address);
  }
  untold_.erase(control_address_);
}

void Generations::tell_end(TicksMs now, GenerationsOutput& output) {
  const TicksMs ended_for = now - *ended_at_;
  if (ended_for > kEndIsToldForMs) return untold_.clear();
  // Who does not answer at once cannot be reached, or does not know the job any more.
  next_present_ =
      now + std::clamp(ended_for / 4, options_.interval_ms,
                       std::max(options_.interval_ms, kEndIsToldEvery * options_.silence_ms));
  for (const std::string& to : untold_) send(to, EndGenerations{why_over_, false}, output);
}

void Generations::on(TicksMs now, const GenerationMessage& message, const EndGenerations& ended,
                     GenerationsOutput& output) {
  const bool is_news = !was_ended();
  if (is_news) note_end(now, ended.why, output);
  untold_.erase(message.from_address);
  if (!ended.is_answer) send(message.from_address, EndGenerations{why_over_, true}, output);
  if (is_news) tell_end(now, output);
}

// --- The next generation -------------------------------------------------------------------------

Quorum Generations::quorum() const {
  std::vector<NodeIndex> voters;
  for (int i = 0; i < size_of_known(); ++i) voters.push_back(NodeIndex{i});
  return Quorum(std::move(voters));
}

bool Generations::is_heard(TicksMs now, NodeIndex voter) const {
  if (voter == index_of_self()) return true;
  const auto it = heard_.find(voter);
  return it != heard_.end() && now - it->second.at <= options_.silence_ms;
}

bool Generations::is_settled(TicksMs now, NodeIndex voter) const {
  if (voter == index_of_self()) return awaited() == 0;
  if (is_heard(now, voter)) return heard_.at(voter).said.awaited == 0;
  return gone_.contains(voter) || now - leads_since_ > options_.silence_ms;
}

std::vector<NodeOffer> Generations::offers(TicksMs now) const {
  // Of each node the newest life alone: a daemon may have started again.
  std::map<std::string, const NodeOffer*> by_node;
  const NodeOffer own = offer();
  by_node[self_.node_id] = &own;
  const auto add = [&](const HeardOf& heard) {
    if (now - heard.at > options_.silence_ms) return;
    const NodeOffer*& known = by_node[heard.said.offer.id.node_id];
    if (known == nullptr || known->id.incarnation < heard.said.offer.id.incarnation) {
      known = &heard.said.offer;
    }
  };
  for (const auto& [voter, heard] : heard_) add(heard);
  for (const auto& [node_id, heard] : newcomers_) add(heard);
  std::vector<NodeOffer> out;
  for (const auto& [node_id, offer] : by_node) {
    out.push_back(*offer);
    if (!finished_) continue;
    std::erase_if(out.back().slots, [](const OfferedSlot& offered) { return !offered.survives; });
  }
  return out;
}

// Newcomers alone would begin from nothing, and rank 0 with them.
bool Generations::awaits_state(TicksMs now, const std::vector<NodeOffer>& offered) const {
  const bool has_state = std::any_of(offered.begin(), offered.end(), [](const NodeOffer& offer) {
    return std::any_of(offer.slots.begin(), offer.slots.end(),
                       [](const OfferedSlot& slot) { return slot.survives; });
  });
  if (has_state || now - forming_since_ > options_.attach_ms) return false;
  for (int i = 0; i < size_of_known(); ++i) {
    const MemberId& member = known_->node(NodeIndex{i}).id;
    const auto next = newcomers_.find(member.node_id);
    // Another daemon without its votes has other processes.
    const bool is_followed =
        next != newcomers_.end() && next->second.said.offer.id.incarnation > member.incarnation;
    if (!is_followed && !is_heard(now, NodeIndex{i})) return true;
  }
  return false;
}

GenerationPtr Generations::proposal(TicksMs now) const {
  for (int i = 0; i < size_of_known(); ++i) {
    if (!is_settled(now, NodeIndex{i}) && !RUEDA_MUTANT(kSurvivorNotAwaited)) return nullptr;
  }
  const std::vector<NodeOffer> offered = offers(now);
  if (awaits_state(now, offered)) return nullptr;
  Generation next = deal_ranks(known_.get(), offered, options_.max_ranks);
  if (next.nodes.empty()) return nullptr;
  if (next.world_size() < options_.min_ranks && !RUEDA_MUTANT(kMinNpIgnored)) return nullptr;
  next.epoch = next_epoch();
  next.reason = reason_;
  if (!next.layout().is_ok()) return nullptr;  // There are more nodes than a job may have.
  return std::make_shared<const Generation>(std::move(next));
}

void Generations::drive(TicksMs now, GenerationsOutput& output) {
  if (!leads()) return;
  const NodeIndex self = index_of_self();
  const auto has_quorum = [&] {
    return quorum().reached_by([&](NodeIndex voter) { return proposer_.has_vote(voter); }) ||
           RUEDA_MUTANT(kGenerationByMinority);
  };
  if (proposer_.phase() == Phase::kIdle) {
    // Whoever cannot be heard cannot vote, and what was heard long ago is no offer.
    const bool may_win =
        quorum().reached_by([&](NodeIndex voter) { return is_heard(now, voter); }) ||
        RUEDA_MUTANT(kGenerationByMinority);
    if (now < next_ballot_ || !may_win || proposal(now) == nullptr) return;
    const Ballot ballot{acceptor_.promised().round + 1, self};
    RUEDA_CHECK(acceptor_.promise(ballot));
    proposer_.prepare(ballot);
    proposer_.on_promise(self, {ballot, acceptor_.accepted_in(), acceptor_.accepted(), {}});
    send_ballot(output);
  }
  if (proposer_.phase() == Phase::kPreparing && has_quorum()) {
    GenerationPtr next = proposer_.bound_to();
    if (next == nullptr || RUEDA_MUTANT(kChosenGenerationIgnored)) next = proposal(now);
    if (next == nullptr) return proposer_.give_up();  // Somebody has died meanwhile.
    // A later ballot may have been promised since; then this one is lost.
    if (!acceptor_.accept(proposer_.ballot(), next)) return proposer_.give_up();
    proposer_.propose(next);
    proposer_.on_accepted(self, proposer_.ballot());
    send_ballot(output);
  }
  if (proposer_.phase() != Phase::kAccepting || !has_quorum()) return;
  adopt(now, proposer_.proposal(), output);
}

void Generations::send_ballot(GenerationsOutput& output) const {
  for (int i = 0; i < size_of_known(); ++i) {
    const NodeIndex voter{i};
    if (voter == index_of_self() || proposer_.has_vote(voter)) continue;
    if (proposer_.phase() == Phase::kPreparing) {
      send(voter, PrepareGeneration{proposer_.ballot()}, output);
    } else if (proposer_.phase() == Phase::kAccepting) {
      send(voter, AcceptGeneration{proposer_.ballot(), proposer_.proposal()}, output);
    }
  }
}

void Generations::adopt(TicksMs now, GenerationPtr next, GenerationsOutput& output) {
  const GenerationPtr before = std::exchange(known_, std::move(next));
  if (state_ == State::kRunning) output.ended = "the others have gone on: " + known_->reason;
  const bool has_led = state_ == State::kForming && before->find(self_) == leader_;
  acceptor_ = {};
  proposer_ = {};
  heard_.clear();
  gone_.clear();
  told_.clear();
  survivors_.clear();
  reason_.clear();
  note_contacts();
  contact_since_ = now;
  for (const GenerationNode& node : known_->nodes) newcomers_.erase(node.id.node_id);
  const NodeIndex self = index_of_self();
  state_ = self.value < 0 ? State::kOutside : State::kRunning;
  if (state_ == State::kRunning) {
    for (const GenerationSlot& slot : known_->node(self).slots) {
      // A process that has died meanwhile is no survivor of what it has not begun.
      if (attached_.erase(slot.slot) > 0) survivors_.insert(slot.slot);
    }
    output.begun = known_;
  }
  if (attached_.empty()) waits_since_.reset();
  next_present_ = now;
  if (!has_led) return;
  const auto tell = [&](const GenerationNode& node) {
    if (node.id != self_) send(node.control_address, LearnGeneration{known_}, output);
  };
  for (const GenerationNode& node : known_->nodes) tell(node);
  for (const GenerationNode& node : before->nodes) {
    if (known_->find(node.id).value < 0) tell(node);
  }
}

// --- Messages ------------------------------------------------------------------------------------

void Generations::on_message(TicksMs now, const GenerationMessage& message,
                             GenerationsOutput& output) {
  if (message.from.node_id == self_.node_id) return;
  if (const auto* ended = std::get_if<EndGenerations>(&message.body)) {
    return on(now, message, *ended, output);
  }
  if (was_ended()) return send(message.from_address, EndGenerations{why_over_, false}, output);
  if (state_ == State::kOver) return;
  if (const auto* learn = std::get_if<LearnGeneration>(&message.body)) {
    contact_since_ = now;
    if (learn->generation == nullptr || !learn->generation->layout().is_ok()) return;
    const bool is_news = !known_ || learn->generation->epoch > known_->epoch;
    if (is_news) adopt(now, learn->generation, output);
    return;
  }
  // The sender knows more, and answers with it. This node may be needed for a vote even if nobody
  // waits on it.
  if (message.epoch > next_epoch()) send_present(message.from_address, output);
  const NodeIndex from = known_ ? known_->find(message.from) : NodeIndex{-1};
  if (from.value >= 0) note_word(now, from);
  if (const auto* heard = std::get_if<Heard>(&message.body)) {
    note_finished(heard->finished, output);
    if (!heard->refusal.empty()) return on_refused(heard->refusal, output);
    return follow(now, heard->leader);
  }
  if (const auto* present = std::get_if<Present>(&message.body)) {
    return on(now, message, *present, output);
  }
  // A message of the ballot. Who is behind learns what has been decided; who is ahead has to be
  // asked.
  if (known_ && message.epoch < next_epoch()) {
    return send(message.from_address, LearnGeneration{known_}, output);
  }
  if (from.value < 0 || index_of_self().value < 0) return;
  if (state_ == State::kRunning) {
    output.ended = "node " + message.from.node_id + " forms the next generation";
    form(now, *output.ended, output);
  }
  if (message.epoch > next_epoch()) return;
  std::visit(
      [&](const auto& body) {
        using Body = std::decay_t<decltype(body)>;
        if constexpr (!std::is_same_v<Body, Present> && !std::is_same_v<Body, Heard> &&
                      !std::is_same_v<Body, LearnGeneration> &&
                      !std::is_same_v<Body, EndGenerations>) {
          on(now, from, body, output);
        }
      },
      message.body);
}

void Generations::on(TicksMs now, const GenerationMessage& message, const Present& present,
                     GenerationsOutput& output) {
  if (present.offer.id != message.from || !is_sound(present.offer)) return;
  const bool is_known_node = last_present_.contains(message.from.node_id);
  if (!is_known_node && last_present_.size() >= kMaxNodesHeard) return;
  auto& last = last_present_[message.from.node_id];
  if (std::pair(message.from.incarnation, present.number) <= last) return;
  last = {message.from.incarnation, present.number};
  const std::string refusal = refusal_of(present);
  if (!refusal.empty()) {
    return send(message.from_address, Heard{leader_address(), finished_, refusal}, output);
  }
  note_finished(present.finished, output);
  if (known_ && message.epoch < next_epoch()) {
    send(message.from_address, LearnGeneration{known_}, output);
  } else {
    send(message.from_address, Heard{leader_address(), finished_, {}}, output);
  }
  const NodeIndex from = known_ ? known_->find(message.from) : NodeIndex{-1};
  const bool is_voter = from.value >= 0 && index_of_self().value >= 0;
  if (is_voter && present.forms && message.epoch >= next_epoch()) {
    if (state_ == State::kRunning) {
      output.ended = present.reason;
      form(now, present.reason, output);
    }
    if (message.epoch == next_epoch()) heard_[from] = {now, present};
  } else if (!present.offer.slots.empty() && message.epoch == next_epoch()) {
    // What somebody had who did not know of the newest generation may not be so any more.
    note_newcomer(now, present.offer, output);
  }
  if (state_ == State::kForming) on_time(now, output);
}

void Generations::on(TicksMs, NodeIndex from, const PrepareGeneration& prepare,
                     GenerationsOutput& output) {
  if (RUEDA_MUTANT(kPromiseForgotten)) acceptor_ = {};
  if (prepare.ballot.round > kMaxRound) return;
  if (!acceptor_.promise(prepare.ballot)) {
    return send(from, RefuseGeneration{acceptor_.promised()}, output);
  }
  send(from, PromiseGeneration{prepare.ballot, acceptor_.accepted_in(), acceptor_.accepted(), {}},
       output);
}

void Generations::on(TicksMs now, NodeIndex from, const PromiseGeneration& promise,
                     GenerationsOutput& output) {
  proposer_.on_promise(from, promise);
  drive(now, output);
}

void Generations::on(TicksMs, NodeIndex from, const AcceptGeneration& accept,
                     GenerationsOutput& output) {
  if (accept.ballot.round > kMaxRound || accept.generation == nullptr ||
      accept.generation->epoch != next_epoch() || !accept.generation->layout().is_ok()) {
    return;
  }
  if (!acceptor_.accept(accept.ballot, accept.generation)) {
    return send(from, RefuseGeneration{acceptor_.promised()}, output);
  }
  send(from, AcceptedGeneration{accept.ballot}, output);
}

void Generations::on(TicksMs now, NodeIndex from, const AcceptedGeneration& vote,
                     GenerationsOutput& output) {
  proposer_.on_accepted(from, vote.ballot);
  drive(now, output);
}

void Generations::on(TicksMs now, NodeIndex, const RefuseGeneration& refuse, GenerationsOutput&) {
  if (refuse.promised <= proposer_.ballot() || refuse.promised.round > kMaxRound) return;
  // The next ballot goes above it. Two who propose would hinder each other for ever if they were
  // equally fast.
  (void)acceptor_.promise(refuse.promised);
  proposer_.give_up();
  next_ballot_ = now + options_.interval_ms * (1 + index_of_self().value);
}

// --- Time ----------------------------------------------------------------------------------------

std::optional<TicksMs> Generations::wakes_at() const {
  const bool speaks = state_ == State::kForming || !listener().empty() || !untold_.empty();
  std::optional<TicksMs> at;
  if (speaks) at = next_present_;
  if (waits_since_ && state_ != State::kRunning && state_ != State::kOver) {
    const TicksMs deadline = *waits_since_ + options_.elastic_timeout_ms;
    at = at ? std::min(*at, deadline) : deadline;
  }
  return at;
}

void Generations::on_time(TicksMs now, GenerationsOutput& output) {
  look_at_deadlines(now, output);
  if (!untold_.empty() && now >= next_present_) tell_end(now, output);
  if (state_ == State::kOver) return;
  if (state_ == State::kForming) lead_or_follow(now);
  if (now >= next_present_) {
    if (leads()) send_ballot(output);
    present(now, output);
  }
  tell_of_newcomers(now, output);
  drive(now, output);
}

void Generations::look_at_deadlines(TicksMs now, GenerationsOutput& output) {
  if (state_ == State::kForming && now - forming_since_ > options_.attach_ms) {
    // These have had their time: whoever comes later is a newcomer.
    std::erase_if(survivors_, [&](Slot slot) { return !attached_.contains(slot); });
  }
  const bool waits = state_ == State::kForming || state_ == State::kOutside;
  if (!waits || !waits_since_ || now - *waits_since_ < options_.elastic_timeout_ms) return;
  give_up(Status(Code::kTimeout, "job " + options_.job + " did not go on within " +
                                     std::to_string(options_.elastic_timeout_ms / 1000) +
                                     " s (--elastic-timeout): " + describe_wait()),
          output);
}

std::string Generations::describe_wait() const {
  if (state_ == State::kOutside) {
    return "node " + self_.node_id + " waits to be taken in" +
           (contacts_.empty() ? "" : " and asks " + contacts_[contact_ % contacts_.size()]);
  }
  if (state_ != State::kForming) return "nobody is waited for";
  if (!leads()) return "node " + known_->node(leader_).id.node_id + " collects who is there";
  size_t here = attached_.size();
  std::string silent;
  std::string awaited_on;
  for (int i = 0; i < size_of_known(); ++i) {
    const NodeIndex voter{i};
    const auto it = heard_.find(voter);
    const bool is_self = voter == index_of_self();
    const int awaited_there = is_self              ? awaited()
                              : it == heard_.end() ? 0
                                                   : it->second.said.awaited;
    if (!is_self && it == heard_.end()) silent += " " + known_->node(voter).id.node_id;
    if (!is_self && it != heard_.end()) here += it->second.said.offer.slots.size();
    if (awaited_there > 0) awaited_on += " " + known_->node(voter).id.node_id;
  }
  for (const auto& [node_id, heard] : newcomers_) here += heard.said.offer.slots.size();
  return std::to_string(here) + " ranks wait, at least " + std::to_string(options_.min_ranks) +
         " must be there" + (silent.empty() ? "" : "; nothing is heard of" + silent) +
         (awaited_on.empty() ? "" : "; processes are awaited on" + awaited_on);
}

}  // namespace rueda::core
