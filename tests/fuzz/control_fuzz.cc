// Fuzzes what a hostile member or coordinator of a job can do to a daemon. It holds the job's
// token, so its messages are believed to be its own. They take the way of real ones, from protobuf
// through service::from_proto() into a JobCore whose ranks are honest; what the core launches is
// built as the engine builds it, over buffers of exactly the submitted sizes, and every byte of it
// is read and written. Nothing may go past a buffer, abort, or be told twice.
//
// An input is a program: the first bytes choose the job, the others are steps with operands.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "daemon/base/check.h"
#include "daemon/base/parts.h"
#include "daemon/core/job/job.h"
#include "daemon/core/job/shared_settings.h"
#include "daemon/core/messages/fusion.h"
#include "daemon/engine/operation/build_operation.h"
#include "daemon/service/convert/convert.h"
#include "daemon/service/convert/convert_plan.h"
#include "daemon/service/convert/convert_settings.h"
#include "tests/fuzz/program.h"

namespace rueda {
namespace {

// Larger operations are not built, because nobody has that much memory here.
constexpr int64_t kMaxBytes = 1 << 16;

class Victim {
 public:
  explicit Victim(Bytes& bytes)
      : bytes_(bytes),
        is_tree_(bytes.below(3) == 0),
        layout_(make_layout(is_tree_)),
        self_{bytes.below(layout_.node_count())},
        core_(layout_, self_, make_options()) {}

  void run() {
    start();
    while (!bytes_.empty() && core_.state() != core::JobState::kFailed) step();
    step(core::JobClosed{Status(Code::kShutDown, "over")});
  }

 private:
  struct Buffers {
    LocalRank rank;
    DescriptorPtr descriptor;
    std::vector<std::byte> input;
    std::vector<std::byte> output;
    engine::SubmittedBuffers spans;
  };

  core::JobOptions make_options() {
    core::JobOptions options;
    options.job = "train";
    options.data_address = "127.0.0.1:2";
    static constexpr core::Coordination kModes[] = {
        core::Coordination::kLocked, core::Coordination::kNegotiate, core::Coordination::kCached,
        core::Coordination::kGlobalSleep, core::Coordination::kNonblocking};
    options.agreement.mode = kModes[bytes_.below(5)];
    options.agreement.lock_after_steps = 2;
    options.agreement.fusion.threshold_bytes = 256;
    options.agreement.cache_capacity = 4;
    if (is_tree_) {
      options.agreement.tree_fan_in = 2;
      options.tree = {.threshold = 2, .fan_in = 2};
    }
    options_ = options;
    return options;
  }

  // --- The beginning of a job with honest peers
  void start() {
    for (size_t i = 0; i < locals(); ++i) attach(i);
    v1::JobMessage message;
    if (!core_.links().is_root()) {
      for (int node = 0; node < layout_.node_count(); ++node) {
        message.mutable_start()->add_data_addresses("127.0.0.1:3");
        message.mutable_start()->add_ring(node);
      }
      from_peer(std::move(message), core_.links().parent(), 0);
      return;
    }
    for (const NodeIndex child : core_.links().children()) {
      v1::Join& join = *message.mutable_join();
      join.Clear();
      join.set_layout_hash(layout_.hash());
      join.set_data_address("127.0.0.1:3");
      service::fill_settings(core::shared_settings(options_), *join.mutable_settings());
      for (const Rank rank : layout_.node(child).ranks) join.add_attached_ranks(rank.value);
      for (const NodeIndex node : core_.links().reached_by(child)) {
        if (node == child) continue;
        v1::Join::Below& below = *join.add_below();
        below.set_node(node.value);
        below.set_data_address("127.0.0.1:3");
        for (const Rank rank : layout_.node(node).ranks) below.add_attached_ranks(rank.value);
      }
      from_peer(message, child, 0);
    }
  }
  size_t locals() const { return layout_.node(self_).ranks.size(); }
  void attach(size_t local) { step(core::RankAttached{LocalRank{static_cast<int32_t>(local)}}); }

