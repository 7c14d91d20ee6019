#include "cli/console/line_collapser.h"

#include <gtest/gtest.h>

namespace ds::cli {
namespace {

constexpr std::int64_t kMillisecond = 1'000'000;

CollapsedLine Line(int rank, const std::string& text, std::int64_t unix_nanos = 0,
                   bool is_stderr = false) {
  return {
      .text = text, .is_stderr = is_stderr, .ranks = {rank}, .host = "h", .unix_nanos = unix_nanos};
}

std::string Show(const std::vector<CollapsedLine>& lines) {
  std::string text;
  for (const CollapsedLine& line : lines) text += FormatLine(line);
  return text;
}

TEST(LineCollapserTest, IdenticalLinesOfManyRanksBecomeOne) {
  LineCollapser collapser;
  for (const int rank : {2, 0, 1, 5}) collapser.Add(Line(rank, "ready"));
  EXPECT_EQ(Show(collapser.TakeAll()), "[0-2,5] ready (x4)\n");
}

TEST(LineCollapserTest, BlocksOfLinesCollapseLineByLine) {
  LineCollapser collapser;
  for (const int rank : {0, 1}) {
    for (const char* text : {"a", "b"}) collapser.Add(Line(rank, text));
  }
  EXPECT_EQ(Show(collapser.TakeAll()), "[0-1] a (x2)\n[0-1] b (x2)\n");
}

TEST(LineCollapserTest, OnlyIdenticalLinesCollapse) {
  LineCollapser collapser;
  collapser.Add(Line(0, "x"));
  collapser.Add(Line(1, "x "));
  collapser.Add(Line(2, "x", 0, true));
  EXPECT_EQ(Show(collapser.TakeAll()), "0@h: x\n1@h: x \n2@h: x\n");
}

TEST(LineCollapserTest, ARanksOwnRepetitionsStay) {
  LineCollapser collapser;
  collapser.Add(Line(0, "x"));
  collapser.Add(Line(0, "x"));
  collapser.Add(Line(1, "x"));
  EXPECT_EQ(Show(collapser.TakeAll()), "[0-1] x (x2)\n0@h: x\n");
}

TEST(LineCollapserTest, TheOrderWithinARankStays) {
  LineCollapser collapser;
  collapser.Add(Line(0, "a"));
  collapser.Add(Line(0, "b"));
  collapser.Add(Line(1, "b"));
  collapser.Add(Line(1, "a"));  // may not join the first line: rank 1 said it after "b"
  EXPECT_EQ(Show(collapser.TakeAll()), "0@h: a\n[0-1] b (x2)\n1@h: a\n");
}

TEST(LineCollapserTest, LinesWaitOnlyAMoment) {
  LineCollapser collapser;
  collapser.Add(Line(0, "early", 0));
  collapser.Add(Line(1, "late", 80 * kMillisecond));
  EXPECT_EQ(Show(collapser.TakeRipe(99 * kMillisecond)), "");
  EXPECT_EQ(Show(collapser.TakeRipe(100 * kMillisecond)), "0@h: early\n");
  EXPECT_EQ(Show(collapser.TakeRipe(180 * kMillisecond)), "1@h: late\n");
}

TEST(LineCollapserTest, AFloodDoesNotPileUp) {
  LineCollapser collapser;
  for (int i = 0; i < 1000; ++i) collapser.Add(Line(0, std::to_string(i)));
  EXPECT_EQ(collapser.TakeRipe(0).size(), 744u);
  EXPECT_EQ(collapser.TakeAll().size(), 256u);
}

}  // namespace
}  // namespace ds::cli
