// Tests memory that a worker joins.
#include <cstring>
#include <map>
#include <set>

#include <gtest/gtest.h>

#include "tests/gpu/worker/worker_rig.h"

namespace rueda::gpu {
namespace {

// Sets up memory 4, 5 and so on: pieces of rank 0, each of kPiece bytes of one number, from 1.
class WorkerJoinTest : public WorkerTest {
 protected:
  static constexpr uint64_t kPiece = 4096;
  static constexpr uint64_t kPieceCount = kPiece / sizeof(float);

  void open_and_share_pieces(size_t count) {
    open_and_share();
    for (size_t i = 0; i < count; ++i) share_piece(static_cast<uint32_t>(4 + i));
  }
  void share_piece(uint32_t number) {
    Rank& rank = ranks_[0];
    pieces_[number] = rank.device.allocate(kPiece, Sharing::kFd).value();
    const std::vector<float> values(kPieceCount, static_cast<float>(number - 3));
    const auto host = rank.device.allocate_host(kPiece).value();
    std::memcpy(host.data(), values.data(), kPiece);
    ASSERT_TRUE(rank.stream->copy_to_device(pieces_[number], host.data(), kPiece).is_ok());
    gpu_.run();
    add(number, rank.device.export_memory(pieces_[number]).value());
    expect_outcome(WorkerMessage::kMemoryAdded, number, Code::kOk);
  }
  void join(uint32_t number, const std::vector<uint32_t>& pieces) {
    Packet packet(WorkerMessage::kJoinMemory);
    packet.add(JoinMemoryBody{.memory = number, .pieces = static_cast<uint32_t>(pieces.size())});
    packet.add_bytes(pieces.data(), pieces.size() * sizeof(uint32_t));
    send(packet);
  }
  void remove(uint32_t number) {
    Packet packet(WorkerMessage::kRemoveMemory);
    send(packet.add(RemoveMemoryBody{.memory = number}));
  }
  // Returns how much the worker has mapped, at the lowest addresses that its device gives out.
  size_t mapped() {
    std::set<DeviceAddress> bases;
    for (uint64_t page = 0; page < 64; ++page) {
      const auto found = device_->find(0x7f00'0000'0000 + page * kPiece);
      if (found.is_ok()) bases.insert(found.value().base);
    }
    return bases.size();
  }
  // Returns the first and the last element of a piece.
  std::pair<float, float> ends_of(uint32_t number) {
    const auto host = ranks_[0].device.allocate_host(kPiece).value();
    EXPECT_TRUE(ranks_[0].stream->copy_to_host(host.data(), pieces_.at(number), kPiece).is_ok());
    gpu_.run();
    std::vector<float> found(kPieceCount);
    std::memcpy(found.data(), host.data(), kPiece);
    return {found.front(), found.back()};
  }
  // Returns an operation that doubles `count` elements of memory 20, which is joined.
  static WorkerOperation doubled(uint64_t number, uint64_t offset, uint64_t count) {
    WorkerOperation operation{.number = number};
    operation.batch.prescale = 2;
    operation.segments.push_back({.count = count,
                                  .sources = {{.memory = 20, .offset = offset}},
                                  .destinations = {{.memory = 20, .offset = offset}}});
    return operation;
  }

