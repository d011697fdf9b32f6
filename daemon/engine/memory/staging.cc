#include "daemon/engine/memory/staging.h"

#include <string>
#include <utility>

#include "daemon/base/os/shared_mapping.h"

namespace rueda::engine {

Result<std::unique_ptr<Staging>> Staging::make(transport::Transport& transport,
                                               observe::Metrics& metrics, size_t bytes,
                                               bool is_shared) {
  SharedMemory shared;
  if (is_shared) {
    shared = make_shared_memory("rueda-staging", bytes);
  } else {
    shared.base = map_private(bytes);
  }
  if (shared.base == nullptr) {
    return Status(Code::kResourceExhausted, "no memory for " + std::to_string(bytes) +
                                                " bytes of staging; lower --staging-bytes");
  }
  std::unique_ptr<Staging> staging(new Staging(transport, metrics, shared.base, bytes));
  if (is_shared) {
    staging->file_ = std::make_shared<const StagingFile>(StagingFile{std::move(shared.fd), bytes});
  }
  Result<transport::RegionKey> region = transport.register_region({staging->base_, bytes});
  if (!region.is_ok()) return region.status();
  staging->region_ = region.value();
  return staging;
}

Staging::Staging(transport::Transport& transport, observe::Metrics& metrics, std::byte* base,
                 size_t bytes)
    : transport_(transport), metrics_(metrics), base_(base), bytes_(bytes) {
  metrics_.daemon().staging_bytes.Increment(static_cast<double>(bytes_));
}

Staging::~Staging() {
  if (region_ != transport::RegionKey{}) transport_.deregister_region(region_);
  unmap_guarded(base_, bytes_);
  metrics_.daemon().staging_bytes.Decrement(static_cast<double>(bytes_));
}

}  // namespace rueda::engine