  // --- Steps
  void step() {
    switch (bytes_.below(16)) {
      case 0:
      case 1:
      case 2: {  // concerns all of this node's ranks
        submit_all();
        return step(core::TurnEnded{});
      }
      case 3: return submit(bytes_.below(static_cast<int>(locals())), make_tensor(bytes_));
      case 4: {
        TensorDescriptor join;
        join.name = core::kJoinName;
        join.kind = CollectiveKind::kJoin;
        return submit(bytes_.below(static_cast<int>(locals())), join);
      }
      case 5: return complete_one();
      case 6: now_ += 100 * bytes_.take(); return step(core::TimePassed{});
      case 7: {
        const LocalRank rank{bytes_.below(static_cast<int>(locals()))};
        return step(core::RankWaits{
            rank, Ticket{next_ticket_ - std::min<uint64_t>(next_ticket_, bytes_.below(8))}});
      }
      case 8:
        if (bytes_.below(8) != 0) {
          return bytes_.flip() ? submit_transfer() : speak_of_transfers();
        }
        return step(core::RankDetached{LocalRank{bytes_.below(static_cast<int>(locals()))}});
      case 9:
        return step(
            core::OperationDiverged{Seq{bytes_.number()}, bytes_.take(), peer(), bytes_.below(2)});
      default: return speak();
    }
  }

  void submit_all() {
    const TensorDescriptor tensor =
        bytes_.below(8) == 0 ? change_of_sets(bytes_) : make_tensor(bytes_);
    for (size_t i = 0; i < locals(); ++i) submit(i, tensor);
  }

  NodeIndex peer() {
    const NodeIndex node{bytes_.below(layout_.node_count())};
    return node == self_ ? NodeIndex{(node.value + 1) % layout_.node_count()} : node;
  }

  void submit(size_t local, const TensorDescriptor& tensor) {
    const LocalRank rank{static_cast<int32_t>(local)};
    const std::vector<Rank>* const set_ranks = ranks_of(tensor.process_set, tensor.kind);
    const Rank global = core_.global_rank(rank);
    Buffers made;
    made.rank = rank;
    made.descriptor = std::make_shared<const TensorDescriptor>(tensor);
    // The extent is computed as in the session and in check_place().
    Extent extent;
    if (has_parts(tensor.kind)) {
      if (!set_ranks) return;
      const auto at = std::lower_bound(set_ranks->begin(), set_ranks->end(), global);
      if (at == set_ranks->end() || *at != global) return;
      const auto ranks = static_cast<int>(set_ranks->size());
      if (!check_parts(tensor.parted(), ranks).is_ok()) return;
      extent = extent_of(tensor.parted(), static_cast<int>(at - set_ranks->begin()), ranks,
                         tensor.root == global);
    } else {
      extent = extent_of(tensor.parted(), 0, 0, tensor.root == global);
    }
    const size_t element = element_bytes(tensor.dtype);
    made.input.resize(static_cast<size_t>(extent.input) * element);
    made.output.resize(static_cast<size_t>(extent.output) * element);
    made.input.shrink_to_fit();
    made.output.shrink_to_fit();
    if (!made.input.empty()) made.spans.input = made.input.data();
    if (!made.output.empty()) made.spans.output = made.output.data();
    made.spans.input_bytes = made.input.size();
    made.spans.output_bytes = made.output.size();
    const Ticket ticket{next_ticket_++};
    const DescriptorPtr descriptor = made.descriptor;
    in_flight_.emplace(ticket, std::move(made));
    if (core_.submit_again(now_, rank, ticket, descriptor)) return;
    step(core::Submitted{{rank, ticket, descriptor, now_, {}}});
  }
  const std::vector<Rank>* ranks_of(uint32_t set, CollectiveKind kind) {
    for (const core::Collectives* one : core_.process_sets()) {
      if (one->id() != (moves_data(kind) ? set : 0)) continue;
      ranks_ = one->layout().ranks();
      return &ranks_;
    }
    return nullptr;
  }

