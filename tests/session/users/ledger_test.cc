// Tests what one principal may have, and that it is given back.
#include "daemon/session/users/ledger.h"

#include "daemon/base/limits.h"
#include "tests/session/raw_client.h"

namespace rueda::session {
namespace {

using ::testing::HasSubstr;

const Principal kAda = Principal::user(1);
const Principal kBob = Principal::user(2);
const Principal kTeam = Principal::named("team-a");

TEST(Ledger, EachPrincipalHasTheSame) {
  Quota quota(1 << 20, 1024);
  quota[Resource::kJobs] = 2;
  const auto ledger = std::make_shared<Ledger>(quota);
  {
    Charge jobs({ledger, kAda}, Resource::kJobs);
    EXPECT_TRUE(jobs.add(2).is_ok());
    const Status refused = jobs.add(1);
    EXPECT_EQ(refused.code(), Code::kResourceExhausted);
    EXPECT_EQ(
        refused.message(),
        "user 1 has 2 jobs here and wants 1 more, and may have 2: wait for one to end, or ask "
        "an operator of this node (root) to raise --quota-jobs, or jobs under [quota] in "
        "ruedad.toml");
    for (const Principal& other : {kBob, kTeam}) {
      EXPECT_TRUE(charge({ledger, other}, Resource::kJobs, 2).is_ok());
    }
    Charge moved = std::move(jobs);
    moved.remove(1);
    EXPECT_EQ(ledger->of(kAda, Resource::kJobs), 1u);
  }
  EXPECT_EQ(ledger->of(kAda, Resource::kJobs), 0u);
  EXPECT_TRUE(Charge().add(1 << 30).is_ok()) << "nobody's";
}

TEST(Ledger, ANamedPrincipalMayHaveAQuotaOfItsOwn) {
  Quotas quotas{Quota(1 << 20, 1024), {}, "root, or a member of group rueda"};
  quotas.of_each[Resource::kJobs] = 1;
  Amounts wanted;
  wanted[Resource::kJobs] = 3;
  wanted[Resource::kConnections] = 8;
  quotas.of.emplace(kTeam, quotas.of_each).first->second.change(wanted);
  EXPECT_EQ(quotas.of.at(kTeam)[Resource::kUnattached], 2u) << "a quarter of the connections";
  EXPECT_EQ(quotas.of.at(kTeam)[Resource::kArenas], quotas.of_each[Resource::kArenas]);
  const auto ledger = std::make_shared<Ledger>(quotas);
  const Result<Charge> three = charge({ledger, kTeam}, Resource::kJobs, 3);
  ASSERT_TRUE(three.is_ok());
  EXPECT_EQ(charge({ledger, kTeam}, Resource::kJobs, 1).status().message(),
            "principal team-a has 3 jobs here and wants 1 more, and may have 3: wait for one to "
            "end, or ask an operator of this node (root, or a member of group rueda) to raise jobs "
            "under [quota.team-a] in ruedad.toml");
  EXPECT_THAT(charge({ledger, Principal::named("team-b")}, Resource::kJobs, 2).status().message(),
              HasSubstr("principal team-b has 0 jobs here and wants 2 more, and may have 1"));
}

TEST(Ledger, EveryRefusalHasTheNumbersTheSettingAndWhomToAsk) {
  const auto ledger = std::make_shared<Ledger>(Quota(0, 0));
  for (size_t i = 0; i < kResources; ++i) {
    const auto resource = static_cast<Resource>(i);
    const std::string text = charge({ledger, kAda}, resource, uint64_t{1} << 40).status().message();
    EXPECT_THAT(text, HasSubstr("user 1 has 0 "));
    EXPECT_THAT(text, HasSubstr(" wants 1099511627776 more, and may have "));
    EXPECT_THAT(text, HasSubstr("ask an operator of this node (root) to raise --quota-"));
    EXPECT_THAT(text, HasSubstr(" under [quota] in ruedad.toml"));
  }
}

TEST(Ledger, AllTogetherLeaveAddresses) {
  const auto ledger = std::make_shared<Ledger>(Quota(limits::kMaxMappedBytes, 1024));
  Result<Charge> most = charge({ledger, kAda}, Resource::kArenaBytes, limits::kMaxMappedBytes);
  ASSERT_TRUE(most.is_ok());
  EXPECT_THAT(charge({ledger, kBob}, Resource::kArenaBytes, 1).status().message(),
              HasSubstr("all users have 35184372088832 bytes of arenas here, user 2 wants 1 more"));
}

TEST(Ledger, ShowsNamedPrincipalsFirstAndTheRestAsOne) {
  Quota quota(1 << 20, 1024);
  quota[Resource::kJobs] = 2;
  const auto ledger = std::make_shared<Ledger>(quota);
  EXPECT_TRUE(ledger->snapshot(2).empty());
  std::vector<Charge> charges;
  for (const Principal& one : {kAda, kBob, kTeam}) {
    charges.push_back(charge({ledger, one}, Resource::kJobs, 2).value());
  }
  EXPECT_FALSE(charge({ledger, kTeam}, Resource::kJobs, 1).is_ok());
  const std::vector<Ledger::Use> all = ledger->snapshot(3);
  ASSERT_EQ(all.size(), 3u);
  EXPECT_EQ(all[0].principal, "team-a");
  EXPECT_EQ(all[0].refused[Resource::kJobs], 1u);
  EXPECT_EQ(all[1].principal, "user 2");
  EXPECT_EQ(all[1].most[Resource::kJobs], 2u);
  const std::vector<Ledger::Use> first = ledger->snapshot(1);
  ASSERT_EQ(first.size(), 2u);
  EXPECT_EQ(first[1].principal, "others");
  EXPECT_EQ(first[1].has[Resource::kJobs], 4u);
  EXPECT_EQ(first[1].most[Resource::kJobs], 0u);
  charges.clear();
  ASSERT_EQ(ledger->snapshot(3).size(), 1u) << "who was refused something stays";
}

// One who has many uids (/etc/subuid) cannot make the daemon keep as many series.
TEST(Ledger, RefusalsOfManyAreCountedTogether) {
  const auto ledger = std::make_shared<Ledger>(Quota(1 << 20, 1024));
  for (uid_t uid = 1; uid <= Ledger::kMaxCounted + 5; ++uid) {
    EXPECT_FALSE(charge({ledger, Principal::user(uid)}, Resource::kJobs, 1 << 20).is_ok());
  }
  const std::vector<Ledger::Use> uses = ledger->snapshot(1000);
  ASSERT_EQ(uses.size(), Ledger::kMaxCounted + 1);
  EXPECT_EQ(uses.back().principal, "others");
  EXPECT_EQ(uses.back().refused[Resource::kJobs], 5u);
}

// A connection once counted nowhere after it had said that it makes calls.
TEST_F(SessionTest, ConnectionsOfAUserAreCountedUntilTheyAreClosed) {
  quota_[Resource::kConnections] = 3;
  start_server();
  auto process = attach();
  std::vector<std::unique_ptr<RawClient>> launchers;
  for (int i = 0; i < 2; ++i) {
    launchers.push_back(std::make_unique<RawClient>(path_));
    launchers.back()->send_bytes("RUDG", 4);
    pump_until([&] { return static_cast<int>(handed_off_.size()) > i; }, "the hand-off");
  }
  RawClient one_more(path_);
  pump_until([&] { return one_more.is_closed(); }, "the end of one too many");
  EXPECT_EQ(server_->stats().rejected, 1u);
  // The server closes the connection when the launcher has gone.
  launchers.pop_back();
  handed_off_.back().first.reset();
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
              HasSubstr("has 1 attached processes here and wants 1 more, and may have 1: end a job "
                        "first, or ask an operator of this node (root) to raise --quota-processes, "
                        "or processes under [quota] in ruedad.toml"));
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
