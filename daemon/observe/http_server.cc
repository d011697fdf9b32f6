#include "daemon/observe/http_server.h"

#include <array>
#include <chrono>
#include <exception>
#include <limits>
#include <map>
#include <optional>
#include <string_view>
#include <thread>
#include <utility>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http.hpp>
#include <boost/beast/ssl/ssl_stream.hpp>
#include <openssl/pem.h>
#include <pthread.h>

#include "daemon/base/strangers/crowd.h"

namespace rueda::observe {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using asio::ip::tcp;
using ErrorCode = boost::system::error_code;

constexpr uint32_t kMaxHeaderBytes = 8 * 1024;
constexpr size_t kMaxDrainedBytes = size_t{64} * 1024;
constexpr auto kAcceptRetryDelay = std::chrono::milliseconds(200);

constexpr std::string_view kMetricsPath = "/metrics";

using Response = http::response<http::string_body>;

class Connection;

Response make_response(http::status status, std::string body) {
  Response response(status, 11);
  response.set(http::field::content_type, "text/plain; charset=utf-8");
  response.body() = std::move(body);
  return response;
}

// Paces the making of metrics, because anybody may ask, and the loops have to help: it takes a
// tenth of the time at most, however many ask. Who comes in between waits, and those who wait get
// the same text.
class Scrapes {
 public:
  using Clock = std::chrono::steady_clock;

  // Returns when a request that came at `asked` can be answered; a time that has passed means now.
  Clock::time_point due(Clock::time_point asked) const {
    return begun_ >= asked ? Clock::time_point::min() : next_;
  }
  // Returns the metrics, and is called when the request is due. The text is not older than the
  // request.
  const std::string& text(Clock::time_point asked, const std::function<std::string()>& make) {
    if (begun_ >= asked) return text_;
    const Clock::time_point begun = Clock::now();
    text_ = make();
    begun_ = begun;
    const Clock::time_point ended = Clock::now();
    next_ = ended + std::min<Clock::duration>(kRest * (ended - begun), kMaxRest);
    return text_;
  }

 private:
  static constexpr int kRest = 9;  // The pause is so many times as long as the making took.
  static constexpr auto kMaxRest = std::chrono::seconds(1);

  std::string text_;
  Clock::time_point begun_;  // When the making of text_ began.
  Clock::time_point next_;
};

// What the connections of a server have in common; used on its thread only.
struct Shared {
  HttpHandlers handlers;
  HttpLimits limits;
  std::optional<HttpTls> tls;
  Scrapes scrapes;
  std::map<uint64_t, Connection*> connections;
  Crowd<uint64_t> crowd;  // The connections, by machine.
  uint64_t last_id = 0;
};

bool is_get_or_head(const http::request<http::empty_body>& request) {
  return request.method() == http::verb::get || request.method() == http::verb::head;
}

std::string_view path_of(const http::request<http::empty_body>& request) {
  const std::string_view target(request.target().data(), request.target().size());
  return target.substr(0, target.find('?'));
}

struct Asked {
  Scrapes::Clock::time_point at;  // When the request had come.
  std::string pem;                // The client's certificate; "" if it has none.
};

Response answer_path(Shared& shared, std::string_view path, const Asked& asked) {
  const HttpHandlers& handlers = shared.handlers;
  if (path == kMetricsPath) {
    const std::string refusal = shared.tls ? shared.tls->refusal(asked.pem) : "";
    if (!refusal.empty()) return make_response(http::status::forbidden, refusal + "\n");
    Response response =
        make_response(http::status::ok, shared.scrapes.text(asked.at, handlers.metrics));
    response.set(http::field::content_type, "text/plain; version=0.0.4; charset=utf-8");
    return response;
  }
  if (path == "/healthz") {
    const std::string ailment = handlers.ailment ? handlers.ailment() : "";
    if (ailment.empty()) return make_response(http::status::ok, "ok\n");
    return make_response(http::status::service_unavailable, ailment + "\n");
  }
  if (path == "/readyz") {
    if (handlers.ready()) return make_response(http::status::ok, "ready\n");
    return make_response(http::status::service_unavailable, "not ready\n");
  }
  return make_response(http::status::not_found,
                       "not found: this daemon serves /metrics, /healthz and /readyz\n");
}

Response answer(Shared& shared, const http::request<http::empty_body>& request,
                const Asked& asked) {
  if (!is_get_or_head(request)) {
    Response response = make_response(http::status::method_not_allowed, "use GET or HEAD\n");
    response.set(http::field::allow, "GET, HEAD");
    return response;
  }
  try {
    return answer_path(shared, path_of(request), asked);
  } catch (const std::exception& error) {
    return make_response(http::status::internal_server_error, std::string(error.what()) + "\n");
  }
}

// Returns whether what was read is not HTTP, or ended early; other errors are the socket's.
bool is_http_error(ErrorCode error) {
  return error.category() == http::make_error_code(http::error::bad_method).category();
}

// Returns the machine at the other end. For IPv6 that is the address's network, because one machine
// may have a whole network.
std::string machine_of(const tcp::socket& socket) {
  ErrorCode error;
  const asio::ip::address address = socket.remote_endpoint(error).address();
  if (error || address.is_v4()) return address.to_string();
  const auto bytes = address.to_v6().to_bytes();
  return {bytes.begin(), bytes.begin() + 8};
}

// Returns the certificate with which the client has come, as PEM; "" if it has come without one.
std::string pem_of_peer(SSL* tls) {
  const std::unique_ptr<X509, decltype(&::X509_free)> certificate(::SSL_get1_peer_certificate(tls),
                                                                  &::X509_free);
  const std::unique_ptr<BIO, decltype(&::BIO_free_all)> bio(::BIO_new(::BIO_s_mem()),
                                                            &::BIO_free_all);
  if (!certificate || !bio || ::PEM_write_bio_X509(bio.get(), certificate.get()) != 1) return "";
  char* bytes = nullptr;
  const long size = ::BIO_get_mem_data(bio.get(), &bytes);
  return {bytes, static_cast<size_t>(size)};
}

// One connection, which the operation in flight keeps alive.
class Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(tcp::socket socket, Shared& shared)
      : shared_(shared),
        id_(++shared.last_id),
        ends_(std::chrono::steady_clock::now() + shared.limits.life),
        due_timer_(socket.get_executor()) {
    if (shared_.tls) {
      context_ = shared_.tls->context();
      tls_.emplace(std::move(socket), *context_);
    } else {
      plain_.emplace(std::move(socket));
    }
    ErrorCode error;
    who_ = stream().socket().remote_endpoint(error).address().to_string();
    shared_.connections.emplace(id_, this);
    shared_.crowd.add(id_, machine_of(stream().socket()));
  }
  ~Connection() {
    shared_.connections.erase(id_);
    shared_.crowd.remove(id_);
  }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  // Closes the connection to make room for others. The object ends when the operations under way
  // have heard of it.
  void evict() {
    shared_.crowd.remove(id_);
    shared_.connections.erase(id_);
    stream().close();
  }