  // Submits a send or a receive of a rank, which may name a rank that is not there.
  void submit_transfer() {
    const LocalRank rank{bytes_.below(static_cast<int>(locals()))};
    TensorDescriptor transfer;
    transfer.kind = bytes_.flip() ? CollectiveKind::kSend : CollectiveKind::kReceive;
    transfer.name = "transfer";
    transfer.shape = {bytes_.below(3)};
    transfer.dtype = bytes_.below(8) == 0 ? DType::kInt8 : DType::kFloat32;
    transfer.peer = Rank{bytes_.below(6) - 1};
    transfer.tag = bytes_.below(2);
    transfer.process_set = bytes_.below(8) == 0 ? 1 : 0;
    Buffers made;
    made.rank = rank;
    made.descriptor = std::make_shared<const TensorDescriptor>(std::move(transfer));
    const Ticket ticket{next_ticket_++};
    const DescriptorPtr descriptor = made.descriptor;
    in_flight_.emplace(ticket, std::move(made));
    step(core::Submitted{{rank, ticket, descriptor, now_, {}}});
  }

  // Checks that what goes to the data plane has the size that this node's ranks have submitted.
  void carry_out(const core::TransferLaunch& launch) {
    RUEDA_CHECK(launch.source || launch.destination);
    for (const auto& end : {launch.source, launch.destination}) {
      if (!end) continue;
      const auto it = in_flight_.find(end->ticket);
      RUEDA_CHECK(it != in_flight_.end() && it->second.rank == end->rank);
      RUEDA_CHECK(it->second.descriptor->bytes() == launch.bytes);
    }
    RUEDA_CHECK(transfers_.insert(launch.key).second);
  }

  void complete_one() {
    if (!transfers_.empty() && bytes_.flip()) {
      return step(core::TransferDone{transfers_.extract(transfers_.begin()).value()});
    }
    if (under_way_.empty()) return;
    auto it = under_way_.begin();
    std::advance(it, bytes_.below(static_cast<int>(std::min<size_t>(under_way_.size(), 4))));
    const auto [set, seq] = *it;
    under_way_.erase(it);
    step(core::OperationDone{seq, set});
  }

  // --- The liar. Most of its messages are of a kind that somebody in its place would send: others
  // end the job at once, and nothing is learned.
  void speak() {
    v1::JobMessage message;
    is_wild_ = bytes_.below(32) == 0;
    NodeIndex from = core_.is_coordinator() || is_wild_ ? peer() : layout_.coordinator();
    if (from == self_) from = peer();
    const bool has_set = core_.process_sets().size() > 1;
    message.set_process_set(is_wild_ || (has_set && bytes_.below(3) == 0) ? 1 : 0);
    if (in_flight_.empty() && bytes_.below(8) != 0) submit_all();
    speaker_ = from;
    fill(message);
    NodeIndex sender = from;
    const std::vector<NodeIndex> neighbours = core_.links().neighbours();
    const auto is_neighbour = [&] {
      return std::find(neighbours.begin(), neighbours.end(), from) != neighbours.end();
    };
    if (neighbours.empty()) return;
    if (!is_neighbour() || is_wild_) {
      sender = neighbours[bytes_.below(static_cast<int>(neighbours.size()))];
      message.set_passed_on_by(sender.value);
      if (is_wild_) message.set_to_node(static_cast<int32_t>(bytes_.below(8)) - 2);
    }
    uint64_t& number = numbers_[sender];
    const bool is_counted = !message.has_join() && !message.has_start() && !message.has_fail();
    const bool is_wrong = is_wild_ && bytes_.below(8) == 0;
    from_peer(std::move(message), from, is_wrong ? bytes_.number() : is_counted ? ++number : 0);
    if (bytes_.below(4) != 0) step(core::TurnEnded{});
  }

