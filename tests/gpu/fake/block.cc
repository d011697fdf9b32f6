#include "tests/gpu/fake/block.h"

#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>

namespace rueda::gpu::fake {
namespace {

constexpr size_t kHeaderBytes = 4096;
// The contents of fresh memory are not zero, so that no test passes because they are.
constexpr std::byte kNoise{0xa5};

std::string path_of(const std::string& folder, uint64_t id) {
  return folder + "/memory-" + std::to_string(id);
}

void* map(int fd, size_t bytes) {
  return ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
}

Status no_file(Code code, const std::string& path) {
  return {code, "fake device memory: " + path + ": " + std::strerror(errno)};
}

}  // namespace

struct Block::Header {
  uint64_t bytes = 0;
  Sharing sharing = Sharing::kIpc;
  std::atomic<uint32_t> is_freed = 0;
};

Block::Block(uint64_t id, std::string path, UniqueFd file, Header* header)
    : id_(id),
      sharing_(header->sharing),
      path_(std::move(path)),
      file_(std::move(file)),
      header_(header),
      data_(reinterpret_cast<std::byte*>(header) + kHeaderBytes, header->bytes) {
  ::flock(file_.get(), LOCK_SH);
}

Result<std::shared_ptr<Block>> Block::create(const std::string& folder, uint64_t id,
                                             Sharing sharing, uint64_t bytes) {
  std::string path = folder.empty() ? "" : path_of(folder, id);
  UniqueFd file(path.empty() ? ::memfd_create("fake device memory", MFD_CLOEXEC)
                             : ::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!file.is_open() || ::ftruncate(file.get(), static_cast<off_t>(kHeaderBytes + bytes)) != 0) {
    return no_file(Code::kResourceExhausted, path);
  }
  void* const at = map(file.get(), kHeaderBytes + bytes);
  if (at == MAP_FAILED) return no_file(Code::kResourceExhausted, path);
  auto* const header = new (at) Header{.bytes = bytes, .sharing = sharing};
  std::shared_ptr<Block> block(new Block(id, std::move(path), std::move(file), header));
  std::memset(block->data_.data(), static_cast<int>(kNoise), bytes);
  return block;
}

Result<std::shared_ptr<Block>> Block::open(const std::string& folder, uint64_t id) {
  std::string path = path_of(folder, id);
  UniqueFd file(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  struct stat facts {};
  if (!file.is_open() || ::fstat(file.get(), &facts) != 0) return no_file(Code::kNotFound, path);
  void* const at = map(file.get(), static_cast<size_t>(facts.st_size));
  if (at == MAP_FAILED) return no_file(Code::kResourceExhausted, path);
  return std::shared_ptr<Block>(
      new Block(id, std::move(path), std::move(file), static_cast<Header*>(at)));
}

uint64_t Block::taken_bytes(const std::string& folder) {
  uint64_t bytes = 0;
  if (folder.empty()) return bytes;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const UniqueFd file(::open(entry.path().c_str(), O_RDWR | O_CLOEXEC));
    struct stat facts {};
    if (!file.is_open() || ::fstat(file.get(), &facts) != 0) continue;  // freed meanwhile
    if (::flock(file.get(), LOCK_EX | LOCK_NB) == 0) continue;
    bytes += static_cast<uint64_t>(facts.st_size);
  }
  return bytes;
}

Block::~Block() { ::munmap(header_, kHeaderBytes + data_.size()); }

Result<DmaBuf> Block::export_dma_buf() const {
  const uint64_t bytes = data_.size() / kGranuleBytes * kGranuleBytes;
  if (bytes == 0) return Status(Code::kUnavailable, "the memory has no whole page");
  UniqueFd file(::fcntl(file_.get(), F_DUPFD_CLOEXEC, 0));
  if (!file.is_open()) return no_file(Code::kResourceExhausted, path_);
  return DmaBuf{.fd = std::move(file), .offset = kHeaderBytes, .bytes = bytes};
}

bool Block::is_freed() const { return header_->is_freed != 0; }

void Block::set_freed() {
  header_->is_freed = 1;
  if (!path_.empty()) ::unlink(path_.c_str());
}

Status Block::map_at(std::byte* address) const {
  void* const at = ::mmap(address, data_.size(), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
                          file_.get(), static_cast<off_t>(kHeaderBytes));
  return at == address ? Status::ok() : no_file(Code::kResourceExhausted, path_);
}

}  // namespace rueda::gpu::fake
