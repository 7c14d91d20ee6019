#include "cli/agent/front_input.h"

#include <gtest/gtest.h>

#include <future>
#include <string>
#include <utility>
#include <vector>

#include "cli/host/host_daemon.h"

namespace ds::cli {
namespace {

v1::InputChunk Piece(std::uint64_t serial, const std::string& data, std::uint64_t offset = 0) {
  v1::InputChunk chunk;
  chunk.set_serial(serial);
  chunk.set_offset(offset);
  chunk.set_data(data);
  return chunk;
}

// Collects the messages to the front.
class FrontInputTest : public ::testing::Test {
 protected:
  v1::FromAgent Next() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return next_ < messages_.size(); });
    return messages_[next_++];
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<v1::FromAgent> messages_;
  std::size_t next_ = 0;
  FrontInput input_{[this](const v1::FromAgent& message) {
    const std::lock_guard lock(mutex_);
    messages_.push_back(message);
    changed_.notify_all();
  }};
};

TEST_F(FrontInputTest, PassesPiecesToTheRankAndReplies) {
  std::string received;
  ASSERT_TRUE(input_
                  .Start([&](const InputPiece& piece) -> StatusOr<std::uint64_t> {
                    received += piece.data;
                    return piece.data.size() - 1;
                  })
                  .ok());
  input_.Begin();
  const std::uint64_t serial = Next().input_wanted().serial();
  input_.OnPiece(Piece(serial, "abc"));
  const v1::FromAgent reply = Next();
  EXPECT_EQ(reply.input_reply().serial(), serial);
  EXPECT_EQ(reply.input_reply().accepted(), 2U);
  EXPECT_EQ(received, "abc");
  input_.Stop();
  EXPECT_EQ(Next().input_end().serial(), serial);
}

TEST_F(FrontInputTest, IgnoresPiecesOfAnEarlierGeneration) {
  const auto send = [](const InputPiece& piece) -> StatusOr<std::uint64_t> {
    return piece.data.size();
  };
  ASSERT_TRUE(input_.Start(send).ok());
  input_.Begin();
  const std::uint64_t first = Next().input_wanted().serial();
  input_.Stop();
  EXPECT_TRUE(Next().has_input_end());
  ASSERT_TRUE(input_.Start(send).ok());
  input_.Begin();
  const std::uint64_t second = Next().input_wanted().serial();
  EXPECT_NE(first, second);
  input_.OnPiece(Piece(first, "late"));
  input_.OnPiece(Piece(second, "x"));
  EXPECT_EQ(Next().input_reply().accepted(), 1U) << "the late piece has four bytes";
}

TEST_F(FrontInputTest, AnErrorOfTheRankReachesTheFront) {
  ASSERT_TRUE(input_
                  .Start([](const InputPiece&) -> StatusOr<std::uint64_t> {
                    return UnavailableError("no connection");
                  })
                  .ok());
  input_.Begin();
  input_.OnPiece(Piece(Next().input_wanted().serial(), "abc"));
  const v1::FromAgent reply = Next();
  EXPECT_EQ(static_cast<StatusCode>(reply.input_reply().code()), StatusCode::kUnavailable);
  EXPECT_EQ(reply.input_reply().message(), "no connection");
}

TEST_F(FrontInputTest, TheInputEndsWithItsFront) {
  std::promise<InputPiece> last;
  ASSERT_TRUE(input_
                  .Start([&](const InputPiece& piece) -> StatusOr<std::uint64_t> {
                    if (piece.end) last.set_value(piece);
                    return piece.data.size();
                  })
                  .ok());
  input_.Begin();
  input_.OnPiece(Piece(Next().input_wanted().serial(), "abc"));
  EXPECT_TRUE(Next().has_input_reply());
  input_.EndInput();
  EXPECT_EQ(last.get_future().get().offset, 3U);
}

}  // namespace
}  // namespace ds::cli
