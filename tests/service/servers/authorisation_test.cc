// Who may call what: every method of the daemon's servers is called by every kind of caller, and
// what comes back is compared with the table (daemon/security/policy.h); and users see their own
// jobs.
#include <chrono>
#include <fstream>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <google/protobuf/descriptor.h>
#include <grpcpp/generic/generic_stub.h>

#include "daemon/security/policy.h"
#include "rueda/v1/probe.pb.h"
#include "tests/service/certificates.h"
#include "tests/service/servers/servers.h"
#include "tests/support/paths.h"

namespace rueda::service {
namespace {

using security::Action;
using security::Caller;
using security::Scope;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr uid_t kAlice = 54'321;
constexpr uid_t kBob = 54'322;
constexpr gid_t kAdmins = 54'400;

// Returns the methods of all services in the daemon's protos, and those that are written by hand.
std::set<std::string> methods_there_are() {
  std::set<std::string> names{"grpc.health.v1.Health/Check",
                              "grpc.health.v1.Health/Watch",
                              "rueda.v1.Data/Frames",
                              "GET /metrics",
                              "GET /healthz",
                              "GET /readyz"};
  for (const google::protobuf::FileDescriptor* const file :
       {v1::AgentRequest::descriptor()->file(), v1::ProbeReply::descriptor()->file(),
        v1::LinkMessage::descriptor()->file(), v1::Errand::descriptor()->file()}) {
    for (int i = 0; i < file->service_count(); ++i) {
      const google::protobuf::ServiceDescriptor* const service = file->service(i);
      // Rendezvous is served by launchers.
      if (service->name() == "Rendezvous") continue;
      for (int k = 0; k < service->method_count(); ++k) {
        names.insert(service->full_name() + "/" + service->method(k)->name());
      }
    }
  }
  return names;
}

class AuthorisationTest : public ServersTest {
 protected:
  explicit AuthorisationTest(std::shared_ptr<const rpc::Credentials> credentials = {})
      : ServersTest(kAdmins, std::move(credentials)) {}

  // Calls a method of any shape with an empty message, and breaks it off after a while.
  CallStatus call(const Way& way, std::string_view method) {
    constexpr std::chrono::milliseconds kLong{300};
    return loop_.beside([&] {
      if (!way.socket) return call_over_network(way.channel, method, kLong);
      constexpr auto kNone = static_cast<local::Method>(999);
      std::string reply;
      return local::ask_bytes(way.socket->get(), local::find_method(method).value_or(kNone), "",
                              reply, kLong);
    });
  }
  static CallStatus call_over_network(const std::shared_ptr<grpc::Channel>& channel,
                                      std::string_view method, std::chrono::milliseconds time) {
    grpc::GenericStub stub(channel);
    grpc::CompletionQueue queue;
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + time);
    context.set_initial_metadata_corked(true);  // It goes with the message.
    const auto stream = stub.PrepareCall(&context, "/" + std::string(method), &queue);
    const grpc::Slice nothing;
    grpc::Status status;
    void* const end = &status;
    stream->StartCall(nullptr);
    stream->WriteLast(grpc::ByteBuffer(&nothing, 1), {}, nullptr);
    stream->Finish(&status, end);
    void* tag = nullptr;
    bool ok = false;
    while (tag != end && queue.Next(&tag, &ok)) {
    }
    queue.Shutdown();
    while (queue.Next(&tag, &ok)) {
    }
    return from_grpc(status);
  }
  // Calls all methods, each by a way that `connect` returns, as a caller of a kind.
  void expect_as_the_table_says(const std::function<Way()>& connect, Caller::Kind kind) {
    for (const security::Rule& rule : security::rules()) {
      // Frames are on the data port, and pages on the HTTP port.
      if (rule.action == Action::kCarryFrames || rule.method.starts_with("GET ")) continue;
      const CallStatus status = call(connect(), rule.method);
      // A method that is not on the server at all is as good as refused.
      const bool is_refused =
          status.code == CallCode::kPermissionDenied || status.code == CallCode::kUnimplemented;
      const bool may = security::scope_of(rule.action, kind) != Scope::kNothing;
      EXPECT_NE(is_refused, may) << rule.method << " by caller " << static_cast<int>(kind) << ": "
                                 << status.text;
    }
  }
  std::vector<std::string> jobs_seen(const Way& way) {
    EXPECT_TRUE(ask(way, "rueda.v1.Admin/ListJobs", v1::ListJobsRequest(), reply_).is_ok());
    std::vector<std::string> names;
    for (const v1::ListJobsReply::Job& job : reply_.jobs()) names.push_back(job.job_id());
    return names;
  }

  CallStatus end(const Way& way, const std::string& job, const std::string& reason = {}) {
    v1::EndJobRequest request;
    request.set_job_id(job);
    request.set_reason(reason);
    return ask(way, "rueda.v1.Admin/EndJob", request, ended_);
  }

