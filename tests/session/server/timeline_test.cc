#include <algorithm>
#include <cstring>

#include "tests/session/raw_client.h"

namespace rueda::session {
namespace {

rueda_abi_timeline wish_for(const std::string& path, uint32_t begins, uint32_t chunks = 0) {
  rueda_abi_timeline wish{};
  wish.begins = begins;
  wish.chunks = chunks;
  std::copy(path.begin(), path.end(), wish.path);
  return wish;
}

TEST_F(SessionTest, AWishForATimelineReachesTheEngine) {
  start_server();
  auto client = attach();
  const rueda_abi_timeline begin = wish_for("/tmp/timeline.json", 1, 1);
  EXPECT_EQ(request(*client, RUEDA_ABI_TIMELINE, &begin, sizeof(begin)).code, 0);
  ASSERT_EQ(events_.wishes.size(), 1u);
  EXPECT_TRUE(events_.wishes[0].begins && events_.wishes[0].wants_chunks);
  EXPECT_EQ(events_.wishes[0].path, "/tmp/timeline.json");
  const rueda_abi_timeline end = wish_for("", 0);
  const rueda_abi_status refused = request(*client, RUEDA_ABI_TIMELINE, &end, sizeof(end));
  EXPECT_EQ(refused.code, -static_cast<int>(Code::kInvalidArgument));
  EXPECT_STREQ(refused.text, "there is none");
}

TEST_F(SessionTest, AWishForATimelineThatCannotBeEndsTheSession) {
  rueda_abi_timeline endless{};
  endless.begins = 1;
  std::memset(endless.path, 'x', sizeof(endless.path));
  start_server();
  for (const rueda_abi_timeline& wrong :
       {wish_for("", 1), wish_for("/f", 0), wish_for("/f", 2), wish_for("/f", 1, 7), endless}) {
    events_.lost.clear();
    auto client = attach();
    client->send(RUEDA_ABI_TIMELINE, &wrong, sizeof(wrong));
    pump_until_lost("a timeline that cannot be");
    EXPECT_TRUE(events_.wishes.empty());
  }
}

}  // namespace
}  // namespace rueda::session
