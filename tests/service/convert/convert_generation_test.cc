// Tests that messages about generations arrive as they were sent, and that what cannot be is
// refused.
#include "daemon/service/convert/convert_generation.h"

#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "rueda/v1/control.pb.h"

namespace rueda::service {
namespace {

using ::testing::HasSubstr;

core::GenerationPtr generation() {
  auto made = std::make_shared<core::Generation>();
  made->epoch = Epoch{7};
  made->reason = "node b is lost";
  made->nodes = {{{"a", 11}, "a:1", {{core::Slot{1}, Rank{0}}, {core::Slot{0}, Rank{2}}}},
                 {{"b", 12}, "b:1", {{core::Slot{0}, Rank{1}}}}};
  return made;
}

core::GenerationMessage message(auto body) { return {{"a", 11}, "a:1", Epoch{8}, std::move(body)}; }

template <class Body>
Body there_and_back(Body body) {
  const Result<core::GenerationMessage> read = decode_generation_message(encode(message(body)));
  EXPECT_TRUE(read.is_ok()) << read.status().message();
  EXPECT_EQ(read.value().from, (core::MemberId{"a", 11}));
  EXPECT_EQ(read.value().from_address, "a:1");
  EXPECT_EQ(read.value().epoch, Epoch{8});
  return std::get<Body>(read.value().body);
}

TEST(ConvertGeneration, WhatIsSaidArrives) {
  const core::NodeOffer offer{{"a", 11}, "a:1", {{core::Slot{0}, true}, {core::Slot{3}, false}}};
  const auto present = there_and_back(core::Present{5, offer, true, 2, "why", true});
  EXPECT_EQ(present.number, 5u);
  EXPECT_EQ(present.offer, offer);
  EXPECT_TRUE(present.forms && present.finished);
  EXPECT_EQ(present.awaited, 2);
  EXPECT_EQ(present.reason, "why");
  EXPECT_EQ(there_and_back(core::Heard{"b:1", true}).leader, "b:1");
  const core::Ballot ballot{3, NodeIndex{1}};
  EXPECT_EQ(there_and_back(core::PrepareGeneration{ballot}).ballot, ballot);
  EXPECT_EQ(there_and_back(core::AcceptedGeneration{ballot}).ballot, ballot);
  EXPECT_EQ(there_and_back(core::RefuseGeneration{ballot}).promised, ballot);
  EXPECT_EQ(*there_and_back(core::AcceptGeneration{ballot, generation()}).generation,
            *generation());
  EXPECT_EQ(*there_and_back(core::LearnGeneration{generation()}).generation, *generation());
  const Status ended(Code::kShutDown, "ended by user 0", Origin{"b", {}, true});
  EXPECT_EQ(there_and_back(core::EndGenerations{ended, false}).why, ended);
  EXPECT_FALSE(there_and_back(core::EndGenerations{ended, false}).is_answer);
  EXPECT_TRUE(there_and_back(core::EndGenerations{ended, true}).is_answer);
  const core::Ballot before{2, NodeIndex{0}};
  const auto bound = there_and_back(core::PromiseGeneration{ballot, before, generation(), {}});
  EXPECT_EQ(bound.accepted_in, before);
  EXPECT_EQ(*bound.accepted, *generation());
  EXPECT_EQ(there_and_back(core::PromiseGeneration{ballot, {}, nullptr, {}}).accepted, nullptr);
}

// What another node says of an end goes into logs and to terminals.
TEST(ConvertGeneration, WhoHasEndedAJobIsSaidInOneLine) {
  const Status forged(Code::kShutDown, "ended\n\x1b[2J" + std::string(1 << 20, 'x'),
                      Origin{"b\nforged", {}, true});
  const Status read = there_and_back(core::EndGenerations{forged, false}).why;
  EXPECT_TRUE(read.message().starts_with("ended\\n\\x1b[2Jxxx"));
  EXPECT_LE(read.message().size(), 1024u);
  EXPECT_EQ(read.origin().node_id, "b\\nforged");
}

TEST(ConvertGeneration, VotesAreKept) {
  const core::GenerationVotes votes{
      2, generation(), {4, NodeIndex{1}}, {3, NodeIndex{0}}, generation(), {core::Slot{1}}, true};
  const Result<core::GenerationVotes> read = decode_generation_votes(encode(votes));
  ASSERT_TRUE(read.is_ok());
  EXPECT_EQ(*read.value().known, *votes.known);
  EXPECT_EQ(*read.value().accepted, *votes.accepted);
  EXPECT_EQ(read.value().promised, votes.promised);
  EXPECT_EQ(read.value().accepted_in, votes.accepted_in);
  EXPECT_EQ(read.value().lives, 2u);
  EXPECT_EQ(read.value().survivors, votes.survivors);
  EXPECT_TRUE(read.value().finished);
  EXPECT_EQ(decode_generation_votes(encode(core::GenerationVotes{})).value().known, nullptr);
}

void expect_refused(const v1::GenerationMessage& message, const std::string& why) {
  const Result<core::GenerationMessage> read =
      decode_generation_message(message.SerializeAsString());
  ASSERT_FALSE(read.is_ok());
  EXPECT_THAT(read.status().message(), HasSubstr(why));
}

TEST(ConvertGeneration, WhatCannotBeIsRefused) {
  v1::GenerationMessage good;
  ASSERT_TRUE(good.ParseFromString(encode(message(core::LearnGeneration{generation()}))));
  v1::GenerationMessage bad = good;
  bad.mutable_from()->set_node_id("");
  expect_refused(bad, "a node id");
  bad = good;
  bad.mutable_from()->set_node_id("a\nforged");
  expect_refused(bad, "a node id");
  bad = good;
  bad.set_from_address("unix:/etc/passwd");
  expect_refused(bad, "an address");
  bad = good;
  bad.clear_body();
  expect_refused(bad, "no body");
  bad = good;
  bad.mutable_learn()->mutable_nodes(0)->mutable_slots(0)->set_slot(64);
  expect_refused(bad, "a slot");
  bad = good;
  bad.mutable_learn()->mutable_nodes(0)->mutable_slots(0)->set_rank(1);  // Another node's.
  expect_refused(bad, "ranks that cannot be");
  bad = good;
  bad.mutable_learn()->clear_nodes();
  expect_refused(bad, "ranks that cannot be");
  EXPECT_FALSE(decode_generation_message("\xff\xff\xff").is_ok());
  EXPECT_FALSE(decode_generation_votes("\xff\xff\xff").is_ok());
}

// Nothing that a peer sends ends the daemon: bytes of a message are changed, by chance.
TEST(ConvertGeneration, ChangedBytesAreReadOrRefused) {
  std::mt19937 random(1);
  const std::string good = encode(message(core::AcceptGeneration{{3, NodeIndex{1}}, generation()}));
  for (int i = 0; i < 20'000; ++i) {
    std::string changed = good;
    for (int k = 0; k < 3; ++k) changed[random() % changed.size()] = static_cast<char>(random());
    (void)decode_generation_message(changed);
    (void)decode_generation_votes(changed);
  }
}

}  // namespace
}  // namespace rueda::service
