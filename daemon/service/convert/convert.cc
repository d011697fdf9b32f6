#include "daemon/service/convert/convert.h"

#include <algorithm>
#include <limits>

#include "daemon/base/host_port.h"
#include "daemon/base/limits.h"
#include "daemon/base/one_line.h"
#include "daemon/service/convert/convert_plan.h"
#include "daemon/service/convert/convert_settings.h"
#include "daemon/service/convert/convert_stall.h"
#include "daemon/service/convert/convert_timeline.h"

namespace rueda::service {
namespace {

constexpr size_t kMaxTextBytes = 4096;     // The longest reason that is taken from another node.
constexpr size_t kMaxAddressBytes = 4096;  // The longest list of addresses of a node's data loops.

constexpr int64_t kMaxStallMs = 86'400'000;

Result<Code> read_code(int32_t code) {
  if (code < 0 || code > static_cast<int32_t>(Code::kInternal)) {
    return broken("an unknown error code");
  }
  return static_cast<Code>(code);
}

// Addresses are read where they are dialled, but they are in errors before that.
Result<std::string> read_data_address(const std::string& from) {
  if (from.size() > kMaxAddressBytes || !is_one_line(from)) {
    return broken("a data address that is too long or not printable");
  }
  return from;
}

// --- Bodies --------------------------------------------------------------------------------------

void fill_frozen(const core::Frozen& from, v1::Frozen& to) {
  to.set_generation(from.generation);
  to.set_launched(from.launched.value);
  for (const uint32_t batch : from.walked) to.add_walked(batch);
}

struct Writer {
  v1::JobMessage& to;

