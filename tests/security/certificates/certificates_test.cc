#include "daemon/security/certificates/certificates.h"

#include <random>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace rueda::security {
namespace {

using std::chrono::days;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const Identity kNode{"test", Role::kNode, "alpha"};

KeyPair authority(const std::string& domain = "test", days life = days(10)) {
  return make_authority(domain, life).value();
}

TEST(Certificates, SayWhomTheyAreForAndForHowLong) {
  const KeyPair ca = authority("test", days(100));
  const Result<KeyPair> made =
      issue(ca, kNode, {{"node-a.example", "10.0.0.1", "fe80::1"}, days(30)});
  ASSERT_TRUE(made.is_ok()) << made.status().message();
  const Result<CertificateFacts> facts = read_certificate(made.value().certificate);
  ASSERT_TRUE(facts.is_ok()) << facts.status().message();
  EXPECT_EQ(facts.value().identity, kNode);
  EXPECT_THAT(facts.value().hosts, ElementsAre("node-a.example", "10.0.0.1", "fe80::1"));
  EXPECT_EQ(facts.value().serial.size(), 32u);
  EXPECT_LE(facts.value().not_before, wall_now());
  EXPECT_GT(facts.value().not_after, wall_now() + days(29));
  EXPECT_LE(facts.value().not_after, wall_now() + days(30));
  EXPECT_TRUE(check_pair(made.value(), ca.certificate).is_ok());
  EXPECT_EQ(trust_domain_of(ca.certificate).value(), "test");
}

TEST(Certificates, NoneOutlivesItsAuthority) {
  const KeyPair made = issue(authority("test", days(2)), kNode, {{}, days(90)}).value();
  EXPECT_LE(read_certificate(made.certificate).value().not_after, wall_now() + days(2));
}

TEST(Certificates, WhatCannotBeIssuedIsRefused) {
  const KeyPair ca = authority();
  const auto message = [&](const Identity& identity, const IssueOptions& options) {
    const Result<KeyPair> made = issue(ca, identity, options);
    return made.is_ok() ? "" : made.status().message();
  };
  EXPECT_THAT(message({"other", Role::kNode, "a"}, {}), HasSubstr("is for test, not for other"));
  EXPECT_THAT(message({"test", Role::kNode, "a b"}, {}), HasSubstr("a name in a certificate"));
  EXPECT_THAT(message({"test", Role::kNode, std::string(64, 'a')}, {}), HasSubstr("1 to 63"));
  // A comma would begin another name in OpenSSL's notation.
  EXPECT_THAT(message(kNode, {{"a,URI:spiffe://test/rueda/operator/x"}, days(1)}),
              HasSubstr("no host name"));
  EXPECT_THAT(make_authority("Test", days(1)).status().message(), HasSubstr("trust domain"));
  const KeyPair leaf = issue(ca, kNode, {}).value();
  EXPECT_THAT(issue(leaf, kNode, {}).status().message(), HasSubstr("no authority's certificate"));
  EXPECT_THAT(issue({ca.certificate, leaf.key}, kNode, {}).status().message(),
              HasSubstr("not that of its certificate"));
}

TEST(Certificates, OthersThanTheAuthoritysAreNotVouchedFor) {
  const KeyPair ca = authority();
  const KeyPair other = authority();
  const KeyPair made = issue(ca, kNode, {}).value();
  const KeyPair second = issue(ca, kNode, {}).value();
  EXPECT_THAT(check_pair(made, other.certificate).message(), HasSubstr("does not vouch"));
  EXPECT_TRUE(check_pair(made, other.certificate + ca.certificate).is_ok())
      << "the authority is being replaced";
  EXPECT_THAT(check_pair({made.certificate, second.key}, ca.certificate).message(),
              HasSubstr("not that of the certificate"));
  EXPECT_THAT(check_pair(made, "").message(), HasSubstr("no authority's certificate"));
  const KeyPair over = issue(ca, kNode, {{}, days(-1)}).value();
  EXPECT_THAT(check_pair(over, ca.certificate).message(), HasSubstr("expired"));
}

TEST(Certificates, AnAuthorityIsNoIdentity) {
  EXPECT_FALSE(read_certificate(authority().certificate).is_ok());
  EXPECT_FALSE(trust_domain_of(issue(authority(), kNode, {}).value().certificate).is_ok());
}

std::string derived_secret() {
  std::string secret;
  for (int i = 0; i < 32; ++i) secret.push_back(static_cast<char>(i));
  return secret;
}

// Another implementation must compute this key, which is from Python: HKDF by hmac, the key by
// derive_private_key() of its package cryptography (38.0.4).
TEST(DerivedAuthority, HasTheKeyThatFollowsFromTheSecret) {
  const Result<KeyPair> made = derive_authority(derived_secret(), "job-0123456789ab");
  ASSERT_TRUE(made.is_ok()) << made.status().message();
  EXPECT_EQ(made.value().key,
            "-----BEGIN PRIVATE KEY-----\n"
            "MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQghv9QInZmGZ4hYWJF\n"
            "r8Xi39YbLxAgmV5bbccGM2eGSVuhRANCAATZeVZ/EEGCeZPRuCYpgQxxDnrliggZ\n"
            "TNL040AgAGZ50HwUkiVJG4TMIJ9fafdqvBex8TNc43duX3IRYaiS/dsX\n"
            "-----END PRIVATE KEY-----\n");
  EXPECT_EQ(trust_domain_of(made.value().certificate).value(), "job-0123456789ab");
}

TEST(DerivedAuthority, WhoKnowsTheSecretTakesWhatOthersHaveIssued) {
  const Identity node{"job", Role::kNode, "node0"};
  IssueOptions options;
  options.lasts_as_authority = true;
  const KeyPair one = derive_authority(derived_secret(), "job").value();
  const KeyPair two = derive_authority(derived_secret(), "job").value();
  const KeyPair issued = issue(one, node, options).value();
  EXPECT_TRUE(check_pair(issued, two.certificate).is_ok())
      << check_pair(issued, two.certificate).message();
  EXPECT_EQ(read_certificate(issued.certificate).value().identity, node);

  // Another job's token, and a token that is used in another job's name.
  std::string other_secret = derived_secret();
  other_secret.back() ^= 1;
  const KeyPair other = derive_authority(other_secret, "job").value();
  EXPECT_THAT(check_pair(issued, other.certificate).message(), HasSubstr("does not vouch"));
  const KeyPair renamed = derive_authority(derived_secret(), "other").value();
  EXPECT_NE(renamed.key, one.key);
  EXPECT_FALSE(check_pair(issued, renamed.certificate).is_ok());
  EXPECT_FALSE(derive_authority(derived_secret(), "Job 1").is_ok());
}

// A job may last, and its nodes' clocks need not agree.
TEST(DerivedAuthority, WhatItIssuesLastsAsItDoes) {
  IssueOptions options;
  options.lasts_as_authority = true;
  const KeyPair made = derive_authority(derived_secret(), "job").value();
  const CertificateFacts facts =
      read_certificate(issue(made, {"job", Role::kNode, "a"}, options).value().certificate).value();
  EXPECT_EQ(facts.not_before, std::chrono::sys_days(std::chrono::January / 1 / 2000));
  // 23:59:59 on the last day of 9999, which stands for no end.
  EXPECT_EQ(facts.not_after.time_since_epoch().count(), 253402300799);
}

TEST(RevocationList, HasWhatWasRevokedAndNothingElse) {
  const KeyPair ca = authority();
  const auto serial = [&](const char* name) {
    return read_certificate(issue(ca, {"test", Role::kNode, name}, {}).value().certificate)
        .value()
        .serial;
  };
  const std::string first = serial("a");
  const std::string second = serial("b");
  const std::string third = serial("c");
  std::string list;
  for (const std::string& one : {first, second, first}) list = revoke(ca, list, one).value();
  const Result<RevocationList> read = RevocationList::read(list, ca.certificate);
  ASSERT_TRUE(read.is_ok()) << read.status().message();
  EXPECT_EQ(read.value().size(), 2u);
  EXPECT_TRUE(read.value().has(first));
  EXPECT_TRUE(read.value().has(second));
  EXPECT_FALSE(read.value().has(third));
  EXPECT_FALSE(RevocationList::read("", "").value().has(first));
  EXPECT_FALSE(revoke(ca, "", "12x").is_ok());
  EXPECT_FALSE(revoke(ca, "", "").is_ok());
}

TEST(RevocationList, OneForEachAuthority) {
  const KeyPair before = authority();
  const KeyPair after = authority();
  const std::string lists = revoke(before, "", "1A").value() + revoke(after, "", "00002b").value();
  const auto both = RevocationList::read(lists, before.certificate + after.certificate);
  ASSERT_TRUE(both.is_ok()) << both.status().message();
  EXPECT_TRUE(both.value().has("1A") && both.value().has("2B"));
  EXPECT_GT(both.value().made(), wall_now() - std::chrono::minutes(1));
  // The first authority has been taken out.
  const auto one = RevocationList::read(lists, after.certificate);
  ASSERT_TRUE(one.is_ok()) << one.status().message();
  EXPECT_TRUE(!one.value().has("1A") && one.value().has("2B"));
  EXPECT_FALSE(
      RevocationList::read(lists + "-----BEGIN X509 CRL-----\nrubbish\n", after.certificate)
          .is_ok());
}

TEST(Certificates, NothingIsLeftOutOfATextThatIsDamaged) {
  const KeyPair ca = authority();
  const KeyPair made = issue(ca, kNode, {}).value();
  const std::string half = authority().certificate.substr(0, 200);
  EXPECT_THAT(check_pair(made, ca.certificate + half).message(), HasSubstr("damaged"));
  EXPECT_THAT(check_pair({made.certificate + half, made.key}, ca.certificate).message(),
              HasSubstr("damaged"));
}

// Whatever a peer shows as its certificate ends in a Status.
TEST(Certificates, DamagedOnesAreReadOrRefused) {
  const KeyPair ca = authority();
  const KeyPair made = issue(ca, kNode, {{"a.example"}, days(1)}).value();
  const std::string list = revoke(ca, "", "1234").value();
  std::mt19937 random(1);
  for (int i = 0; i < 2000; ++i) {
    std::string certificate = made.certificate;
    std::string revoked = list;
    for (std::string* const text : {&certificate, &revoked}) {
      for (int k = 0; k < 3; ++k) (*text)[random() % text->size()] = static_cast<char>(random());
      if (i % 7 == 0) text->resize(random() % text->size());
    }
    (void)read_certificate(certificate);
    (void)trust_domain_of(certificate);
    (void)check_pair({certificate, made.key}, ca.certificate);
    (void)RevocationList::read(revoked, ca.certificate);
  }
  EXPECT_FALSE(read_certificate("").is_ok());
  EXPECT_FALSE(read_certificate(std::string(100'000, 'A')).is_ok());
}

}  // namespace
}  // namespace rueda::security