  std::map<uint32_t, DeviceAddress> pieces_;
};

TEST_F(WorkerJoinTest, PiecesAreOneMemoryInTheOrderGiven) {
  open_and_share_pieces(3);
  join(20, {6, 4, 5});
  expect_outcome(WorkerMessage::kMemoryAdded, 20, Code::kOk);
  // The operation takes all but the first and the last element.
  run(doubled(1, 4, 3 * kPieceCount - 2));
  expect_outcome(WorkerMessage::kEnded, 1, Code::kOk);
  EXPECT_EQ(ends_of(6), std::pair(3.f, 6.f));
  EXPECT_EQ(ends_of(4), std::pair(2.f, 2.f));
  EXPECT_EQ(ends_of(5), std::pair(4.f, 2.f));
  run(doubled(2, 4, 3 * kPieceCount));
  expect_outcome(WorkerMessage::kEnded, 2, Code::kNotFound);
}

TEST_F(WorkerJoinTest, WhatCannotBeJoinedIsToldAndNoMore) {
  open_and_share_pieces(2);
  join(20, {4, 0});  // names memory that was shared by a handle
  expect_outcome(WorkerMessage::kMemoryAdded, 20, Code::kInvalidArgument);
  EXPECT_NE(text_.find("no memory 0 that came by a descriptor"), std::string::npos) << text_;
  join(20, {4, 77});
  expect_outcome(WorkerMessage::kMemoryAdded, 20, Code::kInvalidArgument);
  join(20, {4});
  expect_outcome(WorkerMessage::kMemoryAdded, 20, Code::kInvalidArgument);
  device_->fail_once("join", {Code::kResourceExhausted, "no addresses"});
  join(20, {4, 5});
  expect_outcome(WorkerMessage::kMemoryAdded, 20, Code::kResourceExhausted);
  join(20, {4, 5});
  expect_outcome(WorkerMessage::kMemoryAdded, 20, Code::kOk);
  join(21, {20, 4});
  expect_outcome(WorkerMessage::kMemoryAdded, 21, Code::kInvalidArgument);
  Packet cut_off(WorkerMessage::kJoinMemory);
  send(cut_off.add(JoinMemoryBody{.memory = 22, .pieces = 2}).add(uint32_t{4}));
  expect_end(Code::kInternal);
}

TEST_F(WorkerJoinTest, IsClosedBeforeItsPiecesInWhateverOrderTheyAreRemoved) {
  open_and_share_pieces(3);
  join(20, {4, 5});
  expect_outcome(WorkerMessage::kMemoryAdded, 20, Code::kOk);
  join(21, {5, 6});
  expect_outcome(WorkerMessage::kMemoryAdded, 21, Code::kOk);
  EXPECT_EQ(mapped(), 2u + 3 + 2);
  remove(4);
  remove(5);
  EXPECT_EQ(next(), std::nullopt);
  // The first join is still there, and so is its memory.
  EXPECT_EQ(mapped(), 2u + 3 + 2);
  run(doubled(1, 0, 2 * kPieceCount));
  expect_outcome(WorkerMessage::kEnded, 1, Code::kOk);
  EXPECT_EQ(ends_of(5), std::pair(4.f, 4.f));
  remove(20);
  EXPECT_EQ(next(), std::nullopt);
  EXPECT_EQ(mapped(), 2u + 2 + 1) << "the second has one of them";
  remove(6);
  remove(21);
  EXPECT_TRUE(turn()) << "an idle worker sleeps after one";
  EXPECT_EQ(mapped(), 2u);
  EXPECT_TRUE(worker_->why().is_ok()) << worker_->why().to_string();
}

TEST_F(WorkerJoinTest, MemoryComesAgainWhileItsJoinIsYetToBeClosed) {
  open_and_share_pieces(2);
  join(20, {4, 5});
  expect_outcome(WorkerMessage::kMemoryAdded, 20, Code::kOk);
  WorkerOperation blocked = doubled(1, 0, 2 * kPieceCount);
  blocked.waits = {{counter(0), 1}};
  run(blocked);
  EXPECT_EQ(next(), std::nullopt);
  remove(20);
  remove(5);
  // The test adds another piece behind the first, and the first two once more.
  share_piece(6);
  add(7, ranks_[0].device.export_memory(pieces_.at(5)).value());
  expect_outcome(WorkerMessage::kMemoryAdded, 7, Code::kOk);
  join(21, {4, 6});
  expect_outcome(WorkerMessage::kMemoryAdded, 21, Code::kOk);
  join(22, {4, 7});
  expect_outcome(WorkerMessage::kMemoryAdded, 22, Code::kOk);
  counters_.set(0, 1);
  expect_outcome(WorkerMessage::kEnded, 1, Code::kOk);
  EXPECT_EQ(ends_of(5), std::pair(4.f, 4.f));
  EXPECT_EQ(next(), std::nullopt);
  EXPECT_TRUE(worker_->why().is_ok()) << worker_->why().to_string();
}

}  // namespace
}  // namespace rueda::gpu
