#include "daemon/session/submissions/intern.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>

#include "tests/session/raw_client.h"

namespace rueda::session {
namespace {

using ::testing::HasSubstr;

TEST(DescriptorFromAbi, TakesEveryField) {
  rueda_abi_intern abi = make_tensor("layer.0/wéight", {3, 0, 5});
  abi.kind = 0;
  abi.dtype = static_cast<uint8_t>(DType::kFloat32);
  abi.op = static_cast<uint8_t>(ReduceOp::kMax);
  abi.prescale = 0.5;
  abi.postscale = 2.0;
  abi.wire_dtype = static_cast<uint32_t>(WireDType::kBFloat16);
  std::strcpy(abi.group, "bucket");
  abi.group_size = 4;
  Result<core::TensorDescriptor> result = descriptor_from_abi(abi);
  ASSERT_TRUE(result.is_ok()) << result.status().to_string();
  core::TensorDescriptor expected;
  expected.name = "layer.0/wéight";
  expected.dtype = DType::kFloat32;
  expected.op = ReduceOp::kMax;
  expected.shape = {3, 0, 5};
  expected.prescale = 0.5;
  expected.postscale = 2.0;
  expected.wire_dtype = WireDType::kBFloat16;
  expected.group = "bucket";
  expected.group_size = 4;
  EXPECT_EQ(result.value(), expected);
}

struct Refusal {
  const char* what;
  std::function<void(rueda_abi_intern&)> spoil;
  const char* text;
};

const Refusal kRefusals[] = {
    {"empty name", [](auto& t) { t.name[0] = '\0'; }, "without a name"},
    {"no NUL", [](auto& t) { std::memset(t.name, 'n', sizeof(t.name)); }, "at most 255"},
    {"newline", [](auto& t) { std::strcpy(t.name, "a\nb"); }, "control characters"},
    {"escape", [](auto& t) { std::strcpy(t.name, "\x1b[2J"); }, "control characters"},
    {"C1 control", [](auto& t) { std::strcpy(t.name, "a\xc2\x85"); }, "control characters"},
    {"not UTF-8", [](auto& t) { std::strcpy(t.name, "a\xff"); }, "not UTF-8"},
    {"cut UTF-8", [](auto& t) { std::strcpy(t.name, "a\xc3"); }, "not UTF-8"},
    {"overlong UTF-8", [](auto& t) { std::strcpy(t.name, "\xc0\xaf"); }, "not UTF-8"},
    {"surrogate", [](auto& t) { std::strcpy(t.name, "\xed\xa0\x80"); }, "not UTF-8"},
    {"kind", [](auto& t) { t.kind = 3; }, "collective 3"},
    {"kind beyond", [](auto& t) { t.kind = kCollectiveKindCount; }, "collective 15"},
    {"a send", [](auto& t) { t.kind = 13; }, "collective 13"},
    {"a receive", [](auto& t) { t.kind = 14; }, "collective 14"},
    {"places of what has no parts", [](auto& t) { t.places = 4; }, "as no allreduce can"},
    {"no places of what has parts", [](auto& t) { t.kind = 7; }, "as no allgather can"},
    {"a place beyond",
     [](auto& t) {
       t.kind = 7;
       t.place = t.places = 4;
     },
     "place 4 of 4"},
    {"parts of a scalar",
     [](auto& t) {
       t.kind = 7;
       t.places = 4;
       t.ndim = 0;
     },
     "no first dimension"},
    {"an exchange that is not even",
     [](auto& t) {
       t.kind = 10;
       t.places = 4;
       t.ndim = 1;
       t.dims[0] = 17;
     },
     "cannot exchange in equal parts"},
    {"wire dtype", [](auto& t) { t.wire_dtype = 3; }, "wire dtype 3: known are 0 to 2"},
    {"rounded float64", [](auto& t) { t.wire_dtype = 2, t.dtype = 1; },
     "is a allreduce of float64 with wire dtype bfloat16: only what reduces float32"},
    {"rounded broadcast", [](auto& t) { t.wire_dtype = 1, t.kind = 1, t.root = 0; },
     "is a broadcast of float32 with wire dtype float16"},
    {"join with another name", [](auto& t) { t.kind = 6; }, "no name of a join"},
    {"join in a set",
     [](auto& t) {
       t.kind = 6;
       t.process_set = 1;
       std::strcpy(t.name, RUEDA_ABI_JOIN_NAME);
     },
     "no name of a join"},
    {"join with a shape",
     [](auto& t) {
       t.kind = 6;
       std::strcpy(t.name, RUEDA_ABI_JOIN_NAME);
     },
     "is a join, which has no shape"},
    {"dtype", [](auto& t) { t.dtype = 15; }, "dtype 15: known are 0 to 14"},
    {"op", [](auto& t) { t.op = 255; }, "op 255"},
    {"ndim", [](auto& t) { t.ndim = 9; }, "9 dimensions"},
    {"negative dim", [](auto& t) { t.dims[1] = -4; }, "dimension 1 of -4"},
    {"overflow", [](auto& t) { t.dims[0] = t.dims[1] = int64_t{1} << 62; }, "larger than"},
    {"overflow behind a 0",
     [](auto& t) {
       t.ndim = 3;
       t.dims[0] = t.dims[1] = int64_t{1} << 40;
       t.dims[2] = 0;
     },
     "larger than"},
    {"too many bytes", [](auto& t) { t.dims[0] = int64_t{1} << 39; }, "larger than"},
    {"root without broadcast", [](auto& t) { t.root = 0; }, "which no allreduce has"},
    {"broadcast without root", [](auto& t) { t.kind = 1; }, "root rank -1"},
    {"root too large", [](auto& t) { t.kind = 1, t.root = 65536; }, "root rank 65536"},
    {"barrier with a shape", [](auto& t) { t.kind = 2; }, "is a barrier, which has no shape"},
    {"infinite scale", [](auto& t) { t.prescale = INFINITY; }, "not finite"},
    {"NaN scale", [](auto& t) { t.postscale = std::nan(""); }, "not finite"},
    {"average of bool", [](auto& t) { t.dtype = 8, t.op = 1; }, "bool, which has no average"},
    {"scaled bool", [](auto& t) { t.dtype = 8, t.op = 0, t.prescale = 2; }, "no scale"},
    {"minimum of complex64", [](auto& t) { t.dtype = 13, t.op = 2; },
     "is complex64, which has no order, and so no min"},
    {"maximum of complex128", [](auto& t) { t.dtype = 14, t.op = 3; },
     "is complex128, which has no order, and so no max"},
    {"adasum of complex64", [](auto& t) { t.dtype = 13, t.op = 5; },
     "allreduce of complex64 with op adasum"},
    {"rounded complex64", [](auto& t) { t.dtype = 13, t.wire_dtype = 1; },
     "of complex64 with wire dtype float16"},
    {"too many bytes of complex128", [](auto& t) { t.dtype = 14, t.dims[0] = int64_t{1} << 36; },
     "larger than"},
    {"adasum of int32", [](auto& t) { t.dtype = 4, t.op = 5; }, "allreduces of floating point"},
    {"adasum of a reduce", [](auto& t) { t.kind = 8, t.root = 0, t.op = 5; }, "with op adasum"},
    {"group without a size", [](auto& t) { std::strcpy(t.group, "g"); }, "both a name and a size"},
    {"group without a name", [](auto& t) { t.group_size = 2; }, "both a name and a size"},
    {"group's NUL",
     [](auto& t) {
       std::memset(t.group, 'g', sizeof(t.group));
       t.group_size = 1;
     },
     "at most 255"},
    {"huge group",
     [](auto& t) {
       std::strcpy(t.group, "g");
       t.group_size = ~0u;
     },
     "group of 4294967295"},
    {"grouped broadcast",
     [](auto& t) {
       std::strcpy(t.group, "g");
       t.group_size = 1, t.kind = 1, t.root = 0;
     },
     "only allreduces"},
    {"change of process sets", [](auto& t) { t.kind = 3; }, "collective 3"},
};

TEST(DescriptorFromAbi, ChangesOfProcessSets) {
  rueda_abi_process_set add{};
  add.change = RUEDA_ABI_SET_ADD;
  add.rank_count = 2;
  add.ranks[0] = 1;
  add.ranks[1] = 4;
  const core::TensorDescriptor added = descriptor_from_abi(add).value();
  EXPECT_EQ(added.kind, CollectiveKind::kAddProcessSet);
  EXPECT_EQ(added.name, core::kProcessSetsName);
  EXPECT_EQ(added.shape, (std::vector<int64_t>{1, 4}));
  EXPECT_EQ(added.bytes(), 0);
  rueda_abi_process_set remove{};
  remove.change = RUEDA_ABI_SET_REMOVE;
  remove.process_set = 7;
  EXPECT_EQ(descriptor_from_abi(remove).value().process_set, 7u);

  add.rank_count = RUEDA_ABI_MAX_SET_RANKS + 1;
  EXPECT_FALSE(descriptor_from_abi(add).is_ok());
  remove.change = 2;
  EXPECT_FALSE(descriptor_from_abi(remove).is_ok());
}

TEST(DescriptorFromAbi, RefusesWithTheReason) {
  for (const Refusal& refusal : kRefusals) {
    rueda_abi_intern abi = make_tensor("grad", {2, 2});
    refusal.spoil(abi);
    Result<core::TensorDescriptor> result = descriptor_from_abi(abi);
    ASSERT_FALSE(result.is_ok()) << refusal.what;
    EXPECT_EQ(result.status().code(), Code::kInvalidArgument) << refusal.what;
    EXPECT_THAT(result.status().message(), HasSubstr(refusal.text)) << refusal.what;
  }
}

TEST(DescriptorFromAbi, TakesTheLargest) {
  EXPECT_TRUE(descriptor_from_abi(make_tensor("large", {int64_t{1} << 38})).is_ok());
  EXPECT_TRUE(descriptor_from_abi(make_tensor(std::string(255, 'n'), {})).is_ok());
}

TEST(TensorTable, SameDescriptorSameId) {
  TensorTable table(3);
  rueda_abi_intern a = make_tensor("a", {4});
  rueda_abi_intern other_shape = make_tensor("a", {2, 2});
  rueda_abi_intern garbage_behind = a;
  garbage_behind.name[10] = 'x';
  garbage_behind.dims[5] = -1;
  ASSERT_EQ(table.intern(a, Rank{0}).value(), 0u);
  ASSERT_EQ(table.intern(other_shape, Rank{0}).value(), 1u);
  EXPECT_EQ(table.intern(a, Rank{0}).value(), 0u);
  EXPECT_EQ(table.intern(garbage_behind, Rank{0}).value(), 0u);
  EXPECT_EQ(table.intern(make_tensor("b", {4}), Rank{0}).value(), 2u);
  Result<uint32_t> full = table.intern(make_tensor("c", {4}), Rank{0});
  ASSERT_FALSE(full.is_ok());
  EXPECT_EQ(full.status().code(), Code::kResourceExhausted);
  EXPECT_EQ(table.intern(other_shape, Rank{0}).value(), 1u);
  EXPECT_EQ(table.find(1)->descriptor->shape, (std::vector<int64_t>{2, 2}));
  EXPECT_EQ(table.find(3), nullptr);
}

rueda_abi_intern parted(CollectiveKind kind, int64_t rows, int32_t place, int32_t places) {
  rueda_abi_intern abi = make_tensor("p", {rows, 2});
  abi.kind = static_cast<uint8_t>(kind);
  abi.op = static_cast<uint8_t>(ReduceOp::kSum);
  abi.place = place;
  abi.places = places;
  return abi;
}

rueda_abi_counts counts_of(const std::vector<int64_t>& counts) {
  rueda_abi_counts part{};
  part.count = static_cast<uint32_t>(counts.size());
  std::copy(counts.begin(), counts.end(), part.counts);
  return part;
}

TEST(TensorTable, PartsAreAsLongAsThePlaceOfTheRankAsksFor) {
  TensorTable table;
  const auto extent = [&](const rueda_abi_intern& abi, Rank rank) {
    const Result<uint32_t> id = table.intern(abi, rank);
    EXPECT_TRUE(id.is_ok()) << id.status().message();
    return table.find(id.value())->extent;
  };
  // 11 rows of two elements among 4 ranks make 3, 3, 3 and 2 rows.
  EXPECT_EQ(extent(parted(CollectiveKind::kAllgather, 11, 3, 4), Rank{3}),
            (Extent{4, 22, 18, 0, true}));
  EXPECT_EQ(extent(parted(CollectiveKind::kReduceScatter, 11, 1, 4), Rank{1}),
            (Extent{22, 6, 0, 6, true}));
  // The root is given by its rank in the job.
  rueda_abi_intern gather = parted(CollectiveKind::kGather, 11, 0, 4);
  gather.root = 9;
  EXPECT_EQ(extent(gather, Rank{9}).output, 22);
  rueda_abi_intern of_another = gather;
  of_another.place = 1;
  EXPECT_EQ(extent(of_another, Rank{10}).output, 0);
}

TEST(TensorTable, CountsBelongToTheTensorThatFollows) {
  TensorTable table;
  rueda_abi_intern abi = parted(CollectiveKind::kAllgather, 5, 1, 2);
  abi.count_count = 2;
  ASSERT_TRUE(table.take_counts(counts_of({1})).is_ok());
  ASSERT_TRUE(table.take_counts(counts_of({4})).is_ok());
  const uint32_t id = table.intern(abi, Rank{1}).value();
  EXPECT_EQ(table.find(id)->extent.input, 8);
  EXPECT_THAT(table.find(id)->descriptor->counts, testing::ElementsAre(1, 4));
  // The ids are used up, and other counts make another tensor.
  EXPECT_FALSE(table.intern(abi, Rank{1}).is_ok());
  ASSERT_TRUE(table.take_counts(counts_of({2, 3})).is_ok());
  EXPECT_NE(table.intern(abi, Rank{1}).value(), id);
  ASSERT_TRUE(table.take_counts(counts_of({2, 4})).is_ok());
  EXPECT_THAT(table.intern(abi, Rank{1}).status().message(), HasSubstr("5 rows"));
  ASSERT_TRUE(table.take_counts(counts_of({6, -1})).is_ok());
  EXPECT_FALSE(table.intern(abi, Rank{1}).is_ok());
  rueda_abi_counts broken = counts_of({});
  broken.count = RUEDA_ABI_MAX_COUNTS + 1;
  EXPECT_FALSE(table.take_counts(broken).is_ok());
}

TEST(TensorTable, NamesAndShapesThatAreForgottenMakeRoom) {
  TensorTable table(1);
  ASSERT_EQ(table.intern(make_tensor("a", {4}), Rank{0}).value(), 0u);
  EXPECT_THAT(table.intern(make_tensor("a", {5}), Rank{0}).status().message(),
              HasSubstr("names and shapes tell them apart: give tensors names"));
  ASSERT_TRUE(table.forget(0).is_ok());
  EXPECT_EQ(table.intern(make_tensor("a", {5}), Rank{0}).value(), 0u);
}

TEST(TensorTable, WhatIsForgottenMakesRoom) {
  TensorTable table(1);
  rueda_abi_intern abi = parted(CollectiveKind::kAllgather, 5, 1, 2);
  abi.count_count = 2;
  const auto intern = [&](const std::vector<int64_t>& counts) {
    EXPECT_TRUE(table.take_counts(counts_of(counts)).is_ok());
    return table.intern(abi, Rank{1});
  };
  ASSERT_EQ(intern({1, 4}).value(), 0u);
  ASSERT_FALSE(intern({2, 3}).is_ok());
  EXPECT_TRUE(table.forget(0).is_ok());
  EXPECT_EQ(table.find(0), nullptr);
  EXPECT_EQ(table.forget(0).code(), Code::kNotFound);
  EXPECT_EQ(table.forget(1).code(), Code::kNotFound);
  ASSERT_EQ(intern({2, 3}).value(), 0u);
  EXPECT_THAT(table.find(0)->descriptor->counts, testing::ElementsAre(2, 3));
}

rueda_abi_plan plan_part(const std::vector<uint32_t>& words, bool is_last = true) {
  rueda_abi_plan part{};
  part.word_count = static_cast<uint32_t>(words.size());
  part.is_last = is_last ? 1 : 0;
  std::copy(words.begin(), words.end(), part.words);
  return part;
}

TEST(TensorTable, APlanMayComeInParts) {
  TensorTable table;
  ASSERT_TRUE(table.intern(make_tensor("a", {4}), Rank{0}).is_ok());
  ASSERT_TRUE(table.intern(make_tensor("b", {4}), Rank{0}).is_ok());
  ASSERT_EQ(table.intern(plan_part({0, 0, 1}, false)).value(), 0u);
  const Result<uint32_t> id = table.intern(plan_part({1, 0}));
  ASSERT_TRUE(id.is_ok()) << id.status().message();
  const auto& plan = table.find(id.value())->descriptor->plan;
  ASSERT_EQ(plan.size(), 2u);
  EXPECT_EQ(plan[0].tensor->name, "a");
  EXPECT_THAT(plan[0].after, testing::IsEmpty());
  EXPECT_EQ(plan[1].tensor->name, "b");
  EXPECT_THAT(plan[1].after, testing::ElementsAre(0));
  EXPECT_EQ(table.intern(plan_part({0, 0, 1, 1, 0})).value(), id.value());
}

TEST(TensorTable, APlanThatCannotBeIsRefusedAndForgotten) {
  TensorTable table;
  ASSERT_TRUE(table.intern(make_tensor("a", {4}), Rank{0}).is_ok());
  ASSERT_TRUE(table.intern(make_tensor("b", {4}), Rank{0}).is_ok());
  const uint32_t plan = table.intern(plan_part({0, 0})).value();
  for (const std::vector<uint32_t>& words :
       std::vector<std::vector<uint32_t>>{{9, 0},           // has an unknown tensor
                                          {0},              // is cut off
                                          {0, 3, 0},        // is cut off
                                          {0, 1, 0},        // comes after itself
                                          {0, 1, 1, 1, 0},  // comes after a later one
                                          // comes after one that does not exist
                                          {0, 0, 1, 1, UINT32_MAX},
                                          {plan, 0}}) {  // is a plan of plans
    ASSERT_TRUE(table.intern(plan_part({}, false)).is_ok());
    EXPECT_FALSE(table.intern(plan_part(words)).is_ok()) << testing::PrintToString(words);
  }
  EXPECT_TRUE(table.intern(plan_part({1, 0})).is_ok());
}

TEST(TensorTable, PlansAreBoundedTogether) {
  TensorTable table;
  ASSERT_TRUE(table.intern(make_tensor("a", {4}), Rank{0}).is_ok());
  std::vector<uint32_t> words;
  for (int i = 0; i < RUEDA_ABI_MAX_PLAN_WORDS / 2; ++i) words.insert(words.end(), {0, 0});
  Status status;
  for (int parts = 1; status.is_ok() && parts < 200; ++parts) {
    for (int i = 0; i < parts; ++i) ASSERT_TRUE(table.intern(plan_part(words, false)).is_ok());
    status = table.intern(plan_part({0, 0})).status();
  }
  EXPECT_EQ(status.code(), Code::kResourceExhausted);
}

// Otherwise plans could keep more than the table's bounds say.
TEST(TensorTable, PlansAndWhatCanBeForgottenAreApart) {
  TensorTable table;
  ASSERT_EQ(table.intern(make_tensor("a", {4}), Rank{0}).value(), 0u);
  ASSERT_TRUE(table.intern(plan_part({0, 0})).is_ok());
  EXPECT_THAT(table.forget(0).message(), HasSubstr("one of a declared plan"));
  EXPECT_THAT(table.forget(1).message(), HasSubstr("is no tensor"));
  rueda_abi_intern abi = parted(CollectiveKind::kAllgather, 5, 1, 2);
  abi.count_count = 2;
  ASSERT_TRUE(table.take_counts(counts_of({1, 4})).is_ok());
  const uint32_t forgettable = table.intern(abi, Rank{1}).value();
  EXPECT_THAT(table.intern(plan_part({forgettable, 0})).status().message(),
              HasSubstr("has counts"));
  // A plan under an id that comes again counts towards the bound of all plans.
  std::vector<uint32_t> words;
  for (int i = 0; i < RUEDA_ABI_MAX_PLAN_WORDS / 2; ++i) words.insert(words.end(), {0, 0});
  Status status;
  for (int parts = 1; status.is_ok() && parts < 200; ++parts) {
    ASSERT_TRUE(table.take_counts(counts_of({parts % 5, 5 - parts % 5})).is_ok());
    abi.name[0] = static_cast<char>('a' + parts % 26);
    const Result<uint32_t> some = table.intern(abi, Rank{1});
    ASSERT_TRUE(some.is_ok() && table.forget(some.value()).is_ok());
    for (int i = 0; i < parts; ++i) ASSERT_TRUE(table.intern(plan_part(words, false)).is_ok());
    status = table.intern(plan_part({0, 0})).status();
  }
  EXPECT_EQ(status.code(), Code::kResourceExhausted);
}

TEST_F(SessionTest, InternErrorLeavesTheSessionUp) {
  start_server();
  auto client = attach();
  rueda_abi_intern bad = make_tensor("grad", {-1});
  rueda_abi_status reply = request(*client, RUEDA_ABI_INTERN, &bad, sizeof(bad));
  EXPECT_EQ(reply.code, -1);
  EXPECT_THAT(reply.text, HasSubstr("'grad'"));
  EXPECT_EQ(intern(*client, make_tensor("grad", {1})), 0u);
}

}  // namespace
}  // namespace rueda::session