  void start() {
    if (!tls_) return read();
    stream().expires_after(shared_.limits.deadline);
    tls_->async_handshake(asio::ssl::stream_base::server,
                          [self = shared_from_this()](ErrorCode error) {
                            if (error) return self->on_handshake_failed(error);
                            self->asked_.pem = pem_of_peer(self->tls_->native_handle());
                            self->read();
                          });
  }

  void read() {
    parser_.emplace();
    parser_->header_limit(kMaxHeaderBytes);
    parser_->body_limit(std::numeric_limits<uint64_t>::max());  // No body is ever read.
    stream().expires_after(shared_.limits.deadline);
    with_stream([this](auto& stream) {
      http::async_read_header(
          stream, buffer_, *parser_,
          [self = shared_from_this()](ErrorCode error, size_t) { self->on_read(error); });
    });
  }

 private:
  // The TCP connection, below TLS if there is any.
  beast::tcp_stream& stream() { return tls_ ? tls_->next_layer() : *plain_; }
  // Calls a function with what is read from and written to.
  template <class Function>
  void with_stream(const Function& function) {
    tls_ ? function(*tls_) : function(*plain_);
  }

  void on_read(ErrorCode error) {
    if (is_http_error(error)) {
      on_bad_request(error);
      return;
    }
    if (error) return;  // The connection is gone, or past the deadline.
    asked_.at = Scrapes::Clock::now();
    answer_when_due();
  }

  void on_handshake_failed(ErrorCode error) {
    // The others are of the socket: the client has gone, or has said nothing until the deadline.
    if (error.category() == asio::error::get_ssl_category()) note_refused(error.message());
  }

  void note_refused(const std::string& why) {
    if (shared_.handlers.refused) shared_.handlers.refused(who_, why);
  }

  void answer_when_due() {
    const auto& request = parser_->get();
    const auto due = shared_.scrapes.due(asked_.at);
    if (is_get_or_head(request) && path_of(request) == kMetricsPath &&
        due > Scrapes::Clock::now()) {
      due_timer_.expires_at(due);
      due_timer_.async_wait([self = shared_from_this()](ErrorCode cancelled) {
        if (!cancelled) self->answer_when_due();
      });
      return;
    }
    answer_now(request);
  }

