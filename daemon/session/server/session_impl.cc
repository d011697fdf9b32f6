#include "daemon/session/server/session_impl.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <optional>
#include <utility>

#include <boost/asio/post.hpp>
#include <fcntl.h>
#include <poll.h>

#include "daemon/base/limits.h"
#include "daemon/base/no_exception.h"
#include "daemon/session/records/text.h"
#include "daemon/session/server/listener.h"
#include "daemon/session/submissions/submission.h"

namespace rueda::session {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;
using Wait = asio::posix::stream_descriptor::wait_type;

// A message costs an owner as much of a turn as so many records.
constexpr int64_t kRecordsPerMessage = 16;
constexpr int kRecordsPerPop = 64;
// A correct client rings, or changes the ticket that it waits for, a few times for each record. A
// client that does so more often without a record is looked at after a pause.
constexpr int kLooksForNothing = 16;
constexpr std::chrono::microseconds kShortestPause{100};
constexpr std::chrono::microseconds kLongestPause{1600};
// The bytes of replies (some 250) that a client may leave unread beside what its socket holds.
constexpr size_t kMaxQueuedBytes = 256 * 1024;

int32_t abi_code(const Status& status) { return -static_cast<int32_t>(status.code()); }

bool is_job_id(std::string_view id) {
  return !id.empty() && std::all_of(id.begin(), id.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '_' || c == '-';
  });
}

// Returns true if the records differ at most in the ticket, which is their first field.
bool is_same_but_for_ticket(const rueda_abi_submission& a, const rueda_abi_submission& b) {
  constexpr size_t kFrom = offsetof(rueda_abi_submission, tensor_id);
  static_assert(kFrom == sizeof(a.ticket));
  return std::memcmp(&a.tensor_id, &b.tensor_id, sizeof(a) - kFrom) == 0;
}

}  // namespace

SessionImpl::SessionImpl(SessionSetup setup, ForeignSocket socket, const Credentials& peer,
                         Charge waiting)
    : setup_(std::move(setup)),
      socket_(setup_.loop, std::move(socket)),
      doorbell_(setup_.loop),
      deadline_(setup_.loop),
      pause_(setup_.loop),
      pause_for_(kShortestPause),
      waiting_(std::move(waiting)),
      incoming_(std::make_shared<Incoming>(peer.principal)),
      tensors_(limits::kMaxTensorsPerSession,
               Charge({setup_.options.ledger, peer.principal}, Resource::kTensorBytes)),
      arenas_(setup_.arena_totals, {setup_.options.ledger, peer.principal}),
      devices_(setup_.options.ring_capacity) {
  attach_.peer = peer;
  cause_ = make_cause();
}

// --- Life and end.

void SessionImpl::start() {
  deadline_.expires_after(std::chrono::milliseconds(setup_.options.handshake_timeout_ms));
  deadline_.async_wait([self = shared_from_this()](error_code error) {
    if (error || self->state_ != State::kGreeting) return;
    self->refuse(
        Status(Code::kTimeout, "no attach message came within " +
                                   std::to_string(self->setup_.options.handshake_timeout_ms) +
                                   " ms of connecting: send it at once"));
  });
  wait_readable();
}

void SessionImpl::close() {
  if (state_ == State::kClosed) return;
  state_ = State::kClosed;
  error_code ignored;
  socket_.close();
  doorbell_.close(ignored);
  unheard_doorbell_.reset();
  deadline_.cancel();
  pause_.cancel();
  places_.clear();
  in_flight_ = 0;
  arenas_ = ArenaTable(setup_.arena_totals);
  tensors_ = TensorTable();
  pinned_.clear();
  waiting_ = Charge();
  attached_ = Charge();
  replies_.clear();
  rings_.reset();
  setup_.owner.on_closed(*this);
}

void SessionImpl::drop() {
  // This keeps the object alive, because the caller may still be in one of its methods.
  asio::post(setup_.loop, [self = shared_from_this()] {});
  close();
}

