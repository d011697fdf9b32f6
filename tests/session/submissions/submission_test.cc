#include "daemon/session/submissions/submission.h"

#include <bit>
#include <functional>
#include <utility>
#include <vector>

#include "daemon/base/limits.h"
#include "tests/session/raw_client.h"

namespace rueda::session {
namespace {

using ::testing::HasSubstr;

class SubmissionTest : public SessionTest {
 protected:
  // Starts with one tensor of 4 KiB of float32, and one arena of 16 KiB.
  void start(uint32_t ring_capacity = 16) {
    start_server(ring_capacity);
    client_ = attach(1);
    arena_ = add_arena(*client_, 16384);
    tensor_ = intern(*client_, make_tensor("grad", {1024}));
  }
  rueda_abi_submission record(uint64_t ticket) const {
    rueda_abi_submission made{};
    made.ticket = ticket;
    made.tensor_id = tensor_;
    made.input_arena = made.output_arena = arena_;
    made.output_offset = 8192;
    return made;
  }

  std::unique_ptr<RawClient> client_;
  uint32_t arena_ = 0;
  uint32_t tensor_ = 0;
};

TEST_F(SubmissionTest, Arrives) {
  start();
  rueda_abi_submission sent = record(42);
  sent.flags = RUEDA_ABI_FLAG_COPIED_OUT;
  sent.input_offset = 4;
  sent.priority = -7;
  client_->push(sent);
  pump_until([&] { return events_.drained == 1; }, "the submission");
  ASSERT_EQ(events_.submissions.size(), 1u);
  const Submission& got = events_.submissions[0];
  EXPECT_EQ(got.ticket, Ticket(42));
  EXPECT_EQ(got.descriptor->name, "grad");
  EXPECT_EQ(got.priority, -7);
  EXPECT_EQ(got.input.bytes, 4096u);
  EXPECT_EQ(got.input.data, got.input.arena->data() + 4);
  EXPECT_EQ(got.output.data, got.output.arena->data() + 8192);
  EXPECT_FALSE(got.copied_in);
  EXPECT_TRUE(got.copied_out);
  EXPECT_EQ(server_->stats().submission_queue_depth, 1u);
}

TEST_F(SubmissionTest, InPlaceAndAdjacentAreFine) {
  start();
  rueda_abi_submission in_place = record(1);
  in_place.output_offset = in_place.input_offset;
  client_->push(in_place);
  rueda_abi_submission adjacent = record(2);
  adjacent.input_offset = 12288;
  client_->push(adjacent);
  pump_until([&] { return events_.submissions.size() == 2; }, "the submissions");
}

TEST_F(SubmissionTest, TensorWithoutBytesNeedsNoArena) {
  start();
  rueda_abi_intern barrier = make_tensor("barrier", {});
  barrier.kind = 2;
  rueda_abi_submission sent{};
  sent.tensor_id = intern(*client_, barrier);
  client_->push(sent);
  sent.ticket = 1;
  sent.tensor_id = intern(*client_, make_tensor("empty", {7, 0}));
  client_->push(sent);
  pump_until([&] { return events_.submissions.size() == 2; }, "the submissions");
  EXPECT_EQ(events_.submissions[1].input.arena, nullptr);
  EXPECT_EQ(events_.submissions[1].input.bytes, 0u);
  events_.sessions[0]->complete(Ticket(1), Status::ok(), Epoch(1), 1, Seq(1));
}

struct WildRecord {
  const char* what;
  std::function<void(rueda_abi_submission&)> spoil;
  const char* text;
};

const WildRecord kWildRecords[] = {
    {"tensor id", [](auto& r) { r.tensor_id = 1; }, "tensor id 1, which was never interned"},
    {"huge tensor id", [](auto& r) { r.tensor_id = ~0u; }, "never interned"},
    {"flags", [](auto& r) { r.flags = 32; }, "unknown flags 32"},
    {"input arena", [](auto& r) { r.input_arena = 0; }, "input of tensor 'grad' in arena 0"},
    {"output arena", [](auto& r) { r.output_arena = 99; }, "output of tensor 'grad' in arena 99"},
    {"input offset", [](auto& r) { r.input_offset = 12292; }, "outside its arena"},
    {"wrapping offset", [](auto& r) { r.input_offset = ~uint64_t{0} - 4095; }, "outside its arena"},
    {"output offset", [](auto& r) { r.output_offset = uint64_t{1} << 63; }, "outside its arena"},
    {"alignment", [](auto& r) { r.input_offset = 2; }, "not a multiple of its element's size"},
    {"overlap", [](auto& r) { r.output_offset = 4092; }, "overlap"},
    {"overlap before", [](auto& r) { r.input_offset = 8196; }, "overlap"},
    {"reserved0", [](auto& r) { r.reserved0 = 1; }, "reserved field"},
    {"reserved1", [](auto& r) { r.reserved1[1] = 1; }, "reserved field"},
};

TEST_F(SubmissionTest, WildRecordsEndTheSessionAndNameIt) {
  start_server();
  auto witness = attach(7);
  for (const WildRecord& wild : kWildRecords) {
    SCOPED_TRACE(wild.what);
    client_ = attach(1);
    arena_ = add_arena(*client_, 16384);
    tensor_ = intern(*client_, make_tensor("grad", {1024}));
    rueda_abi_submission bad = record(1);
    wild.spoil(bad);
    client_->push(bad);
    pump_until_lost(wild.text);
    EXPECT_THAT(events_.lost[0].message(), HasSubstr("rank 1 "));
    EXPECT_EQ(receive(*client_).header.type, RUEDA_ABI_FAILED);
    pump_until([&] { return client_->is_closed(); }, "the end of the connection");
    events_.lost.clear();
  }
  EXPECT_TRUE(events_.submissions.empty());
  EXPECT_EQ(server_->stats().sessions, 1u);
  EXPECT_EQ(server_->stats().arenas, 0u);
  EXPECT_EQ(intern(*witness, make_tensor("still here", {1})), 0u);
}

class TransferRecordTest : public SubmissionTest {
 protected:
  rueda_abi_transfer transfer(uint32_t flags, int32_t peer) const {
    rueda_abi_transfer made{};
    made.ticket = 1;
    made.flags = flags;
    made.arena = arena_;
    made.peer = peer;
    made.offset = 8;
    made.elements = 100;
    made.dtype = static_cast<uint32_t>(DType::kFloat64);
    made.tag = int64_t{-1} << 40;
    return made;
  }
  void push(const rueda_abi_transfer& record) {
    client_->push(std::bit_cast<rueda_abi_submission>(record));
  }
};

TEST_F(TransferRecordTest, SendsAndReceivesArrive) {
  start();
  push(transfer(RUEDA_ABI_FLAG_SEND | RUEDA_ABI_FLAG_COPIED_IN, 3));
  rueda_abi_transfer other = transfer(RUEDA_ABI_FLAG_RECEIVE, RUEDA_ABI_ANY_SOURCE);
  other.ticket = 2;
  other.process_set = 7;
  push(other);
  pump_until([&] { return events_.submissions.size() == 2; }, "the submissions");
  const Submission& sent = events_.submissions[0];
  EXPECT_EQ(sent.descriptor->kind, CollectiveKind::kSend);
  EXPECT_EQ(sent.descriptor->peer, Rank(3));
  EXPECT_EQ(sent.descriptor->tag, int64_t{-1} << 40);
  EXPECT_EQ(sent.descriptor->bytes(), 800);
  EXPECT_EQ(sent.input.bytes, 800u);
  EXPECT_EQ(sent.input.data, sent.input.arena->data() + 8);
  EXPECT_EQ(sent.output.bytes, 0u);
  EXPECT_TRUE(sent.copied_in);
  const Submission& received = events_.submissions[1];
  EXPECT_EQ(received.descriptor->kind, CollectiveKind::kReceive);
  EXPECT_EQ(received.descriptor->peer, core::kAnySource);
  EXPECT_EQ(received.descriptor->process_set, 7u);
  EXPECT_EQ(received.output.bytes, 800u);
  EXPECT_EQ(received.input.bytes, 0u);
}

TEST_F(TransferRecordTest, ACancelNamesATicketAndNothingElse) {
  start();
  rueda_abi_transfer cancel{};
  cancel.ticket = 5;
  cancel.flags = RUEDA_ABI_FLAG_CANCEL;
  cancel.cancels = 3;
  push(cancel);
  pump_until([&] { return events_.submissions.size() == 1; }, "the cancel");
  EXPECT_EQ(events_.submissions[0].ticket, Ticket(5));
  EXPECT_EQ(events_.submissions[0].cancels, Ticket(3));
  EXPECT_FALSE(events_.submissions[0].descriptor);
}

TEST_F(TransferRecordTest, WildOnesEndTheSession) {
  start_server();
  const std::vector<std::pair<std::function<void(rueda_abi_transfer&)>, const char*>> wild = {
      {[](auto& r) { r.flags |= RUEDA_ABI_FLAG_RECEIVE; }, "a transfer with flags 12"},
      {[](auto& r) { r.flags |= RUEDA_ABI_FLAG_COPIED_OUT; }, "a transfer with flags 6"},
      {[](auto& r) { r.flags |= 1u << 31; }, "a transfer with flags"},
      {[](auto& r) { r.peer = -1; }, "rank -1, which no job has"},
      {[](auto& r) { r.peer = limits::kMaxRanks; }, "which no job has"},
      {[](auto& r) { r.dtype = kDTypeCount; }, "dtype 15"},
      {[](auto& r) { r.elements = ~uint64_t{0}; }, "18446744073709551615 elements"},
      {[](auto& r) { r.elements = uint64_t{1} << 61; }, "elements, more than"},
      {[](auto& r) { r.elements = 2048; }, "outside its arena"},
      {[](auto& r) { r.offset = ~uint64_t{7}; }, "outside its arena"},
      {[](auto& r) { r.offset = 4; }, "not a multiple of its element's size"},
      {[](auto& r) { r.arena = 99; }, "which does not exist"},
      {[](auto& r) { r.elements = 0; }, "without elements that has memory"},
      {[](auto& r) { r.reserved0 = 1; }, "reserved field"},
      {[](auto& r) { r.cancels = 1; }, "reserved field"},
      {[](auto& r) { r.flags = RUEDA_ABI_FLAG_CANCEL; }, "a field that is not a cancel's"},
      {[](auto& r) { r.flags |= RUEDA_ABI_FLAG_CANCEL; }, "a cancel with flags 20"},
  };
  for (const auto& [spoil, text] : wild) {
    SCOPED_TRACE(text);
    client_ = attach(1);
    arena_ = add_arena(*client_, 16384);
    rueda_abi_transfer bad = transfer(RUEDA_ABI_FLAG_SEND, 3);
    spoil(bad);
    push(bad);
    pump_until_lost(text);
    events_.lost.clear();
  }
  EXPECT_TRUE(events_.submissions.empty());
}

TEST_F(SubmissionTest, TicketInFlightTwice) {
  start();
  client_->push(record(5));
  client_->push(record(5));
  pump_until_lost("under ticket 5, which is in flight");
  EXPECT_EQ(events_.submissions.size(), 1u);
}

TEST_F(SubmissionTest, TicketMayComeAgainAfterItsEnd) {
  start();
  client_->push(record(5));
  pump_until([&] { return events_.submissions.size() == 1; }, "the submission");
  events_.sessions[0]->complete(Ticket(5), Status::ok(), Epoch(1), 1, Seq(1));
  client_->push(record(5));
  pump_until([&] { return events_.submissions.size() == 2; }, "the submission");
  EXPECT_TRUE(events_.lost.empty());
}

TEST_F(SubmissionTest, ImpossibleIndexEndsTheSession) {
  start();
  client_->submissions.header().tail = 17;
  client_->ring_daemon();
  pump_until_lost("impossible index into its submission ring");
}

TEST_F(SubmissionTest, MoreInFlightThanTheRingEndsTheSession) {
  start(4);
  for (uint64_t ticket = 0; ticket < 4; ++ticket) client_->push(record(ticket));
  pump_until([&] { return events_.submissions.size() == 4; }, "the submissions");
  client_->push(record(4));
  pump_until_lost("under ticket 4, whose place ticket 0 has, which is in flight");
}

TEST_F(SubmissionTest, WhatComesAgainIsWhatItWas) {
  start();
  for (uint64_t step = 0; step < 3; ++step) {
    rueda_abi_submission again = record(16 * step + 3);
    client_->push(again);
    pump_until([&] { return events_.submissions.size() == step + 1; }, "the submission");
    EXPECT_EQ(events_.submissions[step].ticket, Ticket(again.ticket));
    EXPECT_EQ(events_.submissions[step].output.data, events_.submissions[0].output.data);
    EXPECT_EQ(events_.submissions[step].content, events_.submissions[0].content);
    events_.sessions[0]->complete(Ticket(again.ticket), Status::ok(), Epoch(1), 1, Seq(1));
  }
  rueda_abi_submission other = record(16 * 3 + 3);
  other.output_offset = 4096;
  client_->push(other);
  pump_until([&] { return events_.submissions.size() == 4; }, "the submission");
  EXPECT_EQ(events_.submissions[3].output.data + 4096, events_.submissions[0].output.data);
  EXPECT_NE(events_.submissions[0].content, 0u);
  EXPECT_NE(events_.submissions[3].content, events_.submissions[0].content);
}

TEST_F(SubmissionTest, WhatComesAgainIsCheckedAgain) {
  start();
  const auto submit = [&](uint64_t ticket) {
    client_->push(record(ticket));
    const size_t before = events_.submissions.size();
    pump_until([&] { return events_.submissions.size() > before || !events_.lost.empty(); },
               "the submission");
  };
  submit(3);
  events_.sessions[0]->complete(Ticket(3), Status::ok(), Epoch(1), 1, Seq(1));
  const std::weak_ptr<Arena> arena = events_.submissions[0].input.arena;
  events_.submissions.clear();
  EXPECT_FALSE(arena.expired());
  rueda_abi_arena remove{0, arena_, 0};
  EXPECT_EQ(request(*client_, RUEDA_ABI_ARENA_REMOVE, &remove, sizeof(remove)).code, 0);
  EXPECT_TRUE(arena.expired()) << "what is remembered keeps no memory";
  submit(19);
  pump_until_lost("which does not exist");
  EXPECT_TRUE(events_.submissions.empty());
}

TEST_F(SubmissionTest, ArenaInUseStays) {
  start();
  client_->push(record(1));
  pump_until([&] { return events_.submissions.size() == 1; }, "the submission");
  rueda_abi_arena remove{0, arena_, 0};
  rueda_abi_status reply = request(*client_, RUEDA_ABI_ARENA_REMOVE, &remove, sizeof(remove));
  EXPECT_EQ(reply.code, -13);
  EXPECT_THAT(reply.text, HasSubstr("in use"));
  events_.sessions[0]->complete(Ticket(1), Status::ok(), Epoch(1), 1, Seq(1));
  EXPECT_EQ(request(*client_, RUEDA_ABI_ARENA_REMOVE, &remove, sizeof(remove)).code, 0);
}

TEST_F(SubmissionTest, DrainsMoreThanOneTurnAndSaysSoOnce) {
  start(4096);
  for (uint64_t ticket = 0; ticket < 3000; ++ticket) client_->push(record(ticket));
  pump_until([&] { return events_.drained > 0; }, "the end of the batch");
  EXPECT_EQ(events_.submissions.size(), 3000u);
  EXPECT_EQ(events_.drained, 1);
  for (uint64_t ticket = 0; ticket < 3000; ++ticket) {
    ASSERT_EQ(events_.submissions[ticket].ticket, Ticket(ticket));
  }
}

TEST_F(SubmissionTest, EmptyRingsOfTheBellAreHarmless) {
  start();
  for (int i = 0; i < 5; ++i) {
    client_->ring_daemon();
    loop_.restart();
    loop_.poll();
  }
  EXPECT_EQ(events_.drained, 0);
  client_->push(record(1));
  pump_until([&] { return events_.drained == 1; }, "the submission");
}

TEST_F(SubmissionTest, DropDuringSubmitStopsTheBatch) {
  start();
  events_.during_submit = [](Session& session) { session.drop(); };
  client_->push(record(1));
  client_->push(record(2));
  pump_until([&] { return client_->is_closed(); }, "the end of the connection");
  EXPECT_EQ(events_.submissions.size(), 1u);
  EXPECT_EQ(events_.drained, 0);
  EXPECT_TRUE(events_.lost.empty());
}

}  // namespace
}  // namespace rueda::session
