#include "daemon/security/certificates/tls_folder.h"

#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "tests/support/temporary_folder.h"

namespace rueda::security {
namespace {

using std::chrono::days;
using ::testing::HasSubstr;

class TlsFolderTest : public ::testing::Test {
 protected:
  void write(const std::string& name, const std::string& text) {
    const std::string path = folder_.path() + '/' + name;
    std::filesystem::remove(path);
    std::ofstream(path) << text;
    ASSERT_EQ(::chmod(path.c_str(), name == kKeyFile ? 0600 : 0644), 0);
  }
  KeyPair issue_for(const char* name) const {
    return issue(authority_, {"test", Role::kNode, name}, {}).value();
  }
  void write_pair(const KeyPair& pair) {
    write(kCertificateFile, pair.certificate);
    write(kKeyFile, pair.key);
    write(kAuthorityFile, authority_.certificate);
  }
  std::string refusal() const { return read_tls_folder(folder_.path()).status().message(); }
  // Waits until the folder is looked at again.
  template <class Condition>
  static bool comes(const Condition& condition) {
    for (int i = 0; i < 100; ++i) {
      if (condition()) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
    return false;
  }

  const testing_support::TemporaryFolder folder_;
  const KeyPair authority_ = make_authority("test", days(10)).value();
};

TEST_F(TlsFolderTest, WhatIsMissingOrWrongIsNamed) {
  EXPECT_THAT(refusal(), HasSubstr("/tls.crt: No such file"));
  write_pair(issue_for("a"));
  EXPECT_EQ(refusal(), "");
  write(kRevokedFile, "nothing");
  EXPECT_THAT(refusal(), HasSubstr("/crl.pem: there is no list"));
  write(kRevokedFile, "");
  EXPECT_THAT(refusal(), HasSubstr("/crl.pem: it is empty"));
  std::filesystem::remove(folder_.path() + "/crl.pem");
  EXPECT_EQ(refusal(), "");
  ASSERT_EQ(::chmod((folder_.path() + "/tls.key").c_str(), 0644), 0);
  EXPECT_THAT(refusal(), HasSubstr("/tls.key: others than its owner"));
  ASSERT_EQ(::chmod((folder_.path() + "/tls.key").c_str(), 0640), 0);
  EXPECT_EQ(refusal(), "");
  write(kKeyFile, issue_for("a").key);
  EXPECT_THAT(refusal(), HasSubstr("the key is not that of the certificate"));
  write_pair(issue(authority_, {"test", Role::kNode, "a"}, {{}, days(-1)}).value());
  EXPECT_THAT(refusal(), HasSubstr("expired"));
  write(kCertificateFile, std::string(2 << 20, 'x'));
  EXPECT_THAT(refusal(), HasSubstr("more than 1 MiB"));
  write(kCertificateFile, authority_.certificate);
  EXPECT_THAT(refusal(), HasSubstr("is no identity of Rueda"));
}

TEST_F(TlsFolderTest, NewFilesCountAndUnsoundOnesDoNot) {
  write_pair(issue_for("a"));
  const Result<std::shared_ptr<TlsFolder>> opened = TlsFolder::open(folder_.path());
  ASSERT_TRUE(opened.is_ok()) << opened.status().message();
  TlsFolder& folder = *opened.value();
  const std::string first = folder.files()->own.serial;
  const uint64_t version = folder.files()->version;
  write_pair(issue_for("a"));
  EXPECT_TRUE(comes([&] { return folder.files()->own.serial != first; }));
  EXPECT_NE(folder.files()->version, version);
  const std::string second = folder.files()->own.serial;
  write(kKeyFile, "rubbish");
  EXPECT_TRUE(comes([&] { return !folder.trouble().empty(); }));
  EXPECT_THAT(folder.trouble(), HasSubstr("no private key"));
  EXPECT_EQ(folder.files()->own.serial, second);
  write_pair(issue_for("a"));
  EXPECT_TRUE(
      comes([&] { return folder.trouble().empty() && folder.files()->own.serial != second; }));
}

TEST_F(TlsFolderTest, WhoWantsPathsReadsWhatHasBeenCheckedAlone) {
  const auto text_of = [](const std::string& path) {
    std::ifstream file(path);
    return std::string(std::istreambuf_iterator<char>(file), {});
  };
  const KeyPair first = issue_for("a");
  write_pair(first);
  const auto folder = TlsFolder::open(folder_.path()).value();
  const TlsFolder::Paths paths = folder->sound_paths();
  EXPECT_EQ(text_of(paths.key), first.key);
  EXPECT_EQ(text_of(paths.certificate), first.certificate);
  EXPECT_EQ(text_of(paths.authorities), authority_.certificate);
  write(kCertificateFile, issue_for("a").certificate);
  EXPECT_TRUE(comes([&] { return !folder->trouble().empty(); })) << "the key is another's";
  EXPECT_EQ(text_of(paths.key), first.key);
  EXPECT_EQ(text_of(paths.certificate), first.certificate);
  const KeyPair second = issue_for("a");
  write_pair(second);
  EXPECT_TRUE(comes([&] { return folder->trouble().empty(); }));
  EXPECT_EQ(text_of(paths.key), second.key);
  EXPECT_EQ(text_of(paths.certificate), second.certificate);
}

TEST_F(TlsFolderTest, PeersAreRecognisedUntilTheyAreRevoked) {
  write_pair(issue_for("a"));
  const auto folder = TlsFolder::open(folder_.path()).value();
  const KeyPair peer = issue_for("b");
  const Result<Identity> seen = folder->recognise(peer.certificate);
  ASSERT_TRUE(seen.is_ok()) << seen.status().message();
  EXPECT_EQ(seen.value(), (Identity{"test", Role::kNode, "b"}));
  const std::string serial = read_certificate(peer.certificate).value().serial;
  write(kRevokedFile, revoke(authority_, "", serial).value());
  EXPECT_TRUE(comes([&] { return !folder->recognise(peer.certificate).is_ok(); }));
  EXPECT_THAT(folder->recognise(peer.certificate).status().message(),
              HasSubstr("serial " + serial + ", has been revoked"));
  EXPECT_TRUE(folder->recognise(issue_for("b").certificate).is_ok()) << "that is another one";
}

TEST_F(TlsFolderTest, WhatHasBeenRevokedStaysSo) {
  write_pair(issue_for("a"));
  const auto folder = TlsFolder::open(folder_.path()).value();
  const KeyPair peer = issue_for("b");
  const std::string serial = read_certificate(peer.certificate).value().serial;
  const std::string list = revoke(authority_, "", serial).value();
  // The list counts though the key is not sound.
  write(kKeyFile, "rubbish");
  write(kRevokedFile, list);
  EXPECT_TRUE(comes([&] { return !folder->recognise(peer.certificate).is_ok(); }));
  EXPECT_THAT(folder->trouble(), HasSubstr("no private key"));
  write_pair(issue_for("a"));
  EXPECT_TRUE(comes([&] { return folder->trouble().empty(); }));
  // A list does not go by itself.
  std::filesystem::remove(folder_.path() + "/crl.pem");
  EXPECT_TRUE(comes([&] { return !folder->trouble().empty(); }));
  EXPECT_THAT(folder->trouble(), HasSubstr("it has gone"));
  EXPECT_FALSE(folder->recognise(peer.certificate).is_ok());
}

TEST_F(TlsFolderTest, AnotherNodesFilesAreNotTaken) {
  write_pair(issue_for("a"));
  const auto folder = TlsFolder::open(folder_.path()).value();
  write_pair(issue_for("b"));
  EXPECT_TRUE(comes([&] { return !folder->trouble().empty(); }));
  EXPECT_THAT(folder->trouble(), HasSubstr("it is for spiffe://test/rueda/node/b"));
  EXPECT_EQ(folder->files()->own.identity.name, "a");
}

TEST_F(TlsFolderTest, OneThatHasEndedIsNotRecognised) {
  write_pair(issue_for("a"));
  const auto folder = TlsFolder::open(folder_.path()).value();
  const KeyPair over = issue(authority_, {"test", Role::kNode, "b"}, {{}, days(-1)}).value();
  EXPECT_THAT(folder->recognise(over.certificate).status().message(), HasSubstr("has ended"));
}

TEST_F(TlsFolderTest, AnotherTrustDomainIsRefused) {
  write_pair(issue_for("a"));
  const auto folder = TlsFolder::open(folder_.path()).value();
  const KeyPair other = make_authority("elsewhere", days(1)).value();
  const KeyPair peer = issue(other, {"elsewhere", Role::kOperator, "x"}, {}).value();
  EXPECT_THAT(folder->recognise(peer.certificate).status().message(),
              HasSubstr("of another trust domain than this, test"));
}

TEST_F(TlsFolderTest, WhatLiesNowhereIsCheckedAndNeverChanges) {
  const KeyPair pair = issue_for("a");
  const auto made = TlsFolder::of(pair, authority_.certificate);
  ASSERT_TRUE(made.is_ok()) << made.status().message();
  EXPECT_EQ(made.value()->path(), "");
  EXPECT_EQ(made.value()->files()->own.identity.name, "a");
  EXPECT_EQ(made.value()->trouble(), "");
  EXPECT_TRUE(made.value()->recognise(issue_for("b").certificate).is_ok());
  // Libraries read it as they read files.
  EXPECT_EQ(read_pem_file(made.value()->sound_paths().key).value(), pair.key);
  EXPECT_FALSE(TlsFolder::of(pair, "").is_ok());
  EXPECT_FALSE(
      TlsFolder::of({pair.certificate, issue_for("a").key}, authority_.certificate).is_ok());
  EXPECT_FALSE(TlsFolder::of({}, authority_.certificate).is_ok());
}

}  // namespace
}  // namespace rueda::security
