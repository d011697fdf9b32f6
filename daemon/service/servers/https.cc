#include "daemon/service/servers/https.h"

#include <string>
#include <utility>

#include <boost/asio/buffer.hpp>
#include <boost/asio/ssl/context.hpp>

#include "daemon/base/mutex.h"
#include "daemon/security/policy.h"

namespace rueda::service {
namespace {

namespace ssl = boost::asio::ssl;

std::shared_ptr<ssl::context> make_context(const security::TlsFiles& files) {
  auto context = std::make_shared<ssl::context>(ssl::context::tls_server);
  context->set_options(ssl::context::default_workarounds | ssl::context::no_tlsv1 |
                       ssl::context::no_tlsv1_1 | SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_TICKET);
  ::SSL_CTX_set_session_cache_mode(context->native_handle(), SSL_SESS_CACHE_OFF);
  context->use_certificate_chain(boost::asio::buffer(files.pair.certificate));
  context->use_private_key(boost::asio::buffer(files.pair.key), ssl::context::pem);
  context->add_certificate_authority(boost::asio::buffer(files.authorities));
  context->set_verify_mode(ssl::verify_peer);  // A client need not have a certificate.
  return context;
}

// Makes a context when the files are others than before.
class Contexts {
 public:
  explicit Contexts(std::shared_ptr<security::TlsFolder> folder) : folder_(std::move(folder)) {}

  std::shared_ptr<ssl::context> now() {
    const auto files = folder_->files();
    const MutexLock lock(mutex_);
    if (context_ && files->version == version_) return context_;
    context_ = make_context(*files);
    version_ = files->version;
    return context_;
  }

 private:
  const std::shared_ptr<security::TlsFolder> folder_;
  Mutex mutex_;
  std::shared_ptr<ssl::context> context_ RUEDA_GUARDED_BY(mutex_);
  uint64_t version_ RUEDA_GUARDED_BY(mutex_) = 0;
};

}  // namespace

observe::HttpTls https_of(std::shared_ptr<security::TlsFolder> folder) {
  observe::HttpTls tls;
  tls.context = [contexts = std::make_shared<Contexts>(folder)] { return contexts->now(); };
  tls.refusal = [folder = std::move(folder)](const std::string& pem) {
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
