#include "daemon/service/convert/convert.h"

#include <functional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "daemon/base/limits.h"
#include "daemon/service/convert/convert_plan.h"

namespace rueda::service {
namespace {

engine::Envelope envelope_of(decltype(core::Message::body) body) {
  return {"job", {NodeIndex{3}, Epoch{5}, 42, std::move(body)}, {}};
}

// Converts an envelope there and back, through the wire's bytes.
engine::Envelope round_trip(const engine::Envelope& envelope) {
  v1::JobMessage wire;
  EXPECT_TRUE(wire.ParseFromString(to_proto(envelope).SerializeAsString()));
  Result<engine::Envelope> back = from_proto(wire);
  EXPECT_TRUE(back.is_ok()) << back.status().message();
  if (!back.is_ok()) return {};
  EXPECT_EQ(back.value().job, envelope.job);
  EXPECT_EQ(back.value().message.from, envelope.message.from);
  EXPECT_EQ(back.value().message.epoch, envelope.message.epoch);
  EXPECT_EQ(back.value().message.number, envelope.message.number);
  EXPECT_EQ(back.value().message.body.index(), envelope.message.body.index());
  return std::move(back).value();
}

template <class Body>
Body round_trip(const Body& body) {
  const core::Message back = round_trip(envelope_of(body)).message;
  if constexpr (std::is_constructible_v<core::AgreementMessage, Body>) {
    return std::get<Body>(std::get<core::AgreementMessage>(back.body));
  } else {
    return std::get<Body>(back.body);
  }
}

core::DescriptorPtr descriptor() {
  core::TensorDescriptor tensor;
  tensor.name = "layer.weight";
  tensor.kind = CollectiveKind::kReduce;
  tensor.dtype = DType::kFloat32;
  tensor.op = ReduceOp::kProduct;
  tensor.shape = {2, 0, 7};
  tensor.root = Rank{11};
  tensor.process_set = 4;
  tensor.prescale = 0.25;
  tensor.postscale = -8;
  tensor.wire_dtype = WireDType::kBFloat16;
  tensor.group = "g";
  tensor.group_size = 9;
  return std::make_shared<core::TensorDescriptor>(tensor);
}

TEST(Convert, Join) {
  const core::Join join{
      0xfedcba9876543210,
      "host:1",
      {Rank{0}, Rank{7}},
      {{"--algorithm", "ring"}, {"ruedad --failure-timeout", "5000 ms"}},
      {{NodeIndex{3}, "host:3", {Rank{4}}, "north"}, {NodeIndex{4}, "host:4", {}}},
      "south"};
  const core::Join back = round_trip(join);
  EXPECT_EQ(back.layout_hash, join.layout_hash);
  EXPECT_EQ(back.data_address, join.data_address);
  EXPECT_EQ(back.attached, join.attached);
  EXPECT_EQ(back.settings, join.settings);
  ASSERT_EQ(back.below.size(), 2u);
  EXPECT_EQ(back.below[0].node, NodeIndex{3});
  EXPECT_EQ(back.below[0].data_address, "host:3");
  EXPECT_EQ(back.below[0].attached, (std::vector<Rank>{Rank{4}}));
  EXPECT_EQ(back.below[1].attached, std::vector<Rank>{});
  EXPECT_EQ(back.rack, "south");
  EXPECT_EQ(back.below[0].rack, "north");
  EXPECT_EQ(back.below[1].rack, "");
}

// A sleep of 0 is a sleep, and no sleep is none.
TEST(Convert, ASleepTravelsByItself) {
  core::Ready ready;
  ready.round = 7;
  EXPECT_EQ(round_trip(ready).sleep_us, std::nullopt);
  for (const TicksUs sleep_us : {0, 4'999}) {
    ready.sleep_us = sleep_us;
    EXPECT_EQ(round_trip(ready).sleep_us, sleep_us);
    core::Decree decree;
    decree.sleep_us = sleep_us;
    EXPECT_EQ(round_trip(decree).sleep_us, sleep_us);
  }
  EXPECT_EQ(round_trip(core::Decree{}).sleep_us, std::nullopt);
}

TEST(Convert, Start) {
  EXPECT_EQ(round_trip(core::Start{{"a:1", "b:2"}}).data_addresses,
            (std::vector<std::string>{"a:1", "b:2"}));
  const core::Start ordered{{"a:1", "b:2"}, {NodeIndex{1}, NodeIndex{0}}};
  EXPECT_EQ(round_trip(ordered).ring, ordered.ring);
}

TEST(Convert, Ready) {
  const core::Ready back = round_trip(
      core::Ready{{{descriptor(), Rank{6}, ""}, {descriptor(), Rank{0}, "they differ"}}});
  ASSERT_EQ(back.entries.size(), 2u);
  EXPECT_EQ(*back.entries[0].descriptor, *descriptor());
  EXPECT_EQ(back.entries[0].rank, Rank{6});
  EXPECT_EQ(back.entries[0].mismatch, "");
  EXPECT_EQ(back.entries[1].mismatch, "they differ");
}

TEST(Convert, WhatGoesAlongATree) {
  engine::Envelope envelope = envelope_of(core::Left{Rank{3}});
  EXPECT_EQ(round_trip(envelope).message.to, std::nullopt);
  EXPECT_EQ(round_trip(envelope).message.passed_on_by, std::nullopt);
  envelope.message.to = core::kEverybodyBelow;
  envelope.message.passed_on_by = NodeIndex{0};
  EXPECT_EQ(round_trip(envelope).message.to, core::kEverybodyBelow);
  EXPECT_EQ(round_trip(envelope).message.passed_on_by, NodeIndex{0});

  const core::Handover attach{core::Handover::Step::kAttach, NodeIndex{4}};
  EXPECT_EQ(round_trip(attach).step, attach.step);
  EXPECT_EQ(round_trip(attach).node, attach.node);
  EXPECT_EQ(round_trip(core::Handover{core::Handover::Step::kGone, {}}).step,
            core::Handover::Step::kGone);

  core::Ready ready;
  EXPECT_EQ(round_trip(ready).of, std::nullopt);
  ready.of = NodeIndex{0};
  EXPECT_EQ(round_trip(ready).of, NodeIndex{0});
}

TEST(Convert, WhoIsAbsent) {
  const core::Ready back =
      round_trip(core::Ready{{{descriptor(), Rank{6}, "", Rank{0}}, {descriptor(), Rank{0}, ""}}});
  EXPECT_EQ(back.entries[0].absent, Rank{0});
  EXPECT_EQ(back.entries[1].absent, Rank{-1});
}

TEST(Convert, ADecreeWhileRanksHaveJoined) {
  core::OrderedOperation zeros;
  zeros.seq = Seq{1};
  zeros.tensors = {descriptor()->name};
  zeros.descriptors = {descriptor()};
  core::OrderedOperation join;
  join.seq = Seq{2};
  join.tensors = {core::kJoinName};
  join.outcome = 0;
  const core::Decree back = round_trip(core::Decree{{zeros, join}});
  ASSERT_EQ(back.operations.size(), 2u);
  EXPECT_EQ(back.operations[0].tensors, zeros.tensors);
  EXPECT_EQ(*back.operations[0].descriptors.at(0), *descriptor());
  EXPECT_EQ(back.operations[0].outcome, std::nullopt);
  EXPECT_EQ(back.operations[1].outcome, 0u);
}

TEST(Convert, WhereATensorIs) {
  core::TensorDescriptor tensor = *descriptor();
  tensor.kind = CollectiveKind::kAllreduce;
  tensor.memory = MemorySpace::kDevice;
  const auto given = std::make_shared<core::TensorDescriptor>(tensor);
  EXPECT_EQ(*round_trip(core::Ready{{{given, Rank{0}, ""}}}).entries[0].descriptor, tensor);
}

TEST(Convert, EveryKindDtypeAndOp) {
  for (int i = 0; i < kCollectiveKindCount; ++i) {
    core::TensorDescriptor tensor = *descriptor();
    tensor.wire_dtype = WireDType::kSame;  // some kinds and dtypes allow no other
    tensor.kind = static_cast<CollectiveKind>(i % kCollectiveKindCount);
    if (is_transfer(tensor.kind)) continue;  // They are in no order.
    tensor.dtype = static_cast<DType>(i % kDTypeCount);
    tensor.op = static_cast<ReduceOp>(i % kElementwiseOpCount);
    const auto given = std::make_shared<core::TensorDescriptor>(tensor);
    EXPECT_EQ(*round_trip(core::Ready{{{given, Rank{0}, ""}}}).entries[0].descriptor, tensor);
  }
}

TEST(Convert, TransferOpen) {
  const core::Message message = round_trip(envelope_of(core::TransferOpen{})).message;
  EXPECT_TRUE(std::holds_alternative<core::TransferOpen>(message.body));
}

TEST(Convert, EveryDtype) {
  for (int i = 0; i < kDTypeCount; ++i) {
    core::TensorDescriptor tensor = *descriptor();
    tensor.wire_dtype = WireDType::kSame;
    tensor.dtype = static_cast<DType>(i);
    tensor.op = ReduceOp::kProduct;
    const auto given = std::make_shared<core::TensorDescriptor>(tensor);
    EXPECT_EQ(*round_trip(core::Ready{{{given, Rank{0}, ""}}}).entries[0].descriptor, tensor);
  }
}

TEST(Convert, Adasum) {
  core::TensorDescriptor tensor = *descriptor();
  tensor.op = ReduceOp::kAdasum;
  tensor.kind = CollectiveKind::kAllreduce;
  const auto given = std::make_shared<core::TensorDescriptor>(tensor);
  EXPECT_EQ(*round_trip(core::Ready{{{given, Rank{0}, ""}}}).entries[0].descriptor, tensor);
}

TEST(Convert, Lock) {
  const core::Plan plan{{{{descriptor()}, core::kPlanStart, true}, {{descriptor()}, 0, false}},
                        {65'536, 2, core::kRingAlways}};
  const core::Lock back =
      round_trip(core::Lock{7, Seq{uint64_t{1} << 40}, plan, 1, core::PlanSource::kRecorded});
  EXPECT_EQ(back.source, core::PlanSource::kRecorded);
  EXPECT_EQ(back.plan.tuning, plan.tuning);
  EXPECT_EQ(back.generation, 7u);
  EXPECT_EQ(back.first, Seq{uint64_t{1} << 40});
  EXPECT_EQ(back.at, 1);
  ASSERT_EQ(back.plan.batches.size(), 2u);
  EXPECT_EQ(*back.plan.batches[0].tensors.at(0), *descriptor());
  EXPECT_EQ(back.plan.batches[0].after, core::kPlanStart);
  EXPECT_TRUE(back.plan.batches[0].ends);
  EXPECT_EQ(back.plan.batches[1].after, 0);
  EXPECT_FALSE(back.plan.batches[1].ends);
}

TEST(Convert, APlaceThatNoPlanHasStaysOne) {
  v1::JobMessage wire = to_proto(envelope_of(core::AgreementMessage(core::Lock{})));
  wire.mutable_lock()->set_at(UINT32_MAX);
  const auto back = from_proto(wire);
  ASSERT_TRUE(back.is_ok());
  const auto& agreed = std::get<core::AgreementMessage>(back.value().message.body);
  EXPECT_EQ(std::get<core::Lock>(agreed).at, INT32_MAX - 1);
}

TEST(Convert, APlanOfNoKnownSourceIsRefused) {
  v1::JobMessage wire = to_proto(envelope_of(core::AgreementMessage(core::Lock{})));
  wire.mutable_lock()->set_source(static_cast<v1::PlanSource>(9));
  EXPECT_FALSE(from_proto(wire).is_ok());
}

core::DescriptorPtr declared_plan(uint32_t second_after) {
  core::TensorDescriptor plan;
  plan.name = "plan";
  plan.kind = CollectiveKind::kDeclarePlan;
  plan.plan = {{descriptor(), {}}, {descriptor(), {second_after}}};
  return std::make_shared<core::TensorDescriptor>(plan);
}

TEST(Convert, ADeclaredPlan) {
  const core::Ready back = round_trip(core::Ready{{{declared_plan(0), Rank{0}, ""}}});
  EXPECT_EQ(*back.entries[0].descriptor, *declared_plan(0));
}

TEST(Convert, APlanWhoseOrderIsNoneIsRefused) {
  for (const uint32_t after : {1u, 7u, UINT32_MAX}) {
    const core::Ready ready{{{declared_plan(after), Rank{0}, ""}}};
    EXPECT_FALSE(from_proto(to_proto(envelope_of(core::AgreementMessage(ready)))).is_ok()) << after;
  }
}

TEST(Convert, APlanOfPlansIsRefused) {
  core::TensorDescriptor outer = *declared_plan(0);
  outer.plan[0].tensor = declared_plan(0);
  const auto given = std::make_shared<core::TensorDescriptor>(outer);
  const core::Ready ready{{{given, Rank{0}, ""}}};
  EXPECT_FALSE(from_proto(to_proto(envelope_of(core::AgreementMessage(ready)))).is_ok());
}

TEST(Convert, Frozen) {
  const core::Frozen back = round_trip(core::Frozen{3, Seq{9}, {2, 0, 5}});
  EXPECT_EQ(back.generation, 3u);
  EXPECT_EQ(back.launched, Seq{9});
  EXPECT_EQ(back.walked, (std::vector<uint32_t>{2, 0, 5}));
}

TEST(Convert, TheProcessSetOfAMessage) {
  engine::Envelope envelope = envelope_of(core::AgreementMessage(core::Ended{{Seq{3}, Seq{9}}}));
  envelope.message.process_set = 5;
  const core::Message back = round_trip(envelope).message;
  EXPECT_EQ(back.process_set, 5u);
  const auto& agreed = std::get<core::AgreementMessage>(back.body);
  EXPECT_EQ(std::get<core::Ended>(agreed).operations, (std::vector<Seq>{Seq{3}, Seq{9}}));
}

TEST(Convert, AProcessSetToBeAddedMayHaveManyRanks) {
  core::TensorDescriptor set = *descriptor();
  set.kind = CollectiveKind::kAddProcessSet;
  set.wire_dtype = WireDType::kSame;
  for (int64_t rank = 0; rank < 1000; ++rank) set.shape.push_back(rank);
  const auto given = std::make_shared<core::TensorDescriptor>(set);
  EXPECT_EQ(*round_trip(core::Ready{{{given, Rank{0}, ""}}}).entries[0].descriptor, set);
}

TEST(Convert, Decree) {
  core::OrderedOperation good;
  good.seq = Seq{uint64_t{1} << 40};
  good.plan_hash = 0x8000000000000001;
  good.tensors = {"a", "b"};
  core::OrderedOperation bad;
  bad.seq = Seq{2};
  bad.tensors = {"c"};
  bad.error = Status(Code::kMismatch, "no");
  const core::Decree back = round_trip(core::Decree{{good, bad}});
  ASSERT_EQ(back.operations.size(), 2u);
  EXPECT_EQ(back.operations[0].seq, good.seq);
  EXPECT_EQ(back.operations[0].plan_hash, good.plan_hash);
  EXPECT_EQ(back.operations[0].tensors, good.tensors);
  EXPECT_TRUE(back.operations[0].error.is_ok());
  EXPECT_EQ(back.operations[1].error, bad.error);
}

TEST(Convert, LeaveAndLeft) {
  EXPECT_EQ(round_trip(core::Leave{Rank{0}}).rank, Rank{0});
  EXPECT_EQ(round_trip(core::Left{Rank{65'000}}).rank, Rank{65'000});
}

TEST(Convert, FailWithEveryOrigin) {
  const std::vector<Origin> origins{
      {}, {"n1", {}}, {"n1", Rank{0}}, {"", Rank{3}}, {"n1", {}, true}};
  for (const Origin& origin : origins) {
    const Status status(Code::kRankLost, "rank 0 fell", origin);
    EXPECT_EQ(round_trip(core::Fail{status}).status, status);
  }
}

// --- What a peer must not say

v1::JobMessage message_of(const std::function<void(v1::JobMessage&)>& change) {
  v1::JobMessage message = to_proto(envelope_of(core::Ready{{{descriptor(), Rank{0}, ""}}}));
  change(message);
  return message;
}

v1::TensorDescriptor& tensor_in(v1::JobMessage& message) {
  return *message.mutable_ready()->mutable_entries(0)->mutable_tensor();
}

void make(v1::JobMessage& message, DType dtype, ReduceOp op) {
  tensor_in(message).set_wire_dtype(0);
  tensor_in(message).set_dtype(static_cast<uint32_t>(dtype));
  tensor_in(message).set_op(static_cast<uint32_t>(op));
}

void make_nccls(v1::JobMessage& message, DType dtype, ReduceOp op) {
  make(message, dtype, op);
  tensor_in(message).set_kind(static_cast<uint32_t>(CollectiveKind::kAllreduce));
  tensor_in(message).set_memory(static_cast<uint32_t>(MemorySpace::kDeviceNccl));
}

struct Rejected {
  const char* what;
  std::function<void(v1::JobMessage&)> change;
};

class ConvertRejects : public ::testing::TestWithParam<Rejected> {};

TEST_P(ConvertRejects, TheMessage) {
  ASSERT_TRUE(from_proto(message_of([](v1::JobMessage&) {})).is_ok());
  const auto converted = from_proto(message_of(GetParam().change));
  ASSERT_FALSE(converted.is_ok());
  EXPECT_EQ(converted.status().code(), Code::kInvalidArgument);
  EXPECT_NE(converted.status().message().find(GetParam().what), std::string::npos)
      << converted.status().message();
}

INSTANTIATE_TEST_SUITE_P(
    Messages, ConvertRejects,
    ::testing::Values(
        Rejected{"no body", [](v1::JobMessage& m) { m.clear_body(); }},
        Rejected{"more settings than a job has",
                 [](v1::JobMessage& m) {
                   for (int i = 0; i <= 64; ++i) m.mutable_join()->add_settings();
                 }},
        Rejected{"empty or too long", [](v1::JobMessage& m) { tensor_in(m).clear_name(); }},
        Rejected{"empty or too long",
                 [](v1::JobMessage& m) { tensor_in(m).set_name(std::string(256, 'x')); }},
        Rejected{"empty or too long",
                 [](v1::JobMessage& m) { tensor_in(m).set_group(std::string(256, 'x')); }},
        Rejected{"unknown collective",
                 [](v1::JobMessage& m) { tensor_in(m).set_kind(kCollectiveKindCount); }},
        Rejected{"in the order of operations",
                 [](v1::JobMessage& m) {
                   tensor_in(m).set_kind(static_cast<uint32_t>(CollectiveKind::kSend));
                 }},
        Rejected{"layer.weight", [](v1::JobMessage& m) { tensor_in(m).set_dtype(kDTypeCount); }},
        Rejected{"layer.weight", [](v1::JobMessage& m) { tensor_in(m).set_op(UINT32_MAX); }},
        Rejected{"impossible op",
                 [](v1::JobMessage& m) {
                   tensor_in(m).set_op(static_cast<uint32_t>(ReduceOp::kAdasum));
                   tensor_in(m).set_kind(static_cast<uint32_t>(CollectiveKind::kReduce));
                 }},
        Rejected{"impossible op", [](v1::JobMessage& m) { make(m, DType::kComplex64, ReduceOp::kMin); }},
        Rejected{"impossible op", [](v1::JobMessage& m) { make(m, DType::kComplex128, ReduceOp::kMax); }},
        Rejected{"impossible op",
                 [](v1::JobMessage& m) {
                   make(m, DType::kComplex64, ReduceOp::kAdasum);
                   tensor_in(m).set_kind(static_cast<uint32_t>(CollectiveKind::kAllreduce));
                 }},
        Rejected{"impossible memory",
                 [](v1::JobMessage& m) { make_nccls(m, DType::kComplex64, ReduceOp::kProduct); }},
        Rejected{"impossible memory",
                 [](v1::JobMessage& m) { make_nccls(m, DType::kUInt16, ReduceOp::kSum); }},
        Rejected{"impossible wire dtype",
                 [](v1::JobMessage& m) { tensor_in(m).set_wire_dtype(kWireDTypeCount); }},
        Rejected{"impossible wire dtype",
                 [](v1::JobMessage& m) {
                   tensor_in(m).set_dtype(static_cast<uint32_t>(DType::kInt64));
                 }},
        Rejected{"impossible memory", [](v1::JobMessage& m) { tensor_in(m).set_memory(2); }},
        Rejected{"impossible memory", [](v1::JobMessage& m) { tensor_in(m).set_memory(1); }},
        Rejected{"too many dimensions",
                 [](v1::JobMessage& m) {
                   for (int i = 0; i < 6; ++i) tensor_in(m).add_shape(1);
                 }},
        Rejected{"impossible shape", [](v1::JobMessage& m) { tensor_in(m).add_shape(-1); }},
        Rejected{"impossible shape", [](v1::JobMessage& m) { tensor_in(m).add_shape(INT64_MAX); }},
        Rejected{"impossible shape",
                 [](v1::JobMessage& m) {
                   tensor_in(m).clear_shape();
                   for (int i = 0; i < 3; ++i) tensor_in(m).add_shape(1 << 20);
                 }},
        Rejected{"without tensors",
                 [](v1::JobMessage& m) { m.mutable_decree()->add_operations(); }},
        Rejected{"two lists",
                 [](v1::JobMessage& m) {
                   auto* operation = m.mutable_decree()->add_operations();
                   operation->add_tensors("a");
                   operation->add_batch()->set_name("a");
                 }},
        Rejected{"fails, and names its tensors by cache slots",
                 [](v1::JobMessage& m) {
                   auto* operation = m.mutable_decree()->add_operations();
                   operation->add_cached(0);
                   operation->set_error_code(3);
                 }},
        Rejected{"a join without",
                 [](v1::JobMessage& m) {
                   m.mutable_decree()->add_operations()->add_tensors(core::kJoinName);
                 }},
        Rejected{"a join without",
                 [](v1::JobMessage& m) {
                   auto* operation = m.mutable_decree()->add_operations();
                   operation->add_tensors("a");
                   operation->set_last_joined(3);
                 }},
        Rejected{"unknown error code",
                 [](v1::JobMessage& m) {
                   auto* operation = m.mutable_decree()->add_operations();
                   operation->add_tensors("a");
                   operation->set_error_code(15);
                 }},
        Rejected{"unknown error code", [](v1::JobMessage& m) { m.mutable_fail()->set_code(-1); }},
        Rejected{"without an error", [](v1::JobMessage& m) { m.mutable_fail()->set_code(0); }}));

// --- Jobs

class ConvertJob : public ::testing::Test {
 protected:
  ConvertJob() {
    spec_.set_job_id("job-1.a_B");
    spec_.set_token(std::string(limits::kTokenBytes, 't'));
    spec_.set_user("me");
    spec_.set_node_index(1);
    spec_.set_fusion_threshold_bytes(1000);
    spec_.set_start_timeout_ms(2000);
    add_node("a", "", 0);
    add_node("b", "given:1", 1);
  }
  void add_node(const std::string& id, const std::string& address, int rank) {
    v1::NodeSpec& node = *spec_.add_nodes();
    node.set_node_id(id);
    node.set_control_address(address);
    node.add_ranks(rank);
  }
  std::string refusal() const {
    const auto converted = from_proto(spec_, membership_);
    return converted.is_ok() ? "" : converted.status().message();
  }

  v1::JobSpec spec_;
  StaticMembership membership_ = StaticMembership::parse({"a=looked-up:1"}).value();
};

TEST_F(ConvertJob, IsTakenOver) {
  const auto converted = from_proto(spec_, membership_);
  ASSERT_TRUE(converted.is_ok()) << converted.status().message();
  const engine::JobSpec& job = converted.value();
  EXPECT_EQ(job.job, "job-1.a_B");
  EXPECT_EQ(job.token, spec_.token());
  EXPECT_EQ(job.user, "me");
  EXPECT_EQ(job.self, NodeIndex{1});
  EXPECT_EQ(job.fusion_threshold_bytes, 1000);
  EXPECT_EQ(job.start_timeout_ms, 2000);
  EXPECT_EQ(job.stall_check_ms, std::nullopt) << "the daemon's";
  EXPECT_EQ(job.stall_shutdown_ms, std::nullopt);
  ASSERT_EQ(job.layout.node_count(), 2);
  EXPECT_EQ(job.layout.node(NodeIndex{0}), (core::LayoutNode{"a", "looked-up:1", {Rank{0}}}));
  EXPECT_EQ(job.layout.node(NodeIndex{1}), (core::LayoutNode{"b", "given:1", {Rank{1}}}));
}

TEST_F(ConvertJob, HasTheAddressesOfABindingListWhateverTheLauncherSays) {
  membership_ = StaticMembership::parse({"a=known:1", "b=known:2"}, /*is_binding=*/true).value();
  spec_.mutable_nodes(0)->set_control_address("elsewhere:22");
  const auto converted = from_proto(spec_, membership_);
  ASSERT_TRUE(converted.is_ok()) << converted.status().message();
  EXPECT_EQ(converted.value().layout.node(NodeIndex{0}).control_address, "known:1");
  EXPECT_EQ(converted.value().layout.node(NodeIndex{1}).control_address, "known:2");
  spec_.mutable_elastic()->add_contacts("known:1");
  EXPECT_EQ(refusal(), "");
  spec_.mutable_elastic()->add_contacts("elsewhere:22");
  EXPECT_THAT(refusal(), ::testing::HasSubstr("of a contact: the address elsewhere:22 is not in"));
  spec_.clear_elastic();
  spec_.mutable_nodes(1)->set_node_id("c");
  EXPECT_THAT(refusal(), ::testing::HasSubstr("node c is not in the daemon's --nodes"));
}

// Who comes later is told of a node that is alone.
TEST_F(ConvertJob, OfOneNodeHasTheAddressOfABindingListIfItIsElastic) {
  membership_ = StaticMembership::parse({"a=known:1"}, /*is_binding=*/true).value();
  spec_.mutable_nodes()->RemoveLast();
  spec_.set_node_index(0);
  spec_.mutable_nodes(0)->set_control_address("elsewhere:22");
  const auto fixed = from_proto(spec_, membership_);
  ASSERT_TRUE(fixed.is_ok()) << fixed.status().message();
  EXPECT_EQ(fixed.value().layout.node(NodeIndex{0}).control_address, "elsewhere:22");
  spec_.mutable_elastic()->set_min_ranks(1);
  const auto elastic = from_proto(spec_, membership_);
  ASSERT_TRUE(elastic.is_ok()) << elastic.status().message();
  EXPECT_EQ(elastic.value().layout.node(NodeIndex{0}).control_address, "known:1");
}

TEST_F(ConvertJob, NumbersBeyondAllBoundsAreTheBounds) {
  spec_.set_fusion_threshold_bytes(UINT64_MAX);
  spec_.set_lock_after_steps(UINT32_MAX);
  spec_.set_cache_capacity(UINT64_MAX);
  const auto converted = from_proto(spec_, membership_);
  ASSERT_TRUE(converted.is_ok());
  EXPECT_EQ(converted.value().fusion_threshold_bytes,
            static_cast<int64_t>(limits::kMaxTensorBytes));
  EXPECT_EQ(converted.value().lock_after_steps, limits::kMaxLockAfterSteps);
  EXPECT_EQ(converted.value().cache_capacity, limits::kMaxTensorsPerSession);
}

// Unlike those, a wrong cycle is not guessed at: the job would run, and compare with nothing.
TEST_F(ConvertJob, ACycleOutOfBoundsIsRefusedWithTheBounds) {
  for (const uint64_t cycle_us : {uint64_t{9}, uint64_t{1'000'001}, UINT64_MAX}) {
    spec_.set_cycle_time_us(cycle_us);
    EXPECT_EQ(refusal(), "job job-1.a_B: a cycle of " + std::to_string(cycle_us) +
                             " us cannot be; give from 10 to 1000000 us");
  }
  spec_.set_cycle_time_us(2'500);
  spec_.set_sleep_agreed_every(UINT32_MAX);
  EXPECT_EQ(refusal(),
            "job job-1.a_B: the sleep cannot be agreed on every 4294967295 cycles; give at most "
            "1048576");
  spec_.set_sleep_agreed_every(3);
  const auto converted = from_proto(spec_, membership_);
  ASSERT_TRUE(converted.is_ok());
  EXPECT_EQ(converted.value().cycle_time_us, 2'500);
  EXPECT_EQ(converted.value().sleep_agreed_every, 3);
}

TEST_F(ConvertJob, ARecordedPlanIsTakenOver) {
  core::TensorDescriptor tensor = *descriptor();
  tensor.kind = CollectiveKind::kAllreduce;
  tensor.process_set = 0;
  core::Plan plan;
  plan.batches.push_back(
      {{std::make_shared<core::TensorDescriptor>(tensor)}, core::kPlanStart, true});
  plan.tuning.chunk_bytes = 8192;
  *spec_.mutable_replayed() = to_proto(plan).recorded_plan();
  spec_.set_replays(true);
  const auto converted = from_proto(spec_, membership_);
  ASSERT_TRUE(converted.is_ok()) << converted.status().message();
  ASSERT_TRUE(converted.value().replayed);
  EXPECT_TRUE(converted.value().replays);
  EXPECT_FALSE(converted.value().autotunes);
  EXPECT_EQ(*converted.value().replayed->batches.at(0).tensors.at(0), tensor);
  EXPECT_EQ(converted.value().replayed->tuning, plan.tuning);

  spec_.mutable_replayed()->mutable_batches(0)->set_after(5);
  EXPECT_THAT(refusal(), ::testing::HasSubstr("record the plan anew"));
  spec_.mutable_replayed()->mutable_batches(0)->set_after(0);
  spec_.mutable_replayed()->mutable_batches(0)->mutable_tensors(0)->set_process_set(3);
  EXPECT_THAT(refusal(), ::testing::HasSubstr("of process set 3 in the order of process set 0"));
}

// One rank on one node registers the plan over the socket, and no network is involved. The second
// tensor's 8 KiB were once taken for 64 KiB.
TEST_F(ConvertJob, ARecordedPlanOfUnlikeTensorsIsRefused) {
  core::TensorDescriptor a = *descriptor();
  a.kind = CollectiveKind::kAllreduce;
  a.process_set = 0;
  a.dtype = DType::kInt64;
  a.wire_dtype = WireDType::kSame;
  core::TensorDescriptor b = a;
  b.name = "b";
  b.dtype = DType::kUInt8;
  core::Plan plan;
  plan.batches.push_back(
      {{std::make_shared<core::TensorDescriptor>(a), std::make_shared<core::TensorDescriptor>(b)},
       core::kPlanStart,
       true});
  *spec_.mutable_replayed() = to_proto(plan).recorded_plan();
  EXPECT_THAT(refusal(), ::testing::HasSubstr("in one batch, which differ"));
}

TEST_F(ConvertJob, OneNodeNeedsNoAddress) {
  spec_.clear_nodes();
  spec_.set_node_index(0);
  add_node("somewhere", "", 0);
  EXPECT_EQ(refusal(), "");
}

TEST_F(ConvertJob, StallTimesMayBeGivenAndMayBeNone) {
  spec_.set_stall_check_ms(0);
  spec_.set_stall_shutdown_ms(1500);
  const auto converted = from_proto(spec_, membership_);
  ASSERT_TRUE(converted.is_ok());
  EXPECT_EQ(converted.value().stall_check_ms, 0);
  EXPECT_EQ(converted.value().stall_shutdown_ms, 1500);
}

TEST_F(ConvertJob, BadNames) {
  for (const std::string& id : {std::string(), std::string(64, 'x'), std::string("a b"),
                                std::string("a/b"), std::string("\xc3\xa9"), std::string("a\n")}) {
    spec_.set_job_id(id);
    EXPECT_EQ(refusal(), "a job id is 1 to 63 characters of A-Z a-z 0-9 . _ -") << id;
  }
  spec_.set_job_id(std::string(63, 'x'));
  EXPECT_EQ(refusal(), "");
}

TEST_F(ConvertJob, BadTokens) {
  spec_.set_token("short");
  EXPECT_EQ(refusal(), "job job-1.a_B has a token of 5 bytes; it takes 32");
}

TEST_F(ConvertJob, ACoordinationThatIsNotThere) {
  spec_.set_coordination("telepathy");
  EXPECT_EQ(refusal(),
            "job job-1.a_B: there is no coordination \"telepathy\"; the modes are negotiate, "
            "cached, global-sleep, nonblocking, event-driven, locked");
}

TEST_F(ConvertJob, HowItAgreesOnTheOrder) {
  spec_.set_coordination("nonblocking");
  spec_.set_fusion_threshold_bytes(0);
  spec_.set_lock_after_steps(7);
  spec_.set_cache_capacity(9);
  const auto converted = from_proto(spec_, membership_);
  ASSERT_TRUE(converted.is_ok()) << converted.status().message();
  EXPECT_EQ(converted.value().coordination, core::Coordination::kNonblocking);
  EXPECT_EQ(converted.value().fusion_threshold_bytes, 0);
  EXPECT_EQ(converted.value().lock_after_steps, 7);
  EXPECT_EQ(converted.value().cache_capacity, 9u);
}

TEST_F(ConvertJob, WhatIsNotSaidIsLeftToTheDaemon) {
  spec_.clear_fusion_threshold_bytes();
  const auto converted = from_proto(spec_, membership_);
  ASSERT_TRUE(converted.is_ok());
  EXPECT_EQ(converted.value().coordination, std::nullopt);
  EXPECT_EQ(converted.value().fusion_threshold_bytes, std::nullopt);
  EXPECT_EQ(converted.value().lock_after_steps, std::nullopt);
  EXPECT_EQ(converted.value().cycle_time_us, std::nullopt);
  EXPECT_EQ(converted.value().sleep_agreed_every, std::nullopt);
  EXPECT_EQ(converted.value().cache_capacity, std::nullopt);
}

TEST_F(ConvertJob, NumbersOutOfRange) {
  spec_.set_node_index(2);
  EXPECT_EQ(refusal(), "job job-1.a_B has no node 2");
  spec_.set_node_index(-1);
  EXPECT_EQ(refusal(), "job job-1.a_B has no node -1");
  spec_.set_start_timeout_ms(-1);
  EXPECT_EQ(refusal(), "a start timeout cannot be negative");
  spec_.set_start_timeout_ms(0);
  spec_.set_stall_check_ms(-1);
  EXPECT_EQ(refusal(), "a time for stalls of -1 ms is out of range");
  spec_.set_stall_check_ms(0);
  spec_.set_stall_shutdown_ms(INT64_MAX);
  EXPECT_NE(refusal(), "");
}

TEST_F(ConvertJob, ABadLayout) {
  spec_.mutable_nodes(1)->set_ranks(0, 0);
  EXPECT_NE(refusal(), "");
  spec_.mutable_nodes(1)->set_ranks(0, -1);
  EXPECT_NE(refusal(), "");
  spec_.mutable_nodes(1)->set_ranks(0, INT32_MAX);
  EXPECT_NE(refusal(), "");
  spec_.clear_nodes();
  EXPECT_NE(refusal(), "");
}

TEST_F(ConvertJob, ANodeWithoutAddressIsNamed) {
  add_node("c", "", 2);
  EXPECT_NE(refusal().find("node c has no control address"), std::string::npos);
}

}  // namespace
}  // namespace rueda::service
