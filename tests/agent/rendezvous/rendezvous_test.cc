#include "agent/rendezvous/rendezvous.h"

#include <atomic>
#include <future>
#include <memory>
#include <mutex>

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "agent/base/network.h"
#include "agent/base/text.h"
#include "agent/rendezvous/rendezvous_gate.h"
#include "agent/rendezvous/rendezvous_secret.h"

namespace rueda::agent {
namespace {

using testing::HasSubstr;

const std::string kSecret(32, 's');

RendezvousAuth auth_by(const std::string& secret) {
  return secret.empty() ? RendezvousAuth() : RendezvousAuth::with_secret(secret);
}

// Holds what nodes are told at one rendezvous of two nodes.
class Place {
 public:
  explicit Place(const std::string& secret = "", const std::string& host = "127.0.0.1")
      : Place(auth_by(secret), host) {}
  explicit Place(RendezvousAuth auth, const std::string& host = "127.0.0.1")
      : port(free_port().value()) {
    auto started = RendezvousServer::start(
        {join_host_port(host, port), 2, "id", std::move(auth), Meeting::kNodes,
         [this](const std::string& text) {
           const std::lock_guard lock(mutex);
           notes += text + "\n";
         }},
        {"job", std::string(32, 't'), "127.0.0.1", 1});
    EXPECT_TRUE(started.is_ok()) << started.status().message();
    if (started.is_ok()) server = std::move(started).value();
  }
  std::string said() {
    const std::lock_guard lock(mutex);
    return notes;
  }

  const int port;
  std::mutex mutex;
  std::string notes;
  std::unique_ptr<RendezvousServer> server;
};

class Node {
 public:
  Node(const Place& place, int number, const std::string& secret = "")
      : Node(place, number, auth_by(secret)) {}
  Node(const Place& place, int number, const RendezvousAuth& auth) {
    const std::string name = "n" + std::to_string(number);
    call = RendezvousCall::start(
        place.server->local_endpoint(),
        {number, 2, 1, name, name + ":1", "id", new_launcher().value(), false, 0, 0, true}, auth,
        20'000,
        {[this](Result<JobLayout> found) { met.set_value(found); },
         [this](const std::string&) { std::call_once(first, [this] { came.set_value(); }); }});
  }
  Result<JobLayout> outcome() { return met.get_future().get(); }

