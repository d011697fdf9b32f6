#include "daemon/engine/job/staged_path.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include <boost/asio/post.hpp>

#include "daemon/engine/device/device_operation.h"
#include "daemon/engine/device/device_staging.h"

namespace rueda::engine {
namespace {

// The number of additions that the worker has at a time: enough to keep it busy, and far from what
// it may have in all.
constexpr size_t kMaxAdding = 128;

int64_t elements_of(const core::Launch& launch) {
  int64_t elements = 0;
  for (const core::LaunchTensor& tensor : *launch.tensors) elements += tensor.elements;
  return elements;
}

void append(std::vector<gpu::WorkerOperation> from, std::vector<gpu::WorkerOperation>& to) {
  std::move(from.begin(), from.end(), std::back_inserter(to));
}

}  // namespace

StagedPath::StagedPath(const EngineContext& context, const JobSpec& spec, PathHost& host,
                       SubmissionLedger& ledger, HostPath& host_path, DeviceLaunches& device)
    : context_(context),
      spec_(spec),
      host_(host),
      ledger_(ledger),
      host_path_(host_path),
      device_(device) {}

bool StagedPath::always_rings(const core::Launch& launch) const {
  const core::TensorDescriptor& first = *launch.tensors->front().descriptor;
  if (first.kind == CollectiveKind::kBroadcast) return true;
  const size_t size = element_bytes(dtype_on_wire(first.dtype, first.wire_dtype));
  return core::always_rings(spec_.algorithm,
                            static_cast<int>(host_path_.parts(launch.process_set).ring().size()),
                            elements_of(launch) * static_cast<int64_t>(size));
}

size_t StagedPath::shares_of(const core::Launch& launch) const {
  const core::TensorDescriptor& first = *launch.tensors->front().descriptor;
  const auto size =
      static_cast<int64_t>(element_bytes(dtype_on_wire(first.dtype, first.wire_dtype)));
  return host_path_.shares_of(first.op, elements_of(launch) * size,
                              static_cast<int>(host_path_.parts(launch.process_set).ring().size()));
}

std::vector<ElementRange> StagedPath::rounds_of(const core::Launch& launch) const {
  const int64_t elements = elements_of(launch);
  if (!always_rings(launch)) return {{0, elements}};
  return cut_into_rounds(elements, element_bytes(launch.tensors->front().descriptor->dtype),
                         static_cast<int>(host_path_.parts(launch.process_set).ring().size()));
}

void StagedPath::launch(const core::Launch& launch) {
  auto staged = std::make_shared<Batch>();
  staged->launch = launch;
  staged->parts = parts_of(launch);
  staged->rounds = rounds_of(launch);
  staged->adds_on_gpu = adds_on_gpu(launch);
  batches_.emplace(OperationKey{launch.process_set, launch.seq}, staged);
  host_path_.expect(launch);
  const bool is_anybodys = std::any_of(launch.tickets.begin(), launch.tickets.end(),
                                       [](const auto& ticket) { return ticket.has_value(); });
  if (!is_anybodys) return send(staged);  // All ranks of this node have joined.
  const Part& last = staged->parts.back();
  device_.worker().stage(last.offset + staged_bytes(last.launch),
                         DeviceJob::Through::kScratchAndHost,
                         [this, staged](const Result<StagedRow>& row) { gather(staged, row); });
}

std::vector<StagedPath::Part> StagedPath::parts_of(const core::Launch& launch) const {
  const size_t count = host_path_.parts(launch.process_set).size();
  const DeviceLaunch how = device_.how(launch);
  if (count == 1) return {{launch, how, 0, 0}};
  std::vector<Part> parts(count);
  uint64_t offset = 0;
  for (size_t rank = 0; rank < count; ++rank) {
    Part& part = parts[rank];
    part.launch = launch;
    part.launch.tickets.clear();
    for (size_t i = 0; i < launch.tensors->size(); ++i) {
      part.launch.tickets.push_back(launch.tickets_of(i)[rank]);
    }
    part.how = how;
    if (how.root) part.how.root = how.root == rank ? std::optional<size_t>(0) : std::nullopt;
    part.first_rank = rank;
    part.offset = offset;
    constexpr uint64_t kAlignment = DeviceStaging::kAlignment;
    offset += (staged_bytes(part.launch) + kAlignment - 1) / kAlignment * kAlignment;
  }
  return parts;
}

StagedRow StagedPath::row_of(const Batch& staged, const Part& part) {
  StagedRow row = *staged.row;
  row.offset += part.offset;
  row.memory += part.offset;
  return row;
}

void StagedPath::gather(const BatchPtr& staged, const Result<StagedRow>& row) {
  if (!row.is_ok()) {
    boost::asio::post(context_.control_loop, lifetime_.guard([this, staged, status = row.status()] {
      if (!staged->is_over) end(*staged, status);
    }));
    return;
  }
  if (staged->is_over) return device_.worker().unstage(row.value());
  staged->row = row.value();
  if (exported_ != staged->row->exported) readers_.clear();
  exported_ = staged->row->exported;
  uint64_t copied_bytes = 0;
  staged->operations.resize(staged->rounds.size());
  for (size_t i = 0; i < staged->parts.size(); ++i) {
    Part& part = staged->parts[i];
    part.is_read_there = may_be_read(*staged, part) && is_read(*staged, i);
    const auto find = [all = device_.places(staged->launch), &part](size_t place, Ticket ticket) {
      return all(part.first_rank + place, ticket);
    };
    std::vector<StagedRound> own = build_staged_rounds(
        part.launch, part.how, find, row_of(*staged, part), staged->rounds, sent_of(*staged, i));
    for (size_t round = 0; round < own.size(); ++round) {
      for (const gpu::WorkerOperation& out : own[round].out) {
        for (const gpu::PlacedCopy& copy : out.copies_after) copied_bytes += copy.bytes;
      }
      append(std::move(own[round].out), staged->operations[round].out);
      append(std::move(own[round].in), staged->operations[round].in);
    }
    context_.metrics.daemon().gpu_staged_bytes.Increment(
        static_cast<double>(staged_bytes(part.launch)));
  }
  context_.metrics.daemon().gpu_copied_bytes.Increment(static_cast<double>(copied_bytes));
  for (StagedRound& round : staged->operations) {
    run_round(staged, std::move(round.out), &StagedPath::on_round_out);
  }
}

void StagedPath::run_round(const BatchPtr& staged, std::vector<gpu::WorkerOperation> operations,
                           void (StagedPath::*then)(const BatchPtr&)) {
  ++staged->users;
  auto ended = [this, staged, then](const Status& status) {
    let_go(*staged);
    if (staged->is_over) return;
    if (!status.is_ok()) return end(*staged, status);
    (this->*then)(staged);
  };
  if (!operations.empty()) return device_.worker().run(std::move(operations), std::move(ended));
  // All ranks that have something in this round have joined, so there is nothing to do.
  boost::asio::post(context_.control_loop, lifetime_.guard([ended] { ended(Status::ok()); }));
}

void StagedPath::let_go(Batch& staged) {
  if (--staged.users == 0 && staged.row) device_.worker().unstage(*staged.row);
}

void StagedPath::on_round_out(const BatchPtr& staged) {
  if (staged->rounds_here->fetch_add(1, std::memory_order_release) == 0) return send(staged);
  const core::Launch& launch = staged->launch;
  for (size_t share = 0; share < staged->shares; ++share) host_path_.rounds_came(share, launch);
}

Result<std::unique_ptr<Operation>> StagedPath::build(const BatchPtr& batch, size_t number) {
  const Batch& staged = *batch;
  const Part& part = staged.parts[number];
  // To the data plane, all ranks of a part are one.
  const bool is_alone = staged.parts.size() == 1;
  core::Launch own = staged.launch;
  if (is_alone) own.tickets.clear();
  const core::Collectives& set = *host_.find_set(own.process_set);
  const core::TensorDescriptor& first = *own.tensors->front().descriptor;
  const bool is_broadcast = first.kind == CollectiveKind::kBroadcast;
  const bool has_root = part.how.root.has_value();
  std::vector<SubmittedBuffers> rows;
  std::byte* at = staged.row ? row_of(staged, part).memory : nullptr;
  for (size_t i = 0; i < own.tensors->size(); ++i) {
    const auto tickets = part.launch.tickets_of(i);
    const auto some = std::find_if(tickets.begin(), tickets.end(),
                                   [](const auto& ticket) { return ticket.has_value(); });
    if (is_alone) own.tickets.push_back(some == tickets.end() ? std::nullopt : *some);
    if (some == tickets.end()) continue;
    SubmittedBuffers& row = rows.emplace_back();
    if (!is_broadcast || has_root) row.input = at;
    if (!is_broadcast || !has_root) row.output = at;
    const size_t place = part.first_rank + static_cast<size_t>(some - tickets.begin());
    const LocalRank rank = set.locals()[place];
    row.urgency = ledger_.held(rank, **some).buffers.urgency;
    row.input_bytes = row.output_bytes = static_cast<size_t>((*own.tensors)[i].descriptor->bytes());
    at += row.input_bytes;
  }
  size_t next = 0;  // They are asked for in turn.
  Result<std::unique_ptr<Operation>> built =
      host_path_.parts(own.process_set)
          .build(own, number,
                 [&](LocalRank, Ticket) -> const SubmittedBuffers& { return rows[next++]; });
  if (!built.is_ok()) return built;
  std::unique_ptr<Operation> operation = std::move(built).value();
  operation->prescale = 1;  // It is applied in what the worker has made.
  if (staged.adds_on_gpu) operation->gpu_reduce = additions_of(batch, number);
  if (may_be_read(staged, part)) {
    operation->device_input = DeviceInput{.memory = staged.row->exported,
                                          .offset = row_of(staged, part).offset,
                                          .is_alone = part.is_read_there,
                                          .is_readable = nullptr};
  }
  if (staged.rounds.size() == 1) return operation;
  const int shards = core::shards_of(
      first.kind, static_cast<int>(host_path_.parts(own.process_set).ring().size()));
  for (const ElementRange& round : staged.rounds) {
    std::vector<ElementRange>& parts = operation->rounds.emplace_back();
    for (int shard = 0; shard < shards; ++shard) {
      parts.push_back(core::nearly_equal_part(round, shard, shards));
    }
  }
  if (staged.row) operation->rounds_here = staged.rounds_here;
  return operation;
}

void StagedPath::send(const BatchPtr& staged) {
  if (!host_path_.is_open()) return;  // The job is about to end.
  const core::Launch& launch = staged->launch;
  Result<std::unique_ptr<Operation>> built = build(staged, 0);
  if (!built.is_ok()) return end(*staged, built.status());
  std::unique_ptr<Operation> operation = std::move(built).value();
  const size_t shares = shares_of(launch);
  const size_t carriers = staged->parts.size() * shares;
  ledger_.begin({launch.process_set, launch.seq}, operation->kind, carriers, nullptr);
  staged->shares = shares;
  staged->rounds_done.assign(carriers, 0);
  std::vector<HostPath::Part> parts;
  for (size_t part = 0; part < staged->parts.size(); ++part) {
    for (size_t share = 0; share < shares; ++share) {
      // It can be built, because the first one was.
      if (!operation) operation = build(staged, part).value();
      operation->share = {static_cast<int>(share), static_cast<int>(shares)};
      if (operation->device_input) {
        operation->device_input->is_readable = readable(launch, part, share);
      }
      parts.push_back({share, static_cast<uint32_t>(part), std::exchange(operation, nullptr)});
    }
  }
  host_path_.run_expected(launch, std::move(parts));
}

void StagedPath::on_rounds_done(OperationKey key, uint32_t generation, Carrier by, int rounds) {
  const auto found = batches_.find(key);
  if (found == batches_.end() || found->second->launch.generation != generation) return;
  Batch& staged = *found->second;
  staged.rounds_done[by.part * staged.shares + static_cast<size_t>(by.share)] =
      static_cast<size_t>(rounds);
  bring_back(found->second);
}

bool StagedPath::on_done(OperationKey key) {
  const auto found = batches_.find(key);
  if (found == batches_.end()) return false;
  const BatchPtr staged = found->second;
  if (!staged->row) {
    end(*staged, Status::ok());
    return true;
  }
  std::fill(staged->rounds_done.begin(), staged->rounds_done.end(), staged->rounds.size());
  bring_back(staged);
  return true;
}

void StagedPath::bring_back(const BatchPtr& staged) {
  const size_t done = *std::min_element(staged->rounds_done.begin(), staged->rounds_done.end());
  while (staged->rounds_begun_back < done) {
    StagedRound& round = staged->operations[staged->rounds_begun_back++];
    run_round(staged, std::move(round.in), &StagedPath::on_round_back);
  }
}

void StagedPath::on_round_back(const BatchPtr& staged) {
  if (++staged->rounds_back == staged->rounds.size()) end(*staged, Status::ok());
}

void StagedPath::end(Batch& staged, const Status& status) {
  staged.is_over = true;
  let_go(staged);
  // The map may hold the last reference to the batch.
  const OperationKey key{staged.launch.process_set, staged.launch.seq};
  batches_.erase(key);
  if (status.is_ok()) {
    host_.end_operation(key);
  } else {
    host_.fail_operation(key.second, status);
  }
}

std::function<void()> StagedPath::cancel(const core::Cancel& cancelled) {
  const uint32_t set = cancelled.process_set;
  const auto end = batches_.lower_bound({set, core::first_of(core::Track::kDecreed)});
  std::vector<BatchPtr> batches;
  for (auto item = batches_.lower_bound({set, cancelled.first}); item != end;) {
    item->second->is_over = true;
    batches.push_back(std::move(item->second));
    item = batches_.erase(item);
  }
  host_path_.forget_expected(cancelled);
  if (batches.empty()) return nullptr;
  auto release = lifetime_.guard([this, batches = std::move(batches)] {
    for (const BatchPtr& batch : batches) let_go(*batch);
  });
  return [&loop = context_.control_loop, release = std::move(release)]() mutable {
    boost::asio::post(loop, release);
  };
}

// --- Additions on the GPU ------------------------------------------------------------------------

// Returns whether the job was told to exchange whatever it can, in additions that one launch takes.
bool StagedPath::always_exchanges(const core::Launch& launch) const {
  const size_t nodes = host_path_.parts(launch.process_set).ring().size();
  return core::exchanges_of(spec_.algorithm).size() == 1 && nodes <= gpu::kMaxSources + 1;
}

bool StagedPath::adds_on_gpu(const core::Launch& launch) const {
  return context_.options.adds_on_gpu && (always_rings(launch) || always_exchanges(launch)) &&
         launch.tensors->front().descriptor->kind == CollectiveKind::kAllreduce &&
         std::all_of(launch.tickets.begin(), launch.tickets.end(),
                     [](const auto& ticket) { return ticket.has_value(); });
}

// Returns a part's shard of each round, with which it begins the ring; all is sent in an exchange.
std::vector<ElementRange> StagedPath::sent_of(const Batch& staged, size_t part) const {
  std::vector<ElementRange> sent;
  if (!staged.adds_on_gpu || !always_rings(staged.launch)) return sent;
  if (staged.parts[part].is_read_there) {
    sent.resize(staged.rounds.size());  // Of none of them.
    return sent;
  }
  const DataParts& parts = host_path_.parts(staged.launch.process_set);
  const auto members = static_cast<int>(parts.ring().size());
  for (const ElementRange& round : staged.rounds) {
    sent.push_back(core::nearly_equal_part(round, parts.place(part).value, members));
  }
  return sent;
}

bool StagedPath::may_be_read(const Batch& staged, const Part& part) const {
  if (!staged.adds_on_gpu || !staged.row || !staged.row->exported) return false;
  const core::TensorDescriptor& first = *staged.launch.tensors->front().descriptor;
  return always_rings(staged.launch) && first.wire_dtype == WireDType::kSame &&
         row_of(staged, part).offset + staged_bytes(part.launch) <= staged.row->exported->bytes;
}

std::shared_ptr<std::atomic<bool>>& StagedPath::readable(const core::Launch& launch, size_t part,
                                                         size_t share) {
  std::shared_ptr<std::atomic<bool>>& known =
      readers_[{launch.epoch, launch.process_set, part, share}];
  if (!known) known = std::make_shared<std::atomic<bool>>(false);
  return known;
}

bool StagedPath::is_read(const Batch& staged, size_t part) {
  for (size_t share = 0; share < shares_of(staged.launch); ++share) {
    if (!readable(staged.launch, part, share)->load(std::memory_order_relaxed)) return false;
  }
  return true;
}

// Returns a function that data loops call, so it may touch nothing of this object there.
GpuReduce StagedPath::additions_of(const BatchPtr& staged, size_t part) {
  auto add = lifetime_.guard([this](WantedAddition& wanted) { add_on_gpu(std::move(wanted)); });
  return [add, &loop = context_.control_loop, staged, part](
             ChunkAddition addition, std::function<void(const Status&)> done) {
    WantedAddition wanted{staged, part, std::move(addition), std::move(done)};
    boost::asio::post(loop, [add, wanted = std::move(wanted)]() mutable { add(wanted); });
  };
}

void StagedPath::add_on_gpu(WantedAddition wanted) {
  wanted_additions_.push_back(std::move(wanted));
  serve_additions();
}

void StagedPath::serve_additions() {
  while (!wanted_additions_.empty() && adding_ < kMaxAdding) {
    const WantedAddition next = std::move(wanted_additions_.front());
    wanted_additions_.pop_front();
    if (next.batch->is_over) {  // Nobody wants it any more.
      next.done(Status::ok());
    } else {
      run_addition(next);
    }
  }
}

void StagedPath::run_addition(const WantedAddition& wanted) {
  const Part& part = wanted.batch->parts[wanted.part];
  const core::Launch& launch = part.launch;
  const ChunkAddition& addition = wanted.addition;
  const uint32_t memory = number_of_staging(launch.process_set, addition);
  const gpu::Place sum{.memory = memory, .offset = addition.offset};
  std::vector<gpu::Place> addends;
  for (const uint64_t offset : addition.addends) {
    addends.push_back({.memory = memory, .offset = offset});
  }
  gpu::WorkerOperation operation =
      addends.empty() ? build_addition(launch, part.how, row_of(*wanted.batch, part),
                                       addition.range, sum, addition.is_final)
                      : build_addition_of(launch, part.how, addends, addition.range.count(), sum,
                                          addition.is_final);
  context_.metrics.daemon().gpu_added_bytes.Increment(static_cast<double>(
      addition.range.count() *
      static_cast<int64_t>(element_bytes(launch.tensors->front().descriptor->dtype))));
  ++wanted.batch->users;
  ++adding_;
  device_.worker().run({std::move(operation)},
                       [this, staged = wanted.batch, done = wanted.done](const Status& status) {
                         let_go(*staged);
                         --adding_;
                         done(status);
                         serve_additions();
                       });
}

uint32_t StagedPath::number_of_staging(uint32_t process_set, const ChunkAddition& addition) {
  std::vector<MappedStaging>& known = mapped_staging_[process_set];
  const auto found = std::find_if(known.begin(), known.end(), [&](const MappedStaging& item) {
    return item.file == addition.staging;
  });
  if (found != known.end()) return found->number;
  known.push_back({addition.staging, device_.worker().map(*addition.staging)});
  return known.back().number;
}

void StagedPath::close_set(uint32_t process_set) {
  std::erase_if(readers_,
                [&](const auto& reader) { return reader.first.process_set == process_set; });
  const auto found = mapped_staging_.find(process_set);
  if (found == mapped_staging_.end()) return;
  for (const MappedStaging& item : found->second) device_.worker().unmap(item.number);
  mapped_staging_.erase(found);
}

}  // namespace rueda::engine