  void from_peer(v1::JobMessage message, NodeIndex from, uint64_t number) {
    message.set_job_id("train");
    message.set_epoch(core_.epoch().value);
    message.set_from_node(from.value);
    message.set_number(number);
    // The message is parsed as it comes from the network.
    v1::JobMessage read;
    RUEDA_CHECK(read.ParseFromString(message.SerializeAsString()));
    Result<engine::Envelope> envelope = service::from_proto(read);
    if (!envelope.is_ok()) return;
    step(core::MessageArrived{std::move(envelope).value().message});
  }

  uint64_t any_seq(core::Track track) {
    uint64_t next = ordered_[core::index_of(track)] + 1;
    if (is_wild_) next = core::first_of(track).value + bytes_.number();
    ordered_[core::index_of(track)] = next;
    return next;
  }

  std::string any_name() {
    const uint8_t which = bytes_.take();
    if (which >= 240) return core::kProcessSetsName;
    if (which >= 232) return core::kJoinName;
    if (which >= 224) return core::kPlanName;
    if (which < 16 || in_flight_.empty())
      return std::string(1, static_cast<char>('a' + which % 12));
    auto it = in_flight_.begin();
    std::advance(it, which % std::min<size_t>(in_flight_.size(), 16));
    return it->second.descriptor->name;
  }
  // Returns the descriptor that this node has submitted, or one that somebody might submit.
  DescriptorPtr known(const std::string& name) {
    for (const auto& [ticket, buffers] : in_flight_) {
      if (buffers.descriptor->name == name) return buffers.descriptor;
    }
    return nullptr;
  }
  TensorDescriptor any_tensor() {
    const DescriptorPtr tensor = bytes_.below(4) != 0 ? known(any_name()) : nullptr;
    return tensor ? *tensor : make_tensor(bytes_);
  }

  void fill(v1::Decree& decree) {
    for (int i = 1 + bytes_.below(3); i > 0; --i) {
      v1::Decree::Operation& operation = *decree.add_operations();
      std::string first = any_name();
      const DescriptorPtr one = known(first);
      core::Track track = one ? core::track_of(*one) : core::Track::kLockable;
      if (is_wild_) track = core::Track::kDecreed;
      operation.set_seq(any_seq(track));
      operation.set_generation(generation_);
      const uint8_t form = bytes_.below(16);
      std::vector<DescriptorPtr> batch;
      for (int k = form == 7 && is_wild_ ? 0 : form > 8 ? 1 : 1 + bytes_.below(3); k > 0; --k) {
        if (form == 0 && bytes_.below(4) == 0) {
          operation.add_cached(static_cast<uint32_t>(bytes_.number()));
          continue;
        }
        if (form == 1) {
          const TensorDescriptor tensor = any_tensor();
          service::fill_tensor(tensor, *operation.add_batch());
          batch.push_back(std::make_shared<const TensorDescriptor>(tensor));
          continue;
        }
        const std::string name = first.empty() ? any_name() : std::exchange(first, {});
        operation.add_tensors(name);
        if (name == core::kJoinName && operation.tensors_size() == 1) operation.set_last_joined(0);
        if (DescriptorPtr tensor = known(name)) batch.push_back(std::move(tensor));
      }
      operation.set_plan_hash(core::plan_hash(batch));  // a liar computes the hash, too
      if (form == 2) operation.set_error_code(1 + bytes_.below(6));
    }
    decree.set_round(bytes_.below(3));
    const uint8_t sleep = bytes_.below(20);
    if (options_.agreement.mode != core::Coordination::kGlobalSleep || sleep > 4) return;
    decree.clear_operations();
    decree.set_sleep_us(sleep == 4 ? static_cast<int64_t>(bytes_.number()) : sleep * 400);
  }

