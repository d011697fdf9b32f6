// Tests meetings that munge protects, with a fake libmunge (tests/agent/fake_munge).
#include "agent/rendezvous/munge.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <future>
#include <mutex>

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include "agent/base/network.h"
#include "agent/base/text.h"
#include "agent/rendezvous/rendezvous.h"
#include "rueda/v1/agent.grpc.pb.h"
#include "tests/support/paths.h"

namespace rueda::agent {
namespace {

using testing::HasSubstr;
using testing::Not;

const std::string kLibrary = testing_support::program_path("../lib/fake_munge/libmunge.so.2");

// A cluster whose machines have one munge key. Only one is this process's at a time.
class MungeCluster {
 public:
  MungeCluster() {
    char path[] = "/tmp/rueda-test-XXXXXX";
    folder_ = ::mkdtemp(path);
    std::ofstream(folder_ + "/key") << random_bytes(32).value();
    enter();
  }
  ~MungeCluster() {
    std::filesystem::remove_all(folder_);
    ::unsetenv("FAKE_MUNGE_FOLDER");
  }
  void enter() const { ::setenv("FAKE_MUNGE_FOLDER", folder_.c_str(), 1); }

 private:
  std::string folder_;
};

std::shared_ptr<const Munge> fake_munge() { return Munge::load(kLibrary).value(); }

TEST(Munge, IsNamedWithItsPackageWhereItIsNotThere) {
  EXPECT_THAT(Munge::load("/no/libmunge.so.2").status().message(),
              testing::AllOf(HasSubstr("libmunge2"), HasSubstr("/no/libmunge.so.2")));
  EXPECT_THAT(Munge::load("libc.so.6").status().message(), HasSubstr("libc.so.6 has no munge_"));
}

TEST(Munge, ACredentialIsDecodedOnce) {
  const MungeCluster cluster;
  const auto munge = fake_munge();
  const std::string credential = munge->encode("a key").value();
  EXPECT_THAT(credential, Not(HasSubstr("a key")));
  EXPECT_EQ(munge->decode(credential).value(), "a key");
  const Status again = munge->decode(credential).status();
  EXPECT_EQ(again.code(), Code::kPermission);
  EXPECT_THAT(again.message(), HasSubstr("Replayed credential"));
}

TEST(Munge, WithAnotherKeyOrWithoutMungedNothingIsRead) {
  const MungeCluster one;
  const auto munge = fake_munge();
  const std::string credential = munge->encode("a key").value();
  {
    const MungeCluster other;
    EXPECT_THAT(munge->decode(credential).status().message(), HasSubstr("the same munge.key"));
  }
  EXPECT_EQ(munge->decode(credential).status().code(), Code::kUnavailable);
  EXPECT_THAT(munge->encode("a key").status().message(), HasSubstr("is munged running"));
  EXPECT_THAT(RendezvousAuth::with_munge(munge).check().message(),
              testing::AllOf(HasSubstr("--rdzv-auth munge"), HasSubstr("is munged running")));
  EXPECT_TRUE(RendezvousAuth().check().is_ok());
  one.enter();
  EXPECT_TRUE(RendezvousAuth::with_munge(munge).check().is_ok());
  EXPECT_EQ(munge->decode("MUNGE:00").status().code(), Code::kPermission);
}

TEST(RendezvousAuth, ACredentialIsOfOneMeeting) {
  const MungeCluster cluster;
  const RendezvousAuth auth = RendezvousAuth::with_munge(fake_munge());
  const Nonces nonces{random_bytes(kNonceBytes).value(), random_bytes(kNonceBytes).value()};
  const auto meeting = auth.begin(nonces).value();
  EXPECT_EQ(auth.key_of(nonces, meeting.credential).value(), meeting.bytes);
  EXPECT_NE(auth.begin(nonces).value().bytes, meeting.bytes);
  for (const Nonces& other : {Nonces{nonces.server, random_bytes(kNonceBytes).value()},
                              Nonces{random_bytes(kNonceBytes).value(), nonces.client},
                              Nonces{nonces.client, nonces.server}}) {
    EXPECT_THAT(auth.key_of(other, auth.begin(nonces).value().credential).status().message(),
                HasSubstr("not of this meeting"));
  }
  EXPECT_FALSE(auth.key_of(nonces, "").is_ok());
  EXPECT_FALSE(auth.key_of(nonces, std::string(100'000, 'x')).is_ok());
}

class MungeMeeting : public testing::Test {
 protected:
  MungeMeeting() : endpoint_("127.0.0.1:" + std::to_string(free_port().value())) {
    auto started = RendezvousServer::start({endpoint_, 2, "id", auth_, Meeting::kNodes,
                                            [this](const std::string& text) {
                                              const std::lock_guard lock(mutex_);
                                              said_ += text + "\n";
                                            }},
                                           {"job", std::string(32, 't'), "127.0.0.1", 1});
    EXPECT_TRUE(started.is_ok()) << started.status().message();
    server_ = std::move(started).value();
  }

  struct Visit {
    Result<JobLayout> outcome() { return met.get_future().get(); }
    std::promise<Result<JobLayout>> met;
    std::once_flag first;
    std::promise<void> came;
    std::unique_ptr<RendezvousCall> call;
  };
  std::unique_ptr<Visit> enter(int number, const RendezvousAuth& auth) {
    auto visit = std::make_unique<Visit>();
    Visit* const own = visit.get();
    const std::string node = "n" + std::to_string(number);
    visit->call = RendezvousCall::start(
        endpoint_, {number, 2, 1, node, node + ":1", "id", new_launcher().value()}, auth, 20'000,
        {[own](Result<JobLayout> found) { own->met.set_value(std::move(found)); },
         [own](const std::string&) {
           std::call_once(own->first, [own] { own->came.set_value(); });
         }});
    return visit;
  }
  std::string said() {
    const std::lock_guard lock(mutex_);
    return said_;
  }

  const MungeCluster cluster_;
  const RendezvousAuth auth_ = RendezvousAuth::with_munge(fake_munge());
  const std::string endpoint_;
  std::mutex mutex_;
  std::string said_;
  std::unique_ptr<RendezvousServer> server_;
};

TEST_F(MungeMeeting, NodesOfOneUserGetTheToken) {
  const auto zero = enter(0, auth_);
  const auto one = enter(1, auth_);
  for (Visit* visit : {zero.get(), one.get()}) {
    const Result<JobLayout> job = visit->outcome();
    ASSERT_TRUE(job.is_ok()) << job.status().message();
    EXPECT_EQ(job.value().token, std::string(32, 't'));
  }
}

TEST_F(MungeMeeting, OtherWaysToKnowEachOtherAreNamed) {
  EXPECT_THAT(enter(1, {})->outcome().status().message(),
              HasSubstr("node 0 has --rdzv-auth munge, and this node has none"));
  EXPECT_THAT(
      enter(1, RendezvousAuth::with_secret(std::string(32, 's')))->outcome().status().message(),
      HasSubstr("and this node has a secret"));
  EXPECT_EQ(server_->missing(), "0, 1");
}

TEST_F(MungeMeeting, WhoHasAnotherKeyIsRefused) {
  // The credential is made with another key, and node 0 decodes with its own.
  const MungeCluster other;
  const Nonces nonces{std::string(kNonceBytes, 's'), std::string(kNonceBytes, 'c')};
  const std::string foreign = auth_.begin(nonces).value().credential;
  cluster_.enter();
  const auto stub =
      v1::Rendezvous::NewStub(grpc::CreateChannel(endpoint_, grpc::InsecureChannelCredentials()));
  grpc::ClientContext context;
  v1::EnterRequest request;
  request.set_node_rank(1);
  request.set_nonce(nonces.client);
  request.set_credential(foreign);
  const auto stream = stub->Enter(&context, request);
  v1::EnterReply reply;
  EXPECT_FALSE(stream->Read(&reply));
  EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::PERMISSION_DENIED);
  EXPECT_THAT(said(), HasSubstr("Invalid credential"));
  EXPECT_EQ(server_->missing(), "0, 1");
}

// A request that was recorded on the way is worth nothing a second time, to node 0 as to whom its
// answer would be for.
TEST_F(MungeMeeting, ARecordedRequestIsRefused) {
  const auto stub =
      v1::Rendezvous::NewStub(grpc::CreateChannel(endpoint_, grpc::InsecureChannelCredentials()));
  v1::ChallengeReply challenge;
  grpc::ClientContext asks;
  ASSERT_TRUE(stub->Challenge(&asks, {}, &challenge).ok());
  EXPECT_TRUE(challenge.wants_munge());
  EXPECT_FALSE(challenge.wants_secret());
  const Nonces nonces{challenge.nonce(), std::string(kNonceBytes, 'c')};
  const auto meeting = auth_.begin(nonces).value();
  v1::EnterRequest request;
  request.set_node_rank(1);
  request.set_nnodes(2);
  request.set_nproc(1);
  request.set_node_id("n1");
  request.set_control_address("n1:1");
  request.set_rdzv_id("id");
  request.set_launcher(std::string(kLauncherBytes, 'l'));
  request.set_nonce(nonces.client);
  request.set_credential(meeting.credential);
  request.set_proof(prove_secret(meeting.bytes, nonces, request.SerializeAsString()));

  grpc::ClientContext first;
  const auto waits = stub->Enter(&first, request);
  v1::EnterReply reply;
  ASSERT_TRUE(waits->Read(&reply));
  EXPECT_EQ(reply.missing(), "0");
  grpc::ClientContext second;
  const auto replay = stub->Enter(&second, request);
  EXPECT_FALSE(replay->Read(&reply));
  EXPECT_THAT(replay->Finish().error_message(), HasSubstr("Replayed credential"));

  // Nor can the request be changed: the proof is under the credential's key.
  request.set_credential(auth_.begin(nonces).value().credential);
  grpc::ClientContext third;
  EXPECT_EQ(stub->Enter(&third, request)->Finish().error_code(),
            grpc::StatusCode::PERMISSION_DENIED);

  const auto zero = enter(0, auth_);
  EXPECT_TRUE(zero->outcome().is_ok());
  ASSERT_TRUE(waits->Read(&reply));
  EXPECT_EQ(reply.token(), "");
  EXPECT_THAT(reply.SerializeAsString(), Not(HasSubstr("tttt")));
}

}  // namespace
}  // namespace rueda::agent
