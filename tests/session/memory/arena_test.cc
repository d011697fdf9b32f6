#include "daemon/session/memory/arena.h"

#include <cstring>
#include <filesystem>
#include <thread>

#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/mman.h>

#include "client/include/rueda/rueda.h"
#include "daemon/base/limits.h"
#include "daemon/session/memory/kept_arenas.h"
#include "tests/session/raw_client.h"

namespace rueda::session {
namespace {

using ::testing::HasSubstr;

Result<uint32_t> add(ArenaTable& table, int fd, uint64_t bytes) {
  Result<ArenaMemory> memory = ArenaTable::map(fd, bytes, {});
  if (!memory.is_ok()) return memory.status();
  return table.add(std::move(memory).value());
}

std::string reason(const Result<uint32_t>& result) { return result.status().message(); }

TEST(ArenaTable, ChecksTheDescriptor) {
  ArenaTable table(std::make_shared<ArenaTotals>());
  EXPECT_THAT(reason(add(table, make_memfd(4096, 0).get(), 4096)), HasSubstr("not sealed"));
  EXPECT_THAT(reason(add(table, make_memfd(4096, F_SEAL_SHRINK).get(), 4096)),
              HasSubstr("not sealed"));
  EXPECT_THAT(reason(add(table, make_memfd(4096, F_SEAL_GROW).get(), 4096)),
              HasSubstr("not sealed"));
  EXPECT_THAT(reason(add(table, make_memfd(4096).get(), 8192)), HasSubstr("has 4096 bytes"));
  EXPECT_THAT(reason(add(table, make_memfd(4097).get(), 4097)), HasSubstr("multiple of 4096"));
  EXPECT_THAT(reason(add(table, make_memfd(0).get(), 0)), HasSubstr("multiple of 4096"));
  EXPECT_THAT(reason(add(table, make_memfd(4096).get(), ~uint64_t{4095})), HasSubstr("real size"));
  constexpr int kReadOnly = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE;
  EXPECT_THAT(reason(add(table, make_memfd(4096, kReadOnly).get(), 4096)),
              HasSubstr("add no other seals"));
  UniqueFd event(::eventfd(0, EFD_CLOEXEC));
  EXPECT_THAT(reason(add(table, event.get(), 4096)), HasSubstr("not a memfd"));
  UniqueFd directory(::open("/", O_PATH | O_CLOEXEC));
  EXPECT_THAT(reason(add(table, directory.get(), 4096)), HasSubstr("not a memfd"));
  Result<uint32_t> good = add(table, make_memfd(8192).get(), 8192);
  ASSERT_TRUE(good.is_ok()) << good.status().to_string();
  EXPECT_EQ(good.value(), 1u);
}

// A page belongs to the account of whoever touches it first: for an arena of holes that was the
// daemon.
TEST(ArenaTable, HolesAreRefused) {
  ArenaTable table(std::make_shared<ArenaTotals>());
  constexpr uint64_t kTerabyte = uint64_t{1} << 40;
  UniqueFd sparse(::memfd_create("sparse", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(::ftruncate(sparse.get(), kTerabyte), 0);
  ASSERT_EQ(::fcntl(sparse.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW), 0);
  EXPECT_THAT(reason(add(table, sparse.get(), kTerabyte)),
              HasSubstr("an arena of 1099511627776 bytes has memory for 0 alone"));
  UniqueFd punched = make_memfd(8192);
  ASSERT_EQ(::fallocate(punched.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 4096, 4096), 0);
  EXPECT_THAT(reason(add(table, punched.get(), 8192)), HasSubstr("memory for 4096 alone"));
}

TEST(ArenaTable, WhatIsMappedKeepsItsPages) {
  ArenaTable table(std::make_shared<ArenaTotals>());
  UniqueFd memfd = make_memfd(8192);
  void* const own = ::mmap(nullptr, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, memfd.get(), 0);
  ASSERT_NE(own, MAP_FAILED);
  ASSERT_TRUE(add(table, memfd.get(), 8192).is_ok());
  EXPECT_EQ(::fallocate(memfd.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096), -1);
  EXPECT_EQ(errno, EPERM);
  EXPECT_EQ(::madvise(own, 8192, MADV_REMOVE), -1);
  EXPECT_EQ(::mmap(nullptr, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, memfd.get(), 0), MAP_FAILED);
  // Both sides go on writing into what they have mapped.
  std::memcpy(own, "abc", 3);
  EXPECT_EQ(std::memcmp(table.find(1)->data(), "abc", 3), 0);
  std::memcpy(table.find(1)->data(), "def", 3);
  EXPECT_EQ(std::memcmp(own, "def", 3), 0);
  EXPECT_THAT(reason(add(table, memfd.get(), 8192)), HasSubstr("share it once"));
  ::munmap(own, 8192);
}

TEST(ArenaTable, WhatIsMappedIsCharged) {
  Quota quota(uint64_t{1} << 40, 65536);
  quota[Resource::kArenaBytes] = 12288;
  const Account account{std::make_shared<Ledger>(quota), Principal::user(7)};
  const auto map = [&](uint64_t bytes) {
    return ArenaTable::map(make_memfd(bytes).get(), bytes, account);
  };
  {
    ArenaTable table(std::make_shared<ArenaTotals>(), account);
    ASSERT_TRUE(table.add(map(8192).value()).is_ok());
    EXPECT_EQ(map(8192).status().message(),
              "user 7 has 8192 bytes of arenas here and wants 8192 more, and may have 12288: free "
              "some, or end a job, or ask an operator of this node (root) to raise "
              "--quota-arena-bytes, or arena-bytes under [quota] in ruedad.toml");
    EXPECT_EQ(account.ledger->of(Principal::user(7), Resource::kArenaBytes), 8192u);
  }
  // The memory counts until it is unmapped, which is done at the door.
  while (account.ledger->of(Principal::user(7), Resource::kArenaBytes) > 0)
    std::this_thread::yield();
  EXPECT_EQ(account.ledger->of(Principal::user(7), Resource::kArenas), 0u);
}

TEST(ArenaTable, CountIsBounded) {
  ArenaTable table(std::make_shared<ArenaTotals>());
  for (size_t i = 0; i < limits::kMaxArenasPerSession; ++i) {
    ASSERT_TRUE(add(table, make_memfd(4096).get(), 4096).is_ok());
  }
  EXPECT_EQ(add(table, make_memfd(4096).get(), 4096).status().code(), Code::kResourceExhausted);
  ASSERT_TRUE(table.remove(5).is_ok());
  EXPECT_EQ(table.remove(5).code(), Code::kNotFound);
  Result<uint32_t> next = add(table, make_memfd(4096).get(), 4096);
  ASSERT_TRUE(next.is_ok());
  EXPECT_EQ(next.value(), limits::kMaxArenasPerSession + 1);
}

TEST(ArenaTable, MemoryLivesWithItsLastHolder) {
  auto totals = std::make_shared<ArenaTotals>();
  std::shared_ptr<Arena> held;
  {
    ArenaTable table(totals);
    UniqueFd memfd = make_memfd(4096);
    ASSERT_EQ(::pwrite(memfd.get(), "abc", 3, 0), 3);
    ASSERT_TRUE(add(table, memfd.get(), 4096).is_ok());
    held = table.find(1);
  }
  EXPECT_EQ(std::memcmp(held->data(), "abc", 3), 0);
  EXPECT_EQ(totals->bytes.load(), 4096u);
  held.reset();
  EXPECT_EQ(totals->arenas.load(), 0u);
  EXPECT_EQ(totals->bytes.load(), 0u);
}

// --- Arenas of a process that comes back

class KeptArenasTest : public SessionTest {
 protected:
  int32_t add(RawClient& client, int memfd, uint64_t bytes) {
    rueda_abi_arena body{.bytes = bytes, .arena_id = 0, .reserved = 0};
    return request(client, RUEDA_ABI_ARENA_ADD, &body, sizeof(body), {memfd}).code;
  }
};

// A second handing over cannot map the memory, so that all of it was copied after a reset.
TEST_F(KeptArenasTest, ArenasAreKeptForAProcessThatComesBack) {
  start_server();
  UniqueFd memfd = make_memfd(8192);
  auto before = attach();
  ASSERT_EQ(add(*before, memfd.get(), 8192), 0);
  const Arena* const arena = events_.sessions.at(0)->arenas().at(0).get();
  EXPECT_EQ(request(*before, RUEDA_ABI_RESET, nullptr, 0).code, 0);
  EXPECT_EQ(events_.detached, 1);
  EXPECT_EQ(server_->stats().sessions, 0u);
  EXPECT_EQ(server_->stats().arenas, 1u);
  EXPECT_FALSE(before->is_closed());

  auto after = attach();
  EXPECT_EQ(add(*after, memfd.get(), 4096), RUEDA_ERR_INVALID_ARGUMENT) << "its size";
  ASSERT_EQ(add(*after, memfd.get(), 8192), 0);
  EXPECT_EQ(events_.sessions.at(1)->arenas().at(0).get(), arena);
  EXPECT_EQ(add(*after, memfd.get(), 8192), RUEDA_ERR_INVALID_ARGUMENT) << "once";
  before->close();
  pump_until([&] { return loop_.poll() == 0; }, "quiet");
  EXPECT_EQ(server_->stats().arenas, 1u) << "the new session has it";
  EXPECT_TRUE(events_.lost.empty());
}

TEST_F(KeptArenasTest, KeptArenasGoWithTheConnectionThatKeepsThem) {
  start_server();
  UniqueFd memfd = make_memfd(8192);
  auto before = attach();
  ASSERT_EQ(add(*before, memfd.get(), 8192), 0);
  EXPECT_EQ(request(*before, RUEDA_ABI_RESET, nullptr, 0).code, 0);
  before->close();
  pump_until([&] { return server_->stats().arenas == 0; }, "the end of the arena");
  auto after = attach();
  EXPECT_EQ(add(*after, memfd.get(), 8192), RUEDA_ERR_INVALID_ARGUMENT);
}

TEST_F(KeptArenasTest, WhoeverSpeaksOverAConnectionThatKeepsArenasLosesThem) {
  start_server();
  UniqueFd memfd = make_memfd(8192);
  auto before = attach();
  ASSERT_EQ(add(*before, memfd.get(), 8192), 0);
  EXPECT_EQ(request(*before, RUEDA_ABI_RESET, nullptr, 0).code, 0);
  before->send(RUEDA_ABI_RESET, nullptr, 0);
  pump_until([&] { return server_->stats().arenas == 0; }, "the end of the arena");
  EXPECT_TRUE(before->is_closed());
}

TEST(KeptArenas, AreFoundByTheirProcessAndTheirFileAlone) {
  KeptArenas kept;
  const Credentials owner{100, 7, 7};
  ArenaTable table(std::make_shared<ArenaTotals>());
  UniqueFd memfd = make_memfd(8192);
  ASSERT_TRUE(add(table, memfd.get(), 8192).is_ok());
  kept.put(owner, table.all());
  EXPECT_EQ(kept.take({101, 7, 7}, memfd.get(), 8192), nullptr) << "another process";
  EXPECT_EQ(kept.take({100, 8, 7}, memfd.get(), 8192), nullptr) << "another user";
  EXPECT_EQ(kept.take({100, 7, 7, Principal::named("a")}, memfd.get(), 8192), nullptr)
      << "the same user at another socket";
  EXPECT_EQ(kept.take(owner, make_memfd(8192).get(), 8192), nullptr) << "another file";
  EXPECT_EQ(kept.take(owner, memfd.get(), 4096), nullptr) << "another size";
  EXPECT_EQ(kept.take(owner, memfd.get(), 8192), table.find(1));
  EXPECT_EQ(kept.take(owner, memfd.get(), 8192), nullptr);
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
    pump_until([&] { return count_open_fds() <= fds_before; }, "the end of what was sent");
  }
  rueda_abi_intern tensor = make_tensor("t", {1});
  EXPECT_EQ(request(*client, RUEDA_ABI_INTERN, &tensor, sizeof(tensor), {memfd.get()}).code, 0);
  pump_until([&] { return count_open_fds() <= fds_before; }, "the end of what was sent");
  EXPECT_EQ(server_->stats().arenas, 0u);
}

}  // namespace
}  // namespace rueda::session
