// Serves GET and HEAD of /metrics, /healthz and /readyz over HTTP/1.1 or HTTPS, on a thread of its
// own (a scrape must not hold up a loop).
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include <boost/asio/ssl/context.hpp>

#include "daemon/base/status.h"

namespace rueda::observe {

struct HttpHandlers {
  // Returns the text exposition. It is called for at most a tenth of the time: scrapes in between
  // wait for the next text.
  std::function<std::string()> metrics;
  std::function<bool()> ready;  // /readyz answers 200 if this returns true, or else 503.
  // Hears of each request that is refused, if there is such a function: of which address, and why.
  std::function<void(const std::string& who, const std::string& why)> refused{};
  // /healthz answers 200 if this returns "", or else 503 and the text. If there is no function, the
  // daemon is well while it runs.
  std::function<std::string()> ailment;
};

struct HttpLimits {
  // If one more comes, the oldest connection of the address that has most is closed. /healthz is
  // asked for by many, so others need room, too.
  int max_connections = 64;
  // The time for a request to come, and for its reply to be taken; an idle connection is closed
  // after it.
  std::chrono::milliseconds deadline = std::chrono::seconds(10);
  // A connection is closed after this time, however many requests come over it.
  std::chrono::milliseconds life = std::chrono::minutes(5);
};

// What makes it HTTPS. Clients may come without a certificate: whoever looks whether a daemon is
// well has none.
struct HttpTls {
  // Returns the context of connections to come; called for each, so that certificates can change.
  // It must ask for a client's certificate, and need not get one.
  std::function<std::shared_ptr<boost::asio::ssl::context>()> context;
  // Says why who has this certificate (PEM, which has been verified; "" for none) gets no metrics;
  // "" if it does.
  std::function<std::string(const std::string& pem)> refusal;
};

// A server that takes no bodies, and at most 8 KiB of header: whatever a stranger sends ends that
// connection alone. start() and stop() must be called from one thread.
class HttpServer {
 public:
  virtual ~HttpServer() = default;  // The destructor stops the server.
  // Binds and serves. `address` is host:port, [v6]:port or :port. Returns it with the port that was
  // bound filled in (0 takes a free one). If the port is taken, the error names it.
  virtual Result<std::string> start(const std::string& address) = 0;
  virtual void stop() = 0;

  // The handlers run on the server's thread and must be thread-safe.
  // Without `tls` it is HTTP.
  static std::unique_ptr<HttpServer> create(HttpHandlers handlers, HttpLimits limits = {},
                                            std::optional<HttpTls> tls = {});
};

}  // namespace rueda::observe