  v1::ListJobsReply reply_;
  v1::EndJobReply ended_;
};

TEST(AuthorisationTable, HasEveryMethodOnce) {
  std::set<std::string> named;
  for (const security::Rule& rule : security::rules()) {
    EXPECT_TRUE(named.emplace(rule.method).second) << rule.method;
  }
  EXPECT_EQ(named, methods_there_are());
}

TEST(AuthorisationTable, IsThatOfTheDocumentation) {
  std::ifstream file(testing_support::source_path("docs/operations.md"));
  std::set<std::string> written;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("| `rueda.v1.") || line.starts_with("| `grpc.health.") ||
        line.starts_with("| `GET /"))
      written.insert(line);
  }
  std::set<std::string> wanted;
  for (const security::Rule& rule : security::rules()) {
    std::string line = "| `" + std::string(rule.method) + "` |";
    for (const Scope scope : rule.scopes) {
      line += scope == Scope::kNothing ? " - |" : scope == Scope::kOwn ? " own |" : " all |";
    }
    wanted.insert(line);
  }
  EXPECT_EQ(written, wanted);
}

TEST(AuthorisationTable, OfAnUnknownConnectionNothingButHealthIsAnswered) {
  for (const security::Rule& rule : security::rules()) {
    const Status may = security::check(rule.action, {});
    const bool is_of_health = rule.method.starts_with("grpc.health") ||
                              rule.method == "GET /healthz" || rule.method == "GET /readyz";
    EXPECT_EQ(may.is_ok(), is_of_health) << rule.method;
  }
}

TEST_F(AuthorisationTest, EveryCallerIsAnsweredAsTheTableSays) {
  expect_as_the_table_says([this] { return network(); }, Caller::Kind::kNetwork);
  expect_as_the_table_says([this] { return local(kAlice); }, Caller::Kind::kUser);
  expect_as_the_table_says([this] { return local(kAlice, kAdmins); }, Caller::Kind::kOperator);
}

class LoopbackTest : public AuthorisationTest {
 protected:
  LoopbackTest() : AuthorisationTest(std::make_shared<rpc::Credentials>(Caller::Kind::kMachine)) {}
};

TEST_F(LoopbackTest, WhoeverIsOnTheMachineIsAnsweredAsTheTableSays) {
  expect_as_the_table_says([this] { return network(); }, Caller::Kind::kMachine);
}

class BearersTest : public AuthorisationTest {
 protected:
  explicit BearersTest(
      std::shared_ptr<testing::Authority> authority = std::make_shared<testing::Authority>())
      : AuthorisationTest(authority->credentials(authority->issue(security::Role::kNode, "n0"))),
        authority_(std::move(authority)) {}

  const std::shared_ptr<testing::Authority> authority_;
};

TEST_F(BearersTest, AreAnsweredAsTheTableSays) {
  for (const security::Role role :
       {security::Role::kNode, security::Role::kMetrics, security::Role::kOperator}) {
    const auto channel = authority_->channel(address_, authority_->issue(role, "x"));
    // A handshake may take longer than a call may.
    ASSERT_TRUE(loop_.beside([&] {
      return channel->WaitForConnected(std::chrono::system_clock::now() + std::chrono::seconds(20));
    }));
    expect_as_the_table_says([&] { return channel; }, security::kind_of(role));
  }
  expect_as_the_table_says([this] { return local(kAlice); }, Caller::Kind::kUser);
  for (const auto& nobody : {network(), authority_->channel(address_)}) {
    EXPECT_EQ(call(nobody, "grpc.health.v1.Health/Check").code, CallCode::kUnavailable);
  }
}

TEST_F(AuthorisationTest, UsersSeeTheirOwnJobsAndOperatorsAll) {
  Launcher of_alice(loop_, local(kAlice));
  of_alice.ask_for(spec("alice"));
  ASSERT_TRUE(of_alice.next().has_registered());
  Launcher of_bob(loop_, local(kBob));
  of_bob.ask_for(spec("bob"));
  ASSERT_TRUE(of_bob.next().has_registered());

  EXPECT_THAT(jobs_seen(local(kAlice)), ElementsAre("alice"));
  EXPECT_EQ(reply_.jobs_of_others(), 1);
  EXPECT_THAT(jobs_seen(local(kBob)), ElementsAre("bob"));
  EXPECT_THAT(jobs_seen(local(kBob + 1)), IsEmpty());
  EXPECT_EQ(reply_.jobs_of_others(), 2);
  for (const Way& way : {local(0), local(::geteuid()), local(kBob + 1, kAdmins), Way(network())}) {
    EXPECT_THAT(jobs_seen(way), ElementsAre("alice", "bob"));
    EXPECT_EQ(reply_.jobs_of_others(), 0);
  }
}