  void answer_now(const http::request<http::empty_body>& request) {
    is_head_ = request.method() == http::verb::head;
    // A body is not read, so a connection that announces one cannot go on.
    if (!parser_->is_done()) {
      response_ = is_get_or_head(request)
                      ? make_response(http::status::bad_request, "a request body is not taken\n")
                      : answer(shared_, request, asked_);
    } else {
      response_ = answer(shared_, request, asked_);
    }
    if (response_.result() == http::status::forbidden) {
      note_refused(response_.body().substr(0, response_.body().find('\n')));
    }
    response_.version(request.version());
    response_.keep_alive(request.keep_alive() && parser_->is_done() &&
                         std::chrono::steady_clock::now() < ends_);
    write();
  }

  void on_bad_request(ErrorCode error) {
    if (error == http::error::end_of_stream) return;
    const http::status status = error == http::error::header_limit
                                    ? http::status::request_header_fields_too_large
                                    : http::status::bad_request;
    is_head_ = false;
    note_refused(error.message());
    response_ =
        make_response(status, "not a request that this server takes: " + error.message() + "\n");
    response_.keep_alive(false);
    write();
  }

  void write() {
    response_.prepare_payload();
    serializer_.emplace(response_);
    stream().expires_after(shared_.limits.deadline);
    serializer_->split(is_head_);
    with_stream([this](auto& stream) {
      auto done = [self = shared_from_this()](ErrorCode error, size_t) { self->on_written(error); };
      if (is_head_) {
        http::async_write_header(stream, *serializer_, std::move(done));
      } else {
        http::async_write(stream, *serializer_, std::move(done));
      }
    });
  }

  void on_written(ErrorCode error) {
    if (error) return;
    if (response_.keep_alive()) {
      read();
      return;
    }
    stream().expires_after(shared_.limits.deadline);
    if (!tls_) return shut_down_and_drain();
    tls_->async_shutdown([self = shared_from_this()](ErrorCode) { self->shut_down_and_drain(); });
  }

  // Closing with unread input would reset the connection, and the reply could be lost with it.
  void shut_down_and_drain() {
    ErrorCode error;
    stream().socket().shutdown(tcp::socket::shutdown_send, error);
    if (error) return;
    stream().expires_after(shared_.limits.deadline);
    drain(0);
  }

  void drain(size_t drained_bytes) {
    if (drained_bytes > kMaxDrainedBytes) return;
    stream().async_read_some(asio::buffer(discarded_), [self = shared_from_this(), drained_bytes](
                                                           ErrorCode error, size_t bytes) {
      if (!error) self->drain(drained_bytes + bytes);
    });
  }

  // One of the two is set.
  std::optional<beast::tcp_stream> plain_;
  std::shared_ptr<asio::ssl::context> context_;
  std::optional<beast::ssl_stream<beast::tcp_stream>> tls_;
  Shared& shared_;
  const uint64_t id_;
  std::string who_;  // The client's address.
  const std::chrono::steady_clock::time_point ends_;
  beast::flat_buffer buffer_{size_t{kMaxHeaderBytes} * 2};
  std::optional<http::request_parser<http::empty_body>> parser_;
  Response response_;
  std::optional<http::response_serializer<http::string_body>> serializer_;
  bool is_head_ = false;
  Asked asked_;
  asio::steady_timer due_timer_;
  std::array<char, 4096> discarded_;
};

struct HostPort {
  std::string host;
  std::string port;
};

// Reads "host:port", "[v6]:port", or ":port" for every IPv4 interface.
Result<HostPort> parse_address(const std::string& address) {
  const size_t colon = address.rfind(':');
  if (colon == std::string::npos || colon + 1 == address.size()) {
    return Status(Code::kInvalidArgument,
                  "HTTP address '" + address + "' has no port; write host:port");
  }
  HostPort parsed{address.substr(0, colon), address.substr(colon + 1)};
  if (parsed.port.find_first_not_of("0123456789") != std::string::npos || parsed.port.size() > 5 ||
      std::stoi(parsed.port) > 65535) {
    return Status(Code::kInvalidArgument, "HTTP address '" + address + "' has port '" +
                                              parsed.port + "'; a port is 0 to 65535");
  }
  if (parsed.host.empty()) parsed.host = "0.0.0.0";
  if (parsed.host.size() > 2 && parsed.host.front() == '[' && parsed.host.back() == ']') {
    parsed.host = parsed.host.substr(1, parsed.host.size() - 2);
  }
  return parsed;
}

class BeastHttpServer final : public HttpServer {
 public:
  BeastHttpServer(HttpHandlers handlers, HttpLimits limits, std::optional<HttpTls> tls)
      : shared_{.handlers = std::move(handlers), .limits = limits, .tls = std::move(tls)} {}
  ~BeastHttpServer() override { stop_thread(); }

