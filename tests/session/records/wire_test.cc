#include "daemon/session/records/wire.h"

#include <array>

#include <fcntl.h>
#include <sys/socket.h>

#include "tests/session/raw_client.h"

namespace rueda::session {
namespace {

using Read = MessageReader::Read;
using Flush = MessageWriter::Flush;

class WireTest : public ::testing::Test {
 protected:
  WireTest() {
    int pair[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    near_ = UniqueFd(pair[0]);
    far_ = UniqueFd(pair[1]);
  }
  // Reads the next message. A loop does not take descriptors, and sees none of their bytes; the
  // kernel may announce them while there are bytes before them.
  Read next(MessageReader& reader) {
    const Read read = reader.read(near_.get());
    return read == Read::kDescriptors ? reader.receive(near_.get()) : read;
  }
  // Reads do not block whatever the socket's flags say: neither end is O_NONBLOCK here.
  UniqueFd near_;
  UniqueFd far_;
};

TEST_F(WireTest, DescriptorsStayWithTheirMessage) {
  MessageWriter writer;
  rueda_abi_arena body{4096, 0, 0};
  std::vector<UniqueFd> descriptors;
  descriptors.push_back(make_memfd(4096));
  writer.add(RUEDA_ABI_DETACH, nullptr, 0);
  writer.add(RUEDA_ABI_ARENA_ADD, &body, sizeof(body), std::move(descriptors));
  writer.add(RUEDA_ABI_DETACH, nullptr, 0);
  ASSERT_EQ(writer.flush(far_.get()), Flush::kDone);
  EXPECT_EQ(writer.queued_bytes(), 0u);

  MessageReader reader(Principal::user(::getuid()));
  ASSERT_EQ(next(reader), Read::kMessage);
  EXPECT_EQ(reader.type(), RUEDA_ABI_DETACH);
  EXPECT_TRUE(reader.descriptors().empty());
  for (int i = 0; i < 2; ++i) ASSERT_EQ(reader.read(near_.get()), Read::kDescriptors);
  ASSERT_EQ(reader.receive(near_.get()), Read::kMessage);
  EXPECT_EQ(reader.body_as<rueda_abi_arena>().bytes, 4096u);
  ASSERT_EQ(reader.descriptors().size(), 1u);
  EXPECT_EQ(::fcntl(reader.descriptors()[0].get(), F_GETFD), FD_CLOEXEC);
  ASSERT_EQ(reader.read(near_.get()), Read::kMessage);
  EXPECT_TRUE(reader.descriptors().empty());
  EXPECT_EQ(reader.read(near_.get()), Read::kWouldBlock);
  far_.reset();
  EXPECT_EQ(reader.read(near_.get()), Read::kClosed);
}

TEST_F(WireTest, WriterGoesOnWhereTheSocketWasFull) {
  MessageWriter writer;
  rueda_abi_intern body = make_tensor("t", {1});
  constexpr int kMessages = 2000;
  for (int i = 0; i < kMessages; ++i) {
    body.group_size = static_cast<uint32_t>(i);
    writer.add(RUEDA_ABI_INTERN, &body, sizeof(body));
  }
  ASSERT_EQ(writer.flush(far_.get()), Flush::kWouldBlock);
  EXPECT_GT(writer.queued_bytes(), 0u);
  MessageReader reader(Principal::user(::getuid()));
  for (uint32_t i = 0; i < kMessages; ++i) {
    Read read = reader.read(near_.get());
    if (read == Read::kWouldBlock) {
      ASSERT_NE(writer.flush(far_.get()), Flush::kFailed);
      read = reader.read(near_.get());
    }
    ASSERT_EQ(read, Read::kMessage);
    ASSERT_EQ(reader.body_as<rueda_abi_intern>().group_size, i);
  }
  EXPECT_EQ(writer.queued_bytes(), 0u);
  near_.reset();
  writer.add(RUEDA_ABI_DETACH, nullptr, 0);
  EXPECT_EQ(writer.flush(far_.get()), Flush::kFailed);
}

TEST_F(WireTest, BadHeadersAreBrokenForGood) {
  const rueda_abi_header good{RUEDA_ABI_MAGIC, RUEDA_ABI_VERSION, RUEDA_ABI_DETACH, 0, 0};
  std::array<rueda_abi_header, 5> headers;
  headers.fill(good);
  headers[0].magic ^= 1;
  headers[1].version = RUEDA_ABI_VERSION + 1;
  headers[2].type = RUEDA_ABI_REPLY;
  headers[3].body_bytes = ~0u;
  headers[4].reserved = 1;
  for (const rueda_abi_header& header : headers) {
    ASSERT_EQ(::send(far_.get(), &header, sizeof(header), 0), static_cast<ssize_t>(sizeof(header)));
    MessageReader reader(Principal::user(::getuid()));
    EXPECT_EQ(reader.read(near_.get()), Read::kBroken);
    EXPECT_EQ(reader.error().code(),
              header.version != RUEDA_ABI_VERSION ? Code::kVersion : Code::kInvalidArgument);
    EXPECT_EQ(reader.read(near_.get()), Read::kBroken);
  }
}

}  // namespace
}  // namespace rueda::session
