#include "cli/console/unfinished_lines.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

namespace ds::cli {
namespace {

using ::testing::ElementsAre;

// What is let through of what rank `rank` says.
std::string Say(UnfinishedLines* lines, int rank, const std::string& text, bool partial,
                bool is_stderr = false) {
  OutputChunk chunk{.text = text, .is_stderr = is_stderr, .rank = rank, .host = "h"};
  lines->Add(&chunk, partial);
  return chunk.text;
}

std::vector<std::string> Texts(const std::vector<const OutputChunk*>& chunks) {
  std::vector<std::string> texts;
  for (const OutputChunk* chunk : chunks) texts.push_back(chunk->text);
  return texts;
}

TEST(UnfinishedLinesTest, ABeginningWaitsForItsLine) {
  UnfinishedLines lines({});
  EXPECT_EQ(Say(&lines, 0, "a\n", false), "a\n");
  EXPECT_EQ(Say(&lines, 0, "be", true), "");
  EXPECT_EQ(Say(&lines, 1, "x\n", false), "x\n");
  EXPECT_EQ(Say(&lines, 0, "gin", true), "");
  EXPECT_EQ(Say(&lines, 0, "err\n", false, true), "err\n");
  EXPECT_EQ(Say(&lines, 0, "ning\nnext\n", false), "beginning\nnext\n");
  EXPECT_TRUE(lines.TakeAll().empty());
}

TEST(UnfinishedLinesTest, ARankThatHasEndedFinishesNothing) {
  UnfinishedLines lines({});
  Say(&lines, 0, "one", true);
  Say(&lines, 0, "two", true, true);
  Say(&lines, 1, "three", true);
  const std::vector<OutputChunk> ended = lines.TakeRank(0);
  ASSERT_EQ(ended.size(), 2U);
  EXPECT_EQ(ended[0].text, "one");
  EXPECT_EQ(ended[1].text, "two");
  EXPECT_TRUE(ended[1].is_stderr);
  EXPECT_EQ(lines.TakeAll().size(), 1U);
}

TEST(UnfinishedLinesTest, AnEndlessLineComesInPieces) {
  UnfinishedLines lines({});
  const std::string part(700'000, 'x');
  EXPECT_EQ(Say(&lines, 0, part, true), "");
  EXPECT_EQ(Say(&lines, 0, part, true), part + part);
}

TEST(UnfinishedLinesTest, APromptThatCanBeAnsweredDoesNotWait) {
  UnfinishedLines lines({.prompts = true});
  EXPECT_EQ(Say(&lines, 0, "Password? ", true), "Password? ");
  EXPECT_EQ(Say(&lines, 1, "Password? ", true), "");
}

TEST(UnfinishedLinesTest, WithoutATerminalEveryRedrawnLineStays) {
  UnfinishedLines lines({});
  EXPECT_EQ(Say(&lines, 0, " 10%", true), "");
  EXPECT_EQ(Say(&lines, 0, "\r 20%\r 30%\n", false), " 10%\r 20%\r 30%\n");
}

TEST(UnfinishedLinesTest, OnATerminalTheLastDrawnIsLeft) {
  UnfinishedLines lines({.redraws_out = true});
  EXPECT_EQ(Say(&lines, 0, "\r", false), "");
  EXPECT_EQ(Say(&lines, 0, " 10%", true), "");
  EXPECT_THAT(Texts(lines.Shown()), ElementsAre(" 10%"));
  EXPECT_EQ(Say(&lines, 0, "\r", false), "");
  EXPECT_THAT(Texts(lines.Shown()), ElementsAre(" 10%\r"));
  EXPECT_EQ(Say(&lines, 0, " 20%", true), "");
  EXPECT_THAT(Texts(lines.Shown()), ElementsAre(" 20%"));
  EXPECT_EQ(Say(&lines, 0, "\r 30%\r\nnext\r\n\rlast\n", false), " 30%\nnext\nlast\n");
  EXPECT_TRUE(lines.Shown().empty());
}

TEST(UnfinishedLinesTest, ATerminalShowsRankZeroLastAndItsOwnStreams) {
  UnfinishedLines lines({.redraws_out = true});
  Say(&lines, 0, "zero", true);
  Say(&lines, 2, "two", true);
  Say(&lines, 1, "error", true, true);
  EXPECT_THAT(Texts(lines.Shown()), ElementsAre("two", "zero"));
}

// However the bytes come, lines without \r are let through as they were said.
TEST(UnfinishedLinesTest, PropertyNothingIsLostOrAdded) {
  std::mt19937 random(3);
  for (const bool terminal : {false, true}) {
    UnfinishedLines lines({.redraws_out = terminal});
    std::string said;
    std::string heard;
    for (int i = 0; i < 2000; ++i) {
      std::string piece(random() % 4, static_cast<char>('a' + random() % 3));
      const bool partial = random() % 2 == 0;
      if (!partial) piece += "\n";
      said += piece;
      heard += Say(&lines, 0, piece, partial);
    }
    for (const OutputChunk& rest : lines.TakeAll()) heard += rest.text;
    EXPECT_EQ(heard, said);
  }
}

TEST(FitRowTest, IsOneRowWithAnyContent) {
  EXPECT_EQ(FitRow("plain", 80), "plain");
  EXPECT_EQ(FitRow("plain", 3), "pla");
  EXPECT_EQ(FitRow("\x1b[31mred\x1b[0m\tend\r", 80), "red end");
  EXPECT_EQ(FitRow("a\x1b]0;b\x07", 80), "a\\x1b]0;b\\x07");
  EXPECT_EQ(FitRow("|█████|", 4), "|███");
  EXPECT_EQ(FitRow("東京", 3), "東");
  EXPECT_EQ(FitRow("\x1b[", 3), "");
}

}  // namespace
}  // namespace ds::cli
