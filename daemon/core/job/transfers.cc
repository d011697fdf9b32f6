#include "daemon/core/job/transfers.h"

#include <algorithm>

#include "daemon/base/limits.h"
#include "daemon/core/model/mutants.h"
#include "daemon/core/stall/stall_text.h"

namespace rueda::core {
namespace {

std::string name_of(Rank rank) { return "rank " + std::to_string(rank.value); }

std::string describe_size(DType dtype, int64_t elements) {
  const int64_t bytes = elements * static_cast<int64_t>(element_bytes(dtype));
  return std::to_string(elements) + " " + to_string(dtype) + " (" + std::to_string(bytes) +
         " bytes)";
}

Status taken_back(const std::string& what) {
  return {Code::kUnavailable, "the " + what + " has been taken back (rueda_cancel)"};
}

// The time between two looks for stalls, while something is in flight.
constexpr TicksMs kLookEveryMs = 1'000;

}  // namespace

Transfers::Transfers(const Layout& layout, NodeIndex self, const StallOptions& stall,
                     FindLayout find_layout)
    : layout_(layout), self_(self), stall_(stall), find_layout_(std::move(find_layout)) {}

void Transfers::end() {
  sends_of_ranks_.clear();
  arriving_.clear();
  boxes_.clear();
  offered_.clear();
  heard_.clear();
  held_.clear();
  counts_.clear();
  in_flight_ = 0;
  left_.clear();
  is_cut_off_ = false;
  opened_.clear();
  opens_.clear();
  last_set_ = 0;
  early_.clear();
  spots_.clear();
  stall_count_ = 0;
  next_news_ms_ = 0;
}

void Transfers::fail(const Status& cause, Output& output) {
  for (const auto& [place, half] : std::exchange(sends_of_ranks_, {})) {
    refuse(half.submission, cause, output);
  }
  for (const auto& [place, one] : std::exchange(arriving_, {})) refuse(one.receive, cause, output);
  for (const auto& [key, box] : std::exchange(boxes_, {})) {
    for (const auto& [source, waiting] : box.receives) {
      for (const auto& [turn, receive] : waiting) refuse(receive, cause, output);
    }
  }
  end();
}

// --- This node's ranks ---------------------------------------------------------------------------

LocalRank Transfers::local(Rank rank) const {
  const std::vector<Rank>& ranks = layout_.node(self_).ranks;
  const auto at = std::find(ranks.begin(), ranks.end(), rank);
  return LocalRank{static_cast<int32_t>(at - ranks.begin())};
}

size_t Transfers::submissions_of(LocalRank rank) const {
  size_t count = 0;
  for (auto it = counts_.lower_bound({rank, 0}); it != counts_.end() && it->first.first == rank;
       ++it) {
    count += it->second;
  }
  return count;
}

size_t Transfers::submissions_of(LocalRank rank, uint32_t process_set) const {
  const auto it = counts_.find({rank, process_set});
  return it == counts_.end() ? 0 : it->second;
}

void Transfers::submit(LocalSubmission submission, Output& output) {
  const TensorDescriptor& descriptor = *submission.descriptor;
  if (in_flight_ == 0) next_look_ms_ = to_ms(now_) + kLookEveryMs;
  ++in_flight_;
  ++counts_[{submission.rank, descriptor.process_set}];
  const bool is_receive_of_any =
      descriptor.kind == CollectiveKind::kReceive && descriptor.peer == kAnySource;
  if (is_receive_of_any ? have_others_left(descriptor.process_set, global(submission.rank))
                        : left_.contains(descriptor.peer)) {
    const Rank who = is_receive_of_any ? *left_.begin() : descriptor.peer;
    return refuse(submission, left(submission, who), output);
  }
  if (is_cut_off_ && !is_receive_of_any && layout_.node_of(descriptor.peer) != self_ &&
      !opened_.contains(layout_.node_of(descriptor.peer))) {
    return refuse(
        submission,
        Status(Code::kNodeLost, "the " + descriptor.name + " cannot be carried out: node " +
                                    layout_.node(layout_.coordinator()).node_id +
                                    ", which passes messages on between the others, has stopped"),
        output);
  }
  if (descriptor.kind == CollectiveKind::kSend) return submit_send(std::move(submission), output);
  submit_receive(std::move(submission), output);
}

void Transfers::submit_send(LocalSubmission submission, Output& output) {
  const TensorDescriptor& descriptor = *submission.descriptor;
  const NodeIndex to = layout_.node_of(descriptor.peer);
  TransferOffer offer;
  offer.number = ++offered_[to];
  offer.source = global(submission.rank);
  offer.destination = descriptor.peer;
  offer.tag = descriptor.tag;
  offer.dtype = descriptor.dtype;
  offer.elements = descriptor.elements();
  const uint32_t process_set = descriptor.process_set;
  const TransferLaunch::End source{submission.rank, submission.ticket};
  spots_.emplace(std::pair(source.rank, source.ticket), Place{to, offer.number});
  sends_of_ranks_.emplace(Place{to, offer.number}, Half{std::move(submission), false, false});
  if (to != self_) {
    if (!opened_.contains(to)) opens_.push_back(to);
    on_open(to, output);
    output.transfer_sends.push_back({to, process_set, offer, source});
    return;
  }
  heard_[self_] = offer.number;
  take_offer(self_, process_set, offer, output);
}

void Transfers::submit_receive(LocalSubmission submission, Output& output) {
  const TensorDescriptor& descriptor = *submission.descriptor;
  const BoxKey key{descriptor.process_set, descriptor.tag, global(submission.rank)};
  const auto box = boxes_.try_emplace(key).first;
  auto& offers = box->second.offers;
  auto from = offers.end();
  if (descriptor.peer != kAnySource) {
    from = offers.find(descriptor.peer);
  } else {
    from = std::min_element(offers.begin(), offers.end(), [](const auto& a, const auto& b) {
      return a.second.begin()->second.turn < b.second.begin()->second.turn;
    });
  }
  if (from == offers.end()) {
    const Rank source = descriptor.peer;
    spots_.emplace(std::pair(submission.rank, submission.ticket), Spot{key, source, ++turns_});
    box->second.receives[source].emplace(turns_, std::move(submission));
    return;
  }
  const Offer offer = from->second.begin()->second;
  if (!RUEDA_MUTANT(kSendMatchedTwice)) from->second.erase(from->second.begin());
  --held_[offer.from];
  if (from->second.empty()) offers.erase(from);
  if (box->second.is_empty()) boxes_.erase(box);
  meet(offer, std::move(submission), output);
}

void Transfers::finish(const LocalSubmission& submission, const Status& status, Rank peer,
                       Output& output) {
  --in_flight_;
  spots_.erase({submission.rank, submission.ticket});
  const auto count = counts_.find({submission.rank, submission.descriptor->process_set});
  RUEDA_CHECK(count != counts_.end());
  if (--count->second == 0) counts_.erase(count);
  Delivery& delivery = output.deliveries.emplace_back();
  delivery.rank = submission.rank;
  delivery.ticket = submission.ticket;
  delivery.status = status;
  delivery.epoch = epoch_;
  delivery.contributors = status.is_ok() ? 1 : 0;
  delivery.value = static_cast<uint32_t>(peer.value);
  delivery.is_first = true;
}

// --- Matching ------------------------------------------------------------------------------------

void Transfers::take_offer(NodeIndex from, uint32_t process_set, const TransferOffer& offer,
                           Output& output) {
  const auto box = boxes_.try_emplace({process_set, offer.tag, offer.destination}).first;
  auto& receives = box->second.receives;
  auto found = receives.find(offer.source);
  const auto any = receives.find(kAnySource);
  if (found == receives.end() ||
      (any != receives.end() && any->second.begin()->first < found->second.begin()->first &&
       !RUEDA_MUTANT(kLaterReceiveFirst))) {
    found = any;
  }
  if (found == receives.end()) {
    ++held_[from];
    box->second.offers[offer.source].emplace(offer.number, Offer{from, offer, ++turns_});
    return;
  }
  LocalSubmission receive = found->second.extract(found->second.begin()).mapped();
  if (found->second.empty()) receives.erase(found);
  if (box->second.is_empty()) boxes_.erase(box);
  meet({from, offer, 0}, std::move(receive), output);
}

void Transfers::meet(const Offer& offer, LocalSubmission receive, Output& output) {
  const TransferOffer& sent = offer.what;
  const TensorDescriptor& wanted = *receive.descriptor;
  const Place place{offer.from, sent.number};
  const uint32_t process_set = wanted.process_set;
  const bool fits = sent.dtype == wanted.dtype && sent.elements == wanted.elements();
  if (!fits) {
    const Status mismatch(
        Code::kMismatch,
        name_of(sent.source) + " sends " + describe_size(sent.dtype, sent.elements) + " to " +
            name_of(sent.destination) + ", which receives " +
            describe_size(wanted.dtype, wanted.elements()) + " (tag " + std::to_string(sent.tag) +
            ", process set " + std::to_string(process_set) +
            "): both must have the same dtype and as many elements");
    finish(receive, mismatch, sent.source, output);
    answer(offer.from, process_set, TransferRefusal{sent.number, mismatch}, output);
    return;
  }
  TransferLaunch& launch = output.transfers.emplace_back();
  launch.epoch = epoch_;
  launch.key = {offer.from, self_, sent.number};
  launch.bytes = sent.elements * static_cast<int64_t>(element_bytes(sent.dtype));
  launch.carried = sent.carried;
  launch.destination = TransferLaunch::End{receive.rank, receive.ticket};
  arriving_.emplace(place, Arriving{std::move(receive), sent.source});
  if (offer.from != self_) {
    return answer(offer.from, process_set, TransferTake{sent.number, sent.carried}, output);
  }
  Half& half = sends_of_ranks_.at(place);
  half.is_taken = true;
  launch.source = TransferLaunch::End{half.submission.rank, half.submission.ticket};
}

void Transfers::answer(NodeIndex to, uint32_t process_set, TransferMessage message,
                       Output& output) {
  if (to != self_) {
    output.transfer_sends.push_back({to, process_set, std::move(message), {}});
    return;
  }
  // This node knows its own offers, so there is no error.
  (void)on_message(self_, process_set, message, output);
}

// --- The other nodes -----------------------------------------------------------------------------

void Transfers::on_open(NodeIndex from, Output& output) {
  if (from != self_ && opened_.insert(from).second) output.transfer_peers.push_back(from);
}

Status Transfers::on_message(NodeIndex from, uint32_t process_set, const TransferMessage& message,
                             Output& output) {
  if (const auto* offer = std::get_if<TransferOffer>(&message)) {
    return on_offer(from, process_set, *offer, output);
  }
  if (const auto* take = std::get_if<TransferTake>(&message)) return on_take(from, *take, output);
  if (const auto* withdrawn = std::get_if<TransferWithdrawal>(&message)) {
    on_withdrawal(from, process_set, *withdrawn, output);
    return Status::ok();
  }
  return on_refusal(from, std::get<TransferRefusal>(message), output);
}

Status Transfers::check_offer(NodeIndex from, uint32_t process_set,
                              const TransferOffer& offer) const {
  const auto wrong = [&](const std::string& what) {
    return Status(Code::kInternal,
                  "node " + layout_.node(from).node_id + " offered a send " + what);
  };
  const auto heard = heard_.find(from);
  const uint64_t last = heard == heard_.end() ? 0 : heard->second;
  if (offer.number != last + 1) {
    return wrong("number " + std::to_string(offer.number) + " after " + std::to_string(last));
  }
  if (!layout_.has_rank(offer.source) || layout_.node_of(offer.source) != from) {
    return wrong("of " + name_of(offer.source) + ", which is not its own");
  }
  if (!layout_.has_rank(offer.destination) || layout_.node_of(offer.destination) != self_) {
    return wrong("to " + name_of(offer.destination) + ", which is not on node " +
                 layout_.node(self_).node_id);
  }
  const auto size = static_cast<int64_t>(element_bytes(offer.dtype));
  if (size == 0 || offer.elements < 0 ||
      offer.elements > static_cast<int64_t>(limits::kMaxTensorBytes) / size) {
    return wrong("of " + std::to_string(offer.elements) + " elements of dtype " +
                 std::to_string(static_cast<int>(offer.dtype)) + ", which no tensor has");
  }
  const Layout* set = find_layout_(process_set);
  if (set && (!set->has_rank(offer.source) || !set->has_rank(offer.destination))) {
    return wrong("from " + name_of(offer.source) + " to " + name_of(offer.destination) +
                 " in process set " + std::to_string(process_set) + ", which has ranks " +
                 describe_ranks(set->ranks()));
  }
  const auto held = held_.find(from);
  const size_t most = limits::kMaxOffersOfRank * layout_.node(from).ranks.size();
  if (held != held_.end() && held->second >= most) {
    return wrong("beyond the " + std::to_string(most) + " that its ranks can have in flight");
  }
  return Status::ok();
}

Status Transfers::on_offer(NodeIndex from, uint32_t process_set, const TransferOffer& offer,
                           Output& output) {
  if (Status good = check_offer(from, process_set, offer); !good.is_ok()) return good;
  heard_[from] = offer.number;
  if (process_set > last_set_ && !RUEDA_MUTANT(kEarlyOfferRefused)) {
    ++held_[from];
    early_[process_set].emplace(Place{from, offer.number}, Offer{from, offer, 0});
  } else {
    admit(from, process_set, offer, output);
  }
  return Status::ok();
}

void Transfers::on_set_added(uint32_t process_set, Output& output) {
  last_set_ = process_set;
  const auto found = early_.find(process_set);
  if (found == early_.end()) return;
  const auto early = early_.extract(found);
  for (const auto& [place, offer] : early.mapped()) {
    --held_[offer.from];
    admit(offer.from, process_set, offer.what, output);
  }
}

Status Transfers::refusal_of(uint32_t process_set, const TransferOffer& offer) const {
  const std::string what = name_of(offer.source) + " cannot send to " + name_of(offer.destination);
  const std::string set = " process set " + std::to_string(process_set);
  const Layout* layout = find_layout_(process_set);
  if (!layout) return {Code::kNotFound, what + ":" + set + " has been removed"};
  // An offer that came before its set could not be looked at (check_offer()).
  if (!layout->has_rank(offer.source) || !layout->has_rank(offer.destination)) {
    return {Code::kInvalidArgument, what + " in" + set};
  }
  if (!left_.contains(offer.destination)) return Status::ok();
  return {Code::kShutDown, what + ", which has left the job (its rueda_shutdown ran)",
          Origin{{}, offer.destination}};
}

void Transfers::admit(NodeIndex from, uint32_t process_set, const TransferOffer& offer,
                      Output& output) {
  const Status refusal = refusal_of(process_set, offer);
  if (refusal.is_ok()) return take_offer(from, process_set, offer, output);
  answer(from, process_set, TransferRefusal{offer.number, refusal}, output);
}

Status Transfers::on_take(NodeIndex from, const TransferTake& take, Output& output) {
  const auto it = sends_of_ranks_.find({from, take.number});
  if (it == sends_of_ranks_.end() || it->second.is_taken) {
    return {Code::kInternal, "node " + layout_.node(from).node_id + " took send " +
                                 std::to_string(take.number) +
                                 ", which was not offered to it, or is over"};
  }
  Half& half = it->second;
  half.is_taken = true;
  if (take.carried) return on_done({self_, from, take.number}, output);
  TransferLaunch& launch = output.transfers.emplace_back();
  launch.epoch = epoch_;
  launch.key = {self_, from, take.number};
  launch.bytes = half.submission.descriptor->bytes();
  launch.source = TransferLaunch::End{half.submission.rank, half.submission.ticket};
  return Status::ok();
}

Status Transfers::on_refusal(NodeIndex from, const TransferRefusal& refusal, Output& output) {
  const auto it = sends_of_ranks_.find({from, refusal.number});
  const auto offered = offered_.find(from);
  const bool was_offered =
      offered != offered_.end() && refusal.number > 0 && refusal.number <= offered->second;
  if (!was_offered || refusal.status.is_ok() ||
      (it != sends_of_ranks_.end() && it->second.is_taken)) {
    return {Code::kInternal, "node " + layout_.node(from).node_id + " refused send " +
                                 std::to_string(refusal.number) +
                                 ", which it cannot, or without a reason"};
  }
  // The send has ended already, because its destination has left.
  if (it == sends_of_ranks_.end()) return Status::ok();
  const LocalSubmission submission = std::move(it->second.submission);
  sends_of_ranks_.erase(it);
  refuse(submission, refusal.status, output);
  return Status::ok();
}

bool Transfers::on_cut_off() {
  is_cut_off_ = true;
  const auto is_reached = [&](NodeIndex node) { return node == self_ || opened_.contains(node); };
  bool reaches_all = true;
  for (const NodeIndex node : layout_.members()) reaches_all &= is_reached(node);
  bool waits = false;
  for (const auto& [key, box] : boxes_) {
    for (const auto& [source, waiting] : box.receives) {
      waits |= source == kAnySource ? !reaches_all : !is_reached(layout_.node_of(source));
    }
  }
  return waits;
}

// --- Taking back ---------------------------------------------------------------------------------

void Transfers::cancel(LocalRank rank, Ticket ticket, Output& output) {
  const auto found = spots_.find({rank, ticket});
  if (found == spots_.end()) return;
  if (const auto* spot = std::get_if<Spot>(&found->second)) {
    return cancel_receive(Spot(*spot), output);
  }
  const Place place = std::get<Place>(found->second);
  cancel_send(sends_of_ranks_.at(place), place, output);
}

void Transfers::cancel_receive(const Spot& spot, Output& output) {
  const auto box = boxes_.find(spot.box);
  if (box == boxes_.end()) return;
  const auto receives = box->second.receives.find(spot.source);
  if (receives == box->second.receives.end()) return;
  const auto found = receives->second.find(spot.turn);
  if (found == receives->second.end()) return;  // It has met its send.
  const LocalSubmission submission = found->second;
  if (!RUEDA_MUTANT(kCancelledReceiveStays)) receives->second.erase(found);
  if (receives->second.empty()) box->second.receives.erase(receives);
  if (box->second.is_empty()) boxes_.erase(box);
  refuse(submission, taken_back(submission.descriptor->name), output);
}

void Transfers::cancel_send(Half& half, const Place& place, Output& output) {
  if (half.is_taken || std::exchange(half.is_withdrawn, true)) return;
  const TensorDescriptor& descriptor = *half.submission.descriptor;
  const uint32_t process_set = descriptor.process_set;
  const TransferWithdrawal withdrawn{place.second, global(half.submission.rank), descriptor.peer,
                                     descriptor.tag};
  answer(place.first, process_set, withdrawn, output);
}

void Transfers::on_withdrawal(NodeIndex from, uint32_t process_set,
                              const TransferWithdrawal& withdrawn, Output& output) {
  const TransferRefusal refusal{
      withdrawn.number,
      taken_back("send from " + name_of(withdrawn.source) + " to " +
                 name_of(withdrawn.destination) + " with tag " + std::to_string(withdrawn.tag))};
  if (const auto early = early_.find(process_set); early != early_.end()) {
    if (early->second.erase({from, withdrawn.number}) == 0) return;
    if (early->second.empty()) early_.erase(early);
    --held_[from];
    return answer(from, process_set, refusal, output);
  }
  const auto box = boxes_.find({process_set, withdrawn.tag, withdrawn.destination});
  if (box == boxes_.end()) return;
  const auto offers = box->second.offers.find(withdrawn.source);
  if (offers == box->second.offers.end()) return;
  const auto found = offers->second.find(withdrawn.number);
  if (found == offers->second.end() || found->second.from != from) return;
  --held_[from];
  if (!RUEDA_MUTANT(kWithdrawnOfferStays) || from == self_) offers->second.erase(found);
  if (offers->second.empty()) box->second.offers.erase(offers);
  if (box->second.is_empty()) boxes_.erase(box);
  answer(from, process_set, refusal, output);
}

// --- Goodbyes ------------------------------------------------------------------------------------

bool Transfers::have_others_left(uint32_t process_set, Rank rank) const {
  const Layout* set = find_layout_(process_set);
  if (left_.empty() || !set) return false;
  const std::vector<Rank> ranks = set->ranks();
  return std::all_of(ranks.begin(), ranks.end(),
                     [&](Rank other) { return other == rank || left_.contains(other); });
}

Status Transfers::left(const LocalSubmission& submission, Rank rank) const {
  return {Code::kShutDown,
          "the " + submission.descriptor->name + " cannot complete: " + name_of(rank) +
              " has left the job (its rueda_shutdown ran)",
          Origin{{}, rank}};
}

// A send that was taken goes on: its receive is in flight, so its destination has not left. A rank
// that has left had no send in flight, so nothing of it is awaited that could still come.
void Transfers::on_rank_left(Rank rank, Output& output) {
  if (!left_.insert(rank).second) return;
  std::vector<LocalSubmission> over;
  for (auto it = sends_of_ranks_.begin(); it != sends_of_ranks_.end();) {
    Half& half = it->second;
    if (half.is_taken || half.submission.descriptor->peer != rank) {
      ++it;
      continue;
    }
    over.push_back(std::move(half.submission));
    it = sends_of_ranks_.erase(it);
  }
  for (auto it = boxes_.begin(); it != boxes_.end();) {
    Box& box = it->second;
    const auto take = [&](Rank source) {
      const auto found = box.receives.find(source);
      if (found == box.receives.end()) return;
      for (auto& [turn, receive] : found->second) over.push_back(std::move(receive));
      box.receives.erase(found);
    };
    take(rank);
    if (have_others_left(it->first.process_set, it->first.destination)) take(kAnySource);
    if (it->first.destination == rank) {
      // Their sends end without it, but what came with them is kept until they are answered.
      const uint32_t process_set = it->first.process_set;
      for (const auto& [source, offers] : std::exchange(box.offers, {})) {
        for (const auto& [number, offer] : offers) {
          --held_[offer.from];
          const TransferRefusal refusal{offer.what.number, refusal_of(process_set, offer.what)};
          answer(offer.from, process_set, refusal, output);
        }
      }
    }
    it = box.is_empty() ? boxes_.erase(it) : std::next(it);
  }
  for (const LocalSubmission& submission : over) refuse(submission, left(submission, rank), output);
}

// --- The data plane ------------------------------------------------------------------------------

Status Transfers::on_done(const TransferKey& key, Output& output) {
  bool is_known = false;
  if (key.from == self_) {
    const auto it = sends_of_ranks_.find({key.to, key.number});
    if (it != sends_of_ranks_.end() && it->second.is_taken) {
      is_known = true;
      const LocalSubmission submission = std::move(it->second.submission);
      sends_of_ranks_.erase(it);
      finish(submission, Status::ok(), submission.descriptor->peer, output);
    }
  }
  if (key.to == self_) {
    const auto it = arriving_.find({key.from, key.number});
    if (it != arriving_.end()) {
      is_known = true;
      const Arriving whole = std::move(it->second);
      arriving_.erase(it);
      finish(whole.receive, Status::ok(), whole.source, output);
    }
  }
  if (is_known) return Status::ok();
  return {Code::kInternal,
          "transfer " + std::to_string(key.number) + " is done here and was not under way"};
}

// --- Stalls --------------------------------------------------------------------------------------

template <class Visit>
void Transfers::for_each_waiting(Visit visit) const {
  for (const auto& [place, half] : sends_of_ranks_) {
    if (!half.is_taken) visit(half.submission);
  }
  for (const auto& [key, box] : boxes_) {
    for (const auto& [source, waiting] : box.receives) {
      for (const auto& [turn, receive] : waiting) visit(receive);
    }
  }
}

std::optional<TicksMs> Transfers::wakes_at() const {
  if (stall_.check_ms == 0 || (in_flight_ == 0 && stall_count_ == 0)) return std::nullopt;
  return next_look_ms_;
}

void Transfers::on_time(StallOutput& said) {
  const TicksMs now = to_ms(now_);
  if (stall_.check_ms == 0 || now < next_look_ms_) return;
  next_look_ms_ = now + kLookEveryMs;
  const size_t before = stall_count_;
  stall_count_ = 0;
  const LocalSubmission* oldest = nullptr;
  for_each_waiting([&](const LocalSubmission& waiting) {
    if (now - waiting.submitted_ms < stall_.overdue_ms()) return;
    ++stall_count_;
    if (!oldest || waiting.submitted_ms < oldest->submitted_ms) oldest = &waiting;
  });
  if (!oldest) {
    next_news_ms_ = 0;
    if (before > 0) said.lines.push_back({false, "no transfer between ranks waits any more"});
    return;
  }
  const TicksMs age = now - oldest->submitted_ms;
  if (stall_.shutdown_ms > 0 && age >= stall_.shutdown_ms) {
    const Rank missing = oldest->descriptor->peer;
    Origin origin;
    if (missing != kAnySource) {
      origin = Origin{layout_.node(layout_.node_of(missing)).node_id, missing};
    }
    said.failure = Status(
        Code::kShutDown,
        describe_stall(*oldest, stall_count_ - 1) + "; no stall may be longer than " +
            std::to_string(stall_.shutdown_ms / 1000) + " s (RUEDA_STALL_SHUTDOWN_TIME_SECONDS)",
        origin);
    return;
  }
  if (age < next_news_ms_) return;
  next_news_ms_ = 2 * age;
  said.lines.push_back({true, describe_stall(*oldest, stall_count_ - 1)});
}

std::string Transfers::describe_stall(const LocalSubmission& oldest, size_t others) const {
  const TensorDescriptor& descriptor = *oldest.descriptor;
  const bool sends = descriptor.kind == CollectiveKind::kSend;
  const std::string whom = descriptor.peer == kAnySource ? "any rank" : name_of(descriptor.peer);
  std::string text =
      name_of(global(oldest.rank)) + " has waited " +
      std::to_string((to_ms(now_) - oldest.submitted_ms) / 1000) + " s to " +
      (sends ? "send " : "receive ") + describe_size(descriptor.dtype, descriptor.elements()) +
      (sends ? " to " : " from ") + whom + " (tag " + std::to_string(descriptor.tag) +
      ", process set " + std::to_string(descriptor.process_set) + "), and no matching " +
      (sends ? "receive" : "send") + " has come";
  if (others > 0) text += "; " + std::to_string(others) + " more transfers wait on this node";
  return text;
}

StallNotice Transfers::stalls(uint32_t process_set, TicksMs now) const {
  StallNotice notice;
  if (stall_count_ == 0) return notice;
  for_each_waiting([&](const LocalSubmission& waiting) {
    const TensorDescriptor& descriptor = *waiting.descriptor;
    const TicksMs age = now - waiting.submitted_ms;
    if (descriptor.process_set != process_set || age < stall_.overdue_ms()) return;
    Stall& stall = notice.stalls.emplace_back();
    stall.tensor = descriptor.name;
    stall.age_ms = age;
    stall.submitted.push_back(global(waiting.rank));
    if (descriptor.peer != kAnySource) stall.missing.push_back(descriptor.peer);
  });
  std::sort(notice.stalls.begin(), notice.stalls.end(),
            [](const Stall& a, const Stall& b) { return a.age_ms > b.age_ms; });
  if (notice.stalls.size() > kMaxStalls) notice.stalls.resize(kMaxStalls);
  return notice;
}

}  // namespace rueda::core
