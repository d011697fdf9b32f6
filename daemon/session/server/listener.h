// The socket file, or the abstract name, that clients connect to.
#pragma once

#include <string>

#include <sys/types.h>

#include "daemon/base/fd.h"
#include "daemon/base/status.h"

namespace rueda::session {

// Owns a listening unix socket and its file. The destructor removes the file, unless somebody has
// put another one in its place meanwhile.
class ListeningSocket {
 public:
  ListeningSocket() = default;
  ListeningSocket(ListeningSocket&& other) noexcept;
  ListeningSocket& operator=(ListeningSocket&&) = delete;
  ~ListeningSocket();

  // A path "@name" is an abstract socket. A file that nobody listens on is replaced. Everyone may
  // connect (mode 0666): SO_PEERCRED and the job's token decide who may attach. If
  // `refuses_descriptors` is true, clients cannot send descriptors before they have attached.
  static Result<ListeningSocket> open(const std::string& path, bool refuses_descriptors = true);

  int fd() const { return fd_.get(); }
  // Returns the descriptor, which the caller owns from now on. This object still removes the file.
  int release_fd() { return fd_.release(); }

 private:
  UniqueFd fd_;
  std::string file_path_;  // Empty if the socket is abstract, or if there is no file yet.
  dev_t device_ = 0;
  ino_t inode_ = 0;
};

// Sets whether the process at the other end may send descriptors. Before Linux 6.16 the kernel
// cannot refuse them, and the call has no effect.
void set_passes_descriptors(int socket, bool passes);

}  // namespace rueda::session
