#include "client/src/wire/connection.h"

#include <cstring>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "tests/client/fake_daemon.h"
#include "tests/support/temporary_folder.h"

namespace rueda::client {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing_support::TemporaryFolder;

TEST(ConnectionTest, AMissingSocketSaysHowToStartADaemon) {
  TemporaryFolder folder;
  std::string path = folder.path() + "/absent.sock";
  Status status = Connection::connect(path, 1000).status();
  EXPECT_EQ(status.code(), Code::kNotFound);
  EXPECT_THAT(status.message(),
              AllOf(HasSubstr(path), HasSubstr("ruedarun"), HasSubstr("systemctl start ruedad"),
                    HasSubstr("RUEDA_SOCKET")));
}

TEST(ConnectionTest, ASocketWithoutADaemonSaysSo) {
  TemporaryFolder folder;
  std::string path = folder.path() + "/left.sock";
  {
    UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strncpy(address.sun_path, path.c_str(), sizeof(address.sun_path) - 1);
    ASSERT_EQ(::bind(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  }
  Status status = Connection::connect(path, 1000).status();
  EXPECT_EQ(status.code(), Code::kUnavailable);
  EXPECT_THAT(status.message(), AllOf(HasSubstr(path), HasSubstr("ruedarun")));
}

TEST(ConnectionTest, AnImpossiblePathIsRefused) {
  EXPECT_EQ(Connection::connect("", 10).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(Connection::connect("/" + std::string(200, 'x'), 10).status().code(),
            Code::kInvalidArgument);
}

class GarbageTest : public ::testing::Test {
 protected:
  GarbageTest() {
    FakeDaemon::Options options;
    options.starts = false;
    daemon_ = std::make_unique<FakeDaemon>(options);
    connection_ = Connection::connect(daemon_->socket_path(), 5000).value();
    rueda_abi_attach attach{};
    EXPECT_TRUE(connection_->send(RUEDA_ABI_ATTACH, &attach, sizeof(attach)).is_ok());
    EXPECT_EQ(next().value().type, RUEDA_ABI_ATTACH_REPLY);
  }
  Result<Message> next() { return connection_->wait_message(steady_now_ms() + 20'000); }

  std::unique_ptr<FakeDaemon> daemon_;
  std::unique_ptr<Connection> connection_;
};

TEST_F(GarbageTest, BringsDescriptors) { EXPECT_EQ(connection_->take_descriptors().size(), 4u); }

TEST_F(GarbageTest, PutsPiecesTogether) {
  rueda_abi_header header{RUEDA_ABI_MAGIC, RUEDA_ABI_VERSION, RUEDA_ABI_FAILED, 3, 0};
  std::string bytes(reinterpret_cast<char*>(&header), sizeof(header));
  bytes += "abc";
  bytes += bytes;
  daemon_->send_raw(bytes.data(), 10);
  ASSERT_TRUE(connection_->receive().is_ok());
  daemon_->send_raw(bytes.data() + 10, bytes.size() - 10);
  EXPECT_EQ(next().value().body, "abc");
  EXPECT_EQ(next().value().body, "abc");
}

TEST_F(GarbageTest, RefusesAStrangerVersion) {
  rueda_abi_header header{RUEDA_ABI_MAGIC, RUEDA_ABI_VERSION + 1, RUEDA_ABI_FAILED, 0, 0};
  daemon_->send_raw(&header, sizeof(header));
  Status status = next().status();
  EXPECT_EQ(status.code(), Code::kVersion);
  EXPECT_THAT(status.message(), HasSubstr("version " + std::to_string(RUEDA_ABI_VERSION + 1)));
}

TEST_F(GarbageTest, RefusesAnotherProtocol) {
  daemon_->send_raw("HTTP/1.1 400 Bad Request", 24);
  EXPECT_EQ(next().status().code(), Code::kVersion);
}

TEST_F(GarbageTest, RefusesAGiant) {
  rueda_abi_header header{RUEDA_ABI_MAGIC, RUEDA_ABI_VERSION, RUEDA_ABI_FAILED, 1u << 30, 0};
  daemon_->send_raw(&header, sizeof(header));
  EXPECT_EQ(next().status().code(), Code::kInternal);
}

TEST_F(GarbageTest, DeliversWhatCameBeforeTheEnd) {
  daemon_->fail_job(-6, "gone");
  daemon_->drop();
  ASSERT_TRUE(daemon_->wait_for([](const auto& counts) { return counts.lost == 1; }));
  EXPECT_EQ(next().value().type, RUEDA_ABI_FAILED);
  EXPECT_EQ(next().status().code(), Code::kDaemonLost);
}

}  // namespace
}  // namespace rueda::client