  std::promise<Result<JobLayout>> met;
  std::once_flag first;
  std::promise<void> came;
  std::unique_ptr<RendezvousCall> call;
};

TEST(RendezvousMeeting, NodesWithTheSecretGetTheToken) {
  Place place(kSecret);
  Node zero(place, 0, kSecret);
  zero.came.get_future().wait();
  Node one(place, 1, kSecret);
  for (Node* node : {&zero, &one}) {
    const Result<JobLayout> job = node->outcome();
    ASSERT_TRUE(job.is_ok()) << job.status().message();
    EXPECT_EQ(job.value().token, std::string(32, 't'));
    EXPECT_EQ(job.value().nodes.size(), 2u);
    EXPECT_TRUE(job.value().has_certificates) << "both daemons await one";
  }
}

TEST(RendezvousMeeting, WhoDoesNotKnowTheSecretIsRefusedAndTold) {
  Place place(kSecret);
  Node liar(place, 1, std::string(32, 'x'));
  const Status status = liar.outcome().status();
  EXPECT_EQ(status.code(), Code::kPermission);
  EXPECT_THAT(status.message(), HasSubstr("--rdzv-secret-file"));
  EXPECT_EQ(place.server->missing(), "0, 1");
  EXPECT_THAT(place.said(), HasSubstr("refused who came as node 1 from 127.0.0.1"));
  EXPECT_THAT(place.server->last_refusal(), HasSubstr("secret"));

  Node without(place, 1);
  EXPECT_THAT(without.outcome().status().message(), HasSubstr("this node has none"));
  Place open;
  Node with(open, 1, kSecret);
  EXPECT_THAT(with.outcome().status().message(), HasSubstr("node 0 has no secret"));
}

TEST(RendezvousMeeting, TheFirstOneOfANumberWins) {
  for (const std::string& secret : {std::string(), kSecret}) {
    Place place(secret);
    Node first(place, 1, secret);
    first.came.get_future().wait();
    Node second(place, 1, secret);
    EXPECT_THAT(second.outcome().status().message(), HasSubstr("two nodes say --node-rank 1"));
    Node zero(place, 0, secret);
    EXPECT_TRUE(zero.outcome().is_ok());
    EXPECT_TRUE(first.outcome().is_ok());
    EXPECT_THAT(place.said(), HasSubstr("refused who came as node 1"));
  }
}

// Each coming leaves a connection, which costs as much as a stranger's.
TEST(RendezvousMeeting, NobodyComesWithoutEnd) {
  Place place;
  const Arrival again{1, 2, 1, "n1", "n1:1", "id", new_launcher().value()};
  std::vector<std::unique_ptr<RendezvousCall>> calls;
  std::promise<Status> refused;
  std::once_flag once;
  std::atomic<int> came = 0;
  for (int i = 0; i < 40; ++i) {
    std::promise<void> answered;
    auto told = std::make_shared<std::once_flag>();
    const auto answer = [&answered, told] { std::call_once(*told, [&] { answered.set_value(); }); };
    calls.push_back(
        RendezvousCall::start(place.server->local_endpoint(), again, {}, 20'000,
                              {[&, answer](const Result<JobLayout>& found) {
                                 if (found.status().code() == Code::kInvalidArgument) {
                                   std::call_once(once, [&] { refused.set_value(found.status()); });
                                   answer();
                                 }
                               },
                               [&, answer](const std::string&) {
                                 ++came;
                                 answer();
                               }}));
    answered.get_future().wait();
  }
  EXPECT_EQ(came, 32);
  EXPECT_THAT(refused.get_future().get().message(), HasSubstr("has come 32 times already"));
}

TEST(RendezvousMeeting, WhoWaitsIsToldTheEnd) {
  Place place;
  Node one(place, 1);
  one.came.get_future().wait();
  place.server->give_up("node rank 0 did not come");
  const Status status = one.outcome().status();
  EXPECT_EQ(status.code(), Code::kShutDown);
  EXPECT_EQ(status.message(), "node rank 0 did not come");
}

// --- A new launcher of node 0 --------------------------------------------------------------------

// A rendezvous of an elastic job of two nodes of three, or of all three.
class ElasticPlace {
 public:
  ElasticPlace(std::string name, int min_nodes, std::string secret = kSecret)
      : min_nodes_(min_nodes), secret_(std::move(secret)), name_(std::move(name)) {
    auto started =
        RendezvousServer::start({"127.0.0.1:" + std::to_string(free_port().value()),
                                 3,
                                 "id",
                                 auth_by(secret_),
                                 Meeting::kNodes,
                                 {},
                                 min_nodes_,
                                 true},
                                {name_, std::string(32, name_.back()), name_ + ".host", 7});
    EXPECT_TRUE(started.is_ok()) << started.status().message();
    server = std::move(started).value();
  }

  struct Visit {
    Result<JobLayout> outcome() { return met.get_future().get(); }
    std::promise<Result<JobLayout>> met;
    std::once_flag first;
    std::promise<void> came;
    std::promise<void> ended;
    std::unique_ptr<RendezvousCall> call;
  };
  std::unique_ptr<Visit> enter(int number, std::optional<JobIdentity> running = {},
                               const std::string& rdzv_id = "id") {
    auto visit = std::make_unique<Visit>();
    Visit* const own = visit.get();
    const std::string node = "n" + std::to_string(number);
    Arrival arrival{number, 3, 1, node, node + ":1", rdzv_id, new_launcher().value()};
    arrival.min_nodes = min_nodes_;
    arrival.awaits_certificate = true;
    visit->call = RendezvousCall::start(
        server->local_endpoint(), arrival, auth_by(secret_), 20'000,
        {[own](Result<JobLayout> found) { own->met.set_value(std::move(found)); },
         [own](const std::string&) {
           std::call_once(own->first, [own] { own->came.set_value(); });
         },
         [own] { own->ended.set_value(); }},
        std::move(running));
    return visit;
  }