// In containers everybody may be user 0.
TEST_F(AuthorisationTest, WhoComesByANamedSocketSeesItsOwnJobsWhateverItsUser) {
  const auto at = [this](const std::string& name, uid_t uid) {
    return local(session::Credentials{::getpid(), uid, 0, Principal::named(name)});
  };
  Launcher of_team(loop_, at("team-a", 0));
  of_team.ask_for(spec("a"));
  ASSERT_TRUE(of_team.next().has_registered());
  Launcher of_others(loop_, at("team-b", 0));
  of_others.ask_for(spec("b"));
  ASSERT_TRUE(of_others.next().has_registered());
  expect_as_the_table_says([&] { return at("team-a", 0); }, Caller::Kind::kUser);

  EXPECT_THAT(jobs_seen(at("team-a", 0)), ElementsAre("a"));
  EXPECT_THAT(jobs_seen(at("team-a", kAlice)), ElementsAre("a"));
  EXPECT_THAT(jobs_seen(at("team-b", 0)), ElementsAre("b"));
  EXPECT_THAT(jobs_seen(local(kAlice)), IsEmpty());
  EXPECT_THAT(jobs_seen(local(0)), ElementsAre("a", "b"));
}

// An operator of the group is not the user whose launcher would write the file.
TEST_F(AuthorisationTest, ATimelineIsWrittenForItsOwnerAndRootAlone) {
  Launcher of_alice(loop_, local(kAlice));
  of_alice.ask_for(spec("alice"));
  ASSERT_TRUE(of_alice.next().has_registered());
  v1::RequestTimelineRequest request;
  request.set_job_id("alice");
  request.mutable_timeline()->set_begins(true);
  request.mutable_timeline()->set_path("/tmp/timeline.json");
  const auto text_for = [&](const Way& way) {
    v1::RequestTimelineReply reply;
    return ask(way, "rueda.v1.Admin/RequestTimeline", request, reply).text;
  };
  const session::Credentials in_a_container{::getpid(), 0, 0, Principal::named("team-a")};
  for (const Way& way : {local(kBob), local(kBob, kAdmins), local(in_a_container)}) {
    EXPECT_THAT(text_for(way), HasSubstr("belongs to user 54321"));
  }
  for (const Way& way : {local(kAlice), local(0)}) {
    EXPECT_THAT(text_for(way), ::testing::Not(HasSubstr("belongs to user")));
  }
}

TEST_F(AuthorisationTest, AJobIsEndedByItsOwnerAndOperators) {
  Launcher of_alice(loop_, local(kAlice));
  of_alice.ask_for(spec("alice"));
  ASSERT_TRUE(of_alice.next().has_registered());
  Launcher of_bob(loop_, local(kBob));
  of_bob.ask_for(spec("bob"));
  ASSERT_TRUE(of_bob.next().has_registered());

  // Whether there is a job of that name is not for everybody to know.
  const CallStatus of_another = end(local(kBob), "alice");
  EXPECT_EQ(of_another.code, CallCode::kNotFound);
  EXPECT_EQ(of_another.text,
            "no job alice that you may end is registered on node n0; ruedactl jobs says which are "
            "there");
  EXPECT_EQ(end(local(kBob), "alicf").text,
            "no job alicf that you may end is registered on node n0; ruedactl jobs says which are "
            "there");
  const CallStatus from_afar = end(network(), "alice");
  EXPECT_EQ(from_afar.code, CallCode::kPermissionDenied);
  EXPECT_THAT(from_afar.text, HasSubstr("operator's certificate"));

  ASSERT_TRUE(end(local(kAlice), "alice", "a typing error\n\x1b[2J").is_ok());
  const std::string text = "the job was ended by user 54321 on node n0: a typing error\\n\\x1b[2J";
  EXPECT_EQ(ended_.job_id(), "alice");
  EXPECT_EQ(ended_.nodes(), 1);
  EXPECT_EQ(ended_.text(), text);
  const v1::AgentEvent told = of_alice.next();
  EXPECT_TRUE(told.failed().is_by_request());
  EXPECT_EQ(told.failed().text(), text);
  EXPECT_EQ(told.failed().origin_node(), "n0");
  const CallStatus twice = end(local(kAlice), "alice");
  EXPECT_EQ(twice.code, CallCode::kFailedPrecondition);
  EXPECT_EQ(twice.text, "job alice is over already: " + text);

  ASSERT_TRUE(end(local(kAlice, kAdmins), "bob").is_ok());
  EXPECT_EQ(of_bob.next().failed().text(), "the job was ended by user 54321 on node n0");
}

TEST_F(BearersTest, AnOperatorFromAfarEndsAJobAndIsNamed) {
  Launcher of_alice(loop_, local(kAlice));
  of_alice.ask_for(spec("alice"));
  ASSERT_TRUE(of_alice.next().has_registered());
  const auto node = authority_->channel(address_, authority_->issue(security::Role::kNode, "n1"));
  EXPECT_EQ(end(node, "alice").code, CallCode::kPermissionDenied);
  const auto ada =
      authority_->channel(address_, authority_->issue(security::Role::kOperator, "ada"));
  ASSERT_TRUE(end(ada, "alice", "maintenance").is_ok());
  EXPECT_EQ(of_alice.next().failed().text(),
            "the job was ended by operator ada on node n0: maintenance");
}

}  // namespace
}  // namespace rueda::service
