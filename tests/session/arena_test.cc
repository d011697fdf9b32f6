#include "daemon/session/arena.h"

#include <cstring>
#include <filesystem>

#include <fcntl.h>
#include <sys/eventfd.h>

#include "daemon/base/limits.h"
#include "tests/session/raw_client.h"

namespace rueda::session {
namespace {

using ::testing::HasSubstr;

std::string reason(const Result<uint32_t>& result) { return result.status().message(); }

TEST(ArenaTable, ChecksTheDescriptor) {
  ArenaTable table(std::make_shared<ArenaTotals>());
  EXPECT_THAT(reason(table.add(make_memfd(4096, 0).get(), 4096)), HasSubstr("not sealed"));
  EXPECT_THAT(reason(table.add(make_memfd(4096, F_SEAL_SHRINK).get(), 4096)),
              HasSubstr("not sealed"));
  EXPECT_THAT(reason(table.add(make_memfd(4096, F_SEAL_GROW).get(), 4096)),
              HasSubstr("not sealed"));
  EXPECT_THAT(reason(table.add(make_memfd(4096).get(), 8192)), HasSubstr("has 4096 bytes"));
  EXPECT_THAT(reason(table.add(make_memfd(4097).get(), 4097)), HasSubstr("multiple of 4096"));
  EXPECT_THAT(reason(table.add(make_memfd(0).get(), 0)), HasSubstr("multiple of 4096"));
  EXPECT_THAT(reason(table.add(make_memfd(4096).get(), ~uint64_t{4095})), HasSubstr("real size"));
  constexpr int kReadOnly = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE;
  EXPECT_THAT(reason(table.add(make_memfd(4096, kReadOnly).get(), 4096)), HasSubstr("cannot map"));
  UniqueFd event(::eventfd(0, EFD_CLOEXEC));
  EXPECT_THAT(reason(table.add(event.get(), 4096)), HasSubstr("not a memfd"));
  UniqueFd directory(::open("/", O_PATH | O_CLOEXEC));
  EXPECT_THAT(reason(table.add(directory.get(), 4096)), HasSubstr("not a memfd"));
  Result<uint32_t> good = table.add(make_memfd(8192).get(), 8192);
  ASSERT_TRUE(good.is_ok()) << good.status().to_string();
  EXPECT_EQ(good.value(), 1u);
}

TEST(ArenaTable, CountIsBounded) {
  ArenaTable table(std::make_shared<ArenaTotals>());
  UniqueFd memfd = make_memfd(4096);
  for (size_t i = 0; i < limits::kMaxArenasPerSession; ++i) {
    ASSERT_TRUE(table.add(memfd.get(), 4096).is_ok());
  }
  EXPECT_EQ(table.add(memfd.get(), 4096).status().code(), Code::kResourceExhausted);
  ASSERT_TRUE(table.remove(5).is_ok());
  EXPECT_EQ(table.remove(5).code(), Code::kNotFound);
  Result<uint32_t> next = table.add(memfd.get(), 4096);
  ASSERT_TRUE(next.is_ok());
  EXPECT_EQ(next.value(), limits::kMaxArenasPerSession + 1);
}

TEST(ArenaTable, MemoryLivesWithItsLastHolder) {
  auto totals = std::make_shared<ArenaTotals>();
  std::shared_ptr<Arena> held;
  {
    ArenaTable table(totals);
    UniqueFd memfd = make_memfd(4096);
    ASSERT_TRUE(table.add(memfd.get(), 4096).is_ok());
    ASSERT_EQ(::pwrite(memfd.get(), "abc", 3, 0), 3);
    held = table.find(1);
  }
  EXPECT_EQ(std::memcmp(held->data(), "abc", 3), 0);
  EXPECT_EQ(totals->bytes.load(), 4096u);
  held.reset();
  EXPECT_EQ(totals->arenas.load(), 0u);
  EXPECT_EQ(totals->bytes.load(), 0u);
}

TEST_F(SessionTest, ArenasComeAndGo) {
  start_server();
  auto client = attach();
  EXPECT_EQ(add_arena(*client, 8192), 1u);
  EXPECT_EQ(add_arena(*client, 4096), 2u);
  EXPECT_EQ(server_->stats().arenas, 2u);
  EXPECT_EQ(server_->stats().arena_bytes, 12288u);
  rueda_abi_arena remove{0, 1, 0};
  EXPECT_EQ(request(*client, RUEDA_ABI_ARENA_REMOVE, &remove, sizeof(remove)).code, 0);
  EXPECT_EQ(request(*client, RUEDA_ABI_ARENA_REMOVE, &remove, sizeof(remove)).code, -11);
  EXPECT_EQ(server_->stats().arena_bytes, 4096u);
}

TEST_F(SessionTest, WrongNumberOfDescriptorsIsRefusedAndNothingLeaks) {
  start_server();
  auto client = attach();
  UniqueFd memfd = make_memfd(4096);
  rueda_abi_arena body{4096, 0, 0};
  int fds_before = count_open_fds();
  for (size_t count : {0, 2, 4, 12}) {
    std::vector<int> descriptors(count, memfd.get());
    EXPECT_EQ(request(*client, RUEDA_ABI_ARENA_ADD, &body, sizeof(body), descriptors).code, -1);
    EXPECT_EQ(count_open_fds(), fds_before) << count;
  }
  rueda_abi_intern tensor = make_tensor("t", {1});
  EXPECT_EQ(request(*client, RUEDA_ABI_INTERN, &tensor, sizeof(tensor), {memfd.get()}).code, 0);
  EXPECT_EQ(count_open_fds(), fds_before);
  EXPECT_EQ(server_->stats().arenas, 0u);
}

}  // namespace
}  // namespace rueda::session
