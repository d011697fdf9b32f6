#include "daemon/base/hash.h"

#include <string>

#include <gtest/gtest.h>

namespace rueda {
namespace {

uint64_t of_bytes(std::string_view bytes) { return Fnv1a().add_bytes(bytes).value(); }

// The values are from the authors' list of test vectors (Fowler, Noll, Vo).
TEST(Fnv1a, KnownVectors) {
  EXPECT_EQ(of_bytes(""), 0xcbf29ce484222325u);
  EXPECT_EQ(of_bytes("a"), 0xaf63dc4c8601ec8cu);
  EXPECT_EQ(of_bytes("b"), 0xaf63df4c8601f1a5u);
  EXPECT_EQ(of_bytes("foobar"), 0x85944171f73967e8u);
  EXPECT_EQ(of_bytes("chongo was here!\n"), 0x46810940eff5f915u);
}

TEST(Fnv1a, ANumberIsItsEightBytesLowestFirst) {
  EXPECT_EQ(Fnv1a().add(uint64_t{0x0102030405060708}).value(),
            of_bytes("\x08\x07\x06\x05\x04\x03\x02\x01"));
}

TEST(Fnv1a, BytesAboveSevenBitsAreUnsigned) {
  EXPECT_EQ(Fnv1a().add(uint64_t{0xff}).value(), of_bytes(std::string("\xff\0\0\0\0\0\0\0", 8)));
}

TEST(Fnv1a, TextIsPrefixedByItsLength) {
  EXPECT_EQ(Fnv1a().add("abc").value(), Fnv1a().add(uint64_t{3}).add_bytes("abc").value());
  EXPECT_NE(Fnv1a().add("ab").add("c").value(), Fnv1a().add("a").add("bc").value());
  EXPECT_NE(Fnv1a().add("").value(), Fnv1a().value());
}

}  // namespace
}  // namespace rueda
