// GET and HEAD of /metrics, /healthz, /readyz over HTTP/1.1, on a thread of its own (a scrape must
// not hold up a loop).
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "daemon/base/status.h"

namespace rueda::observe {

struct HttpHandlers {
  // The text exposition. It is made at most a tenth of the time: scrapes in between wait for the
  // next.
  std::function<std::string()> metrics;
  std::function<bool()> ready;  // /readyz: 200 or 503
  // /healthz: empty: 200; else 503, and why. None: the daemon is well while it runs.
  std::function<std::string()> ailment;
};

struct HttpLimits {
  // For one more the oldest goes, of the address that has most: health is asked for by others, too.
  int max_connections = 64;
  // For a request to come, and for its reply to be taken; an idle connection is closed after it.
  std::chrono::milliseconds deadline = std::chrono::seconds(10);
  // However many requests come over it, a connection is closed then.
  std::chrono::milliseconds life = std::chrono::minutes(5);
};

// No bodies, at most 8 KiB of header: whatever a stranger sends ends that connection alone. start
// and stop are called from one thread.
class HttpServer {
 public:
  virtual ~HttpServer() = default;  // stops
  // Binds and serves; `address` is host:port, [v6]:port or :port. Returns it with the port that was
  // bound filled in (0 takes a free one). A port taken is an error that names it.
  virtual Result<std::string> start(const std::string& address) = 0;
  virtual void stop() = 0;

  // The handlers run on the server's thread and must be thread-safe.
  static std::unique_ptr<HttpServer> create(HttpHandlers handlers, HttpLimits limits = {});
};

}  // namespace rueda::observe