std::string SessionImpl::who() const {
  return "rank " + std::to_string(attach_.rank.value) + " (pid " +
         std::to_string(attach_.peer.pid) + ")";
}

std::shared_ptr<const Cause> SessionImpl::make_cause() {
  const std::string owner = attach_.peer.principal.to_string();
  if (attach_.job.empty()) {
    return std::make_shared<const Cause>(
        Cause{"process " + std::to_string(attach_.peer.pid) + " of " + owner});
  }
  return std::make_shared<const Cause>(Cause{"job " + attach_.job + " of " + owner + ", " + who(),
                                             [weak = weak_from_this()](const std::string& why) {
                                               if (const auto self = weak.lock()) self->fail(why);
                                             }});
}

void SessionImpl::fail(const std::string& what) {
  if (state_ != State::kAttached) return;
  state_ = State::kFailing;
  failure_ =
      Status(Code::kRankLost, who() + " " + what, Origin{.node_id = "", .rank = attach_.rank});
  asio::post(setup_.loop, [self = shared_from_this()] { self->finish(); });
}

void SessionImpl::finish() {
  if (state_ != State::kFailing) return;
  send_status(RUEDA_ABI_FAILED, failure_);
  without_exception([this] { setup_.events.on_lost(*this, failure_); }, [](const char*) {});
  close();
}

void SessionImpl::look() {
  const auto self = shared_from_this();  // A message may be the client's goodbye.
  if (state_ != State::kAttached) return finish();
  pollfd hang_up{.fd = socket_.fd(), .events = 0, .revents = 0};
  // A client that has hung up adds nothing to what is there to be read: the loop below ends.
  const bool has_hung_up = ::poll(&hang_up, 1, 0) == 1;
  while (has_hung_up && state_ == State::kAttached && !is_at_door_) {
    if (take_message() == MessageReader::Read::kWouldBlock) break;
  }
  finish();
}

void SessionImpl::check_memory() {
  if (state_ != State::kAttached) return;
  if (arenas_.any_is_lost() || rings_->is_lost()) {
    fail(
        "has an arena or a ring that lost its memory (its memory cgroup is full, or the memory is "
        "faulty): raise the memory limit of the job");
  }
}

// --- Messages in.

void SessionImpl::wait_readable() {
  socket_.async_wait(Wait::wait_read, [self = shared_from_this()](error_code error) {
    if (!error) self->guarded([&] { self->on_readable(); });
  });
}

void SessionImpl::guarded(const std::function<void()>& work) {
  without_exception(work, [this](const char* what) {
    if (state_ == State::kAttached) {
      fail(std::string("cannot be served by the daemon (") + what + "): it asks for too much");
    } else if (state_ == State::kGreeting || state_ == State::kDeciding) {
      refuse(
          Status(Code::kResourceExhausted, std::string("the daemon cannot serve this: ") + what));
    }
  });
}

void SessionImpl::on_readable() {
  HandlerWatch::note(cause_);
  const auto reads = [this] {
    return !is_at_door_ && (state_ == State::kGreeting || state_ == State::kAttached);
  };
  while (reads()) {
    if (!setup_.turns->may_work()) {
      return setup_.turns->wait(
          [self = shared_from_this()] { self->guarded([&] { self->on_readable(); }); });
    }
    setup_.turns->charge(kRecordsPerMessage);
    if (take_message() == MessageReader::Read::kWouldBlock) return wait_readable();
  }
}

MessageReader::Read SessionImpl::take_message() {
  const MessageReader::Read read = incoming_->reader.read(socket_.fd());
  on_read(read);
  return read;
}

