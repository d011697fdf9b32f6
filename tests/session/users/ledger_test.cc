// Tests what one user may have, and that it is given back.
#include "daemon/session/users/ledger.h"

#include "daemon/base/limits.h"
#include "tests/session/raw_client.h"

namespace rueda::session {
namespace {

using ::testing::HasSubstr;

TEST(Ledger, EachUserHasTheSame) {
  Quota quota(1 << 20, 1024);
  quota[Resource::kJobs] = 2;
  const auto ledger = std::make_shared<Ledger>(quota);
  {
    Charge jobs({ledger, 1}, Resource::kJobs);
    EXPECT_TRUE(jobs.add(2).is_ok());
    const Status refused = jobs.add(1);
    EXPECT_EQ(refused.code(), Code::kResourceExhausted);
    EXPECT_EQ(refused.message(),
              "user 1 has 2 jobs here and wants 1 more, and one user may have 2: wait for one to "
              "end, or raise ruedad's --quota-jobs");
    EXPECT_TRUE(charge({ledger, 2}, Resource::kJobs, 2).is_ok());
    Charge moved = std::move(jobs);
    moved.remove(1);
    EXPECT_EQ(ledger->of(1, Resource::kJobs), 1u);
  }
  EXPECT_EQ(ledger->of(1, Resource::kJobs), 0u);
  EXPECT_TRUE(Charge().add(1 << 30).is_ok()) << "nobody's";
}

TEST(Ledger, AllUsersTogetherLeaveAddresses) {
  const auto ledger = std::make_shared<Ledger>(Quota(limits::kMaxMappedBytes, 1024));
  Result<Charge> most = charge({ledger, 1}, Resource::kArenaBytes, limits::kMaxMappedBytes);
  ASSERT_TRUE(most.is_ok());
  EXPECT_THAT(charge({ledger, 2}, Resource::kArenaBytes, 1).status().message(),
              HasSubstr("all users have 35184372088832 bytes of arenas"));
}

// A connection once counted nowhere after it had said that it is gRPC's.
TEST_F(SessionTest, ConnectionsOfAUserAreCountedUntilTheyAreClosed) {
  quota_[Resource::kConnections] = 3;
  start_server();
  auto process = attach();
  std::vector<std::unique_ptr<RawClient>> launchers;
  for (int i = 0; i < 2; ++i) {
    launchers.push_back(std::make_unique<RawClient>(path_));
    launchers.back()->send_bytes("PRI ", 4);
    pump_until([&] { return static_cast<int>(handed_off_.size()) > i; }, "the hand-off");
  }
  RawClient one_more(path_);
  pump_until([&] { return one_more.is_closed(); }, "the end of one too many");
  EXPECT_EQ(server_->stats().rejected, 1u);
  // The server closes the connection when the launcher has gone.
  launchers.pop_back();
  ::close(std::exchange(handed_off_.back().first, -1));
  pump_until(
      [&] {
        RawClient again(path_);
        again.send_attach(1);
        loop_.restart();
        loop_.run_for(std::chrono::milliseconds(10));
        return again.try_receive().has_value();
      },
      "room for another");
}

TEST_F(SessionTest, ProcessesOfAUserAreBounded) {
  quota_[Resource::kSessions] = 1;
  start_server();
  auto first = attach();
  RawClient second(path_);
  second.send_attach(1);
  EXPECT_THAT(receive(second).as<rueda_abi_attach_reply>().text,
              HasSubstr("has 1 attached processes here and wants 1 more, and one user may have 1: "
                        "end a job first, or raise ruedad's --quota-processes"));
  EXPECT_EQ(request(*first, RUEDA_ABI_DETACH, nullptr, 0).code, 0);
  attach(1);
}

TEST_F(SessionTest, WhoCannotBeServedIsLostAndOthersGoOn) {
  start_server();
  auto client = attach();
  rueda_abi_submission record{};
  record.tensor_id = intern(*client, make_tensor("t", {0}));
  events_.during_submit = [](Session&) { throw std::bad_alloc(); };
  client->push(record);
  pump_until_lost("cannot be served by the daemon (std::bad_alloc)");
  events_.during_submit = nullptr;
  attach(1);
  events_.during_attach = [](Session&) { throw std::bad_alloc(); };
  RawClient refused(path_);
  refused.send_attach(2);
  EXPECT_EQ(receive(refused).as<rueda_abi_attach_reply>().code, -12);
}

TEST_F(SessionTest, TensorsOfAUserAreBounded) {
  quota_[Resource::kTensorBytes] = 16384;
  start_server();
  auto client = attach();
  auto other = attach(1);
  rueda_abi_status reply{};
  for (int i = 0; i < 16 && reply.code == 0; ++i) {
    rueda_abi_intern tensor = make_tensor("t" + std::to_string(i), {1});
    reply = request(i % 2 ? *client : *other, RUEDA_ABI_INTERN, &tensor, sizeof(tensor));
  }
  EXPECT_EQ(reply.code, -12);
  EXPECT_THAT(reply.text, HasSubstr("--quota-tensor-bytes"));
  // Everything that one process had is given back when it goes.
  EXPECT_EQ(request(*client, RUEDA_ABI_DETACH, nullptr, 0).code, 0);
  rueda_abi_intern tensor = make_tensor("again", {1});
  EXPECT_EQ(request(*other, RUEDA_ABI_INTERN, &tensor, sizeof(tensor)).code, 0);
}

}  // namespace
}  // namespace rueda::session
