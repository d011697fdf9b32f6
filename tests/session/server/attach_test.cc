// Tests the socket's side of a session: greeting, attach, end.
#include <cstring>
#include <thread>

#include <fcntl.h>
#include <sys/wait.h>

#include "tests/session/raw_client.h"

namespace rueda::session {
namespace {

using ::testing::HasSubstr;

TEST_F(SessionTest, AttachSaysWhoComes) {
  start_server();
  auto client = attach(3);
  ASSERT_EQ(events_.attaches.size(), 1u);
  const Attach& attach = events_.attaches[0];
  EXPECT_EQ(attach.job, "job-1");
  EXPECT_EQ(attach.token, std::string(32, '\xab'));
  EXPECT_EQ(attach.rank, Rank(3));
  EXPECT_EQ(attach.local_rank, LocalRank(3));
  EXPECT_EQ(attach.peer.pid, ::getpid());
  EXPECT_EQ(attach.peer.uid, ::getuid());
  EXPECT_EQ(client->capacity, 16u);
  EXPECT_EQ(client->submissions.header().magic, RUEDA_ABI_MAGIC);
  EXPECT_EQ(server_->stats().sessions, 1u);
}

TEST_F(SessionTest, AbstractName) {
  path_ = "@rueda-test-" + std::to_string(::getpid());
  start_server();
  attach();
  EXPECT_EQ(events_.attaches.size(), 1u);
}

TEST_F(SessionTest, AtANamedSocketThePrincipalIsTheName) {
  more_sockets_ = {{path_ + "-a", "team-a"}, {path_ + "-b", "team-b"}};
  start_server();
  attach();
  const std::string path = std::exchange(path_, more_sockets_[0].path);
  auto of_team = attach(1);
  ASSERT_EQ(events_.attaches.size(), 2u);
  EXPECT_EQ(events_.attaches[0].peer.principal, Principal::user(::getuid()));
  EXPECT_EQ(events_.attaches[1].peer.principal, Principal::named("team-a"));
  EXPECT_EQ(events_.attaches[1].peer.uid, ::getuid());
  RawClient launcher(more_sockets_[1].path);
  launcher.send_bytes("RUDG", 4);
  pump_until([&] { return !handed_off_.empty(); }, "the hand-off");
  EXPECT_EQ(handed_off_[0].second.principal, Principal::named("team-b"));
}

TEST_F(SessionTest, WhatOnePrincipalHasLeavesTheOthersWorking) {
  quota_[Resource::kSessions] = 1;
  more_sockets_ = {{path_ + "-a", "team-a"}, {path_ + "-b", "team-b"}};
  start_server();
  attach();
  path_ = more_sockets_[0].path;
  auto first = attach(1);
  RawClient second(path_);
  second.send_attach(2);
  EXPECT_THAT(receive(second).as<rueda_abi_attach_reply>().text,
              HasSubstr("principal team-a has 1 attached processes here"));
  path_ = more_sockets_[1].path;
  auto other = attach(3);
  EXPECT_EQ(server_->stats().sessions, 2u) << "the first one has left";
}

TEST_F(SessionTest, AllSocketsVanishWithTheServer) {
  more_sockets_ = {{path_ + "-a", "team-a"}};
  start_server();
  for (const std::string& path : {path_, path_ + "-a"}) EXPECT_EQ(::access(path.c_str(), F_OK), 0);
  server_->stop();
  for (const std::string& path : {path_, path_ + "-a"}) EXPECT_NE(::access(path.c_str(), F_OK), 0);
}

TEST_F(SessionTest, ASocketThatCannotBeMadeStopsTheServerAndIsNamed) {
  ServerOptions options{{{path_, ""}, {"/no/such/folder/r.sock", "team-a"}}};
  server_ = SessionServer::create(loop_, options, events_, {});
  EXPECT_THAT(server_->listen().message(), HasSubstr("cannot listen on /no/such/folder/r.sock"));
  server_.reset();
  EXPECT_NE(::access(path_.c_str(), F_OK), 0);
}

TEST_F(SessionTest, WhatOnAttachSendsComesAfterTheReply) {
  start_server();
  events_.during_attach = [](Session& session) {
    session.started(Started{Epoch(1), Rank(3), 4, LocalRank(1), 2, NodeIndex(1), 2, "node-b"});
  };
  auto client = attach();
  RawMessage message = receive(*client);
  ASSERT_EQ(message.header.type, RUEDA_ABI_STARTED);
  auto started = message.as<rueda_abi_started>();
  EXPECT_EQ(started.epoch, 1u);
  EXPECT_EQ(started.rank, 3);
  EXPECT_EQ(started.world_size, 4);
  EXPECT_EQ(started.local_rank, 1);
  EXPECT_EQ(started.local_size, 2);
  EXPECT_EQ(started.node_index, 1);
  EXPECT_EQ(started.node_count, 2);
  EXPECT_STREQ(started.node_id, "node-b");
}

TEST_F(SessionTest, RefusedByTheEngine) {
  start_server();
  events_.attach_answer = Status(Code::kPermission, "the token of job 'job-1' is wrong");
  RawClient client(path_);
  client.send_attach();
  RawMessage message = receive(client);
  auto reply = message.as<rueda_abi_attach_reply>();
  EXPECT_EQ(reply.code, -10);
  EXPECT_STREQ(reply.text, "the token of job 'job-1' is wrong");
  EXPECT_TRUE(message.descriptors.empty());
  pump_until([&] { return client.is_closed(); }, "the end of the connection");
  EXPECT_EQ(server_->stats().rejected, 1u);
  EXPECT_EQ(server_->stats().sessions, 0u);
  EXPECT_TRUE(events_.lost.empty());
  EXPECT_EQ(events_.detached, 0);
}

TEST_F(SessionTest, AnotherVersionIsToldBothVersions) {
  start_server();
  RawClient client(path_);
  rueda_abi_header header{RUEDA_ABI_MAGIC, RUEDA_ABI_VERSION + 1, 99, 100000, 5};
  client.send_bytes(&header, sizeof(header));
  RawMessage message = receive(client);
  ASSERT_EQ(message.header.type, RUEDA_ABI_ATTACH_REPLY);
  auto reply = message.as<rueda_abi_attach_reply>();
  EXPECT_EQ(reply.code, -9);
  EXPECT_THAT(reply.text, HasSubstr("version " + std::to_string(RUEDA_ABI_VERSION + 1)));
  EXPECT_THAT(reply.text, HasSubstr("version " + std::to_string(RUEDA_ABI_VERSION)));
  EXPECT_THAT(reply.text, HasSubstr("same release"));
  pump_until([&] { return client.is_closed(); }, "the end of the connection");
}

TEST_F(SessionTest, BadAttachFieldsAreRefused) {
  start_server();
  rueda_abi_attach good{};
  std::strcpy(good.job_id, "job");
  rueda_abi_attach no_job = good;
  no_job.job_id[0] = '\0';
  rueda_abi_attach long_job = good;
  std::memset(long_job.job_id, 'j', sizeof(long_job.job_id));
  rueda_abi_attach strange_job = good;
  strange_job.job_id[1] = '/';
  rueda_abi_attach negative_rank = good;
  negative_rank.rank = -1;
  rueda_abi_attach large_local_rank = good;
  large_local_rank.local_rank = 64;
  for (const auto& body : {no_job, long_job, strange_job, negative_rank, large_local_rank}) {
    RawClient client(path_);
    client.send(RUEDA_ABI_ATTACH, &body, sizeof(body));
    EXPECT_EQ(receive(client).as<rueda_abi_attach_reply>().code, -1);
  }
  EXPECT_TRUE(events_.attaches.empty());
  EXPECT_EQ(server_->stats().rejected, 5u);
}

TEST_F(SessionTest, GarbageIsClosedAndCounted) {
  start_server();
  uint64_t expected = 0;
  for (const char* garbage :
       {"GET / HTTP/1.1\r\n\r\n", "PUT / HTTP/1.1\r\n\r\n", "R", "\x16\x03"}) {
    RawClient client(path_);
    client.send_bytes(garbage, std::strlen(garbage));
    ::shutdown(client.fd(), SHUT_WR);
    pump_until([&] { return client.is_closed(); }, garbage);
    EXPECT_EQ(server_->stats().rejected, ++expected) << garbage;
  }
  RawClient early(path_);
  early.send(RUEDA_ABI_DETACH, nullptr, 0);
  EXPECT_EQ(receive(early).as<rueda_abi_attach_reply>().code, -1);
  rueda_abi_header bad_size{RUEDA_ABI_MAGIC, RUEDA_ABI_VERSION, RUEDA_ABI_ATTACH, 4096, 0};
  RawClient sized(path_);
  sized.send_bytes(&bad_size, sizeof(bad_size));
  EXPECT_EQ(receive(sized).as<rueda_abi_attach_reply>().code, -1);
  attach();
}

TEST_F(SessionTest, SilentAndSlowConnectionsEnd) {
  start_server(16, 1);
  RawClient silent(path_);
  RawClient half_greeting(path_);
  half_greeting.send_bytes("PR", 2);
  RawClient half_header(path_);
  half_header.send_bytes("RUDA", 4);
  for (RawClient* client : {&silent, &half_greeting, &half_header}) {
    pump_until([&] { return client->is_closed(); }, "the end of a slow connection");
  }
  EXPECT_EQ(server_->stats().rejected, 3u);
}

TEST_F(SessionTest, OneUserCannotFillTheWaitingRoom) {
  start_server();
  std::vector<std::unique_ptr<RawClient>> waiting;
  for (int i = 0; i < 256; ++i) {
    waiting.push_back(std::make_unique<RawClient>(path_));
    loop_.restart();
    loop_.poll();
  }
  RawClient one_more(path_);
  pump_until([&] { return one_more.is_closed(); }, "the end of one too many");
  waiting[0]->send_attach();
  EXPECT_EQ(receive(*waiting[0]).as<rueda_abi_attach_reply>().code, 0);
  attach(1);
  EXPECT_EQ(server_->stats().rejected, 1u);
}

TEST_F(SessionTest, AttachByteByByte) {
  start_server();
  RawClient client(path_);
  struct {
    rueda_abi_header header{RUEDA_ABI_MAGIC, RUEDA_ABI_VERSION, RUEDA_ABI_ATTACH,
                            sizeof(rueda_abi_attach), 0};
    rueda_abi_attach body{};
  } message;
  std::strcpy(message.body.job_id, "slow");
  const char* bytes = reinterpret_cast<const char*>(&message);
  for (size_t i = 0; i < sizeof(message.header) + sizeof(message.body); ++i) {
    client.send_bytes(bytes + i, 1);
    loop_.restart();
    loop_.poll();
  }
  EXPECT_EQ(receive(client).as<rueda_abi_attach_reply>().code, 0);
}

TEST_F(SessionTest, CallsAreHandedOverWithNothingConsumed) {
  start_server();
  RawClient client(path_);
  const std::string frame = "RUDG\x01\x01\x02\0\0\0\0\0\0\0\0\0";
  client.send_bytes(frame.data(), 3);  // The local ABI begins like this, too.
  loop_.poll();
  client.send_bytes(frame.data() + 3, frame.size() - 3);
  pump_until([&] { return !handed_off_.empty(); }, "the hand-off");
  const int served = handed_off_[0].first.get();
  EXPECT_EQ(handed_off_[0].second.pid, ::getpid());
  std::string got(frame.size(), '\0');
  pump_until(
      [&] {
        return ::recv(served, got.data(), got.size(), MSG_DONTWAIT) ==
               static_cast<ssize_t>(got.size());
      },
      "what the client says");
  EXPECT_EQ(got, frame);
  // The answer goes back, and the last words do, too.
  got.resize(16);
  ASSERT_EQ(::send(served, "answer", 6, 0), 6);
  server_->stop();
  ASSERT_EQ(::recv(client.fd(), got.data(), got.size(), MSG_DONTWAIT), 6);
  EXPECT_TRUE(got.starts_with("answer"));
  EXPECT_TRUE(client.is_closed());
  EXPECT_EQ(server_->stats().rejected, 0u);
}

// A server that refuses what is too long does not read it all. Its reason was lost then.
TEST_F(SessionTest, WhyALongRequestIsRefusedComesThrough) {
  start_server();
  RawClient client(path_);
  client.send_bytes("RUDG", 4);
  pump_until([&] { return !handed_off_.empty(); }, "the hand-off");
  const std::string much(4 << 20, 'x');
  std::thread talks([&] { (void)!::send(client.fd(), much.data(), much.size(), MSG_NOSIGNAL); });
  for (int i = 0; i < 100; ++i) {
    loop_.restart();
    loop_.run_for(std::chrono::milliseconds(1));
  }
  ASSERT_EQ(::send(handed_off_[0].first.get(), "too long", 8, 0), 8);
  handed_off_.clear();
  std::string got(16, '\0');
  pump_until([&] { return ::recv(client.fd(), got.data(), got.size(), MSG_DONTWAIT) == 8; },
             "the reason");
  EXPECT_TRUE(got.starts_with("too long"));
  pump_until([&] { return client.is_closed(); }, "the end of the connection");
  talks.join();
}

TEST_F(SessionTest, GrpcIsRejected) {
  start_server();
  RawClient client(path_);
  const std::string preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
  client.send_bytes(preface.data(), 2);
  loop_.poll();
  client.send_bytes(preface.data() + 2, preface.size() - 2);
  pump_until([&] { return client.is_closed(); }, "the end of the connection");
  EXPECT_TRUE(handed_off_.empty());
  EXPECT_EQ(server_->stats().rejected, 1u);
}

TEST_F(SessionTest, DetachIsAnsweredAndNoLoss) {
  start_server();
  auto client = attach();
  EXPECT_EQ(request(*client, RUEDA_ABI_DETACH, nullptr, 0).code, 0);
  EXPECT_EQ(events_.detached, 1);
  pump_until([&] { return client->is_closed(); }, "the end of the connection");
  EXPECT_TRUE(events_.lost.empty());
  EXPECT_EQ(server_->stats().sessions, 0u);
}

TEST_F(SessionTest, DeathIsLost) {
  start_server();
  auto client = attach(2);
  client->close();
  pump_until_lost("rank 2 ");
  EXPECT_THAT(events_.lost[0].message(), HasSubstr("without saying goodbye"));
  EXPECT_EQ(events_.lost[0].origin().rank, Rank(2));
  EXPECT_EQ(server_->stats().sessions, 0u);
}

TEST_F(SessionTest, ALookFindsWhoHasHungUp) {
  start_server();
  auto client = attach(2);
  Session& session = *events_.sessions.at(0);
  session.look();
  EXPECT_TRUE(events_.lost.empty());
  client->close();
  session.look();
  ASSERT_EQ(events_.lost.size(), 1u);
  EXPECT_THAT(events_.lost[0].message(), HasSubstr("rank 2 "));
  EXPECT_EQ(server_->stats().sessions, 0u);
  loop_.poll();
  EXPECT_EQ(events_.lost.size(), 1u) << "it is told once";
}

TEST_F(SessionTest, ALookFindsTheGoodbyeOfWhoHasHungUp) {
  start_server();
  auto client = attach();
  client->send(RUEDA_ABI_DETACH, nullptr, 0);
  ASSERT_EQ(::shutdown(client->fd(), SHUT_WR), 0);
  Session& session = *events_.sessions.at(0);
  session.look();
  EXPECT_EQ(events_.detached, 0) << "it still listens, and has all the time it wants";
  ASSERT_EQ(::shutdown(client->fd(), SHUT_RDWR), 0);
  session.look();
  EXPECT_EQ(events_.detached, 1);
  EXPECT_TRUE(events_.lost.empty());
  EXPECT_EQ(server_->stats().sessions, 0u);
}

TEST_F(SessionTest, ALookBringsALossForwardThatIsOnItsWay) {
  start_server();
  auto client = attach();
  Session& session = *events_.sessions.at(0);
  client->close();
  session.job_failed(Status(Code::kNodeLost, "another node is lost"));  // nobody receives it
  EXPECT_TRUE(events_.lost.empty());
  session.look();
  EXPECT_EQ(events_.lost.size(), 1u);
  loop_.poll();
  EXPECT_EQ(events_.lost.size(), 1u);
}

TEST_F(SessionTest, ProtocolErrorsAfterAttach) {
  start_server();
  auto twice = attach();
  twice->send_attach();
  pump_until_lost("attached a second time");
  EXPECT_EQ(receive(*twice).header.type, RUEDA_ABI_FAILED);
  events_.lost.clear();

  auto unknown = attach();
  unknown->send(77, nullptr, 0);
  pump_until_lost("unknown type 77");
  events_.lost.clear();

  auto stranger = attach();
  stranger->send_bytes("0123456789abcdef", 16);
  pump_until_lost("no message of Rueda's");
}

TEST_F(SessionTest, ClientThatDoesNotReadIsLost) {
  start_server();
  auto client = attach();
  rueda_abi_arena body{4096, 0, 0};
  for (int i = 0; events_.lost.empty() && i < 100000; ++i) {
    // Once the client is lost the server has closed, and sending fails.
    rueda_abi_header header{RUEDA_ABI_MAGIC, RUEDA_ABI_VERSION, RUEDA_ABI_ARENA_REMOVE,
                            sizeof(body), 0};
    struct {
      rueda_abi_header header;
      rueda_abi_arena body;
    } message{header, body};
    if (::send(client->fd(), &message, sizeof(message), MSG_NOSIGNAL) < 0) break;
    loop_.restart();
    loop_.poll();
  }
  pump_until_lost("does not read");
}

TEST_F(SessionTest, JobFailedReachesTheClient) {
  start_server();
  auto client = attach();
  events_.sessions[0]->job_failed(Status(Code::kNodeLost, std::string(2000, 'n')));
  RawMessage message = receive(*client);
  ASSERT_EQ(message.header.type, RUEDA_ABI_FAILED);
  auto failed = message.as<rueda_abi_status>();
  EXPECT_EQ(failed.code, -6);
  EXPECT_EQ(std::string(failed.text), std::string(1023, 'n'));
  EXPECT_EQ(server_->stats().sessions, 1u);
}

TEST_F(SessionTest, DropEndsWithoutEvents) {
  start_server();
  auto client = attach();
  events_.sessions[0]->drop();
  EXPECT_TRUE(client->is_closed());
  auto during_attach = std::make_unique<RawClient>(path_);
  events_.during_attach = [](Session& session) { session.drop(); };
  during_attach->send_attach();
  pump_until([&] { return during_attach->is_closed(); }, "the end of the connection");
  EXPECT_TRUE(events_.lost.empty());
  EXPECT_EQ(events_.detached, 0);
  EXPECT_EQ(server_->stats().sessions, 0u);
}

TEST_F(SessionTest, StopClosesEverythingWithoutEvents) {
  start_server();
  auto client = attach();
  RawClient greeting(path_);
  loop_.poll();
  server_->stop();
  EXPECT_TRUE(client->is_closed());
  EXPECT_TRUE(greeting.is_closed());
  EXPECT_NE(::access(path_.c_str(), F_OK), 0);
  server_.reset();
  loop_.restart();
  loop_.poll();
  EXPECT_TRUE(events_.lost.empty());
}

TEST_F(SessionTest, KilledClientsLeaveNothingBehind) {
  start_server();
  { attach(); }
  pump_until([&] { return events_.lost.size() == 1; }, "the first loss");
  int fds_before = count_open_fds();
  for (size_t i = 1; i <= 100; ++i) {
    // The client is a process of its own, ended by SIGKILL, with an arena and an unread reply.
    pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      RawClient client(path_);
      client.send_attach();
      char byte = 0;
      (void)!::recv(client.fd(), &byte, 1, MSG_PEEK);
      UniqueFd memfd = make_memfd(4096);
      rueda_abi_arena body{4096, 0, 0};
      client.send(RUEDA_ABI_ARENA_ADD, &body, sizeof(body), {memfd.get()});
      ::kill(::getpid(), SIGKILL);
    }
    pump_until([&] { return ::waitpid(child, nullptr, WNOHANG) == child; }, "its end");
    pump_until([&] { return events_.lost.size() == i + 1; }, "the loss");
  }
  pump_until([&] { return count_open_fds() <= fds_before; }, "the end of what it had");
  EXPECT_EQ(server_->stats().sessions, 0u);
  EXPECT_EQ(server_->stats().arenas, 0u);
  EXPECT_EQ(server_->stats().arena_bytes, 0u);
}

}  // namespace
}  // namespace rueda::session
