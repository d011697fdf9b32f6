// Tests the table of a session's handles and tickets.
#include "client/src/session/handle_table.h"

#include <gtest/gtest.h>

namespace rueda::client {
namespace {

constexpr uint32_t kPlaces = 16;

bool is_never_barred(uint64_t /*ticket*/) { return false; }

TEST(HandleTable, AHandleIsUnknownOnceItIsGiven) {
  HandleTable table(kPlaces);
  Handle& first = table.take(1);
  const rueda_handle id = first.id;
  EXPECT_EQ(table.find(id), &first);
  table.give(first);
  EXPECT_EQ(table.find(id), nullptr);
  Handle& second = table.take(1);
  EXPECT_EQ(&second, &first) << "the place is used again";
  EXPECT_EQ(table.find(id), nullptr) << "but not the id";
  EXPECT_EQ(table.find(0), nullptr);
  EXPECT_EQ(table.find(~rueda_handle{0}), nullptr);
}

TEST(HandleTable, AnOperationEndsOnce) {
  HandleTable table(kPlaces);
  Handle& handle = table.take(2);
  table.take_tickets(handle, is_never_barred);
  EXPECT_EQ(table.in_flight_count(), 2u);
  const uint64_t ticket = handle.operations[0].record.ticket;
  EXPECT_EQ(table.end(ticket + kPlaces), nullptr) << "another ticket of the same place";
  EXPECT_EQ(table.end(ticket), &handle.operations[0]);
  EXPECT_EQ(table.end(ticket), nullptr);
  EXPECT_EQ(table.in_flight_count(), 1u);
  EXPECT_EQ(&table.first_in_flight(), &handle.operations[1]);
}

TEST(HandleTable, TicketsSkipPlacesThatAreTakenOrBarred) {
  HandleTable table(kPlaces);
  Handle& early = table.take(2);
  table.take_tickets(early, is_never_barred);
  Handle& late = table.take(kPlaces - 3);
  const uint64_t barred = early.operations[1].record.ticket + 1;
  table.take_tickets(late, [&](uint64_t ticket) { return ticket % kPlaces == barred % kPlaces; });
  EXPECT_EQ(late.operations.front().record.ticket, barred + 1);
  EXPECT_TRUE(table.has_room(1));
  EXPECT_FALSE(table.has_room(2));
  ASSERT_EQ(table.end(early.operations[0].record.ticket), &early.operations[0]);
  Handle& last = table.take(1);
  table.take_tickets(last, [&](uint64_t ticket) { return ticket % kPlaces == barred % kPlaces; });
  EXPECT_EQ(last.operations[0].record.ticket % kPlaces,
            early.operations[0].record.ticket % kPlaces);
}

TEST(HandleTable, TicketsBeginAtTheFirstPlaceWhenNothingIsInFlight) {
  HandleTable table(kPlaces);
  for (int step = 0; step < 3; ++step) {
    Handle& handle = table.take(5);
    table.take_tickets(handle, is_never_barred);
    EXPECT_EQ(handle.operations[0].record.ticket % kPlaces, 0u);
    for (const Operation& operation : handle.operations) table.end(operation.record.ticket);
    table.give(handle);
  }
  EXPECT_EQ(table.in_flight().size(), 5u);
}

TEST(HandleTable, EndingAllEndsEachOnce) {
  HandleTable table(kPlaces);
  Handle& handle = table.take(3);
  table.take_tickets(handle, is_never_barred);
  size_t ended = 0;
  table.end_all([&](Operation& operation) { ended += operation.handle == &handle ? 1 : 0; });
  EXPECT_EQ(ended, 3u);
  EXPECT_EQ(table.in_flight_count(), 0u);
  EXPECT_EQ(table.end(handle.operations[0].record.ticket), nullptr);
}

TEST(HandleTable, EqualNamesOfOperationsHaveTheSameCharacters) {
  HandleTable table(kPlaces);
  Handle& handle = table.take(1);
  handle.operations[0].name = table.kept_name("layer1");
  // More names than are kept: those that no operation has are forgotten.
  for (size_t i = 0; i <= InternCache::kMost; ++i) table.kept_name("other" + std::to_string(i));
  EXPECT_EQ(table.kept_name("layer1").data(), handle.operations[0].name.data());
  EXPECT_EQ(handle.operations[0].name, "layer1");
}

}  // namespace
}  // namespace rueda::client