  void fill(v1::Lock& lock) {
    lock.set_generation(is_wild_ ? bytes_.take() : ++generation_);
    lock.set_first(ordered_[core::index_of(core::Track::kLockable)] + 1);
    if (is_wild_) lock.set_first(bytes_.number());
    for (int i = 1 + bytes_.below(5); i > 0; --i) {
      v1::Lock::Batch& batch = *lock.add_batches();
      for (int k = 1 + bytes_.below(2); k > 0; --k) {
        service::fill_tensor(any_tensor(), *batch.add_tensors());
      }
      batch.set_after(bytes_.below(16) == 0 ? bytes_.take()
                                            : static_cast<uint32_t>(lock.batches_size() - 1));
      batch.set_ends(i == 1 || bytes_.below(4) == 0);
    }
    if (bytes_.below(4) == 0) lock.set_at(bytes_.below(6));
  }

  void fill(v1::Frozen& frozen) {
    frozen.set_generation(generation_);
    frozen.set_launched(bytes_.flip() ? ordered_[0] + bytes_.below(4) : bytes_.number());
    for (int i = bytes_.below(4); i > 0; --i) frozen.add_walked(bytes_.below(6));
  }

  void fill(v1::Ready& ready) {
    ready.set_generation(bytes_.below(8) == 0 ? bytes_.take() : generation_);
    for (int i = bytes_.below(4); i > 0; --i) {
      v1::Ready::Entry& entry = *ready.add_entries();
      TensorDescriptor tensor = bytes_.below(16) == 0 ? change_of_sets(bytes_) : any_tensor();
      if (bytes_.below(16) == 0) {
        tensor = {};
        tensor.name = bytes_.flip() ? core::kJoinName : core::kPlanName;
        tensor.kind = bytes_.flip() ? CollectiveKind::kJoin : CollectiveKind::kDeclarePlan;
      }
      if (bytes_.below(16) == 0) tensor.memory = MemorySpace::kDeviceNccl;
      service::fill_tensor(tensor, *entry.mutable_tensor());
      entry.set_rank(bytes_.below(8) == 0 ? static_cast<int32_t>(bytes_.number())
                                          : bytes_.below(5));
      if (bytes_.below(8) == 0) entry.set_mismatch("they differ");
      if (bytes_.below(8) == 0) entry.set_absent_rank(bytes_.below(6));
    }
    if (is_wild_) ready.add_cached(bytes_.number());
    ready.set_cache_version(bytes_.number());
    ready.set_round(bytes_.below(3));
    if (bytes_.below(is_tree_ ? 4 : 64) == 0)
      ready.set_of_node(static_cast<int32_t>(bytes_.below(8)) - 1);
    if (options_.agreement.mode != core::Coordination::kGlobalSleep || bytes_.flip()) return;
    ready.clear_entries();
    ready.clear_cached();
    ready.set_sleep_us(bytes_.flip() ? static_cast<int64_t>(bytes_.number()) : 400);
  }

  int likely_body() {
    static constexpr int kToCoordinator[] = {0, 1, 2, 0, 1, 2, 8, 10, 16, 13, 15, 12};
    static constexpr int kToMember[] = {3, 4, 5, 3, 4, 5, 16, 14, 15, 6, 7, 9, 11, 9, 11};
    const bool can_lock = options_.agreement.mode == core::Coordination::kLocked;
    // Messages about a lock are sent only when there is one, and the others only when there is
    // none.
    static constexpr int kUnlocked[] = {3, 4, 5, 3, 4, 5, 16, 6, 7, 6, 7};
    static constexpr int kLocked[] = {9, 11, 16, 3, 15, 9, 11};
    if (can_lock && !core_.is_coordinator()) {
      return core_.is_locked() ? kLocked[bytes_.below(7)] : kUnlocked[bytes_.below(11)];
    }
    if (core_.is_coordinator()) return kToCoordinator[bytes_.below(12)];
    if (is_tree_ && bytes_.below(4) == 0) return 0;  // the sender is below
    return kToMember[bytes_.below(can_lock ? 15 : 8)];
  }

