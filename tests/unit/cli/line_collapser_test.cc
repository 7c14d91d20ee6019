#include "cli/console/line_collapser.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

namespace ds::cli {
namespace {

constexpr std::int64_t kMillisecond = 1'000'000;

OutputChunk Chunk(int rank, const std::string& text, std::int64_t unix_nanos = 0,
                  bool is_stderr = false) {
  return {
      .text = text, .is_stderr = is_stderr, .rank = rank, .host = "h", .unix_nanos = unix_nanos};
}

std::string Show(const std::vector<TaggedText>& shown) {
  std::string text;
  for (const TaggedText& piece : shown) text += piece.text;
  return text;
}

TEST(LineCollapserTest, IdenticalLinesOfManyRanksBecomeOne) {
  LineCollapser collapser;
  for (const int rank : {2, 0, 1, 5}) collapser.Add(Chunk(rank, "ready\n"));
  EXPECT_EQ(Show(collapser.TakeAll()), "[0-2,5] ready (x4)\n");
}

TEST(LineCollapserTest, BlocksOfLinesCollapseLineByLine) {
  LineCollapser collapser;
  for (const int rank : {0, 1}) collapser.Add(Chunk(rank, "a\nb\n"));
  EXPECT_EQ(Show(collapser.TakeAll()), "[0-1] a (x2)\n[0-1] b (x2)\n");
}

TEST(LineCollapserTest, OnlyIdenticalLinesCollapse) {
  LineCollapser collapser;
  collapser.Add(Chunk(0, "x\n"));
  collapser.Add(Chunk(1, "x \n"));
  collapser.Add(Chunk(2, "x\n", 0, true));
  EXPECT_EQ(Show(collapser.TakeAll()), "0@h: x\n1@h: x \n2@h: x\n");
}

TEST(LineCollapserTest, NeighboursOfOneStreamAreOneText) {
  LineCollapser collapser;
  collapser.Add(Chunk(0, "a\nb\n"));
  collapser.Add(Chunk(0, "c\n", 0, true));
  const std::vector<TaggedText> shown = collapser.TakeAll();
  ASSERT_EQ(shown.size(), 2u);
  EXPECT_EQ(shown[0].text, "0@h: a\n0@h: b\n");
  EXPECT_FALSE(shown[0].is_stderr);
  EXPECT_EQ(shown[1].text, "0@h: c\n");
  EXPECT_TRUE(shown[1].is_stderr);
}

TEST(LineCollapserTest, ARanksOwnRepetitionsStay) {
  LineCollapser collapser;
  collapser.Add(Chunk(0, "x\nx\n"));
  collapser.Add(Chunk(1, "x\n"));
  EXPECT_EQ(Show(collapser.TakeAll()), "[0-1] x (x2)\n0@h: x\n");
}

TEST(LineCollapserTest, TheOrderWithinARankStays) {
  LineCollapser collapser;
  collapser.Add(Chunk(0, "a\nb\n"));
  collapser.Add(Chunk(1, "b\n"));
  collapser.Add(Chunk(1, "a\n"));  // may not join the first line: rank 1 said it after "b"
  EXPECT_EQ(Show(collapser.TakeAll()), "0@h: a\n[0-1] b (x2)\n1@h: a\n");
}

TEST(LineCollapserTest, LinesWaitOnlyAMoment) {
  LineCollapser collapser;
  collapser.Add(Chunk(0, "early", 0));
  collapser.Add(Chunk(1, "late", 80 * kMillisecond));
  EXPECT_EQ(Show(collapser.TakeRipe(99 * kMillisecond)), "");
  EXPECT_EQ(Show(collapser.TakeRipe(100 * kMillisecond)), "0@h: early\n");
  EXPECT_EQ(Show(collapser.TakeRipe(180 * kMillisecond)), "1@h: late\n");
}

TEST(LineCollapserTest, AHostWithAFastClockDelaysNothing) {
  LineCollapser collapser;
  collapser.Add(Chunk(0, "from tomorrow", std::int64_t{86'400'000} * kMillisecond));
  collapser.Add(Chunk(1, "from now", 0));
  EXPECT_EQ(Show(collapser.TakeRipe(100 * kMillisecond)), "0@h: from tomorrow\n1@h: from now\n");
}

TEST(LineCollapserTest, AFloodDoesNotPileUp) {
  LineCollapser collapser;
  std::string lines;
  for (int i = 0; i < 1000; ++i) lines += std::to_string(i) + "\n";
  collapser.Add(Chunk(0, lines));
  const auto count = [](const std::string& text) {
    return std::count(text.begin(), text.end(), '\n');
  };
  EXPECT_EQ(count(Show(collapser.TakeRipe(0))), 744);
  EXPECT_EQ(count(Show(collapser.TakeAll())), 256);
}

TEST(LineCollapserTest, LongLinesDoNotPileUp) {
  LineCollapser collapser;
  const std::string line(std::size_t{1} << 20, 'x');
  for (int i = 0; i < 5; ++i) collapser.Add(Chunk(i, line + std::to_string(i)));
  EXPECT_GT(Show(collapser.TakeRipe(0)).size(), 5 * line.size());
}

TEST(LineCollapserTest, LineEndsOfEveryKind) {
  LineCollapser collapser;
  collapser.Add(Chunk(0, "10%\r20%\rdone\r\n\n\rlast"));
  EXPECT_EQ(Show(collapser.TakeAll()), "0@h: 10%\n0@h: 20%\n0@h: done\n0@h: \n0@h: \n0@h: last\n");
}

TEST(LineCollapserTest, BytesThatAreNoTextStay) {
  LineCollapser collapser;
  const std::string bytes("\0\xff\x80\x1b[1m", 7);
  collapser.Add(Chunk(0, bytes + "\n"));
  EXPECT_EQ(Show(collapser.TakeAll()), "0@h: " + bytes + "\n");
}

// "[0,2-3] text (x3)" and "1@h: text" taken apart again.
void AddShown(const std::string& line, std::map<int, std::vector<std::string>>* lines_of_rank) {
  if (line[0] != '[') {
    (*lines_of_rank)[std::stoi(line)].push_back(line.substr(line.find(": ") + 2));
    return;
  }
  const std::size_t close = line.find(']');
  const std::string text = line.substr(close + 2, line.rfind(" (x") - close - 2);
  for (std::size_t at = 1; at < close;) {
    std::size_t used = 0;
    const int first = std::stoi(line.substr(at), &used);
    at += used;
    int last = first;
    if (line[at] == '-') {
      last = std::stoi(line.substr(at + 1), &used);
      at += used + 1;
    }
    for (int rank = first; rank <= last; ++rank) (*lines_of_rank)[rank].push_back(text);
    ++at;
  }
}

// Whatever ranks say in whatever pieces, each rank's lines arrive whole, all, and in their order.
TEST(LineCollapserTest, PropertyNothingIsLostOrReordered) {
  std::mt19937 random(7);
  for (int round = 0; round < 200; ++round) {
    LineCollapser collapser;
    std::map<int, std::vector<std::string>> said;
    std::string shown;
    std::int64_t now = 0;
    for (int step = 0; step < 60; ++step) {
      const int rank = static_cast<int>(random() % 5);
      std::string text;
      for (unsigned lines = random() % 40; lines > 0; --lines) {
        const std::string line(random() % 3, static_cast<char>('a' + random() % 2));
        said[rank].push_back(line);
        text += line + "\n";
      }
      collapser.Add(Chunk(rank, text, now));
      now += static_cast<std::int64_t>(random() % 60) * kMillisecond;
      shown += Show(random() % 9 == 0 ? collapser.TakeAll() : collapser.TakeRipe(now));
    }
    shown += Show(collapser.TakeAll());
    std::map<int, std::vector<std::string>> heard;
    for (std::size_t at = 0; at < shown.size();) {
      const std::size_t end = shown.find('\n', at);
      AddShown(shown.substr(at, end - at), &heard);
      at = end + 1;
    }
    ASSERT_EQ(heard, said) << "round " << round;
  }
}

}  // namespace
}  // namespace ds::cli
