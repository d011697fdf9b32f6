#include "daemon/base/one_line.h"

#include <random>

#include <gtest/gtest.h>

namespace rueda {
namespace {

TEST(OneLine, LeavesWhatIsPrintableAsItIs) {
  for (const char* text : {"", "node0", "a b  c~", "Größe äöü", "模型.层", "\xf0\x9f\x98\x80"}) {
    EXPECT_TRUE(is_one_line(text)) << text;
    EXPECT_EQ(one_line(text), text);
  }
}

TEST(OneLine, WritesOutWhatForgesLinesOrDrivesATerminal) {
  EXPECT_EQ(one_line("a\nb\r\tc"), "a\\nb\\r\\tc");
  EXPECT_EQ(one_line("\x1b[2J\x7f"), "\\x1b[2J\\x7f");
  EXPECT_EQ(one_line(std::string_view("a\0b", 3)), "a\\x00b");
  EXPECT_EQ(one_line("\xc2\x9b"
                     "31m"),
            "\\x9b31m")
      << "C1's CSI";
  EXPECT_EQ(one_line("a\xe2\x80\xa8"
                     "b"),
            "a\\u2028b")
      << "line separator";
  EXPECT_EQ(one_line("a\xe2\x80\xae"
                     "b"),
            "a\\u202eb")
      << "right to left";
  for (const char* text : {"\n", "\x1b", "\x7f", "\xc2\x9b", "\xe2\x80\xa8", "\xe2\x80\xae"}) {
    EXPECT_FALSE(is_one_line(text));
  }
}

TEST(OneLine, WritesOutWhatIsNotUtf8ByteByByte) {
  EXPECT_EQ(one_line("\xff\xfe"
                     "a"),
            "\\xff\\xfea");
  EXPECT_EQ(one_line("a\xe6\xa8"), "a\\xe6\\xa8") << "cut in two";
  EXPECT_FALSE(is_one_line("\xff"));
  EXPECT_FALSE(is_one_line("a\xe6\xa8"));
}

TEST(OneLine, CutsWhatIsTooLongAtACharacter) {
  EXPECT_EQ(one_line("abcdef", 6), "abcdef");
  EXPECT_EQ(one_line("abcdefg", 6), "abc...");
  EXPECT_EQ(one_line("ab\nc\n", 6), "ab...") << "no half of what is written out";
  EXPECT_EQ(one_line("äöüäöü", 8), "äö...");
  EXPECT_EQ(one_line("abcdef", 2), "..");
  EXPECT_EQ(one_line("abcdef", 0), "");
}

TEST(OneLine, WhateverComesIsOneBoundedLine) {
  std::mt19937 random(1);
  for (int i = 0; i < 20'000; ++i) {
    std::string text(random() % 24, '\0');
    for (char& c : text) c = static_cast<char>(random());
    const size_t max_bytes = random() % 40;
    const std::string line = one_line(text, max_bytes);
    ASSERT_LE(line.size(), max_bytes);
    ASSERT_TRUE(is_one_line(line)) << line;
    if (is_one_line(text) && text.size() <= max_bytes) {
      ASSERT_EQ(line, text);
    }
  }
}

}  // namespace
}  // namespace rueda
