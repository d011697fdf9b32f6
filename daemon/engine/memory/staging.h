// Memory of the daemon's own that chunks are received into and sent from: mapped when made, backed
// as it is first used, registered with the transport, and counted. Belongs to its data loop.
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
  UniqueFd fd;  // a memfd that cannot shrink
  size_t bytes = 0;
};

class Staging {
 public:
  // The transport and the metrics outlive it. `is_shared`: others are to map it, too, which the
  // kernel gives no huge pages for. kResourceExhausted where there is no memory.
  static Result<std::unique_ptr<Staging>> make(transport::Transport& transport,
                                               observe::Metrics& metrics, size_t bytes,
                                               bool is_shared = false);
  ~Staging();

  std::byte* base() const { return base_; }
  // Null: it is not shared. May outlive it.
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
