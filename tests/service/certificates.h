// An authority of tests, and folders with its certificates.
#pragma once

#include <chrono>
#include <fstream>
#include <memory>
#include <string>
#include <utility>

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "daemon/rpc/credentials.h"
#include "daemon/security/certificates/certificates.h"
#include "daemon/security/certificates/tls_folder.h"
#include "tests/support/temporary_folder.h"

namespace rueda::service::testing {

class Authority {
 public:
  security::KeyPair issue(security::Role role, const std::string& name,
                          std::chrono::seconds life = std::chrono::days(1)) const {
    return security::issue(pair_, {"test", role, name}, {{"127.0.0.1"}, life}).value();
  }
  // Returns what a daemon has whose --tls-dir is a new folder with these.
  std::shared_ptr<const rpc::Credentials> credentials(const security::KeyPair& pair) {
    const std::string folder = folder_.path() + '/' + std::to_string(++folders_);
    EXPECT_EQ(::mkdir(folder.c_str(), 0700), 0);
    for (const auto& [name, text] : {std::pair(security::kCertificateFile, pair.certificate),
                                     std::pair(security::kKeyFile, pair.key),
                                     std::pair(security::kAuthorityFile, pair_.certificate)}) {
      std::ofstream(folder + '/' + name) << text;
      EXPECT_EQ(::chmod((folder + '/' + name).c_str(), 0600), 0);
    }
    return std::make_shared<rpc::Credentials>(security::TlsFolder::open(folder).value());
  }
  // Tells all folders that this one counts no more.
  void revoke(const security::KeyPair& pair) {
    const std::string serial = security::read_certificate(pair.certificate).value().serial;
    const std::string list = security::revoke(pair_, "", serial).value();
    for (int i = 1; i <= folders_; ++i) {
      std::ofstream(folder_.path() + '/' + std::to_string(i) + '/' + security::kRevokedFile)
          << list;
    }
  }
  // Returns a channel of whoever has no certificate.
  std::shared_ptr<grpc::Channel> channel(const std::string& address) const {
    return grpc::CreateChannel(address, grpc::SslCredentials({pair_.certificate, "", ""}));
  }
  // Returns a channel of whoever has these, and looks at nothing.
  std::shared_ptr<grpc::Channel> channel(const std::string& address,
                                         const security::KeyPair& pair) const {
    return grpc::CreateChannel(
        address, grpc::SslCredentials({pair_.certificate, pair.key, pair.certificate}));
  }

 private:
  const testing_support::TemporaryFolder folder_;
  const security::KeyPair pair_ = security::make_authority("test", std::chrono::days(10)).value();
  int folders_ = 0;
};

}  // namespace rueda::service::testing