  void operator()(const core::Join& from) const {
    v1::Join& join = *to.mutable_join();
    join.set_layout_hash(from.layout_hash);
    join.set_data_address(from.data_address);
    fill_settings(from.settings, *join.mutable_settings());
    for (Rank rank : from.attached) join.add_attached_ranks(rank.value);
    join.set_rack(from.rack);
    for (const core::Join::Below& item : from.below) {
      v1::Join::Below& below = *join.add_below();
      below.set_node(item.node.value);
      below.set_data_address(item.data_address);
      for (Rank rank : item.attached) below.add_attached_ranks(rank.value);
      below.set_rack(item.rack);
    }
  }
  void operator()(const core::Start& from) const {
    v1::Start& start = *to.mutable_start();
    for (const std::string& address : from.data_addresses) start.add_data_addresses(address);
    for (const NodeIndex node : from.ring) start.add_ring(node.value);
  }
  void operator()(const core::Ready& from) const {
    v1::Ready& ready = *to.mutable_ready();
    for (const core::ReadyTensor& tensor : from.entries) {
      v1::Ready::Entry& entry = *ready.add_entries();
      fill_tensor(*tensor.descriptor, *entry.mutable_tensor());
      entry.set_rank(tensor.rank.value);
      entry.set_mismatch(tensor.mismatch);
      if (tensor.absent.value >= 0) entry.set_absent_rank(tensor.absent.value);
    }
    ready.set_generation(from.generation);
    for (uint64_t word : from.cached) ready.add_cached(word);
    ready.set_cache_version(from.cache_version);
    ready.set_round(from.round);
    if (from.of) ready.set_of_node(from.of->value);
    if (from.sleep_us) ready.set_sleep_us(*from.sleep_us);
  }
  void operator()(const core::Decree& from) const {
    v1::Decree& decree = *to.mutable_decree();
    for (const core::OrderedOperation& item : from.operations) {
      v1::Decree::Operation& operation = *decree.add_operations();
      operation.set_seq(item.seq.value);
      operation.set_plan_hash(item.plan_hash);
      for (const core::DescriptorPtr& tensor : item.descriptors)
        fill_tensor(*tensor, *operation.add_batch());
      for (const std::string& name : item.tensors) {
        if (item.descriptors.empty()) operation.add_tensors(name);
      }
      if (item.outcome) operation.set_last_joined(*item.outcome);
      operation.set_error_code(static_cast<int32_t>(item.error.code()));
      operation.set_error_text(item.error.message());
      for (uint32_t slot : item.cached) operation.add_cached(slot);
      operation.set_generation(item.generation);
    }
    decree.set_round(from.round);
    if (from.sleep_us) decree.set_sleep_us(*from.sleep_us);
  }
  void operator()(const core::Lock& from) const {
    v1::Lock& lock = *to.mutable_lock();
    lock.set_generation(from.generation);
    lock.set_first(from.first.value);
    lock.set_at(static_cast<uint32_t>(from.at + 1));
    lock.set_source(static_cast<v1::PlanSource>(from.source));
    fill_plan(from.plan, lock);
  }
  void operator()(const core::UnlockRequest& from) const {
    to.mutable_unlock_request()->set_generation(from.generation);
    to.mutable_unlock_request()->set_reason(from.reason);
  }
  void operator()(const core::Freeze& from) const {
    to.mutable_freeze()->set_generation(from.generation);
    to.mutable_freeze()->set_reason(from.reason);
  }
  void operator()(const core::Frozen& from) const { fill_frozen(from, *to.mutable_frozen()); }
  void operator()(const core::Resume& from) const {
    to.mutable_resume()->set_generation(from.generation);
    to.mutable_resume()->set_first(from.first.value);
    to.mutable_resume()->set_abandons_plan(from.abandons_plan);
  }
  void operator()(const core::Ended& from) const {
    v1::Ended& ended = *to.mutable_ended();
    for (Seq seq : from.operations) ended.add_operations(seq.value);
  }
  void operator()(const core::AgreementMessage& from) const { std::visit(*this, from); }
  void operator()(const core::Leave& from) const {
    v1::Leave& leave = *to.mutable_leave();
    leave.set_rank(from.rank.value);
    if (from.frozen.generation != 0) fill_frozen(from.frozen, *leave.mutable_frozen());
  }
  void operator()(const core::Left& from) const { to.mutable_left()->set_rank(from.rank.value); }
  void operator()(const core::Handover& from) const {
    v1::Handover& handover = *to.mutable_handover();
    handover.set_step(static_cast<v1::Handover::Step>(static_cast<int>(from.step) + 1));
    handover.set_node(from.node.value);
  }
  // The policy `shrink` is not offered, so no daemon sends such a message.
  void operator()(const core::RecoveryBody&) const { RUEDA_CHECK(false); }
  void operator()(const core::Fail& from) const {
    v1::Fail& fail = *to.mutable_fail();
    fail.set_code(static_cast<int32_t>(from.status.code()));
    fail.set_text(from.status.message());
    fail.set_origin_node(from.status.origin().node_id);
    fail.set_origin_rank(from.status.origin().rank ? from.status.origin().rank->value : -1);
    fail.set_is_by_request(from.status.origin().is_by_request);
  }
  void operator()(const core::StallMessage& from) const { put_stall(from, to); }
  void operator()(const core::TransferOpen&) const { to.mutable_transfer_open(); }
};

Result<core::Join> read(const v1::Join& from) {
  Result<core::Settings> settings = read_settings(from.settings());
  if (!settings.is_ok()) return settings.status();
  Result<std::string> address = read_data_address(from.data_address());
  if (!address.is_ok()) return address.status();
  core::Join to{from.layout_hash(), std::move(address).value(), {}, std::move(settings).value()};
  for (int32_t rank : from.attached_ranks()) to.attached.push_back(Rank{rank});
  to.rack = one_line(from.rack(), kShownNameBytes);
  for (const v1::Join::Below& item : from.below()) {
    Result<std::string> of_below = read_data_address(item.data_address());
    if (!of_below.is_ok()) return of_below.status();
    core::Join::Below& below = to.below.emplace_back(
        core::Join::Below{NodeIndex{item.node()}, std::move(of_below).value(), {}});
    below.rack = one_line(item.rack(), kShownNameBytes);
    for (int32_t rank : item.attached_ranks()) below.attached.push_back(Rank{rank});
  }
  return to;
}

Result<core::Start> read(const v1::Start& from) {
  core::Start to;
  for (const std::string& told : from.data_addresses()) {
    Result<std::string> address = read_data_address(told);
    if (!address.is_ok()) return address.status();
    to.data_addresses.push_back(std::move(address).value());
  }
  for (const int32_t node : from.ring()) to.ring.push_back(NodeIndex{node});
  return to;
}

Result<core::Ready> read(const v1::Ready& from) {
  core::Ready to;
  for (const v1::Ready::Entry& entry : from.entries()) {
    Result<core::DescriptorPtr> descriptor = read_tensor(entry.tensor());
    if (!descriptor.is_ok()) return descriptor.status();
    const int32_t absent = entry.has_absent_rank() ? entry.absent_rank() : -1;
    to.entries.push_back({std::move(descriptor).value(), Rank{entry.rank()},
                          one_line(entry.mismatch(), kMaxTextBytes), Rank{absent}});
  }
  to.generation = from.generation();
  to.cached.assign(from.cached().begin(), from.cached().end());
  to.cache_version = from.cache_version();
  to.round = from.round();
  if (from.has_of_node()) to.of = NodeIndex{from.of_node()};
  if (!from.has_sleep_us()) return to;
  if (!to.entries.empty() || !to.cached.empty()) return broken("tensors and a sleep at once");
  to.sleep_us = from.sleep_us();
  return to;
}

Result<core::Decree> read(const v1::Decree& from) {
  core::Decree to;
  for (const v1::Decree::Operation& item : from.operations()) {
    Result<Code> code = read_code(item.error_code());
    if (!code.is_ok()) return code.status();
    core::OrderedOperation operation;
    operation.seq = Seq{item.seq()};
    operation.plan_hash = item.plan_hash();
    for (const std::string& name : item.tensors()) {
      if (name.size() > limits::kMaxTensorNameBytes || !is_one_line(name)) {
        return broken("a tensor name that is too long or not printable");
      }
      operation.tensors.push_back(name);
    }
    operation.cached.assign(item.cached().begin(), item.cached().end());
    operation.generation = item.generation();
    if ((item.tensors_size() > 0) + (item.cached_size() > 0) + (item.batch_size() > 0) != 1) {
      return broken("an operation without tensors, or with two lists of them");
    }
    if (item.cached_size() > 0 && code.value() != Code::kOk) {
      return broken("an operation that fails, and names its tensors by cache slots");
    }
    for (const v1::TensorDescriptor& tensor : item.batch()) {
      Result<core::DescriptorPtr> descriptor = read_tensor(tensor);
      if (!descriptor.is_ok()) return descriptor.status();
      operation.tensors.push_back(descriptor.value()->name);
      operation.descriptors.push_back(std::move(descriptor).value());
    }
    if (code.value() != Code::kOk)
      operation.error = Status(code.value(), one_line(item.error_text(), kMaxTextBytes));
    const bool is_join = !operation.tensors.empty() && operation.error.is_ok() &&
                         operation.tensors.front() == core::kJoinName;
    if (is_join != item.has_last_joined()) return broken("a join without its last rank");
    if (is_join) operation.outcome = item.last_joined();
    to.operations.push_back(std::move(operation));
  }
  to.round = from.round();
  if (!from.has_sleep_us()) return to;
  if (!to.operations.empty()) return broken("operations and a sleep at once");
  to.sleep_us = from.sleep_us();
  return to;
}

Result<core::Lock> read(const v1::Lock& from) {
  core::Lock to;
  if (!v1::PlanSource_IsValid(from.source())) return broken("a plan of no known source");
  to.source = static_cast<core::PlanSource>(from.source());
  to.generation = from.generation();
  to.first = Seq{from.first()};
  Result<core::Plan> plan = read_plan(from);
  if (!plan.is_ok()) return plan.status();
  to.plan = std::move(plan).value();
  to.at = read_place(from.at());
  return to;
}

core::Frozen read(const v1::Frozen& from) {
  return {from.generation(), Seq{from.launched()}, {from.walked().begin(), from.walked().end()}};
}

Result<core::Handover> read(const v1::Handover& from) {
  if (from.step() < v1::Handover::MOVE || from.step() > v1::Handover::GONE) {
    return broken("a step of a handover that this version does not know");
  }
  return core::Handover{static_cast<core::Handover::Step>(from.step() - 1), NodeIndex{from.node()}};
}

Result<core::Fail> read(const v1::Fail& from) {
  Result<Code> code = read_code(from.code());
  if (!code.is_ok()) return code.status();
  if (code.value() == Code::kOk) return broken("a failure without an error");
  Origin origin{one_line(from.origin_node(), kShownNameBytes), {}, from.is_by_request()};
  if (from.origin_rank() >= 0) origin.rank = Rank{from.origin_rank()};
  return core::Fail{Status(code.value(), one_line(from.text(), kMaxTextBytes), std::move(origin))};
}

template <class Body>
Status put(Result<Body> body, core::Message& message) {
  if (!body.is_ok()) return body.status();
  message.body = std::move(body).value();
  return Status::ok();
}

template <class Body>
Status put_agreed(Result<Body> body, core::Message& message) {
  if (!body.is_ok()) return body.status();
  message.body = core::AgreementMessage(std::move(body).value());
  return Status::ok();
}

Status read_body(const v1::JobMessage& from, engine::Envelope& to) {
  core::Message& message = to.message;
  switch (from.body_case()) {
    case v1::JobMessage::kJoin: return put(read(from.join()), message);
    case v1::JobMessage::kStart: return put(read(from.start()), message);
    case v1::JobMessage::kReady: return put_agreed(read(from.ready()), message);
    case v1::JobMessage::kDecree: return put_agreed(read(from.decree()), message);
    case v1::JobMessage::kLock: return put_agreed(read(from.lock()), message);
    case v1::JobMessage::kUnlockRequest:
      message.body = core::AgreementMessage(
          core::UnlockRequest{from.unlock_request().generation(),
                              one_line(from.unlock_request().reason(), kMaxTextBytes)});
      break;
    case v1::JobMessage::kFreeze:
      message.body = core::AgreementMessage(core::Freeze{
          from.freeze().generation(), one_line(from.freeze().reason(), kMaxTextBytes)});
      break;
    case v1::JobMessage::kFrozen: message.body = core::AgreementMessage(read(from.frozen())); break;
    case v1::JobMessage::kResume:
      message.body = core::AgreementMessage(core::Resume{
          from.resume().generation(), Seq{from.resume().first()}, from.resume().abandons_plan()});
      break;
    case v1::JobMessage::kEnded: {
      core::Ended ended;
      for (uint64_t seq : from.ended().operations()) ended.operations.push_back(Seq{seq});
      message.body = core::AgreementMessage(std::move(ended));
      break;
    }
    case v1::JobMessage::kLeave:
      message.body = core::Leave{Rank{from.leave().rank()}, read(from.leave().frozen())};
      break;
    case v1::JobMessage::kLeft: message.body = core::Left{Rank{from.left().rank()}}; break;
    case v1::JobMessage::kFail: return put(read(from.fail()), message);
    case v1::JobMessage::kHandover: return put(read(from.handover()), message);
    case v1::JobMessage::kTransferOpen: message.body = core::TransferOpen{}; break;
    case v1::JobMessage::kStallReport: return put(read_stall(from.stall_report()), message);
    case v1::JobMessage::kStallQuery: return put(read_stall(from.stall_query()), message);
    case v1::JobMessage::kStallAnswer: return put(read_stall(from.stall_answer()), message);
    case v1::JobMessage::kStallNotice: return put(read_stall(from.stall_notice()), message);
    case v1::JobMessage::BODY_NOT_SET: return broken("no body that this version knows");
  }
  return Status::ok();
}

// Reads how many servers the job has, whose algorithm and layout are known.
Status read_servers(const v1::JobSpec& from, engine::JobSpec& to) {
  const uint32_t servers = std::max(from.servers(), 1u);
  const auto nodes = static_cast<uint32_t>(from.nodes_size());
  if (servers > 1 && to.algorithm != core::AlgorithmChoice::kCentral) {
    return {Code::kInvalidArgument, "job " + to.job +
                                        ": --servers is for --algorithm central, not " +
                                        core::to_string(to.algorithm)};
  }
  if (servers > nodes) {
    return {Code::kInvalidArgument, "job " + to.job + ": --servers " + std::to_string(servers) +
                                        " is more than its " + std::to_string(nodes) +
                                        " nodes; give at most so many"};
  }
  to.servers = static_cast<int>(servers);
  return Status::ok();
}

// Reads the time from cycle to cycle, which the daemon does not guess at if it cannot be.
Status read_cycle(const v1::JobSpec& from, engine::JobSpec& to) {
  const auto refused = [&](const std::string& what) {
    return Status(Code::kInvalidArgument, "job " + to.job + ": " + what);
  };
  if (const uint64_t time_us = from.cycle_time_us(); time_us > 0) {
    if (time_us < limits::kMinCycleTimeUs || time_us > limits::kMaxCycleTimeUs) {
      return refused("a cycle of " + std::to_string(time_us) + " us cannot be; give from " +
                     std::to_string(limits::kMinCycleTimeUs) + " to " +
                     std::to_string(limits::kMaxCycleTimeUs) + " us");
    }
    to.cycle_time_us = static_cast<TicksUs>(time_us);
  }
  if (const uint32_t every = from.sleep_agreed_every(); every > 0) {
    if (every > limits::kMaxSleepAgreedEvery) {
      return refused("the sleep cannot be agreed on every " + std::to_string(every) +
                     " cycles; give at most " + std::to_string(limits::kMaxSleepAgreedEvery));
    }
    to.sleep_agreed_every = static_cast<int>(every);
  }
  return Status::ok();
}

// Reads how the job's nodes agree on the order, and how they carry out what is in it.
Status read_agreement(const v1::JobSpec& from, engine::JobSpec& to) {
  if (!from.coordination().empty()) {
    Result<core::Coordination> mode = core::parse_coordination(from.coordination());
    if (!mode.is_ok()) {
      return Status(Code::kInvalidArgument, "job " + to.job + ": " + mode.status().message());
    }
    to.coordination = mode.value();
  }
  if (!from.algorithm().empty()) {
    Result<core::AlgorithmChoice> algorithm = core::parse_algorithm(from.algorithm());
    if (!algorithm.is_ok()) {
      return Status(Code::kInvalidArgument, "job " + to.job + ": " + algorithm.status().message());
    }
    to.algorithm = algorithm.value();
  }
  if (Status status = read_servers(from, to); !status.is_ok()) return status;
  if (Status status = read_cycle(from, to); !status.is_ok()) return status;
  to.transport = one_line(from.transport(), kShownNameBytes);
  to.data_protection = one_line(from.data_protection(), kShownNameBytes);
  to.failure_timeout_ms = from.failure_timeout_ms();
  if (!from.reducer().empty()) {
    Result<core::Reducer> reducer = core::parse_reducer(from.reducer());
    if (!reducer.is_ok()) {
      return Status(Code::kInvalidArgument, "job " + to.job + ": " + reducer.status().message());
    }
    to.reducer = reducer.value();
  }
  if (!from.inter_node().empty()) {
    Result<core::InterNode> inter_node = core::parse_inter_node(from.inter_node());
    if (!inter_node.is_ok()) {
      return Status(Code::kInvalidArgument, "job " + to.job + ": " + inter_node.status().message());
    }
    to.inter_node = inter_node.value();
  }
  if (from.has_fusion_threshold_bytes()) {
    to.fusion_threshold_bytes = static_cast<int64_t>(
        std::min<uint64_t>(from.fusion_threshold_bytes(), limits::kMaxTensorBytes));
  }
  if (from.lock_after_steps() > 0) {
    to.lock_after_steps =
        static_cast<int>(std::min<uint32_t>(from.lock_after_steps(), limits::kMaxLockAfterSteps));
  }
  if (from.cache_capacity() > 0) {
    to.cache_capacity = std::min<uint64_t>(from.cache_capacity(), limits::kMaxTensorsPerSession);
  }
  return Status::ok();
}

Status read_elastic(const v1::JobSpec& from, const Membership& membership, engine::JobSpec& to) {
  if (!from.has_elastic()) return Status::ok();
  engine::ElasticSpec& elastic = to.elastic.emplace();
  elastic.min_ranks = from.elastic().min_ranks();  // ElasticJob checks it.
  for (const int64_t ms : {from.elastic().timeout_ms(), from.elastic().rank_timeout_ms()}) {
    if (ms >= 0 && ms <= kMaxStallMs) continue;
    return Status(Code::kInvalidArgument, "job " + to.job +
                                              ": --elastic-timeout or --rank-timeout of " +
                                              std::to_string(ms) + " ms is out of range");
  }
  if (from.elastic().timeout_ms() > 0) elastic.timeout_ms = from.elastic().timeout_ms();
  elastic.rank_timeout_ms = from.elastic().rank_timeout_ms();
  elastic.max_ranks = std::min(from.elastic().max_ranks(), limits::kMaxRanks);
  for (const v1::NodeSpec& node : from.nodes()) elastic.incarnations.push_back(node.incarnation());
  elastic.votes = from.elastic().votes();
  for (const int32_t slot : from.elastic().ended_slots()) {
    elastic.ended_slots.push_back(core::Slot{slot});
  }
  elastic.slots = std::clamp(from.elastic().slots(), 0, limits::kMaxLocalRanks);
  for (const int32_t slot : from.elastic().finished_slots()) {
    elastic.finished_slots.push_back(core::Slot{slot});
  }
  for (const std::string& contact : from.elastic().contacts()) {
    Status may = parse_dial_address(contact).status();
    if (may.is_ok()) may = membership.check_dial(contact);
    if (!may.is_ok()) {
      return Status(Code::kInvalidArgument, "job " + to.job + ": of a contact: " + may.message());
    }
    elastic.contacts.push_back(contact);
  }
  if (elastic.contacts.empty()) return Status::ok();
  const std::string& own = to.layout.node(to.self).control_address;
  if (const auto address = parse_dial_address(own); !address.is_ok()) {
    return Status(Code::kInvalidArgument,
                  "job " + to.job + ": its own control address: " + address.status().message());
  }
  return Status::ok();
}

// Reads what the job's steps are tuned to, and which plan they repeat.
Status read_plans(const v1::JobSpec& from, engine::JobSpec& to) {
  to.autotunes = from.autotunes();
  to.replays = from.replays();
  to.records_plan = from.records_plan();
  if (!from.has_replayed()) return Status::ok();
  Result<core::Plan> plan = read_plan(from.replayed());
  std::string flaw =
      plan.is_ok() ? core::find_flaw(plan.value(), 0, to.layout) : plan.status().message();
  if (!flaw.empty()) {
    return Status(Code::kInvalidArgument, "job " + to.job + ": what is to be replayed is " + flaw +
                                              "; record the plan anew");
  }
  to.replayed = std::make_shared<const core::Plan>(std::move(plan).value());
  return Status::ok();
}

bool is_job_id(const std::string& id) {
  return !id.empty() && id.size() <= limits::kMaxJobIdBytes &&
         std::all_of(id.begin(), id.end(), [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                  c == '.' || c == '_' || c == '-';
         });
}

Result<engine::JobSpec> read_job(const v1::JobSpec& spec, const Membership& membership) {
  const auto refuse = [](const std::string& what) { return Status(Code::kInvalidArgument, what); };
  if (!is_job_id(spec.job_id())) {
    return refuse("a job id is 1 to " + std::to_string(limits::kMaxJobIdBytes) +
                  " characters of A-Z a-z 0-9 . _ -");
  }
  if (spec.token().size() != limits::kTokenBytes) {
    return refuse("job " + spec.job_id() + " has a token of " +
                  std::to_string(spec.token().size()) + " bytes; it takes " +
                  std::to_string(limits::kTokenBytes));
  }
  if (spec.start_timeout_ms() < 0) return refuse("a start timeout cannot be negative");
  for (const int64_t ms : {spec.stall_check_ms(), spec.stall_shutdown_ms()}) {
    if (ms < 0 || ms > kMaxStallMs) {
      return refuse("a time for stalls of " + std::to_string(ms) + " ms is out of range");
    }
  }
  std::vector<core::LayoutNode> nodes;
  for (const v1::NodeSpec& node : spec.nodes()) {
    core::LayoutNode item{node.node_id(), one_line(node.control_address()), {}};
    for (int32_t rank : node.ranks()) item.ranks.push_back(Rank{rank});
    // A node that is alone is told to those who come later, if the job is elastic.
    const bool is_told = spec.nodes_size() > 1 || spec.has_elastic();
    if (is_told && (item.control_address.empty() || membership.is_binding())) {
      Result<std::string> address = membership.address_of(item.node_id);
      if (!address.is_ok()) return address.status();
      item.control_address = std::move(address).value();
    }
    // gRPC would also dial "unix:/path", with this daemon's rights.
    if (spec.nodes_size() > 1) {
      const Result<HostPort> address = parse_dial_address(item.control_address);
      if (!address.is_ok()) {
        return refuse("job " + spec.job_id() + ": the control address of node " +
                      one_line(item.node_id, kShownNameBytes) +
                      " cannot be: " + address.status().message());
      }
    }
    nodes.push_back(std::move(item));
  }
  Result<core::Layout> layout = core::Layout::make(std::move(nodes));
  if (!layout.is_ok()) return layout.status();
  if (spec.node_index() < 0 || spec.node_index() >= layout.value().node_count()) {
    return refuse("job " + spec.job_id() + " has no node " + std::to_string(spec.node_index()));
  }
  engine::JobSpec job{spec.job_id(),
                      spec.token(),
                      one_line(spec.user(), kShownNameBytes),
                      Principal(),
                      NodeIndex{spec.node_index()},
                      std::move(layout).value()};
  job.start_timeout_ms = spec.start_timeout_ms();
  if (Status status = read_agreement(spec, job); !status.is_ok()) return status;
  if (Status status = read_plans(spec, job); !status.is_ok()) return status;
  job.is_shared = spec.is_shared();
  if (Status status = read_elastic(spec, membership, job); !status.is_ok()) return status;
  job.checks_finite = spec.checks_finite();
  if (spec.has_timeline()) {
    Result<engine::TimelineRequest> timeline = from_proto(spec.timeline());
    if (!timeline.is_ok()) return timeline.status();
    job.timeline = std::move(timeline).value();
    if (!job.timeline->begins || spec.node_index() != 0) {
      return refuse("job " + spec.job_id() + ": a timeline is begun by node 0");
    }
  }
  if (spec.has_stall_check_ms()) job.stall_check_ms = spec.stall_check_ms();
  if (spec.has_stall_shutdown_ms()) job.stall_shutdown_ms = spec.stall_shutdown_ms();
  return job;
}

}  // namespace

v1::JobMessage to_proto(const engine::Envelope& envelope) {
  v1::JobMessage message;
  message.set_job_id(envelope.job);
  message.set_epoch(envelope.message.epoch.value);
  message.set_from_node(envelope.message.from.value);
  message.set_number(envelope.message.number);
  message.set_process_set(envelope.message.process_set);
  if (envelope.message.to) message.set_to_node(envelope.message.to->value);
  if (envelope.message.passed_on_by) {
    message.set_passed_on_by(envelope.message.passed_on_by->value);
  }
  std::visit(Writer{message}, envelope.message.body);
  return message;
}

Result<engine::Envelope> from_proto(const v1::JobMessage& message) {
  engine::Envelope envelope;
  envelope.job = message.job_id();
  envelope.message.from = NodeIndex{message.from_node()};
  envelope.message.epoch = Epoch{message.epoch()};
  envelope.message.number = message.number();
  envelope.message.process_set = message.process_set();
  if (message.has_to_node()) envelope.message.to = NodeIndex{message.to_node()};
  if (message.has_passed_on_by()) {
    envelope.message.passed_on_by = NodeIndex{message.passed_on_by()};
  }
  if (Status status = read_body(message, envelope); !status.is_ok()) return status;
  return envelope;
}

Result<engine::JobSpec> from_proto(const v1::JobSpec& spec, const Membership& membership) {
  Result<engine::JobSpec> job = read_job(spec, membership);
  if (job.is_ok()) return job;
  // What was refused may be quoted, and goes to the launcher's terminal.
  return Status(job.status().code(), one_line(job.status().message()));
}

}  // namespace rueda::service
