#include "client/src/wire/rings.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cerrno>
#include <cstring>
#include <utility>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

namespace rueda::client {
namespace {

constexpr uint32_t kMaxCapacity = 1u << 20;

rueda_abi_ring& header_of(const RingMemory& memory) {
  return *reinterpret_cast<rueda_abi_ring*>(memory.data());
}

std::atomic_ref<uint64_t> atomic(uint64_t& value) { return std::atomic_ref<uint64_t>(value); }
std::atomic_ref<uint32_t> atomic(uint32_t& value) { return std::atomic_ref<uint32_t>(value); }

Status check_capacity(uint32_t capacity, const char* what) {
  if (std::has_single_bit(capacity) && capacity <= kMaxCapacity) return Status::ok();
  return {Code::kInternal, "the daemon announced a " + std::string(what) + " ring of " +
                               std::to_string(capacity) +
                               " records, which is no power of two up to 1048576"};
}

}  // namespace

Result<RingMemory> RingMemory::map(const UniqueFd& memfd, size_t bytes, const char* what) {
  struct stat info = {};
  int seals = ::fcntl(memfd.get(), F_GET_SEALS);
  if (::fstat(memfd.get(), &info) != 0 || static_cast<uint64_t>(info.st_size) < bytes ||
      seals < 0 || (seals & F_SEAL_SHRINK) == 0) {
    return Status{Code::kInternal, "the daemon's " + std::string(what) +
                                       " ring is too short or not sealed against shrinking"};
  }
  void* data = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, memfd.get(), 0);
  if (data == MAP_FAILED) {
    return Status{Code::kResourceExhausted,
                  errno_text("cannot map the daemon's " + std::string(what) + " ring", errno)};
  }
  RingMemory memory;
  memory.data_ = static_cast<std::byte*>(data);
  memory.bytes_ = bytes;
  return memory;
}

RingMemory::RingMemory(RingMemory&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

RingMemory& RingMemory::operator=(RingMemory&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

RingMemory::~RingMemory() {
  if (data_ != nullptr) ::munmap(data_, bytes_);
}

Result<SubmissionRing> SubmissionRing::map(const UniqueFd& memfd, uint32_t capacity) {
  if (Status status = check_capacity(capacity, "submission"); !status.is_ok()) return status;
  size_t bytes = RUEDA_ABI_RING_HEADER_BYTES + capacity * sizeof(rueda_abi_submission);
  Result<RingMemory> memory = RingMemory::map(memfd, bytes, "submission");
  if (!memory.is_ok()) return memory.status();
  SubmissionRing ring;
  ring.memory_ = std::move(memory).value();
  ring.capacity_ = capacity;
  ring.tail_ = atomic(header_of(ring.memory_).tail).load(std::memory_order_relaxed);
  return ring;
}

bool SubmissionRing::push(const rueda_abi_submission& record, uint64_t ticket) {
  rueda_abi_ring& header = header_of(memory_);
  uint64_t head = atomic(header.head).load(std::memory_order_acquire);
  // A head beyond the tail wraps around to a huge difference, and the ring counts as full.
  if (tail_ - head >= capacity_) return false;
  auto& shown = reinterpret_cast<rueda_abi_submission*>(
      memory_.data() + RUEDA_ABI_RING_HEADER_BYTES)[tail_ & (capacity_ - 1)];
  shown = record;
  shown.ticket = ticket;
  atomic(header.tail).store(++tail_, std::memory_order_release);
  return true;
}

void SubmissionRing::set_waits_for(uint64_t ticket) {
  atomic(header_of(memory_).producer_waits_for).store(ticket, std::memory_order_relaxed);
}

bool SubmissionRing::take_wakeup() {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  auto waiting = atomic(header_of(memory_).consumer_waiting);
  return waiting.load(std::memory_order_relaxed) != 0 && waiting.exchange(0) != 0;
}

Result<CompletionRing> CompletionRing::map(const UniqueFd& memfd, uint32_t capacity) {
  if (Status status = check_capacity(capacity, "completion"); !status.is_ok()) return status;
  size_t bytes = RUEDA_ABI_RING_HEADER_BYTES +
                 capacity * (sizeof(rueda_abi_completion) + size_t{RUEDA_ABI_TEXT_BYTES});
  Result<RingMemory> memory = RingMemory::map(memfd, bytes, "completion");
  if (!memory.is_ok()) return memory.status();
  CompletionRing ring;
  ring.memory_ = std::move(memory).value();
  ring.capacity_ = capacity;
  ring.head_ = atomic(header_of(ring.memory_).head).load(std::memory_order_relaxed);
  return ring;
}

uint64_t CompletionRing::load_tail() const {
  return atomic(header_of(memory_).tail).load(std::memory_order_acquire);
}

std::string_view CompletionRing::copy(uint64_t at, rueda_abi_completion& record) {
  const size_t index = at & (capacity_ - 1);
  const std::byte* records = memory_.data() + RUEDA_ABI_RING_HEADER_BYTES;
  std::memcpy(&record, records + index * sizeof(record), sizeof(record));
  if (record.text_bytes == 0) return {};
  const std::byte* texts = records + capacity_ * sizeof(record);
  const size_t text_bytes = std::min<size_t>(record.text_bytes, RUEDA_ABI_TEXT_BYTES);
  text_.assign(reinterpret_cast<const char*>(texts + index * RUEDA_ABI_TEXT_BYTES), text_bytes);
  return text_;
}

void CompletionRing::give_back() {
  atomic(header_of(memory_).head).store(head_, std::memory_order_release);
}

bool CompletionRing::announce_sleep() {
  atomic(header_of(memory_).consumer_waiting).store(1);
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (is_empty()) return true;
  awake();
  return false;
}

void CompletionRing::awake() {
  atomic(header_of(memory_).consumer_waiting).store(0, std::memory_order_relaxed);
}

}  // namespace rueda::client
