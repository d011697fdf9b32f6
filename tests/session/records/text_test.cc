#include "daemon/session/records/text.h"

#include <array>

#include <gtest/gtest.h>

namespace rueda::session {
namespace {

TEST(Text, TruncatesBetweenCharacters) {
  EXPECT_EQ(truncate_utf8("abc", 3), "abc");
  EXPECT_EQ(truncate_utf8("abcd", 3), "abc");
  EXPECT_EQ(truncate_utf8("abé", 3), "ab");
  EXPECT_EQ(truncate_utf8("aé", 3), "aé");
  EXPECT_EQ(truncate_utf8("€", 2), "");
  EXPECT_EQ(truncate_utf8("\x80\x80\x80", 2), "");
}

TEST(Text, FieldsAlwaysEndInNul) {
  std::array<char, 4> field;
  field.fill('x');
  fill_field(field, "abcdef");
  EXPECT_STREQ(field.data(), "abc");
  fill_field(field, "a");
  EXPECT_EQ(field, (std::array<char, 4>{'a', '\0', '\0', '\0'}));
  EXPECT_EQ(field_text(field), "a");
  field.fill('x');
  EXPECT_EQ(field_text(field), std::nullopt);
}

TEST(Text, PrintableUtf8) {
  for (const char* good : {"", "layer.1/bias:0", "été", "勾配", "\xf0\x9f\x9a\xb2"}) {
    EXPECT_TRUE(is_printable_utf8(good)) << good;
  }
  for (const char* bad : {"\t", "\x7f", "\xc2\x9f", "\xff", "\xe2\x82", "\xf4\x90\x80\x80"}) {
    EXPECT_FALSE(is_printable_utf8(bad)) << bad;
  }
}

}  // namespace
}  // namespace rueda::session
