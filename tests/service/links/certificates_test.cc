// Control links with certificates: a daemon is the node that its certificate is for.
#include "tests/service/certificates.h"

#include <chrono>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/service/daemons.h"
#include "tests/service/loop.h"

namespace rueda::service {
namespace {

using security::KeyPair;
using security::Role;
using std::chrono::days;
using testing::Daemon;
using ::testing::HasSubstr;

class CertificatesTest : public ::testing::Test {
 protected:
  // Returns the options of a daemon that says that it is this node, and shows this certificate.
  ControlPlaneOptions options(const std::string& node_id, const KeyPair& pair) {
    ControlPlaneOptions options;
    options.node_id = node_id;
    options.incarnation = 1;
    options.timeout_ms = 60'000;
    options.credentials = authority_.credentials(pair);
    return options;
  }
  ControlPlaneOptions options(const std::string& node_id) {
    return options(node_id, authority_.issue(Role::kNode, node_id));
  }
  // Opens a link by hand, with this certificate, and returns how that ends.
  grpc::Status link(const Daemon& daemon, const KeyPair& pair) {
    const auto channel = authority_.channel(daemon.address(), pair);
    return loop_.beside([&] {
      grpc::ClientContext context;
      context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(20));
      const auto stream = v1::Control::NewStub(channel)->Link(&context);
      v1::LinkMessage message;
      message.mutable_hello()->set_node_id("x");
      stream->Write(message);
      if (stream->Read(&message)) context.TryCancel();  // It was let in.
      return stream->Finish();
    });
  }

  testing::Loop loop_;
  testing::Authority authority_;
};

TEST_F(CertificatesTest, DaemonsWithTheirOwnLink) {
  Daemon alpha(loop_, options("alpha"));
  Daemon beta(loop_, options("beta"));
  alpha.plane.acquire(beta.address());
  EXPECT_TRUE(loop_.run_until([&] { return alpha.is_up() && beta.is_up(); }));
  EXPECT_EQ(alpha.plane.peers().front().node_id, "beta");
}

TEST_F(CertificatesTest, WhoSaysAnotherNameThanItsCertificateIsSentAway) {
  Daemon alpha(loop_, options("alpha"));
  Daemon impostor(loop_, options("beta", authority_.issue(Role::kNode, "gamma")));
  const auto link = alpha.plane.acquire(impostor.address());
  EXPECT_TRUE(loop_.run_until([&] { return !alpha.plane.trouble(link).empty(); }));
  EXPECT_THAT(alpha.plane.trouble(link),
              HasSubstr("says that it is node beta, and its certificate is for "
                        "spiffe://test/rueda/node/gamma"));
  EXPECT_FALSE(alpha.is_up());
}

TEST_F(CertificatesTest, NeitherMayItDial) {
  Daemon alpha(loop_, options("alpha"));
  Daemon impostor(loop_, options("beta", authority_.issue(Role::kNode, "gamma")));
  impostor.plane.acquire(alpha.address());
  EXPECT_TRUE(loop_.run_until([&] { return !impostor.events.lost.empty(); }));
  EXPECT_FALSE(alpha.is_up());
  EXPECT_GE(alpha.metrics.daemon().refused_at_control.Value(), 1);
}

TEST_F(CertificatesTest, LinksEndWhenTheirPeersCertificateIsRevoked) {
  const KeyPair lost = authority_.issue(Role::kNode, "beta");
  ControlPlaneOptions of_alpha = options("alpha");
  of_alpha.timeout_ms = 900;
  ControlPlaneOptions of_beta = options("beta", lost);
  of_beta.timeout_ms = 900;
  Daemon alpha(loop_, of_alpha);
  Daemon beta(loop_, of_beta);
  const auto link = alpha.plane.acquire(beta.address());
  ASSERT_TRUE(loop_.run_until([&] { return alpha.is_up() && beta.is_up(); }));
  authority_.revoke(lost);
  EXPECT_TRUE(loop_.run_until([&] { return !alpha.events.lost.empty(); }));
  EXPECT_THAT(alpha.events.lost.front().second.message(), HasSubstr("has been revoked"));
  EXPECT_TRUE(loop_.run_until([&] { return !alpha.plane.trouble(link).empty(); }));
  EXPECT_FALSE(alpha.is_up());
}

TEST_F(CertificatesTest, LinksThatAreNeededOutliveTheirCertificates) {
  ControlPlaneOptions of_alpha = options("alpha");
  ControlPlaneOptions of_beta =
      options("beta", authority_.issue(Role::kNode, "beta", std::chrono::seconds(4)));
  of_alpha.timeout_ms = of_beta.timeout_ms = 900;
  Daemon alpha(loop_, of_alpha);
  Daemon beta(loop_, of_beta);
  const auto needed = alpha.plane.acquire(beta.address());
  beta.plane.acquire(alpha.address());
  ASSERT_TRUE(loop_.run_until([&] { return alpha.is_up(2) && beta.is_up(2); }));
  // Of the two that alpha has, the one that beta has dialled is needed by nobody.
  EXPECT_TRUE(loop_.run_until([&] { return !alpha.events.lost.empty(); }));
  EXPECT_THAT(alpha.events.lost.front().second.message(), HasSubstr("has ended"));
  EXPECT_NE(alpha.events.lost.front().first, needed);
  EXPECT_EQ(alpha.plane.node_of(needed), "beta");
}

TEST_F(CertificatesTest, WhoIsNoNodeNeitherLinksNorServes) {
  Daemon alpha(loop_, options("alpha"));
  Daemon posing(loop_, options("beta", authority_.issue(Role::kOperator, "beta")));
  const auto link = alpha.plane.acquire(posing.address());
  EXPECT_TRUE(loop_.run_until([&] { return !alpha.plane.trouble(link).empty(); }));
  EXPECT_FALSE(alpha.is_up());
  EXPECT_EQ(this->link(alpha, authority_.issue(Role::kOperator, "x")).error_code(),
            grpc::StatusCode::PERMISSION_DENIED);
  EXPECT_EQ(this->link(alpha, authority_.issue(Role::kMetrics, "x")).error_code(),
            grpc::StatusCode::PERMISSION_DENIED);
}

TEST_F(CertificatesTest, OneThatHasEndedIsWorthless) {
  Daemon alpha(loop_, options("alpha"));
  EXPECT_EQ(link(alpha, authority_.issue(Role::kNode, "x")).error_code(),
            grpc::StatusCode::CANCELLED);
  EXPECT_EQ(link(alpha, authority_.issue(Role::kNode, "x", days(-1))).error_code(),
            grpc::StatusCode::UNAVAILABLE);
}

TEST_F(CertificatesTest, ClearTextAndTlsDoNotMeet) {
  Daemon alpha(loop_, options("alpha"));
  Daemon plain(loop_, "beta");
  const auto from_alpha = alpha.plane.acquire(plain.address());
  const auto from_plain = plain.plane.acquire(alpha.address());
  EXPECT_TRUE(loop_.run_until([&] {
    return !alpha.plane.trouble(from_alpha).empty() && !plain.plane.trouble(from_plain).empty();
  }));
  EXPECT_FALSE(alpha.is_up() || plain.is_up());
}

}  // namespace
}  // namespace rueda::service
