#include "daemon/logs/output_reader.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

namespace ds::daemon {
namespace {

struct Piece {
  std::string text;
  bool partial = false;
  friend bool operator==(const Piece&, const Piece&) = default;
};

std::ostream& operator<<(std::ostream& out, const Piece& piece) {
  return out << ::testing::PrintToString(piece.text) << (piece.partial ? " partial" : "");
}

// The pieces that come of feeding `chunks` and finishing.
std::vector<Piece> Split(const std::vector<std::string>& chunks, std::size_t max_line = 100) {
  std::vector<Piece> pieces;
  LineSplitter splitter(
      [&](std::string_view text, bool partial) {
        pieces.push_back({std::string(text), partial});
      },
      max_line);
  for (const std::string& chunk : chunks) splitter.Feed(chunk);
  splitter.Flush();
  return pieces;
}

using Pieces = std::vector<Piece>;

TEST(LineSplitterTest, LinesOfOneChunkAreOnePiece) {
  EXPECT_EQ(Split({"a\nb\nc\n"}), Pieces({{"a\nb\nc\n"}}));
}

TEST(LineSplitterTest, ALineIsHeldUntilItsEnd) {
  EXPECT_EQ(Split({"a\nb", "c", "d\ne\n"}), Pieces({{"a\n"}, {"bcd\ne\n"}}));
}

TEST(LineSplitterTest, AnUnfinishedLastLineIsPartial) {
  EXPECT_EQ(Split({"a\nb"}), Pieces({{"a\n"}, {"b", true}}));
}

TEST(LineSplitterTest, NothingComesOfNothing) {
  EXPECT_EQ(Split({}), Pieces());
  EXPECT_EQ(Split({"", ""}), Pieces());
}

TEST(LineSplitterTest, AProgressBarIsPassedOnAsItMoves) {
  EXPECT_EQ(Split({"\r1%", "\r2%", "\r3%\n"}), Pieces({{"\r"}, {"1%\r"}, {"2%\r3%\n"}}));
}

TEST(LineSplitterTest, ACarriageReturnBeforeANewlineIsNoEnd) {
  EXPECT_EQ(Split({"a\r", "\nb\r\n"}), Pieces({{"a\r\nb\r\n"}}));
  EXPECT_EQ(Split({"a\r", "b\n"}), Pieces({{"a\rb\n"}}));
  EXPECT_EQ(Split({"a\r", "b", "\n"}), Pieces({{"a\r"}, {"b\n"}}));
}

TEST(LineSplitterTest, ALineBeyondTheLimitIsTruncated) {
  EXPECT_EQ(Split({"abcdefgh\n"}, 4), Pieces({{"abcdefgh\n"}})) << "it needs no holding";
  EXPECT_EQ(Split({"abc", "defgh", "i\n"}, 4), Pieces({{"abcd", true}, {"efghi\n"}}));
}

// Whatever the chunks, nothing is lost, nothing is added, and only partial pieces end inside a
// line.
TEST(LineSplitterTest, ThePiecesAreTheStream) {
  std::mt19937 random(1);
  const auto below = [&](unsigned n) { return random() % n; };
  for (int round = 0; round < 2000; ++round) {
    std::string stream;
    std::vector<std::string> chunks(1);
    for (unsigned i = below(60); i > 0; --i) {
      const char c = "\n\rab\0"[below(5)];
      stream.push_back(c);
      if (below(4) == 0) chunks.emplace_back();
      chunks.back().push_back(c);
    }
    std::string joined;
    for (const Piece& piece : Split(chunks, 1 + below(8))) {
      joined += piece.text;
      ASSERT_FALSE(piece.text.empty());
      if (!piece.partial) {
        ASSERT_TRUE(piece.text.back() == '\n' || piece.text.back() == '\r');
      }
    }
    ASSERT_EQ(joined, stream);
  }
}

}  // namespace
}  // namespace ds::daemon
