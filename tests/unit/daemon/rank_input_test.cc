#include "daemon/ranks/rank_input.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <optional>
#include <string>
#include <thread>

namespace ds::daemon {
namespace {

using namespace std::chrono_literals;

class RankInputTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::signal(SIGPIPE, SIG_IGN);
    std::array<int, 2> ends;
    ASSERT_EQ(::pipe2(ends.data(), O_CLOEXEC), 0);
    ASSERT_EQ(::fcntl(ends[1], F_SETFL, O_NONBLOCK), 0);
    reader_.Reset(ends[0]);
    input_.emplace(UniqueFd(ends[1]));
  }
  std::uint64_t Write(std::uint64_t offset, std::string_view data, bool end = false,
                      std::chrono::seconds timeout = 60s) {
    const auto taken =
        input_->Write({offset, data, end}, std::chrono::steady_clock::now() + timeout);
    EXPECT_TRUE(taken.ok()) << taken.status().message();
    return taken.ok() ? *taken : 0;
  }
  // Everything up to the end.
  std::string ReadAll() {
    std::string text;
    std::array<char, 4096> buffer;
    for (ssize_t got = 1; got > 0;) {
      got = ::read(reader_.get(), buffer.data(), buffer.size());
      if (got > 0) text.append(buffer.data(), static_cast<std::size_t>(got));
    }
    return text;
  }

  UniqueFd reader_;
  std::optional<RankInput> input_;
};

TEST_F(RankInputTest, BytesArriveOnceHoweverOftenTheyAreSent) {
  EXPECT_EQ(Write(0, "abc"), 3U);
  EXPECT_EQ(Write(0, "abc"), 3U);
  EXPECT_EQ(Write(1, "bcdef"), 5U);
  EXPECT_EQ(Write(6, "", true), 0U);
  EXPECT_EQ(Write(6, "", true), 0U);
  EXPECT_EQ(ReadAll(), "abcdef");
}

TEST_F(RankInputTest, AGapIsRefused) {
  EXPECT_EQ(input_->Write({1, "x", false}, {}).status().code(), StatusCode::kOutOfRange);
}

TEST_F(RankInputTest, AFullPipeTakesPartAndTheRestIsSentAgain) {
  const std::string data(1 << 20, 'x');
  const std::uint64_t taken = Write(0, data, true, 0s);
  EXPECT_GT(taken, 0U);
  EXPECT_LT(taken, data.size());
  std::string got;
  std::thread reader([&] { got = ReadAll(); });
  EXPECT_EQ(Write(taken, std::string_view(data).substr(taken), true), data.size() - taken);
  reader.join();
  EXPECT_EQ(got, data);
}

TEST_F(RankInputTest, HandlesUnreadInput) {
  reader_.Reset();
  EXPECT_EQ(Write(0, "abc"), 3U);
  EXPECT_EQ(Write(3, std::string(1 << 20, 'x'), true), 1U << 20);
}

TEST_F(RankInputTest, ARankThatEndsWhileItsInputWaitsLetsItGo) {
  std::thread rank([this] {
    char byte = 0;
    EXPECT_EQ(::read(reader_.get(), &byte, 1), 1);  // the writer has begun
    reader_.Reset();
  });
  EXPECT_EQ(Write(0, std::string(1 << 20, 'x')), 1U << 20);
  rank.join();
}

}  // namespace
}  // namespace ds::daemon
