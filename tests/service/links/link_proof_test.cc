// Tests what who has recorded a control link can prove with it: nothing.
#include "daemon/service/links/link_proof.h"

#include <memory>
#include <string>

#include <gtest/gtest.h>

#include "daemon/engine/ports/proof.h"
#include "tests/service/daemons.h"

namespace rueda::service {
namespace {

using engine::Envelope;
using testing::Daemon;
using testing::RawPeer;

const std::string kKey(32, 'k');

class LinkProofTest : public ::testing::Test {
 protected:
  std::unique_ptr<RawPeer> peer() {
    auto made = std::make_unique<RawPeer>(daemon_.address());
    made->say_hello();
    EXPECT_TRUE(loop_.run_until([&] { return made->hellos == 1; }));
    return made;
  }
  static v1::LinkMessage join(const std::string& data_address) {
    core::Join join;
    join.attached = {Rank{1}};
    join.data_address = data_address;
    v1::LinkMessage message;
    *message.mutable_job() =
        to_proto(Envelope{"job", {NodeIndex{1}, Epoch{1}, 0, std::move(join)}, {}});
    return message;
  }
  // Sends the message, and returns whether the daemon finds that it is proven.
  bool is_proven(RawPeer& peer, const v1::LinkMessage& message) {
    const size_t before = daemon_.events.envelopes.size();
    peer.write(message);
    EXPECT_TRUE(loop_.run_until([&] { return daemon_.events.envelopes.size() > before; }));
    return holds(daemon_.events.envelopes.back().second.proof, kKey);
  }

  testing::Loop loop_;
  Daemon daemon_{loop_, "a"};
};

TEST_F(LinkProofTest, AJoinThatIsPlayedBackProvesNothingWithOtherWordsOrOverAnotherLink) {
  const auto member = peer();
  v1::LinkMessage message = join("host:1");
  message.set_proof(engine::make_proof(kKey, member->digest(message)));
  EXPECT_TRUE(is_proven(*member, message));

  v1::LinkMessage other_words = join("attacker:1");
  other_words.set_proof(message.proof());
  EXPECT_FALSE(is_proven(*member, other_words));
  v1::LinkMessage other_node = message;
  other_node.mutable_job()->set_from_node(2);
  EXPECT_FALSE(is_proven(*member, other_node));
  v1::LinkMessage other_epoch = message;
  other_epoch.mutable_job()->set_epoch(2);
  EXPECT_FALSE(is_proven(*member, other_epoch));
  v1::LinkMessage more = message;
  more.mutable_job()->GetReflection()->MutableUnknownFields(more.mutable_job())->AddVarint(99, 1);
  EXPECT_FALSE(is_proven(*member, more)) << "what is not known counts, too";

  const auto attacker = peer();
  EXPECT_FALSE(is_proven(*attacker, message)) << "while the member's link is up";
  EXPECT_TRUE(is_proven(*member, message)) << "the same again over its own link";
}

TEST_F(LinkProofTest, WithoutAProofNothingIsProven) {
  const auto member = peer();
  EXPECT_FALSE(is_proven(*member, join("host:1")));
}

// What a daemon has said cannot be said back to it as a peer's.
TEST(LinkProofDigest, EachDirectionHasItsOwn) {
  const LinkEnd a{"a", std::string(kNonceBytes, 'a')};
  const LinkEnd b{"b", std::string(kNonceBytes, 'b')};
  v1::LinkMessage message;
  message.mutable_heartbeat();
  EXPECT_EQ(digest_of(a, b, message), digest_of(a, b, message));
  EXPECT_NE(digest_of(a, b, message), digest_of(b, a, message));
  EXPECT_NE(digest_of({"aa", a.nonce}, b, message), digest_of(a, b, message));
  EXPECT_NE(digest_of(a, {"b", make_nonce()}, message), digest_of(a, b, message));
  const std::string before = digest_of(a, b, message);
  message.set_proof("p");
  EXPECT_EQ(digest_of(a, b, message), before);
}

}  // namespace
}  // namespace rueda::service