void SessionImpl::receive_at_door() {
  if (state_ == State::kGreeting) {
    return refuse(
        Status(Code::kInvalidArgument, "descriptors came before the attach message was answered"));
  }
  is_at_door_ = true;
  Doors::of_process().run(
      attach_.peer.principal,
      [weak = weak_from_this(), gate = setup_.gate, incoming = incoming_, socket = socket_.socket(),
       account = Account{setup_.options.ledger, attach_.peer.principal}, peer = attach_.peer,
       kept = setup_.kept_arenas] {
        const MessageReader::Read read = incoming->reader.receive(socket->get());
        if (read == MessageReader::Read::kMessage) incoming->prepare(account, peer, *kept);
        gate->post([weak, read] {
          const auto self = weak.lock();
          if (!self) return;
          self->is_at_door_ = false;
          if (self->state_ != State::kAttached) {  // A mapped arena is unmapped there, too.
            return Doors::of_process().run(
                self->attach_.peer.principal, [gone = std::move(self->incoming_)] {},
                Doors::Purpose::kMemory);
          }
          self->guarded([&] {
            self->on_read(read);
            self->on_readable();
          });
        });
      });
}

// The door maps and seals the arena: sealing sleeps while the client allocates pages.
void SessionImpl::Incoming::prepare(const Account& account, const Credentials& peer,
                                    KeptArenas& kept_arenas) {
  if (reader.type() != RUEDA_ABI_ARENA_ADD || reader.descriptors().size() != 1) return;
  const auto request = reader.body_as<rueda_abi_arena>();
  const int memfd = reader.descriptors().front().get();
  kept = kept_arenas.take(peer, memfd, request.bytes);
  if (kept == nullptr) arena.emplace(ArenaTable::map(memfd, request.bytes, account));
}

void SessionImpl::on_read(MessageReader::Read read) {
  MessageReader& reader = incoming_->reader;
  switch (read) {
    case MessageReader::Read::kMessage:
      handle_message();
      reader.descriptors().clear();
      break;
    case MessageReader::Read::kDescriptors: return receive_at_door();
    case MessageReader::Read::kWouldBlock: break;
    case MessageReader::Read::kClosed:
      if (state_ == State::kGreeting) {
        setup_.owner.on_rejected(attach_.peer, Status(Code::kInvalidArgument,
                                                      "it closed the connection before attaching"));
        close();
      } else {
        fail("closed its connection without saying goodbye (killed or crashed)");
      }
      break;
    case MessageReader::Read::kBroken:
      if (state_ == State::kGreeting) {
        refuse(reader.error());
      } else {
        fail("sent " + reader.error().message() + kCorrupt);
      }
      break;
  }
}

void SessionImpl::handle_message() {
  bool is_attach = incoming_->reader.type() == RUEDA_ABI_ATTACH;
  if (state_ == State::kGreeting) {
    if (is_attach) return handle_attach();
    return refuse(Status(Code::kInvalidArgument, "the first message must be the attach message"));
  }
  switch (incoming_->reader.type()) {
    case RUEDA_ABI_ARENA_ADD: return handle_arena_add();
    case RUEDA_ABI_ARENA_REMOVE: return handle_arena_remove();
    case RUEDA_ABI_INTERN: return handle_intern();
    case RUEDA_ABI_PROCESS_SET: return handle_process_set();
    case RUEDA_ABI_PLAN: return handle_plan();
    case RUEDA_ABI_COUNTS: return handle_counts();
    case RUEDA_ABI_FORGET: return handle_forget();
    case RUEDA_ABI_TIMELINE: return handle_timeline();
    case RUEDA_ABI_DEVICE_ADD: return handle_device_add();
    case RUEDA_ABI_DEVICE_JOIN: return handle_device_join();
    case RUEDA_ABI_DEVICE_REMOVE: return handle_device_remove();
    case RUEDA_ABI_ASK_NONFINITE: return setup_.events.on_nonfinite_asked(*this);
    case RUEDA_ABI_DETACH: return handle_detach();
    case RUEDA_ABI_RESET: return handle_reset();
    default: return fail(std::string("attached a second time on one connection") + kCorrupt);
  }
}

