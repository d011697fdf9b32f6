// Tests who may register and attach, who may not, and what they are told.
#include <gtest/gtest.h>
#include <unistd.h>

#include "daemon/base/rank_token.h"
#include "daemon/engine/ports/proof.h"
#include "tests/engine/cluster.h"

namespace rueda::engine {
namespace {

using testing::Cluster;
using testing::FakeSession;

class EngineAttach : public ::testing::Test {
 protected:
  EngineAttach() { cluster_.register_everywhere("job"); }

  // Returns what a process is told that attaches to node `node` like this.
  Status try_to_attach(int node, const session::Attach& attach) {
    FakeSession session(attach);
    const Status status = cluster_.engine(node).on_attach(session);
    EXPECT_FALSE(status.is_ok());
    return status;
  }

  Cluster cluster_{{{2, 2}}};
};

TEST_F(EngineAttach, AnUnknownJob) {
  const Status status = try_to_attach(0, cluster_.attach_of("nope", Rank{0}));
  EXPECT_EQ(status.code(), Code::kNotFound);
  EXPECT_EQ(status.message(),
            "no job nope is registered on node n0; start the program with ruedarun");
}

TEST_F(EngineAttach, AWrongToken) {
  session::Attach attach = cluster_.attach_of("job", Rank{0});
  attach.token.back() = static_cast<char>(attach.token.back() ^ 1);
  const Status status = try_to_attach(0, attach);
  EXPECT_EQ(status.code(), Code::kPermission);
  EXPECT_EQ(status.message(),
            "process 1000 has the wrong token for rank 0 of job job: leave the token and RANK as "
            "the launcher has set them");
}

TEST_F(EngineAttach, ARanksTokenIsOfNoOtherRankAndNoOtherJob) {
  cluster_.register_everywhere("other");
  session::Attach attach = cluster_.attach_of("job", Rank{0});
  for (const std::string& wrong : {cluster_.attach_of("job", Rank{1}).token,
                                   cluster_.attach_of("other", Rank{0}).token, Cluster::token()}) {
    attach.token = wrong;
    EXPECT_EQ(try_to_attach(0, attach).code(), Code::kPermission);
  }
}

TEST_F(EngineAttach, AnotherUser) {
  session::Attach attach = cluster_.attach_of("job", Rank{0});
  attach.peer.principal = Principal::user(::getuid() + 77);
  const Status status = try_to_attach(0, attach);
  EXPECT_EQ(status.code(), Code::kPermission);
  EXPECT_EQ(status.message(), "job job belongs to user " + std::to_string(::getuid()) +
                                  ", and process 1000 is user " + std::to_string(::getuid() + 77) +
                                  "'s: run it as the user who has started the job, and with "
                                  "RUEDA_SOCKET as ruedarun has set it");
}

// Containers of one namespace may run as different users, and those of two namespaces as one.
TEST_F(EngineAttach, AtNamedSocketsThePrincipalCountsAndNotTheUser) {
  JobSpec spec = cluster_.spec("theirs", 0);
  spec.owner = Principal::named("team-a");
  ASSERT_TRUE(cluster_.register_on(0, spec).is_ok());
  session::Attach attach = cluster_.attach_of("theirs", Rank{0});
  EXPECT_NE(try_to_attach(0, attach).message().find("belongs to principal team-a"),
            std::string::npos)
      << "the same user at a socket without a name";
  attach.peer.principal = Principal::named("team-b");
  EXPECT_EQ(try_to_attach(0, attach).code(), Code::kPermission);
  attach.peer.uid += 1;
  attach.peer.principal = Principal::named("team-a");
  FakeSession session(attach);
  const Status known = cluster_.engine(0).on_attach(session);
  EXPECT_TRUE(known.is_ok()) << known.message();
  cluster_.engine(0).on_detached(session);
}

TEST_F(EngineAttach, ANameBelongsToThePrincipalThatHadItFirst) {
  JobSpec spec = cluster_.spec("job", 0);
  spec.owner = Principal::named("team-a");
  const Status refused = cluster_.register_on(0, spec);
  EXPECT_EQ(refused.code(), Code::kInvalidArgument);
  EXPECT_NE(refused.message().find("this one is user " + std::to_string(::getuid()) + "'s"),
            std::string::npos)
      << refused.message();
}

TEST_F(EngineAttach, ARankThatLivesElsewhere) {
  const Status status = try_to_attach(1, cluster_.attach_of("job", Rank{0}));
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_EQ(status.message(),
            "local rank 0 of job job on node n1 is rank 2, not 0; check RANK and LOCAL_RANK");
}

TEST_F(EngineAttach, ALocalRankThatIsNotThere) {
  for (const int local : {2, -1, INT32_MAX, INT32_MIN}) {
    session::Attach attach = cluster_.attach_of("job", Rank{0});
    attach.local_rank = LocalRank{local};
    const Status status = try_to_attach(0, attach);
    EXPECT_EQ(status.code(), Code::kInvalidArgument);
    EXPECT_EQ(status.message(),
              "job job has local ranks 0 to 1 on this node, not " + std::to_string(local));
  }
}

constexpr const char* kTwice = "rank 0 of job job is attached already; start each rank once";

TEST_F(EngineAttach, ARankTwice) {
  ASSERT_TRUE(cluster_.attach("job", Rank{0}));
  cluster_.settle();
  EXPECT_EQ(try_to_attach(0, cluster_.attach_of("job", Rank{0})).message(), kTwice);
}

// The second attach may come before the core has heard of the first.
TEST_F(EngineAttach, ARankTwiceInOneTurn) {
  ASSERT_TRUE(cluster_.attach("job", Rank{0}));
  EXPECT_EQ(try_to_attach(0, cluster_.attach_of("job", Rank{0})).message(), kTwice);
  EXPECT_EQ(cluster_.engine(0).clients(), 1);
}

TEST_F(EngineAttach, ARankTwiceInARunningJob) {
  ASSERT_EQ(cluster_.start("job").size(), 4u);
  EXPECT_EQ(try_to_attach(0, cluster_.attach_of("job", Rank{0})).message(), kTwice);
}

TEST_F(EngineAttach, AThirdWhileTheFirstIsLeaving) {
  const auto sessions = cluster_.start("job");
  ASSERT_EQ(sessions.size(), 4u);
  cluster_.detach(*sessions[0]);
  ASSERT_TRUE(cluster_.attach("job", Rank{0}));
  EXPECT_EQ(try_to_attach(0, cluster_.attach_of("job", Rank{0})).message(), kTwice);
}

TEST_F(EngineAttach, AJobThatIsOver) {
  const auto sessions = cluster_.start("job");
  ASSERT_EQ(sessions.size(), 4u);
  cluster_.lose(*sessions[1], "fell");
  const Status status = try_to_attach(0, cluster_.attach_of("job", Rank{1}));
  EXPECT_EQ(status.code(), Code::kRankLost);
  EXPECT_EQ(status.message(), "job job is over: rank 1 fell");
  EXPECT_EQ(status.origin(), (Origin{"n0", Rank{1}}));
}

TEST_F(EngineAttach, AJobThatIsOverWhileTheRankIsLeaving) {
  const auto sessions = cluster_.start("job");
  ASSERT_EQ(sessions.size(), 4u);
  cluster_.lose(*sessions[1], "fell");
  ASSERT_TRUE(cluster_.run_until([&] { return !sessions[0]->failures.empty(); }));
  cluster_.detach(*sessions[0]);
  EXPECT_EQ(try_to_attach(0, cluster_.attach_of("job", Rank{0})).message(),
            "job job is over: rank 1 fell");
}

TEST_F(EngineAttach, AJobThatIsBeingClosed) {
  const auto sessions = cluster_.start("job");
  ASSERT_EQ(sessions.size(), 4u);
  cluster_.detach(*sessions[0]);
  cluster_.engine(0).close_job(cluster_.handle(0, "job"));
  const Status status = try_to_attach(0, cluster_.attach_of("job", Rank{0}));
  EXPECT_EQ(status.code(), Code::kShutDown);
  EXPECT_EQ(status.message(), "job job has been closed");
}

TEST_F(EngineAttach, ARegistrationOfAJobThatRuns) {
  const Status status = cluster_.register_on(0, cluster_.spec("job", 0), {});
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_EQ(status.message(),
            "job job is registered on node n0 already; a job id names one job at a time");
}

// The data plane once knew a job by the FNV-1a hash of its name, and these two have the same. Two
// jobs of one key would open each other's channels.
TEST_F(EngineAttach, JobsWhoseNamesHaveTheSameHashRunBesideEachOther) {
  Engine& engine = cluster_.engine(0);
  for (const char* name : {"gUw2H-Ur0MMU73", "kQCEL.ujWLZ5-8"}) {
    EXPECT_TRUE(engine.register_job(cluster_.spec(name, 0), {}).is_ok());
  }
  EXPECT_NE(make_job_key(Cluster::token(), "gUw2H-Ur0MMU73"),
            make_job_key(Cluster::token(), "kQCEL.ujWLZ5-8"));
}

TEST_F(EngineAttach, ASharedJobLastsUntilItsLastLauncherGoes) {
  JobSpec spec = cluster_.spec("shared", 0);
  spec.is_shared = true;
  Engine& engine = cluster_.engine(0);
  const Result<JobHandle> first = engine.register_job(spec, {});
  const Result<JobHandle> second = engine.register_job(spec, {});
  ASSERT_TRUE(first.is_ok() && second.is_ok());
  EXPECT_EQ(engine.jobs().size(), 2u);
  // The second call has no effect, because the launcher has gone already.
  for (int i = 0; i < 2; ++i) engine.close_job(first.value());
  EXPECT_TRUE(cluster_.run_until([&] { return true; }));
  EXPECT_NE(cluster_.attach("shared", Rank{0}), nullptr);
  engine.close_job(second.value());
  EXPECT_EQ(try_to_attach(0, cluster_.attach_of("shared", Rank{1})).code(), Code::kShutDown);
}

TEST_F(EngineAttach, AJobIsSharedByThoseThatSaySo) {
  JobSpec spec = cluster_.spec("shared", 0);
  spec.is_shared = true;
  Engine& engine = cluster_.engine(0);
  EXPECT_TRUE(engine.register_job(spec, {}).is_ok());
  EXPECT_FALSE(engine.register_job(cluster_.spec("shared", 0), {}).is_ok());
  JobSpec other_token = spec;
  other_token.token.back() = static_cast<char>(other_token.token.back() ^ 1);
  EXPECT_FALSE(engine.register_job(other_token, {}).is_ok());
  JobSpec other_user = spec;
  other_user.owner = Principal::named("team-a");
  EXPECT_FALSE(engine.register_job(other_user, {}).is_ok());
  JobSpec of_one = cluster_.spec("job", 0);
  of_one.is_shared = true;
  EXPECT_FALSE(engine.register_job(of_one, {}).is_ok()) << "its launcher does not share it";
}

TEST_F(EngineAttach, ARegistrationForAnotherNode) {
  const Status status = cluster_.register_on(0, cluster_.spec("other", 1), {});
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_EQ(status.message(), "job other calls this node n1, and it is n0");
}

TEST_F(EngineAttach, ARegistrationWhileTheDaemonStops) {
  cluster_.engine(0).close_all(Status(Code::kShutDown, "stopped"), [] {});
  const Status status = cluster_.register_on(0, cluster_.spec("other", 0), {});
  EXPECT_EQ(status.code(), Code::kUnavailable);
  EXPECT_EQ(status.message(), "the daemon on node n0 is stopping");
}

// --- Messages of strangers

Envelope leave_of(int node, Rank rank) {
  Envelope envelope{"job", {}, {}};
  envelope.message = {NodeIndex{node}, Epoch{1}, 1, core::Leave{rank}};
  return envelope;
}

Envelope failure_of(int node) {
  Envelope envelope{"job", {}, {}};
  envelope.message = {NodeIndex{node}, Epoch{1}, 0,
                      core::Fail{Status(Code::kInternal, "I say so")}};
  return envelope;
}

TEST_F(EngineAttach, AJoinWithAWrongProofIsDropped) {
  int dropped_joins = 0;
  cluster_.router().filter = [&](int from, int, Envelope& envelope) {
    if (from == 1 && std::holds_alternative<core::Join>(envelope.message.body)) {
      ++dropped_joins;
      envelope.proof.value.back() = static_cast<char>(envelope.proof.value.back() ^ 1);
    }
    return true;
  };
  for (int rank = 0; rank < 4; ++rank) cluster_.attach("job", Rank{rank});
  // The node asks again and again, in vain.
  ASSERT_TRUE(cluster_.run_until([&] { return dropped_joins >= 4; }));
  EXPECT_EQ(cluster_.snapshot(0, "job").state, "forming");
  cluster_.router().filter = nullptr;
  EXPECT_TRUE(cluster_.run_until([&] { return cluster_.snapshot(0, "job").state == "running"; }));
}

// What a training process knows is not enough to act as a node of its job.
TEST_F(EngineAttach, ANodeThatKnowsARanksTokenAloneIsDropped) {
  ASSERT_TRUE(cluster_.register_on(0, cluster_.spec("stolen", 0)).is_ok());
  JobSpec spec = cluster_.spec("stolen", 1);
  spec.token = rank_token(Cluster::token(), "stolen", Rank{2});
  ASSERT_TRUE(cluster_.register_on(1, spec).is_ok());
  int joins = 0;
  cluster_.router().filter = [&](int from, int, Envelope& envelope) {
    joins += from == 1 && std::holds_alternative<core::Join>(envelope.message.body);
    return true;
  };
  for (const int rank : {0, 1}) ASSERT_NE(cluster_.attach("stolen", Rank{rank}), nullptr);
  std::vector<std::unique_ptr<FakeSession>> sessions;
  for (const int rank : {2, 3}) {
    session::Attach attach = cluster_.attach_of("stolen", Rank{rank});
    cluster_.give_token(attach, spec.token);
    sessions.push_back(std::make_unique<FakeSession>(attach));
    ASSERT_TRUE(cluster_.engine(1).on_attach(*sessions.back()).is_ok());
  }
  EXPECT_TRUE(cluster_.run_until([&] { return joins >= 4; }));
  EXPECT_EQ(cluster_.snapshot(0, "stolen").state, "forming");
  for (const auto& session : sessions) cluster_.engine(1).on_detached(*session);
}

TEST_F(EngineAttach, AStartWithAWrongProofIsDropped) {
  int starts = 0;
  cluster_.router().filter = [&](int, int, Envelope& envelope) {
    if (std::holds_alternative<core::Start>(envelope.message.body)) {
      ++starts;
      envelope.proof.value.clear();
    }
    return true;
  };
  for (int rank = 0; rank < 4; ++rank) cluster_.attach("job", Rank{rank});
  ASSERT_TRUE(cluster_.run_until([&] { return starts > 0; }));
  cluster_.settle();
  EXPECT_EQ(cluster_.snapshot(1, "job").state, "forming");
}

TEST_F(EngineAttach, AProofOfAnotherPurposeOrNodeIsDropped) {
  std::string join_proof;
  cluster_.router().filter = [&](int, int, Envelope& envelope) {
    std::string& proof = envelope.proof.value;
    if (std::holds_alternative<core::Join>(envelope.message.body)) join_proof = proof;
    if (std::holds_alternative<core::Start>(envelope.message.body)) proof = join_proof;
    return true;
  };
  for (int rank = 0; rank < 4; ++rank) cluster_.attach("job", Rank{rank});
  ASSERT_TRUE(cluster_.run_until([&] { return cluster_.snapshot(0, "job").state == "running"; }));
  cluster_.settle();
  EXPECT_EQ(cluster_.snapshot(1, "job").state, "forming");
}

// It passes on the proofs of the real one, which do not say who has sent them.
TEST_F(EngineAttach, AMemberWithAnotherNodesCertificateIsDropped) {
  std::string of_n1 = "n9";
  cluster_.router().plane(0).certificates = [&](LinkId link) { return link == 2 ? of_n1 : ""; };
  int joins = 0;
  cluster_.router().filter = [&](int from, int, Envelope& envelope) {
    joins += from == 1 && std::holds_alternative<core::Join>(envelope.message.body);
    return true;
  };
  for (int rank = 0; rank < 4; ++rank) cluster_.attach("job", Rank{rank});
  ASSERT_TRUE(cluster_.run_until([&] { return joins >= 4; }));
  EXPECT_EQ(cluster_.snapshot(0, "job").state, "forming");
  of_n1 = "n1";
  EXPECT_TRUE(cluster_.run_until([&] { return cluster_.snapshot(0, "job").state == "running"; }));
}

TEST_F(EngineAttach, ACoordinatorWithAnotherNodesCertificateIsNotBelieved) {
  cluster_.router().plane(1).certificates = [](LinkId) { return "n9"; };
  for (int rank = 0; rank < 4; ++rank) cluster_.attach("job", Rank{rank});
  ASSERT_TRUE(cluster_.run_until([&] { return cluster_.snapshot(0, "job").state == "running"; }));
  cluster_.settle();
  EXPECT_EQ(cluster_.snapshot(1, "job").state, "forming");
}

TEST_F(EngineAttach, MessagesOverAnotherLinkAreDropped) {
  const auto sessions = cluster_.start("job");
  ASSERT_EQ(sessions.size(), 4u);
  constexpr LinkId kStranger = 77;
  for (const int node : {0, 1}) {
    for (const int from : {0, 1, 2, -1, INT32_MAX}) {
      cluster_.engine(node).on_envelope(kStranger, leave_of(from, Rank{2}));
      cluster_.engine(node).on_envelope(kStranger, failure_of(from));
    }
  }
  // The link is right, but the sender's node is not at its other end.
  cluster_.engine(1).on_envelope(1, failure_of(1));
  cluster_.engine(0).on_envelope(2, failure_of(0));
  cluster_.engine(0).on_envelope(2, failure_of(-5));
  cluster_.settle();
  EXPECT_EQ(cluster_.snapshot(0, "job").state, "running");
  EXPECT_EQ(cluster_.snapshot(1, "job").state, "running");
  for (FakeSession* session : sessions) cluster_.submit(*session, "x", 3, 1);
  EXPECT_TRUE(cluster_.run_until([&] { return sessions[3]->flushed == 1; }));
}

TEST_F(EngineAttach, MessagesOfUnknownJobsAreDropped) {
  Envelope envelope = failure_of(1);
  envelope.job = "nope";
  cluster_.engine(0).on_envelope(2, envelope);
  EXPECT_EQ(cluster_.snapshot(0, "job").error, "");
}

}  // namespace
}  // namespace rueda::engine