  std::unique_ptr<RendezvousServer> server;

 private:
  const int min_nodes_;
  const std::string secret_;
  const std::string name_;
};

const JobIdentity kRuns{"old", std::string(32, 'o'), "old.host", 9, true};

TEST(RendezvousTakingUp, WhoHasMetHearsThatNode0IsGone) {
  ElasticPlace place("new", 2);
  const auto zero = place.enter(0);
  const auto one = place.enter(1);
  EXPECT_EQ(one->outcome().value().job_id, "new");
  place.server.reset();
  one->ended.get_future().wait();
}

TEST(RendezvousTakingUp, TheJobThatRunsIsToldToNode0AndToWhomWaitsThere) {
  ElasticPlace place("new", 3);
  const auto zero = place.enter(0);
  const auto two = place.enter(2);
  zero->came.get_future().wait();
  two->came.get_future().wait();
  const auto one = place.enter(1, kRuns);
  for (const auto& [visit, node] : {std::pair{zero.get(), "n0"}, std::pair{two.get(), "n2"}}) {
    const Result<JobLayout> job = visit->outcome();
    ASSERT_TRUE(job.is_ok()) << job.status().message();
    EXPECT_EQ(job.value().job_id, "old");
    EXPECT_EQ(job.value().token, std::string(32, 'o'));
    EXPECT_EQ(job.value().master_addr, "old.host");
    EXPECT_EQ(job.value().master_port, 9);
    EXPECT_TRUE(job.value().has_certificates);
    ASSERT_EQ(job.value().nodes.size(), 1u);
    EXPECT_EQ(job.value().nodes[0].node_id, node);
    EXPECT_THAT(job.value().contacts, testing::Contains("n1:1"));
  }
  EXPECT_TRUE(one->outcome().is_ok());
}

// Its nodes would not be linked with by one that has a certificate.
TEST(RendezvousTakingUp, AJobWithoutCertificatesStaysWithoutThem) {
  ElasticPlace place("new", 3);
  const auto zero = place.enter(0);
  zero->came.get_future().wait();
  JobIdentity runs = kRuns;
  runs.has_certificates = false;
  const auto one = place.enter(1, runs);
  EXPECT_FALSE(zero->outcome().value().has_certificates);
  EXPECT_FALSE(one->outcome().value().has_certificates);
}

TEST(RendezvousTakingUp, OfTwoWithOneNumberTheOneWhoseRanksRunIsRight) {
  ElasticPlace place("new", 3);
  const auto second = place.enter(1);
  second->came.get_future().wait();
  const auto one = place.enter(1, kRuns);
  EXPECT_TRUE(one->outcome().is_ok());
  EXPECT_THAT(second->outcome().status().message(), HasSubstr("is still there: end it first"));
  EXPECT_EQ(place.enter(0)->outcome().value().job_id, "old");
}

TEST(RendezvousTakingUp, AnotherJobThatHasBegunIsNotTurnedIntoIt) {
  ElasticPlace place("new", 1);
  const auto zero = place.enter(0);
  EXPECT_EQ(zero->outcome().value().job_id, "new");
  const Status refused = place.enter(1, kRuns)->outcome().status();
  EXPECT_EQ(refused.code(), Code::kInvalidArgument);
  EXPECT_THAT(refused.message(), HasSubstr("has begun another job than old"));
  EXPECT_EQ(place.enter(2)->outcome().value().job_id, "new");
}

TEST(RendezvousTakingUp, AJobOfAnotherIdIsNot) {
  ElasticPlace place("new", 3);
  const Status refused = place.enter(1, kRuns, "other")->outcome().status();
  EXPECT_THAT(refused.message(), HasSubstr("another --rdzv-id"));
  EXPECT_EQ(place.server->missing(), "0, 1, 2");
}

TEST(RendezvousTakingUp, WithoutASecretNobodysWordIsTaken) {
  ElasticPlace place("new", 3, "");
  const Status refused = place.enter(1, kRuns)->outcome().status();
  EXPECT_THAT(refused.message(), HasSubstr("with a secret alone"));
}

UniqueFd connect_to(const std::string& host, int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  ::inet_pton(AF_INET, host.c_str(), &address.sin_addr);
  UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (::connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) fd.reset();
  return fd;
}

TEST(RendezvousMeeting, AFloodOfIdleConnectionsKeepsNobodyOut) {
  Place place;
  Node zero(place, 0);
  zero.came.get_future().wait();
  std::vector<UniqueFd> flood;
  for (int i = 0; i < 300; ++i) {
    flood.push_back(connect_to("127.0.0.1", place.port));
    ASSERT_GE(flood.back().get(), 0) << i;
  }
  Node one(place, 1);
  EXPECT_TRUE(one.outcome().is_ok());
  EXPECT_TRUE(zero.outcome().is_ok());
  // All but kMaxRendezvousStrangers were closed to make room.
  for (size_t i = 0; i < flood.size() - RendezvousGate::kMaxRendezvousStrangers; ++i) {
    pollfd ended{.fd = flood[i].get(), .events = POLLRDHUP, .revents = 0};
    EXPECT_EQ(::poll(&ended, 1, 20'000), 1) << i;
  }
}

TEST(RendezvousMeeting, ListensOnlyAtTheAddressThatTheEndpointNames) {
  Place place("", "127.0.0.2");
  EXPECT_GE(connect_to("127.0.0.2", place.port).get(), 0);
  EXPECT_LT(connect_to("127.0.0.1", place.port).get(), 0);
  // 192.0.2.1 belongs to no machine, so the endpoint stands for an address that somebody forwards
  // to this one.
  Place forwarded("", "192.0.2.1");
  EXPECT_GE(connect_to("127.0.0.1", forwarded.port).get(), 0);
}

TEST(RendezvousSecret, ASealedTokenCannotBeReadOrChanged) {
  const Nonces nonces{random_bytes(kNonceBytes).value(), random_bytes(kNonceBytes).value()};
  const std::string sealed = seal(kSecret, nonces, "token", "layout").value();
  EXPECT_EQ(unseal(kSecret, nonces, sealed, "layout").value(), "token");
  EXPECT_EQ(sealed.find("token"), std::string::npos);
  EXPECT_FALSE(unseal(std::string(32, 'x'), nonces, sealed, "layout").is_ok());
  EXPECT_FALSE(unseal(kSecret, {nonces.client, nonces.server}, sealed, "layout").is_ok());
  EXPECT_FALSE(unseal(kSecret, nonces, sealed, "another layout").is_ok());
  EXPECT_FALSE(unseal(kSecret, nonces, sealed.substr(0, 20), "layout").is_ok());
  for (size_t i = 0; i < sealed.size(); ++i) {
    std::string changed = sealed;
    changed[i] = static_cast<char>(changed[i] ^ 1);
    EXPECT_FALSE(unseal(kSecret, nonces, changed, "layout").is_ok()) << i;
  }
}

TEST(RendezvousSecret, AProofIsOfOneRequestAndOneMeeting) {
  const Nonces nonces{std::string(kNonceBytes, 'a'), std::string(kNonceBytes, 'b')};
  const std::string proof = prove_secret(kSecret, nonces, "request");
  EXPECT_TRUE(is_same_proof(proof, prove_secret(kSecret, nonces, "request")));
  EXPECT_FALSE(is_same_proof(proof, prove_secret(kSecret, nonces, "other")));
  EXPECT_FALSE(is_same_proof(proof, prove_secret(std::string(32, 'x'), nonces, "request")));
  EXPECT_FALSE(
      is_same_proof(proof, prove_secret(kSecret, {nonces.client, nonces.server}, "request")));
  EXPECT_FALSE(is_same_proof(proof, ""));
}

TEST(RendezvousSecret, OneThatIsTooShortOrNotThereIsNamed) {
  EXPECT_THAT(read_secret("/no/where").status().message(),
              HasSubstr("--rdzv-secret-file /no/where"));
  EXPECT_THAT(check_secret("short", "$X").message(), HasSubstr("$X has 5 bytes"));
  EXPECT_TRUE(check_secret(kSecret, "$X").is_ok());
}

}  // namespace
}  // namespace rueda::agent