Status SessionImpl::prepare_attach(const rueda_abi_attach& abi) {
  std::optional<std::string_view> job = field_text(abi.job_id);
  if (!job || !is_job_id(*job)) {
    return Status(Code::kInvalidArgument,
                  "the job id is not 1 to 63 characters of A-Z a-z 0-9 . _ -: set RUEDA_JOB_ID");
  }
  attach_.job = *job;
  attach_.token.assign(reinterpret_cast<const char*>(abi.token), sizeof(abi.token));
  attach_.rank = Rank(abi.rank);
  attach_.local_rank = LocalRank(abi.local_rank);
  if (abi.rank < 0 || abi.rank >= limits::kMaxRanks || abi.local_rank < 0 ||
      abi.local_rank >= limits::kMaxLocalRanks) {
    return Status(Code::kInvalidArgument, "rank " + std::to_string(abi.rank) + " with local rank " +
                                              std::to_string(abi.local_rank) +
                                              " is not possible: set RANK and LOCAL_RANK");
  }
  if (Status status = setup_.owner.check_room(); !status.is_ok()) return status;
  Result<Charge> paid =
      charge({setup_.options.ledger, attach_.peer.principal}, Resource::kSessions, 1);
  if (!paid.is_ok()) return paid.status();
  attached_ = std::move(paid).value();
  Result<SharedRings> rings = SharedRings::make(setup_.options.ring_capacity);
  if (!rings.is_ok()) return rings.status();
  rings_.emplace(std::move(rings).value());
  return Status::ok();
}

void SessionImpl::handle_attach() {
  auto abi = incoming_->reader.body_as<rueda_abi_attach>();
  if (Status status = prepare_attach(abi); !status.is_ok()) return refuse(status);
  // The last rank's on_attach starts the job: the news of that waits until the reply is out.
  state_ = State::kDeciding;
  Status decision = setup_.events.on_attach(*this);
  if (state_ == State::kClosed) return;
  if (!decision.is_ok()) return refuse(decision);
  state_ = State::kAttached;
  cause_ = make_cause();
  waiting_ = Charge();
  deadline_.cancel();
  set_passes_descriptors(socket_.fd(), true);
  rueda_abi_attach_reply reply = attach_reply(Status::ok());
  writer_.add_first(RUEDA_ABI_ATTACH_REPLY, &reply, sizeof(reply),
                    rings_->take_client_descriptors());
  flush_socket();
  doorbell_.assign(rings_->take_daemon_doorbell().release());
  drain();
}

rueda_abi_attach_reply SessionImpl::attach_reply(const Status& status) const {
  rueda_abi_attach_reply reply{};
  reply.code = abi_code(status);
  if (status.is_ok()) {
    reply.submission_capacity = setup_.options.ring_capacity;
    reply.completion_capacity = setup_.options.ring_capacity;
  }
  fill_field(reply.text, status.message());
  return reply;
}

void SessionImpl::refuse(const Status& why) {
  rueda_abi_attach_reply reply = attach_reply(why);
  writer_ = MessageWriter();
  writer_.add(RUEDA_ABI_ATTACH_REPLY, &reply, sizeof(reply));
  // The socket is fresh: it takes the reply at once, or its client is gone.
  writer_.flush(socket_.fd());
  setup_.owner.on_rejected(attach_.peer, why);
  close();
}

void SessionImpl::handle_detach() {
  answer(Status::ok());
  // If the client was gone before the reply, it has said goodbye all the same.
  state_ = State::kFailing;
  setup_.events.on_detached(*this);
  close();
}

void SessionImpl::handle_reset() {
  answer(Status::ok());
  state_ = State::kFailing;
  setup_.events.on_detached(*this);
  if (state_ == State::kClosed) return;
  setup_.owner.keep(socket_.release(), attach_.peer, arenas_.all());
  close();
}

