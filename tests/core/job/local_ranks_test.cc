// Tests of who is attached, and of who is suspected.

#include "daemon/core/job/local_ranks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "daemon/core/job/suspicion.h"
#include "tests/core/builders.h"

namespace rueda::core {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST(LocalRanks, ARankThatAttachesEarlyTakesPartInTheNextEpoch) {
  const Layout layout = layout_of({1, 3});
  LocalRanks ranks(layout, n1);
  ranks.attach(LocalRank{0});
  ranks.attach(LocalRank{2});
  EXPECT_THAT(ranks.attached(), ElementsAre(Rank{1}, Rank{3}));
  EXPECT_THAT(ranks.missing(), ElementsAre(Rank{2}));
  ranks.detach(LocalRank{0});
  ranks.attach_early(LocalRank{0});
  EXPECT_TRUE(ranks.contains(LocalRank{0}));
  EXPECT_THAT(ranks.attached(), ElementsAre(Rank{3}));
  ranks.begin_next_epoch();
  EXPECT_THAT(ranks.attached(), ElementsAre(Rank{1}));
  EXPECT_FALSE(ranks.detach_early(LocalRank{0}));
  ranks.detach(LocalRank{0});
  EXPECT_TRUE(ranks.is_empty());
}

TEST(Suspicion, IsRefutedWhenAllSuspectsHaveLeftUnlessOneIsMissed) {
  const Layout layout = layout_of({1, 1, 1});
  const JobOptions options;
  const ProcessSets sets(layout, n0, options);
  Goodbyes goodbyes(layout, sets);
  Suspicion suspicion;
  suspicion.begin(Status(Code::kNodeLost, "n1 closed its channel"), 100);
  suspicion.add(n1, false);
  suspicion.add(n2, false);
  goodbyes.add(n1, Rank{1});
  EXPECT_FALSE(suspicion.is_refuted(goodbyes));
  goodbyes.add(n2, Rank{2});
  EXPECT_TRUE(suspicion.is_refuted(goodbyes));
  suspicion.add(n2, true);
  EXPECT_FALSE(suspicion.is_refuted(goodbyes));
  suspicion.forget();
  EXPECT_THAT(suspicion.nodes(), IsEmpty());
}

}  // namespace
}  // namespace rueda::core