  void fill(v1::JobMessage& message) {
    switch (is_wild_ ? bytes_.below(18) : likely_body()) {
      case 0:
      case 1:
      case 2: return fill(*message.mutable_ready());
      case 3:
      case 4:
      case 5: return fill(*message.mutable_decree());
      case 6:
      case 7: return fill(*message.mutable_lock());
      case 8:
        message.mutable_unlock_request()->set_generation(generation_);
        return message.mutable_unlock_request()->set_reason("why");
      case 9: return message.mutable_freeze()->set_generation(generation_);
      case 10: return fill(*message.mutable_frozen());
      case 11:
        message.mutable_resume()->set_generation(++generation_);
        message.mutable_resume()->set_first(bytes_.flip() ? ordered_[0] + bytes_.below(4)
                                                          : bytes_.number());
        return message.mutable_resume()->set_abandons_plan(bytes_.flip());
      case 12:
        for (int i = bytes_.below(3); i >= 0; --i)
          message.mutable_ended()->add_operations(bytes_.number());
        return;
      case 13:
        message.mutable_leave()->set_rank(static_cast<int32_t>(bytes_.number()));
        return fill(*message.mutable_leave()->mutable_frozen());
      case 14: return message.mutable_left()->set_rank(static_cast<int32_t>(bytes_.number()));
      case 15:
        message.mutable_handover()->set_step(static_cast<v1::Handover::Step>(1 + bytes_.below(6)));
        return message.mutable_handover()->set_node(static_cast<int32_t>(bytes_.below(8)) - 1);
      case 16:
        if (bytes_.flip()) return fill_stall(message);
        message.mutable_transfer_open();
        return;
      default: {
        v1::Join& join = *message.mutable_join();
        join.set_layout_hash(layout_.hash());
        join.add_attached_ranks(static_cast<int32_t>(bytes_.number()));
        join.add_below()->set_node(static_cast<int32_t>(bytes_.number()));
        join.add_settings()->set_name(any_name());
      }
    }
  }

  int32_t any_rank_of(NodeIndex node) {
    const std::vector<Rank>& ranks = layout_.node(node).ranks;
    return ranks[static_cast<size_t>(bytes_.below(static_cast<int>(ranks.size())))].value;
  }

  // A node tells of transfers over its channel. A liar counts its own offers, and answers those
  // that it got, or others; what it cannot do is what the data plane looks at
  // (transfer_job_test.cc).
  void speak_of_transfers() {
    const NodeIndex from = peer();
    const uint32_t set = bytes_.below(8) == 0 ? bytes_.below(3) : 0;
    const auto answered = [&]() -> uint64_t {
      const std::set<uint64_t>& open = offers_here_[from];
      if (open.empty()) return 0;
      auto it = open.begin();
      std::advance(it, bytes_.below(static_cast<int>(std::min<size_t>(open.size(), 4))));
      return *it;
    };
    const bool is_wild = bytes_.below(16) == 0;
    switch (bytes_.below(6)) {
      case 5: {  // A rank takes back one of its transfers, or something else.
        const Ticket ticket{next_ticket_ - std::min<uint64_t>(next_ticket_, bytes_.below(8))};
        return step(
            core::TransferCancelled{LocalRank{bytes_.below(static_cast<int>(locals()))}, ticket});
      }
      case 4: {
        const core::TransferWithdrawal withdrawn{
            1 + offered_[from] - std::min<uint64_t>(offered_[from], 1 + bytes_.below(4)),
            Rank{any_rank_of(from)}, Rank{any_rank_of(self_)}, bytes_.below(2)};
        return step(core::TransferMessageArrived{from, core_.epoch(), set, withdrawn});
      }
      case 0: {
        const uint64_t number = answered();
        if (number == 0) return;
        offers_here_[from].erase(number);
        return step(core::TransferMessageArrived{from, core_.epoch(), set,
                                                 core::TransferTake{number, bytes_.flip()}});
      }
      case 1: {
        const uint64_t number = answered();
        if (number == 0) return;
        offers_here_[from].erase(number);
        const Status why(static_cast<Code>(1 + bytes_.below(6)), "it does not fit");
        return step(core::TransferMessageArrived{from, core_.epoch(), set,
                                                 core::TransferRefusal{number, why}});
      }
      default: {
        core::TransferOffer offer;
        offer.number = is_wild ? bytes_.number() : ++offered_[from];
        offer.source = Rank{is_wild ? bytes_.below(6) : any_rank_of(from)};
        offer.destination = Rank{is_wild ? bytes_.below(6) : any_rank_of(self_)};
        offer.tag = bytes_.below(2);
        offer.dtype = is_wild ? static_cast<DType>(bytes_.below(kDTypeCount)) : DType::kFloat32;
        offer.elements = is_wild ? static_cast<int64_t>(bytes_.number()) : bytes_.below(3);
        offer.carried = bytes_.flip();
        return step(core::TransferMessageArrived{from, core_.epoch(), set, offer});
      }
    }
  }

