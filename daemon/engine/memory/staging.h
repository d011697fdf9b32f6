// The daemon's own memory, into which chunks are received and from which they are sent. It is
// mapped when made, backed as it is first used, registered with the transport, and counted. It
// belongs to its data loop.
#pragma once

#include <cstddef>
#include <memory>

#include "daemon/base/fd.h"
#include "daemon/base/status.h"
#include "daemon/observe/metrics.h"
#include "daemon/transport/transport.h"

namespace rueda::engine {

// The file by which other processes map the staging memory.
struct StagingFile {
  UniqueFd fd;  // A memfd that cannot shrink.
  size_t bytes = 0;
};

class Staging {
 public:
  // Makes the memory. The transport and the metrics must outlive it. With `is_shared` other
  // processes have to map it, too, and then the kernel gives no huge pages for it. The error is
  // kResourceExhausted if there is no memory.
  static Result<std::unique_ptr<Staging>> make(transport::Transport& transport,
                                               observe::Metrics& metrics, size_t bytes,
                                               bool is_shared = false);
  ~Staging();

  std::byte* base() const { return base_; }
  // Returns the memory's file, or null if it is not shared. The file may outlive the memory.
  const std::shared_ptr<const StagingFile>& file() const { return file_; }
  transport::RegionKey region() const { return region_; }

 private:
  Staging(transport::Transport& transport, observe::Metrics& metrics, std::byte* base,
          size_t bytes);

  transport::Transport& transport_;
  observe::Metrics& metrics_;
  std::byte* const base_;
  const size_t bytes_;
  transport::RegionKey region_;
  std::shared_ptr<const StagingFile> file_;
};

}  // namespace rueda::engine
