#include "daemon/service/servers/https.h"

#include <string>
#include <utility>

#include <boost/asio/buffer.hpp>
#include <boost/asio/ssl/context.hpp>
#include <spdlog/spdlog.h>

#include "daemon/base/mutex.h"
#include "daemon/base/one_line.h"
#include "daemon/security/policy.h"

namespace rueda::service {
namespace {

namespace ssl = boost::asio::ssl;

using ContextPtr = std::shared_ptr<ssl::context>;

Result<ContextPtr> make_context(const security::TlsFiles& files) {
  auto context = std::make_shared<ssl::context>(ssl::context::tls_server);
  ::SSL_CTX_set_options(context->native_handle(), SSL_OP_NO_TLSv1 | SSL_OP_NO_TLSv1_1 |
                                                      SSL_OP_NO_SSLv3 | SSL_OP_NO_RENEGOTIATION |
                                                      SSL_OP_NO_TICKET);
  ::SSL_CTX_set_session_cache_mode(context->native_handle(), SSL_SESS_CACHE_OFF);
  boost::system::error_code error;
  context->use_certificate_chain(boost::asio::buffer(files.pair.certificate), error);
  if (!error) {
    context->use_private_key(boost::asio::buffer(files.pair.key), ssl::context::pem, error);
  }
  if (!error) {
    context->add_certificate_authority(boost::asio::buffer(files.authorities), error);
  }
  // A client need not have a certificate.
  if (!error) context->set_verify_mode(ssl::verify_peer, error);
  if (!error) return context;
  return Status(Code::kInvalidArgument, "OpenSSL does not serve HTTPS with it: " + error.message());
}

// Makes a context when the files are others than before. Files that OpenSSL does not take leave the
// one that was.
class Contexts {
 public:
  Contexts(std::shared_ptr<security::TlsFolder> folder, ContextPtr first)
      : folder_(std::move(folder)), context_(std::move(first)) {}

  ContextPtr now() {
    const auto files = folder_->files();
    const MutexLock lock(mutex_);
    if (std::exchange(version_, files->version) == files->version) return context_;
    Result<ContextPtr> made = make_context(*files);
    if (made.is_ok()) {
      context_ = std::move(made).value();
    } else {
      spdlog::warn("{}: {}", folder_->path(), one_line(made.status().message()));
    }
    return context_;
  }

 private:
  const std::shared_ptr<security::TlsFolder> folder_;
  Mutex mutex_;
  ContextPtr context_ RUEDA_GUARDED_BY(mutex_);
  uint64_t version_ RUEDA_GUARDED_BY(mutex_) = 0;
};

}  // namespace

Result<observe::HttpTls> https_of(const std::shared_ptr<security::TlsFolder>& folder) {
  Result<ContextPtr> first = make_context(*folder->files());
  if (!first.is_ok()) return first.status();
  observe::HttpTls tls;
  tls.context = [contexts = std::make_shared<Contexts>(folder, std::move(first).value())] {
    return contexts->now();
  };
  tls.refusal = [folder](const std::string& pem) {
    security::Caller caller;
    if (!pem.empty()) {
      const Result<security::Identity> peer = folder->recognise(pem);
      if (!peer.is_ok()) return peer.status().message();
      caller.kind = security::kind_of(peer.value().role);
    }
    return security::check(security::Action::kScrapeMetrics, caller).message();
  };
  return tls;
}

}  // namespace rueda::service