// --- Messages out.

void SessionImpl::started(const Started& started) {
  rueda_abi_started message{};
  message.epoch = started.epoch.value;
  message.rank = started.rank.value;
  message.world_size = started.world_size;
  message.local_rank = started.local_rank.value;
  message.local_size = started.local_size;
  message.node_index = started.node.value;
  message.node_count = started.node_count;
  message.flags = started.checks_finite ? RUEDA_ABI_STARTED_CHECKS_FINITE : 0;
  fill_field(message.node_id, started.node_id);
  send(RUEDA_ABI_STARTED, &message, sizeof(message));
}

void SessionImpl::job_failed(const Status& status) {
  if (state_ == State::kFailing) return;
  send_status(RUEDA_ABI_FAILED, status);
}

void SessionImpl::hosts_changed() {
  if (state_ != State::kAttached) return;
  has_news_ = true;
  send(RUEDA_ABI_HOSTS_CHANGED, nullptr, 0);
}

void SessionImpl::nonfinite(const NonfiniteNews* news) {
  if (state_ != State::kAttached) return;
  rueda_abi_nonfinite message{};
  if (news) {
    message.is_found = 1;
    message.rank = news->rank.value;
    message.step = news->step;
    message.element = news->element;
    message.value = news->value;
    message.process_set = news->process_set;
    fill_field(message.tensor, news->tensor);
    fill_field(message.text, news->text);
  }
  has_news_ = true;
  send(RUEDA_ABI_NONFINITE, &message, sizeof(message));
}

void SessionImpl::answer(const Status& status, uint32_t value) {
  if (replies_.empty()) return send_status(RUEDA_ABI_REPLY, status, value);
  if (replies_.size() >= kMaxAwaitedReplies) {
    return fail("asks for more than it waits for" + std::string(kCorrupt));
  }
  replies_.push_back(Reply{status, value, true, {}});
}

void SessionImpl::send_replies() {
  while (!replies_.empty() && replies_.front().is_known) {
    const Reply first = std::move(replies_.front());
    replies_.pop_front();
    send_status(RUEDA_ABI_REPLY, first.status, first.value);
  }
}

void SessionImpl::send_status(uint16_t type, const Status& status, uint32_t value) {
  rueda_abi_status message{};
  message.code = abi_code(status);
  message.value = value;
  fill_field(message.text, status.message());
  send(type, &message, sizeof(message));
}

void SessionImpl::send(uint16_t type, const void* body, size_t body_bytes) {
  if (state_ == State::kClosed) return;
  writer_.add(type, body, body_bytes);
  if (state_ != State::kDeciding) flush_socket();
}

void SessionImpl::flush_socket() {
  switch (writer_.flush(socket_.fd())) {
    case MessageWriter::Flush::kDone: return;
    case MessageWriter::Flush::kFailed:
      return fail("closed its connection without saying goodbye (killed or crashed)");
    case MessageWriter::Flush::kWouldBlock: break;
  }
  if (writer_.queued_bytes() > kMaxQueuedBytes) {
    return fail("does not read the replies on its socket" + std::string(kCorrupt));
  }
  if (std::exchange(is_waiting_writable_, true)) return;
  socket_.async_wait(Wait::wait_write, [self = shared_from_this()](error_code error) {
    self->is_waiting_writable_ = false;
    if (!error && self->state_ == State::kAttached) self->flush_socket();
  });
}

// --- Rings.

void SessionImpl::wait_doorbell() {
  if (std::exchange(is_doorbell_awaited_, true)) return;
  doorbell_.async_wait(Wait::wait_read, [self = shared_from_this()](error_code error) {
    self->is_doorbell_awaited_ = false;
    if (error || self->state_ != State::kAttached) return;
    SharedRings::silence(self->doorbell_.native_handle());
    self->guarded([&] { self->drain(); });
  });
}

