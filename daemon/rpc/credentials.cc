#include "daemon/rpc/credentials.h"

#include <functional>
#include <utility>
#include <vector>

#include <grpc/grpc_security_constants.h>
#include <grpcpp/security/tls_certificate_provider.h>
#include <grpcpp/security/tls_certificate_verifier.h>
#include <grpcpp/security/tls_credentials_options.h>

namespace rueda::rpc {
namespace {

namespace tls = grpc::experimental;

constexpr unsigned kLookEverySeconds = 5;

// Looks at what the handshake, which has checked the chain and the times, does not know.
class Verifier final : public tls::ExternalCertificateVerifier {
 public:
  Verifier(std::shared_ptr<security::TlsFolder> folder, bool wants_node)
      : folder_(std::move(folder)), wants_node_(wants_node) {}

  bool Verify(tls::TlsCustomVerificationCheckRequest* request,
              std::function<void(grpc::Status)> /*callback*/, grpc::Status* status) override {
    const grpc::string_ref pem = request->peer_cert();
    const Result<security::Identity> peer = folder_->recognise({pem.data(), pem.size()});
    if (!peer.is_ok()) {
      *status = {grpc::StatusCode::UNAUTHENTICATED, peer.status().message()};
    } else if (wants_node_ && peer.value().role != security::Role::kNode) {
      *status = {grpc::StatusCode::UNAUTHENTICATED,
                 to_uri(peer.value()) + " is no daemon, and serves as one"};
    }
    return true;
  }
  void Cancel(tls::TlsCustomVerificationCheckRequest*) override {}

 private:
  const std::shared_ptr<security::TlsFolder> folder_;
  const bool wants_node_;
};

void set_up(tls::TlsCredentialsOptions& options, const std::shared_ptr<security::TlsFolder>& folder,
            bool wants_node) {
  options.watch_root_certs();
  options.watch_identity_key_cert_pairs();
  options.set_check_call_host(false);
  options.set_certificate_verifier(
      tls::ExternalCertificateVerifier::Create<Verifier>(folder, wants_node));
}

// Takes callers for what their certificates say. Each call is looked at, since a certificate may
// have been revoked after its connection was made.
class Bearers final : public security::Callers {
 public:
  explicit Bearers(std::shared_ptr<security::TlsFolder> folder) : folder_(std::move(folder)) {}

  security::Caller find(const security::Connection& connection) const override {
    security::Caller caller;
    const Result<security::Identity> identity = folder_->recognise(connection.pem);
    if (!identity.is_ok()) return caller;
    caller.kind = security::kind_of(identity.value().role);
    caller.name = identity.value().name;
    return caller;
  }

 private:
  const std::shared_ptr<security::TlsFolder> folder_;
};

}  // namespace

Credentials::Credentials(security::Caller::Kind everybody)
    : callers_(std::make_unique<security::EverybodyIs>(everybody)),
      server_(grpc::InsecureServerCredentials()),
      channel_(grpc::InsecureChannelCredentials()) {}

Credentials::Credentials(std::shared_ptr<security::TlsFolder> folder)
    : folder_(std::move(folder)), callers_(std::make_unique<Bearers>(folder_)) {
  // gRPC would take files that do not fit each other, and then make no connection any more.
  const security::TlsFolder::Paths paths = folder_->sound_paths();
  const auto provider = std::make_shared<tls::FileWatcherCertificateProvider>(
      paths.key, paths.certificate, paths.authorities, kLookEverySeconds);
  tls::TlsServerCredentialsOptions server(provider);
  server.set_cert_request_type(GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  set_up(server, folder_, false);
  server_ = tls::TlsServerCredentials(server);
  tls::TlsChannelCredentialsOptions channel;
  channel.set_certificate_provider(provider);
  set_up(channel, folder_, true);
  channel_ = tls::TlsCredentials(channel);
}

bool is_node(const Credentials& credentials, const grpc::ClientContext& context,
             const std::string& node_id) {
  if (!credentials.has_tls()) return true;
  security::Connection connection;
  connection.pem = certificate_of(context.auth_context());
  const security::Caller peer = credentials.callers().find(connection);
  return peer.kind == security::Caller::Kind::kNode && peer.name == node_id;
}

std::string certificate_of(const std::shared_ptr<const grpc::AuthContext>& peer) {
  if (!peer) return "";
  const std::vector<grpc::string_ref> values =
      peer->FindPropertyValues(GRPC_X509_PEM_CERT_PROPERTY_NAME);
  return values.size() == 1 ? std::string(values.front().data(), values.front().size()) : "";
}

security::Connection connection_of(const grpc::ServerContext& context) {
  return {context.peer(), certificate_of(context.auth_context())};
}

}  // namespace rueda::rpc
