// Tests how messages about transfers are written into frames, and that what cannot be one is
// refused with the reason.
#include "daemon/engine/channels/transfer_record.h"

#include <array>
#include <cstring>
#include <string>
#include <tuple>
#include <vector>

#include <gmock/gmock.h>

namespace rueda::engine {
namespace {

using ::testing::HasSubstr;

std::vector<std::byte> written(uint32_t process_set, const core::TransferMessage& message,
                               size_t data = 0) {
  std::vector<std::byte> bytes(kMostRecordBytes);
  bytes.resize(write_record(process_set, message, bytes.data()));
  for (size_t i = 0; i < data; ++i) bytes.push_back(static_cast<std::byte>(i));
  return bytes;
}

TEST(TransferRecord, IsReadAsItWasWritten) {
  const core::TransferOffer offer{7,  Rank{3}, Rank{65535}, INT64_MIN, DType::kComplex128,
                                  12, false};
  const auto bytes = written(UINT32_MAX, offer);
  const TransferRecord record = read_record(bytes).value();
  EXPECT_EQ(record.process_set, UINT32_MAX);
  const auto& offered = std::get<core::TransferOffer>(record.message);
  EXPECT_EQ(offered.number, 7u);
  EXPECT_EQ(offered.source, Rank{3});
  EXPECT_EQ(offered.destination, Rank{65535});
  EXPECT_EQ(offered.tag, INT64_MIN);
  EXPECT_EQ(offered.dtype, DType::kComplex128);
  EXPECT_EQ(offered.elements, 12);
  EXPECT_FALSE(offered.carried);
  for (const bool carried : {true, false}) {
    const auto answer = written(0, core::TransferTake{9, carried});
    const auto take = std::get<core::TransferTake>(read_record(answer).value().message);
    EXPECT_EQ(take.number, 9u);
    EXPECT_EQ(take.carried, carried);
  }
  const auto taken_back = written(8, core::TransferWithdrawal{5, Rank{1}, Rank{2}, -3});
  const TransferRecord back = read_record(taken_back).value();
  const auto& withdrawn = std::get<core::TransferWithdrawal>(back.message);
  EXPECT_EQ(back.process_set, 8u);
  EXPECT_EQ(std::tuple(withdrawn.number, withdrawn.source, withdrawn.destination, withdrawn.tag),
            std::tuple(5u, Rank{1}, Rank{2}, -3));
  const Status why(Code::kMismatch, "unlike");
  const auto refused = written(0, core::TransferRefusal{4, why});
  const auto refusal = std::get<core::TransferRefusal>(read_record(refused).value().message);
  EXPECT_EQ(refusal.number, 4u);
  EXPECT_EQ(refusal.status, why);
}

TEST(TransferRecord, AnOfferMayHaveItsDataWithIt) {
  core::TransferOffer offer{1, Rank{0}, Rank{1}, 0, DType::kFloat32, 3, true};
  const auto bytes = written(2, offer, 12);
  const TransferRecord record = read_record(bytes).value();
  EXPECT_TRUE(std::get<core::TransferOffer>(record.message).carried);
  ASSERT_EQ(record.data.size(), 12u);
  EXPECT_EQ(record.data[11], std::byte{11});
}

TEST(TransferRecord, ALongTextIsCutAndStaysInItsLine) {
  const std::string text = "one\ntwo" + std::string(5'000, 'x');
  const auto bytes = written(0, core::TransferRefusal{1, Status(Code::kShutDown, text)});
  EXPECT_LE(bytes.size(), kMostRecordBytes);
  const auto refusal = std::get<core::TransferRefusal>(read_record(bytes).value().message);
  EXPECT_THAT(refusal.status.message(), HasSubstr("one\\ntwo"));
}

TEST(TransferRecord, WhatCannotBeIsRefusedWithTheReason) {
  const core::TransferOffer offer{1, Rank{0}, Rank{1}, 0, DType::kFloat32, 3, true};
  const auto plain = [&] {
    core::TransferOffer item = offer;
    item.carried = false;
    return item;
  }();
  struct Case {
    std::vector<std::byte> bytes;
    const char* why;
  };
  const auto with = [](std::vector<std::byte> bytes, size_t at, int value) {
    bytes[at] = static_cast<std::byte>(value);
    return bytes;
  };
  const auto cut = [](std::vector<std::byte> bytes, size_t size) {
    bytes.resize(size);
    return bytes;
  };
  core::TransferOffer large = offer;
  large.elements = INT64_MAX;
  core::TransferOffer negative = offer;
  negative.elements = -1;
  const auto refusal = written(0, core::TransferRefusal{1, Status(Code::kMismatch, "no")});
  const std::vector<Case> cases = {
      {{}, "0 bytes"},
      {cut(written(0, offer), 15), "15 bytes"},
      {cut(written(0, offer), 39), "cut off"},
      {written(0, offer, 11), "11 bytes of data with an offer of 3 elements"},
      {written(0, plain, 12), "12 bytes of data"},
      {written(0, large, 12), "12 bytes of data"},
      {written(0, negative, 0), "0 bytes of data"},
      {with(written(0, offer, 12), 0, 0), "unknown kind 0"},
      {with(written(0, offer, 12), 0, 5), "unknown kind 5"},
      {with(written(0, offer, 12), 0, 4), "a withdrawal of another size"},
      {with(written(0, offer, 12), 1, kDTypeCount), "unknown dtype"},
      {with(written(0, offer, 12), 2, 2), "neither 0 nor 1"},
      {written(0, core::TransferTake{1, true}, 1), "too long"},
      {with(refusal, 3, 0), "without an error"},
      {with(refusal, 3, 255), "without an error"},
      {cut(refusal, kMostRecordBytes + 1), "too long"},
  };
  for (const Case& item : cases) {
    const Result<TransferRecord> read = read_record(item.bytes);
    ASSERT_FALSE(read.is_ok()) << item.why;
    EXPECT_THAT(read.status().message(), HasSubstr(item.why));
  }
}

}  // namespace
}  // namespace rueda::engine
