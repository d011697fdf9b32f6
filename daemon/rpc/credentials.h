// How the daemon's gRPC connections are protected, and who is at their other ends.
#pragma once

#include <memory>
#include <string>

#include <grpcpp/grpcpp.h>

#include "daemon/security/certificates/tls_folder.h"
#include "daemon/security/policy.h"

namespace rueda::rpc {

// Immutable, and thread-safe.
class Credentials {
 public:
  // Nothing is encrypted; whoever comes is such a caller.
  explicit Credentials(security::Caller::Kind everybody);
  // TLS on both sides, with the certificates of a folder; those that are replaced there count for
  // connections to come within seconds. Whoever comes must have one that an authority of the folder
  // has issued, that has not been revoked, and that is of the same trust domain; a server must be
  // a node.
  explicit Credentials(std::shared_ptr<security::TlsFolder> folder);

  bool has_tls() const { return folder_ != nullptr; }
  // Null without TLS.
  security::TlsFolder* folder() const { return folder_.get(); }
  const std::shared_ptr<security::TlsFolder>& shared_folder() const { return folder_; }
  const security::Callers& callers() const { return *callers_; }
  const std::shared_ptr<grpc::ServerCredentials>& server() const { return server_; }
  const std::shared_ptr<grpc::ChannelCredentials>& channel() const { return channel_; }

 private:
  const std::shared_ptr<security::TlsFolder> folder_;
  std::unique_ptr<security::Callers> callers_;
  std::shared_ptr<grpc::ServerCredentials> server_;
  std::shared_ptr<grpc::ChannelCredentials> channel_;
};

// Says whether the daemon behind a call that has been answered is this node, as far as certificates
// tell.
bool is_node(const Credentials& credentials, const grpc::ClientContext& context,
             const std::string& node_id);

// Returns the other end's certificate (PEM), which has been verified; "" without one.
std::string certificate_of(const std::shared_ptr<const grpc::AuthContext>& peer);
security::Connection connection_of(const grpc::ServerContext& context);

}  // namespace rueda::rpc
