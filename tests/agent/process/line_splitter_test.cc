#include "agent/process/line_splitter.h"

#include <gtest/gtest.h>

namespace rueda::agent {
namespace {

std::string split_all(const std::string& prefix, const std::vector<std::string>& chunks) {
  LineSplitter splitter(prefix);
  std::string out;
  for (const std::string& chunk : chunks) splitter.feed(chunk, out);
  splitter.finish(out);
  return out;
}

TEST(LineSplitter, PrefixesEveryLineHoweverItIsCut) {
  const std::string text = "one\n\ntwo three\nlast";
  const std::string expected = "[3] one\n[3] \n[3] two three\n[3] last\n";
  for (size_t cut = 0; cut <= text.size(); ++cut) {
    EXPECT_EQ(split_all("[3] ", {text.substr(0, cut), text.substr(cut)}), expected)
        << "cut at " << cut;
  }
}

TEST(LineSplitter, HoldsBackAnUnfinishedLine) {
  LineSplitter splitter("[0] ");
  std::string out;
  splitter.feed("half a", out);
  EXPECT_EQ(out, "");
  splitter.feed(" line\nrest", out);
  EXPECT_EQ(out, "[0] half a line\n");
  splitter.finish(out);
  EXPECT_EQ(out, "[0] half a line\n[0] rest\n");
  splitter.finish(out);
  EXPECT_EQ(out, "[0] half a line\n[0] rest\n");
}

TEST(LineSplitter, TakesProgressBarsByTheirReturns) {
  EXPECT_EQ(split_all("[1] ", {"\r 10%\r 20%", "\r100%\n"}), "[1]  10%\n[1]  20%\n[1] 100%\n");
}

TEST(LineSplitter, TakesReturnAndNewlineAsOneEnd) {
  const std::string text = "a\r\n\r\nb\r\n";
  for (size_t cut = 0; cut <= text.size(); ++cut) {
    EXPECT_EQ(split_all("[1] ", {text.substr(0, cut), text.substr(cut)}), "[1] a\n[1] \n[1] b\n")
        << "cut at " << cut;
  }
}

TEST(LineSplitter, CutsLongLines) {
  constexpr size_t kMax = LineSplitter::kMaxLineBytes;
  const std::string long_line(2 * kMax + 5, 'x');
  EXPECT_EQ(split_all("[2] ", {long_line + "\nnext\n"}), "[2] " + std::string(kMax, 'x') +
                                                             "\n[2] " + std::string(kMax, 'x') +
                                                             "\n[2] xxxxx\n[2] next\n");
  // The newline after text that exactly fills a piece makes no line of its own.
  EXPECT_EQ(split_all("[2] ", {std::string(kMax, 'x'), "\nnext\n"}),
            "[2] " + std::string(kMax, 'x') + "\n[2] next\n");
}

TEST(LineSplitter, WithoutPrefixPassesTheBytes) {
  const std::string text = "a\r\n\r\r\nb\rc\n\n" + std::string(LineSplitter::kMaxLineBytes, 'x') +
                           "\n" + std::string("\0\xff\n", 3) + "no end";
  EXPECT_EQ(split_all("", {text}), text);
  std::vector<std::string> bytes;
  for (char byte : text) bytes.emplace_back(1, byte);
  EXPECT_EQ(split_all("", bytes), text);
}

}  // namespace
}  // namespace rueda::agent