void SessionImpl::drain_later() {
  if (std::exchange(awaits_turn_, true)) return;
  setup_.turns->wait([self = shared_from_this()] {
    self->awaits_turn_ = false;
    self->guarded([&] { self->drain(); });
  });
}

void SessionImpl::drain() {
  if (awaits_turn_ || state_ != State::kAttached) return;
  std::array<rueda_abi_submission, kRecordsPerPop> records;
  std::optional<std::chrono::steady_clock::time_point> turn_ends;  // The end of a long turn.
  int taken = 0;
  while (setup_.turns->may_work()) {
    if (state_ != State::kAttached) return;
    if (taken >= kRecordsPerPop) {
      HandlerWatch::note(cause_);  // A few records take no time that is worth a look at a clock.
      const auto now = std::chrono::steady_clock::now();
      if (!turn_ends) turn_ends = now + kLongestTurn;
      if (now > *turn_ends) {
        setup_.turns->end_turn();
        break;
      }
    }
    int count = rings_->submissions().pop(records);
    if (count == SubmissionRing::kBroken) {
      return fail(std::string("wrote an impossible index into its submission ring") + kCorrupt);
    }
    for (int i = 0; i < count && state_ == State::kAttached; ++i) take_record(records[i]);
    if (state_ != State::kAttached) return;
    // A pop that found nothing counts, because the client may move its index back and forth.
    taken += std::max(count, 1);
    setup_.turns->charge(std::max(count, 1));
    if (count > 0) {
      looks_for_nothing_ = 0;
      pause_for_ = kShortestPause;
      continue;
    }
    if (pauses()) {
      if (std::exchange(has_undrained_, false)) setup_.events.on_submissions_drained(*this);
      return;
    }
    tell_waiting();
    if (!is_watched_) is_watched_ = setup_.owner.keeps_watch(*this);
    if (!is_watched_) {
      if (!rings_->submissions().prepare_to_sleep()) continue;
      wait_doorbell();
    }
    if (std::exchange(has_undrained_, false)) setup_.events.on_submissions_drained(*this);
    return;
  }
  drain_later();
}

bool SessionImpl::pauses() {
  if (is_paused_) return true;
  if (++looks_for_nothing_ <= kLooksForNothing) return false;
  is_paused_ = true;
  // In the reactor, a descriptor that is written wakes the loop even if nothing waits for it.
  unheard_doorbell_ = UniqueFd(doorbell_.release());
  pause_.expires_after(pause_for_);
  pause_for_ = std::min(2 * pause_for_, kLongestPause);
  pause_.async_wait([self = shared_from_this()](error_code error) {
    if (error || self->state_ != State::kAttached) return;
    self->guarded([&] { self->end_pause(); });
  });
  return true;
}

void SessionImpl::end_pause() {
  doorbell_.assign(unheard_doorbell_.get());
  (void)unheard_doorbell_.release();
  is_paused_ = false;
  looks_for_nothing_ = kLooksForNothing - 1;  // One look in vain is left before the next pause.
  drain();
}

bool SessionImpl::look_at_ring() {
  if (awaits_turn_) return false;
  const SubmissionRing& ring = rings_->submissions();
  if (is_paused_ ? !ring.has_records() : !ring.has_news()) return false;
  guarded([this] { drain(); });
  return true;
}

void SessionImpl::rest() {
  is_watched_ = false;
  guarded([this] { drain(); });
}

void SessionImpl::tell_waiting() {
  const uint64_t ticket = rings_->submissions().read_producer_waits_for();
  if (std::exchange(told_waiting_, ticket) == ticket) return;
  setup_.events.on_waiting(*this, ticket == 0 ? std::nullopt : std::optional(Ticket{ticket}));
}

SessionImpl::Place& SessionImpl::place_of(Ticket ticket) {
  const size_t index = ticket.value & (setup_.options.ring_capacity - 1);
  if (index >= places_.size()) places_.resize(index + 1);
  return places_[index];
}

