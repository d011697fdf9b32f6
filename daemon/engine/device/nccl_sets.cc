#include "daemon/engine/device/nccl_sets.h"

#include <algorithm>
#include <utility>

#include <spdlog/spdlog.h>

namespace rueda::engine {
namespace {

// The first stream of a communicator; the streams below it are device_operation.cc's.
constexpr uint32_t kFirstStream = 2;

}  // namespace

NcclSets::NcclSets(DeviceJob& device, observe::Metrics& metrics, NcclSetsOptions options,
                   SendId send_id)
    : device_(device),
      metrics_(metrics),
      options_(std::move(options)),
      send_id_(std::move(send_id)) {}

NcclSets::~NcclSets() {
  for (const auto& [process_set, set] : sets_) {
    if (set.is_connected) metrics_.daemon().gpu_communicators.Decrement();
  }
}

std::optional<uint32_t> NcclSets::free_stream() const {
  for (uint32_t stream = kFirstStream; stream < kFirstStream + gpu::kMaxCommunicators; ++stream) {
    const bool is_free = std::none_of(sets_.begin(), sets_.end(), [&](const auto& entry) {
      return entry.second.stream == stream;
    });
    if (is_free) return stream;
  }
  return std::nullopt;
}

void NcclSets::use(uint32_t process_set, const Place& place, There there) {
  Set& set = sets_[process_set];
  if (set.communicator == 0) {
    set.place = place;
    set.communicator = ++last_communicator_;
    begin(process_set, set);
  }
  if (!set.failed.is_ok()) return there(set.failed);
  if (set.is_connected && set.waiting.empty()) {
    return there(NcclPlace{.communicator = set.communicator, .stream = set.stream});
  }
  set.waiting.push_back(std::move(there));
}

void NcclSets::begin(uint32_t process_set, Set& set) {
  const std::optional<uint32_t> stream = free_stream();
  if (!stream) {
    return fail(set, {Code::kResourceExhausted,
                      options_.who + " has device memory in more than " +
                          std::to_string(gpu::kMaxCommunicators) +
                          " process sets of several nodes, and NCCL is to have no more at a time: "
                          "remove some, or start the job with --inter-node rueda"});
  }
  set.stream = *stream;
  if (set.id) return connect(process_set, set);
  if (set.place.rank > 0) return;  // on_id() goes on.
  device_.make_communicator_id(set.communicator,
                               [this, process_set](const Result<gpu::CommunicatorId>& id) {
                                 const auto found = sets_.find(process_set);
                                 if (found == sets_.end()) return;
                                 if (!id.is_ok()) return fail(found->second, id.status());
                                 send_id_(process_set, id.value());
                                 on_id(process_set, id.value());
                               });
}

void NcclSets::on_id(uint32_t process_set, const gpu::CommunicatorId& id) {
  Set& set = sets_[process_set];
  if (set.id) return;
  set.id = id;
  if (set.communicator != 0 && set.failed.is_ok()) connect(process_set, set);
}

void NcclSets::connect(uint32_t process_set, Set& set) {
  spdlog::info("{}: NCCL connects the {} nodes of process set {}", options_.who, set.place.size,
               process_set);
  device_.connect({.communicator = set.communicator,
                   .rank = set.place.rank,
                   .size = set.place.size,
                   .timeout_ms = options_.connect_timeout_ms,
                   .id = *set.id});
  set.is_connected = true;
  metrics_.daemon().gpu_communicators.Increment();
  tell(set, NcclPlace{.communicator = set.communicator, .stream = set.stream});
}

void NcclSets::fail(Set& set, const Status& status) {
  set.failed = status;
  tell(set, status);
}

void NcclSets::tell(Set& set, const Result<NcclPlace>& there) {
  for (const There& waiting : std::exchange(set.waiting, {})) waiting(there);
}

void NcclSets::drop(uint32_t process_set) {
  const auto set = sets_.find(process_set);
  if (set == sets_.end()) return;
  if (set->second.is_connected) {
    device_.disconnect(set->second.communicator);
    metrics_.daemon().gpu_communicators.Decrement();
  }
  sets_.erase(set);
}

}  // namespace rueda::engine