  void fill_stall(v1::JobMessage& message) {
    switch ((core_.is_coordinator() ? 0 : 1) + 2 * bytes_.below(2)) {
      case 0:
        for (int i = bytes_.below(3); i > 0; --i) {
          v1::StallReport::Tensor& tensor = *message.mutable_stall_report()->add_tensors();
          tensor.set_name(any_name());
          tensor.set_age_ms(static_cast<int64_t>(bytes_.number()));
        }
        message.mutable_stall_report();
        return;
      case 1:
        message.mutable_stall_query()->set_round(bytes_.number());
        message.mutable_stall_query()->set_wants_near_misses(bytes_.flip());
        return message.mutable_stall_query()->add_names(any_name());
      case 2: {
        v1::StallAnswer& answer = *message.mutable_stall_answer();
        answer.set_round(bytes_.number());
        v1::StallAnswer::Tensor& tensor = *answer.add_tensors();
        tensor.add_submitted(bytes_.below(6));
        v1::NearMiss& miss = *tensor.add_near_misses();
        miss.set_rank(bytes_.below(6));
        miss.set_name(any_name());
        answer.add_ranks()->set_rank(bytes_.below(6));
        return;
      }
      default: {
        v1::StallNotice::Stall& stall = *message.mutable_stall_notice()->add_stalls();
        stall.set_tensor(any_name());
        stall.add_submitted(bytes_.below(is_wild_ ? 6 : 5));
        stall.add_missing(bytes_.below(is_wild_ ? 6 : 5));
        message.mutable_stall_notice()->add_ranks()->set_rank(bytes_.below(6));
      }
    }
  }

  // --- The effects of a step
  void step(core::Event event) {
    core::Output output;
    core_.step(now_, std::move(event), output);
    for (const core::Cancel& cancel : output.cancels) {
      generation_ = cancel.generation;
      std::erase_if(under_way_, [&](const auto& one) {
        return one.first == cancel.process_set && one.second >= cancel.first &&
               core::track_of(one.second) == core::Track::kLockable;
      });
    }
    for (const core::TransferLaunch& launch : output.transfers) carry_out(launch);
    for (const core::TransferSend& send : output.transfer_sends) {
      RUEDA_CHECK(send.to != self_);
      const auto* offer = std::get_if<core::TransferOffer>(&send.message);
      if (!offer) continue;
      RUEDA_CHECK(send.source && in_flight_.contains(send.source->ticket));
      offers_here_[send.to].insert(offer->number);
    }
    Status broken;
    for (const core::Launch& launch : output.launches) {
      const Status carried_out = carry_out(launch);
      if (broken.is_ok()) broken = carried_out;
      if (!carried_out.is_ok()) broken_at_ = launch.seq;
    }
    for (const core::Delivery& delivery : output.deliveries) {
      const auto it = in_flight_.find(delivery.ticket);
      RUEDA_CHECK(it != in_flight_.end() && it->second.rank == delivery.rank);
      in_flight_.erase(it);
    }
    if (output.failed || output.finished) {
      under_way_.clear();
      transfers_.clear();
      offers_here_.clear();
      offered_.clear();
    }
    if (output.failed) RUEDA_CHECK(in_flight_.empty());
    if (!broken.is_ok() && core_.state() != core::JobState::kFailed) {
      step(core::OperationFailed{broken_at_, broken});
    }
  }