  Result<std::string> start(const std::string& address) override {
    if (thread_.joinable()) {
      return Status(Code::kInvalidArgument, "the HTTP server serves already; stop it first");
    }
    Result<HostPort> parsed = parse_address(address);
    if (!parsed.is_ok()) return parsed.status();
    context_.emplace(1);
    acceptor_.emplace(*context_);
    if (Status status = listen(address, parsed.value()); !status.is_ok()) {
      discard();
      return status;
    }
    const std::string bound = std::to_string(acceptor_->local_endpoint().port());
    accept_retry_.emplace(*context_);
    accept();
    thread_ = std::thread([this] {
      // A thread names itself, because the name of another one is a file, which no sandboxed daemon
      // writes.
      ::pthread_setname_np(::pthread_self(), "rueda-http");
      context_->run();
    });
    const bool is_v6 = parsed.value().host.find(':') != std::string::npos;
    const std::string host = is_v6 ? "[" + parsed.value().host + "]" : parsed.value().host;
    return host + ":" + bound;
  }

  void stop() override { stop_thread(); }

 private:
  Status listen(const std::string& address, const HostPort& parsed) {
    ErrorCode error;
    tcp::resolver resolver(*context_);
    const auto endpoints = resolver.resolve(
        parsed.host, parsed.port, tcp::resolver::passive | tcp::resolver::numeric_service, error);
    if (error || endpoints.empty()) {
      return Status(Code::kInvalidArgument, "HTTP address '" + address +
                                                "' cannot be resolved: " + error.message() +
                                                "; use an address of this machine");
    }
    const tcp::endpoint endpoint = endpoints.begin()->endpoint();
    acceptor_->open(endpoint.protocol(), error);
    if (!error) acceptor_->set_option(tcp::acceptor::reuse_address(true), error);
    if (!error) acceptor_->bind(endpoint, error);
    if (!error) acceptor_->listen(asio::socket_base::max_listen_connections, error);
    if (!error) return Status::ok();
    if (error == asio::error::address_in_use && parsed.port == "0") {
      return Status(Code::kResourceExhausted,
                    "no port for HTTP is left on " + parsed.host +
                        ": see \"ss -s\" and net.ipv4.ip_local_port_range");
    }
    if (error == asio::error::address_in_use) {
      return Status(Code::kResourceExhausted,
                    parsed.port == "0"
                        ? "HTTP on " + parsed.host +
                              ": no free port is left; see net.ipv4.ip_local_port_range, and what "
                              "has them all (ss -tan)"
                        : "HTTP port " + parsed.port + " on " + parsed.host +
                              " is taken by another program; choose another with --http-port");
    }
    return Status(Code::kInvalidArgument,
                  "cannot serve HTTP on '" + address + "': " + error.message() +
                      "; use an address of this machine and a port that is allowed");
  }

  void accept() {
    acceptor_->async_accept([this](ErrorCode error, tcp::socket socket) {
      if (error == asio::error::operation_aborted) return;
      if (error) {
        // Most likely file descriptors are out: trying again at once would spin.
        evict_one();
        accept_retry_->expires_after(kAcceptRetryDelay);
        accept_retry_->async_wait([this](ErrorCode cancelled) {
          if (!cancelled) accept();
        });
        return;
      }
      // Replies to pipelined requests would wait for the client's delayed acknowledgement.
      socket.set_option(tcp::no_delay(true), error);
      std::make_shared<Connection>(std::move(socket), shared_)->start();
      while (shared_.crowd.size() > static_cast<size_t>(shared_.limits.max_connections)) {
        evict_one();
      }
      accept();
    });
  }

  void evict_one() {
    const std::optional<uint64_t> id = shared_.crowd.next_to_go();
    if (id) shared_.connections.at(*id)->evict();
  }

  void stop_thread() {
    if (!thread_.joinable()) return;
    context_->stop();
    thread_.join();
    discard();
  }

  // Whatever waits in the context, connections included, is destroyed with the context.
  void discard() {
    accept_retry_.reset();
    acceptor_.reset();
    context_.reset();
  }

  Shared shared_;
  std::optional<asio::io_context> context_;
  std::optional<tcp::acceptor> acceptor_;
  std::optional<asio::steady_timer> accept_retry_;
  std::thread thread_;
};

}  // namespace

std::unique_ptr<HttpServer> HttpServer::create(HttpHandlers handlers, HttpLimits limits,
                                               std::optional<HttpTls> tls) {
  return std::make_unique<BeastHttpServer>(std::move(handlers), limits, std::move(tls));
}

}  // namespace rueda::observe