void SessionImpl::take_record(const rueda_abi_submission& record) {
  const Ticket ticket(record.ticket);
  Place& place = place_of(ticket);
  if (place.is_in_flight) {
    return fail("submitted a tensor under ticket " + std::to_string(record.ticket) +
                (place.submission.ticket == ticket
                     ? ", which is in flight"
                     : ", whose place ticket " + std::to_string(place.submission.ticket.value) +
                           " has, which is in flight") +
                kCorrupt);
  }
  if (place.submission.content != 0 && is_same_but_for_ticket(record, place.record)) {
    place.submission.ticket = ticket;
  } else {
    Result<Submission> checked = check_submission(record, tensors_, arenas_, devices_);
    if (!checked.is_ok()) {
      return fail("submitted " + checked.status().message() + kCorrupt);
    }
    place.submission = std::move(checked).value();
    place.submission.content = ++*setup_.last_content;
    place.record = record;
  }
  place.is_in_flight = true;
  ++in_flight_;
  has_undrained_ = true;
  setup_.events.on_submit(*this, place.submission);
}

void SessionImpl::complete(Ticket ticket, const Status& status, Epoch epoch, uint32_t contributors,
                           Seq seq, uint32_t value) {
  if (state_ != State::kAttached) return;
  Place& place = place_of(ticket);
  RUEDA_CHECK(place.is_in_flight && place.submission.ticket == ticket);
  place.is_in_flight = false;
  --in_flight_;
  rueda_abi_completion record{};
  record.ticket = ticket.value;
  record.code = abi_code(status);
  record.epoch = epoch.value;
  record.contributors = contributors;
  record.seq = seq.value;
  record.value = value;
  record.flags = std::exchange(has_news_, false) ? RUEDA_ABI_FLAG_NEWS : 0;
  switch (rings_->completions().push(record, status.message())) {
    case CompletionRing::Push::kOk: has_unflushed_ = true; return;
    case CompletionRing::Push::kFull:
      return fail("does not take its completions: its ring of " +
                  std::to_string(setup_.options.ring_capacity) + " is full");
    case CompletionRing::Push::kBroken:
      return fail(std::string("wrote an impossible index into its completion ring") + kCorrupt);
  }
}

void SessionImpl::flush() {
  if (!std::exchange(has_unflushed_, false)) return;
  check_memory();
  if (state_ != State::kAttached) return;
  if (rings_->completions().publish()) rings_->ring_client();
}

// --- Requests: arenas, tensors, device memory, the timeline.

void SessionImpl::handle_arena_add() {
  auto request = incoming_->reader.body_as<rueda_abi_arena>();
  size_t descriptors = incoming_->reader.descriptors().size();
  if (descriptors != 1 || request.reserved != 0) {
    return answer(Status(Code::kInvalidArgument,
                         "an arena comes with one descriptor and a reserved field of 0, not " +
                             std::to_string(descriptors) + " descriptors"));
  }
  if (incoming_->kept != nullptr) {
    const Result<uint32_t> id = arenas_.add(std::exchange(incoming_->kept, nullptr));
    return answer(id.status(), id.is_ok() ? id.value() : 0);
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
    const Account account{setup_.options.ledger, attach_.peer.principal};
    Result<Charge> paid = charge(account, Resource::kPinnedBytes, memory.value().bytes);
    if (!paid.is_ok()) {
      devices_.answer(memory.value().id, false);
      return answer(paid.status());
    }
    pinned_.emplace(memory.value().id, std::move(paid).value());
  }
  if (memory.value().is_host()) {
    awaited.to_seal = ForeignFd(UniqueFd(::fcntl(memory.value().fd.get(), F_DUPFD_CLOEXEC, 0)),
                                attach_.peer.principal);
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
  Doors::of_process().run(attach_.peer.principal,
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
