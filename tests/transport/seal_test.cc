#include "daemon/transport/seal.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

namespace rueda::transport {
namespace {

constexpr ChannelId kId{JobKey(7, 5), 3, 0, 1, 2, 4};

ChannelKeys keys_of(Protection protection, uint8_t first_byte_of_salt = 0) {
  JobToken token;
  for (size_t i = 0; i < token.size(); ++i) token[i] = std::byte(i + 1);
  std::vector<std::byte> salt(64);
  for (size_t i = 0; i < salt.size(); ++i) salt[i] = std::byte(i);
  salt[0] = std::byte(first_byte_of_salt);
  return derive_keys(protection, token, salt, kId);
}

std::vector<std::byte> bytes_of(std::string_view text) {
  const auto* const bytes = reinterpret_cast<const std::byte*>(text.data());
  return {bytes, bytes + text.size()};
}

std::string hex(std::span<const std::byte> bytes) {
  std::string text;
  for (const std::byte byte : bytes) {
    constexpr char kDigits[] = "0123456789abcdef";
    text += kDigits[std::to_integer<size_t>(byte >> 4)];
    text += kDigits[std::to_integer<size_t>(byte & std::byte{15})];
  }
  return text;
}

std::vector<std::byte> sealed(Sealer& sealer, std::string_view text) {
  std::vector<std::byte> out(text.size() + kTagBytes);
  sealer.seal(bytes_of(text), out.data());
  return out;
}

// Returns whether a sealed block opens; the block is changed.
bool opens(Opener& opener, std::vector<std::byte>& block) {
  const std::span<std::byte> all(block);
  return opener.open(all.first(all.size() - kTagBytes), all.last<kTagBytes>());
}

class Seal : public ::testing::TestWithParam<Protection> {
 protected:
  const ChannelKeys keys_ = keys_of(GetParam());
  Sealer sealer_{GetParam(), keys_.to_reader};
  Opener opener_{GetParam(), keys_.to_reader};
};

TEST_P(Seal, WhatIsSealedOpensInItsTurn) {
  for (const std::string text : {"one", "", "three of them", "x"}) {
    std::vector<std::byte> block = sealed(sealer_, text);
    ASSERT_TRUE(opens(opener_, block)) << text;
    block.resize(text.size());
    EXPECT_EQ(block, bytes_of(text));
  }
}

TEST_P(Seal, PartsAreOneBlock) {
  const std::vector<std::byte> begin = bytes_of("gra"), end = bytes_of("dient");
  const std::array<std::span<const std::byte>, 3> parts = {begin, {}, end};
  std::vector<std::byte> block(8 + kTagBytes);
  sealer_.seal(parts, block.data());
  Sealer other(GetParam(), keys_.to_reader);
  EXPECT_EQ(block, sealed(other, "gradient"));
}

TEST_P(Seal, NothingOpensOfWhichABitWasChanged) {
  for (size_t i = 0; i < 5 + kTagBytes; ++i) {
    Sealer sealer(GetParam(), keys_.to_reader);
    Opener opener(GetParam(), keys_.to_reader);
    std::vector<std::byte> block = sealed(sealer, "bytes");
    block[i] ^= std::byte{4};
    EXPECT_FALSE(opens(opener, block)) << "byte " << i;
  }
}

TEST_P(Seal, NothingOpensTwiceOrOutOfItsTurn) {
  std::vector<std::byte> first = sealed(sealer_, "first");
  std::vector<std::byte> again = first;
  std::vector<std::byte> second = sealed(sealer_, "second");
  Opener late(GetParam(), keys_.to_reader);
  EXPECT_FALSE(opens(late, second)) << "the first was left out";
  EXPECT_TRUE(opens(opener_, first));
  EXPECT_FALSE(opens(opener_, again)) << "it was repeated";
}

TEST_P(Seal, NothingOpensOfAnotherConnectionOrDirection) {
  for (const Secret& secret :
       {keys_.to_writer, keys_of(GetParam(), 1).to_reader,
        keys_of(GetParam() == Protection::kEncrypt ? Protection::kAuthenticate
                                                   : Protection::kEncrypt)
            .to_reader}) {
    Sealer sealer(GetParam(), keys_.to_reader);
    Opener opener(GetParam(), secret);
    std::vector<std::byte> block = sealed(sealer, "mine");
    EXPECT_FALSE(opens(opener, block));
  }
}

TEST_P(Seal, AKeyIsFollowedByTheNextAtBothEnds) {
  std::vector<std::byte> block;
  for (uint64_t i = 0; i < kBlocksPerKey; ++i) {
    block = sealed(sealer_, "gradient");
    ASSERT_TRUE(opens(opener_, block));
  }
  const std::vector<std::byte> after = sealed(sealer_, "gradient");
  Sealer fresh(GetParam(), keys_.to_reader);
  EXPECT_NE(after, sealed(fresh, "gradient")) << "the count began anew, and the key did not";
  if (GetParam() == Protection::kEncrypt) {
    EXPECT_EQ(hex(after), "4f054f7cf1b18b19c1c4c1ed8ffacfc4a9e1efd6d15d63ec");
  }
  block = after;
  EXPECT_TRUE(opens(opener_, block));
}

INSTANTIATE_TEST_SUITE_P(Every, Seal,
                         ::testing::Values(Protection::kAuthenticate, Protection::kEncrypt),
                         [](const ::testing::TestParamInfo<Protection>& info) {
                           return std::string(to_string(info.param));
                         });

// Another implementation must compute these values, which are from Python: HKDF by hmac, and AESGCM
// of the package `cryptography`.
TEST(SealValues, KeysAndBlocksAreThoseOfTheDocumentedDerivation) {
  const ChannelKeys authenticating = keys_of(Protection::kAuthenticate);
  EXPECT_EQ(hex(authenticating.to_reader),
            "d3896b1c4c9a27186862da97e800cb2d7172b34ecce1f5e5917703d84cf28d79");
  EXPECT_EQ(hex(authenticating.to_writer),
            "9a955327abd7ae115380c50a95edd2ade138d49fbea5c4a74daa2f96ee68c7f6");
  Sealer authenticator(Protection::kAuthenticate, authenticating.to_reader);
  EXPECT_EQ(hex(sealed(authenticator, "gradient")),
            hex(bytes_of("gradient")) + "6aff8a480f050165cde9692625f442c1");
  const ChannelKeys encrypting = keys_of(Protection::kEncrypt);
  Sealer encryptor(Protection::kEncrypt, encrypting.to_reader);
  EXPECT_EQ(hex(sealed(encryptor, "gradient")), "38adc0db6454b59b61b0166a2868ef483b0b7b2de860d36b");
  EXPECT_EQ(hex(sealed(encryptor, "gradient")), "438902dbf25e716114fd46b8cf455a9de776d532a3845270");
}

TEST(SealValues, WithoutProtectionThereAreNoKeys) {
  EXPECT_FALSE(keys_of(Protection::kNone).is_on());
  EXPECT_EQ(keys_of(Protection::kNone).to_reader, Secret{});
}

TEST(SealValues, NamesAreParsedAsTheyAreWritten) {
  for (const Protection one :
       {Protection::kNone, Protection::kAuthenticate, Protection::kEncrypt}) {
    EXPECT_EQ(parse_protection(to_string(one)), one);
  }
  EXPECT_EQ(parse_protection("Encrypt"), std::nullopt);
}

}  // namespace
}  // namespace rueda::transport
