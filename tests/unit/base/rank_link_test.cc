#include "runtime/base/rank_link.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <string>
#include <vector>

namespace ds {
namespace {

TEST(RankMessageTest, RoundTripsEveryKind) {
  for (int kind = 0; kind <= static_cast<int>(RankMessageKind::kEnd); ++kind) {
    const RankMessage message{static_cast<RankMessageKind>(kind), R"({"step":7})"};
    const std::string line = *EncodeRankMessage(message);
    ASSERT_EQ(line.back(), '\n');
    EXPECT_EQ(*DecodeRankMessage(std::string_view(line).substr(0, line.size() - 1)), message);
  }
}

TEST(RankMessageTest, RefusesMessagesThatDoNotFitAFrame) {
  EXPECT_FALSE(EncodeRankMessage({RankMessageKind::kStep, "{\n}"}).ok());
  EXPECT_FALSE(EncodeRankMessage({RankMessageKind::kStep, std::string(kMaxLineBytes, 'x')}).ok());
}

TEST(RankMessageTest, RefusesForeignLines) {
  for (const char* line :
       {"", "dsrun1", "dsrun1 step", "dsrun2 step {}", "dsrun1 dance {}", "hello"}) {
    EXPECT_FALSE(DecodeRankMessage(line).ok()) << line;
  }
}

TEST(RankMessageReaderTest, SplitsAStreamFedByteByByte) {
  RankMessageReader reader;
  const std::string stream = *EncodeRankMessage({RankMessageKind::kHello, R"({"pid":1})"}) +
                             *EncodeRankMessage({RankMessageKind::kEnd, "{}"});
  std::vector<RankMessage> seen;
  for (const char byte : stream) {
    reader.Feed(std::string_view(&byte, 1));
    auto next = reader.Next();
    ASSERT_TRUE(next.ok());
    if (*next) seen.push_back(**next);
  }
  ASSERT_EQ(seen.size(), 2u);
  EXPECT_EQ(seen[0].body, R"({"pid":1})");
  EXPECT_EQ(seen[1].kind, RankMessageKind::kEnd);
}

TEST(RankMessageReaderTest, SplitsABatchOfMessagesAndKeepsTheRemainder) {
  RankMessageReader reader;
  const std::string line = *EncodeRankMessage({RankMessageKind::kHello, R"({"pid":1})"});
  const std::string half = line.substr(0, line.size() / 2);
  reader.Feed(line + line + half);
  EXPECT_TRUE((*reader.Next()).has_value());
  EXPECT_TRUE((*reader.Next()).has_value());
  EXPECT_FALSE((*reader.Next()).has_value());
  reader.Feed(line.substr(half.size()) + line);
  for (int i = 0; i < 2; ++i) EXPECT_EQ((*reader.Next())->body, R"({"pid":1})");
  EXPECT_FALSE((*reader.Next()).has_value());
}

TEST(RankMessageReaderTest, AnEndlessLineIsAnErrorNotMemory) {
  RankMessageReader reader;
  reader.Feed(std::string(kMaxLineBytes, 'x'));
  EXPECT_FALSE(reader.Next().ok());
}

class RankLinkTest : public ::testing::Test {
 protected:
  void SetUp() override {
    int ends[2];
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    daemon_.Reset(ends[0]);
    rank_.Reset(ends[1]);
  }
  UniqueFd daemon_, rank_;
};

TEST_F(RankLinkTest, SendToAVanishedDaemonIsAnError) {
  RankLink link(std::move(rank_));
  daemon_.Reset();
  EXPECT_EQ(link.Send({RankMessageKind::kPhase, "{}"}).code(), StatusCode::kUnavailable);
}

TEST_F(RankLinkTest, EnvironmentIsTakenOnce) {
  ::setenv(kRankLinkVariable, std::to_string(rank_.Release()).c_str(), 1);
  auto link = RankLink::FromEnvironment();
  ASSERT_TRUE(link.ok());
  ASSERT_NE(*link, nullptr);
  EXPECT_EQ(*RankLink::FromEnvironment(), nullptr);
  ::setenv(kRankLinkVariable, "12x", 1);
  EXPECT_FALSE(RankLink::FromEnvironment().ok());
  ::unsetenv(kRankLinkVariable);
}

}  // namespace
}  // namespace ds
