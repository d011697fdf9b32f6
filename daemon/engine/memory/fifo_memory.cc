#include "daemon/engine/memory/fifo_memory.h"

#include <algorithm>
#include <string>

#include <sys/mman.h>
#include <unistd.h>

#include "daemon/base/check.h"

namespace rueda::engine {
namespace {

constexpr size_t kPage = 4096;

Status no_memory(size_t bytes) {
  return Status(Code::kResourceExhausted, "no memory for " + std::to_string(bytes) +
                                              " bytes of final values; lower --staging-bytes");
}

bool map_at(std::byte* where, size_t bytes, int fd) {
  return ::mmap(where, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED | MAP_NORESERVE, fd,
                0) != MAP_FAILED;
}

}  // namespace

Result<std::unique_ptr<FifoMemory>> FifoMemory::make(size_t capacity) {
  const size_t bytes = std::max<size_t>((capacity + kPage - 1) / kPage, 1) * kPage;
  const int fd = ::memfd_create("rueda-finals", MFD_CLOEXEC);
  if (fd < 0) return no_memory(bytes);
  void* const place =
      ::mmap(nullptr, 2 * bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  auto* const base = static_cast<std::byte*>(place);
  const bool mapped = place != MAP_FAILED && ::ftruncate(fd, static_cast<off_t>(bytes)) == 0 &&
                      map_at(base, bytes, fd) && map_at(base + bytes, bytes, fd);
  ::close(fd);
  if (!mapped) {
    if (place != MAP_FAILED) ::munmap(place, 2 * bytes);
    return no_memory(bytes);
  }
  return std::unique_ptr<FifoMemory>(new FifoMemory(base, bytes));
}

FifoMemory::~FifoMemory() {
  while (!pieces_.empty()) give_back_newest();
  ::munmap(base_, 2 * capacity_);
}

std::byte* FifoMemory::take(size_t bytes) {
  RUEDA_CHECK(fits(bytes));
  const size_t rounded = round_up(bytes);
  if (rounded > capacity_) {
    void* const own = ::mmap(nullptr, rounded, PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (own == MAP_FAILED) return nullptr;
    pieces_.push_back({rounded, static_cast<std::byte*>(own)});
    used_ += rounded;
    return pieces_.back().own;
  }
  std::byte* const piece = base_ + (begin_ + used_) % capacity_;
  pieces_.push_back({rounded, nullptr});
  used_ += rounded;
  return piece;
}

void FifoMemory::give_back_oldest() {
  RUEDA_CHECK(!pieces_.empty());
  const Piece oldest = pieces_.front();
  pieces_.pop_front();
  give_back(oldest);
  // Begins at the beginning again if nothing is in use, because the same pages stay in cache.
  begin_ = used_ == 0 ? 0 : (begin_ + oldest.bytes) % capacity_;
}

void FifoMemory::give_back_newest() {
  RUEDA_CHECK(!pieces_.empty());
  const Piece newest = pieces_.back();
  pieces_.pop_back();
  give_back(newest);
}

void FifoMemory::give_back(const Piece& piece) {
  used_ -= piece.bytes;
  if (piece.own) ::munmap(piece.own, piece.bytes);
}

}  // namespace rueda::engine
