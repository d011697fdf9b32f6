// The socket file (or abstract name) that clients connect to.
#pragma once

#include <string>

#include <sys/types.h>

#include "daemon/base/fd.h"
#include "daemon/base/status.h"

namespace rueda::session {

// Owns a listening unix socket and its file, which it removes when it goes (unless somebody else
// has put another file there meanwhile).
class ListeningSocket {
 public:
  ListeningSocket() = default;
  ListeningSocket(ListeningSocket&& other) noexcept;
  ListeningSocket& operator=(ListeningSocket&&) = delete;
  ~ListeningSocket();

  // "@name" is an abstract socket. A file that nobody listens on is replaced. Everyone may connect
  // (mode 0666): SO_PEERCRED and the job's token decide.
  static Result<ListeningSocket> open(const std::string& path, bool refuses_descriptors = true);

  int fd() const { return fd_.get(); }
  // The descriptor is the caller's from now on; the file stays this object's to remove.
  int release_fd() { return fd_.release(); }

 private:
  UniqueFd fd_;
  std::string file_path_;  // empty: abstract, or nothing made
  dev_t device_ = 0;
  ino_t inode_ = 0;
};

// Whether who is at the other end may send descriptors; before Linux 6.16 he may always.
void set_passes_descriptors(int socket, bool passes);

}  // namespace rueda::session