  Status carry_out(const core::Launch& launch) {
    under_way_.insert({launch.process_set, launch.seq});
    const core::Collectives* set = nullptr;
    for (const core::Collectives* one : core_.process_sets()) {
      if (one->id() == launch.process_set) set = one;
    }
    // A node that removes a set has nothing in flight in it.
    RUEDA_CHECK(set && !launch.tensors->empty());
    if (launch.tensors->front().descriptor->memory != MemorySpace::kHost) return Status::ok();
    const auto find = [&](LocalRank place, Ticket ticket) -> const engine::SubmittedBuffers& {
      const auto it = in_flight_.find(ticket);
      RUEDA_CHECK(it != in_flight_.end());
      RUEDA_CHECK(it->second.rank == set->locals()[static_cast<size_t>(place.value)]);
      return it->second.spans;
    };
    Result<std::unique_ptr<engine::Operation>> built =
        engine::build_operation(launch, set->layout(), self_, find);
    if (!built.is_ok()) return built.status();
    touch(*built.value());
    return Status::ok();
  }

  static void touch(const engine::Operation& operation) {
    RUEDA_CHECK(operation.first_element.size() == operation.tensors.size() + 1);
    RUEDA_CHECK(operation.elements() >= 0);
    const auto element = static_cast<int64_t>(element_bytes(operation.dtype));
    for (const engine::OperationTensor& tensor : operation.tensors) {
      const int64_t bytes = tensor.elements * element;
      RUEDA_CHECK(bytes >= 0);
      uint8_t sum = 0;
      for (const engine::RankBuffers& rank : tensor.ranks) {
        RUEDA_CHECK(bytes <= kMaxBytes || (!rank.input && !rank.output));
        for (int64_t i = 0; rank.input && i < bytes; ++i)
          sum ^= static_cast<uint8_t>(rank.input[i]);
      }
      for (const engine::RankBuffers& rank : tensor.ranks) {
        for (int64_t i = 0; rank.output && i < bytes; ++i)
          rank.output[i] = static_cast<std::byte>(sum);
      }
    }
  }

  Bytes& bytes_;
  const bool is_tree_;
  const core::Layout layout_;
  const NodeIndex self_;
  core::JobOptions options_;
  core::JobCore core_;
  TicksMs now_ = 0;
  uint64_t next_ticket_ = 1;
  std::map<Ticket, Buffers> in_flight_;
  std::set<std::pair<uint32_t, Seq>> under_way_;
  std::set<core::TransferKey> transfers_;  // Those that are under way.
  Seq broken_at_;
  std::vector<Rank> ranks_;
  // The numbers of the liar's messages so far.
  std::map<NodeIndex, uint64_t> numbers_;
  NodeIndex speaker_;                                    // The liar, while it makes up a message.
  std::map<NodeIndex, uint64_t> offered_;                // The number of each node's last offer.
  std::map<NodeIndex, std::set<uint64_t>> offers_here_;  // This node's that are open, by node.
  uint32_t generation_ = 0;
  bool is_wild_ = false;
  std::array<uint64_t, core::kTracks> ordered_{core::before_first_of(core::Track::kLockable).value,
                                               core::before_first_of(core::Track::kDecreed).value};
};

}  // namespace
}  // namespace rueda

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  rueda::Bytes bytes({data, size});
  rueda::Victim(bytes).run();
  return 0;
}
