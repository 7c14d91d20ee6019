#include "cli/agent/front_server.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <csignal>
#include <future>
#include <string>
#include <vector>

#include "cli/front/agent_link.h"
#include "runtime/process/unix_socket.h"
#include "tests/support/program.h"
#include "tests/unit/cli/events.h"

namespace ds::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

v1::FromAgent Text(const std::string& text) {
  v1::FromAgent message;
  message.mutable_text()->set_text(text);
  return message;
}

v1::FromAgent OutputOf(int rank, const std::string& text) {
  v1::FromAgent message;
  *message.mutable_event()->mutable_event() = testing::Output(rank, text);
  return message;
}

v1::FromFront Hello(bool lossless) {
  v1::FromFront message;
  message.mutable_hello()->set_protocol(v1::AGENT_PROTOCOL_CURRENT);
  message.mutable_hello()->set_shows_job(true);
  message.mutable_hello()->set_lossless(lossless);
  return message;
}

TEST(FramesTest, SplitsAStreamAtAnyByte) {
  const std::string stream = *MakeFrame(Text("one")) + *MakeFrame(Text("two"));
  for (std::size_t cut = 0; cut <= stream.size(); ++cut) {
    FrameReader reader;
    std::vector<std::string> texts;
    for (const std::string& piece : {stream.substr(0, cut), stream.substr(cut)}) {
      reader.Add(piece);
      v1::FromAgent message;
      while (*reader.Next(&message)) texts.push_back(message.text().text());
    }
    EXPECT_THAT(texts, ElementsAre("one", "two")) << cut;
  }
}

TEST(FramesTest, RefusesWhatIsNoFrame) {
  v1::FromAgent message;
  FrameReader large;
  large.Add("\xFF\xFF\xFF\xFF");
  EXPECT_FALSE(large.Next(&message).ok());
  FrameReader damaged;
  damaged.Add(std::string("\x02\x00\x00\x00\xFF\xFF", 6));
  EXPECT_FALSE(damaged.Next(&message).ok());
}

class FrontServerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    connection_ = *MakeSocketPair();
    socket_ = *AgentSocket::Listen(folder_.path());
  }
  void Start() {
    ASSERT_TRUE(server_.Start(std::move(connection_.theirs), std::move(socket_)).ok());
  }
  // Connects another front, which has said hello.
  void Connect(AgentLink* link) {
    auto connection = ConnectToAgent(folder_.path());
    ASSERT_TRUE(connection.ok()) << connection.status().message();
    link->Open(*std::move(connection));
    EXPECT_TRUE(link->Receive()->has_hello());
    link->Send(Hello(false));
    v1::FromFront status;  // its reply comes after the hello has been handled
    status.mutable_status();
    link->Send(status);
    EXPECT_EQ(link->Receive()->status().json(), "{}");
  }

  ds::testing::TemporaryFolder folder_;
  SocketPair connection_;
  AgentSocket socket_;
  std::promise<int> signal_;
  std::promise<bool> gone_;
  FrontServer server_{{},
                      {.on_signal = [this](int signal) { signal_.set_value(signal); },
                       .on_input = [](const v1::InputChunk&) {},
                       .on_first_gone = [this](bool ends_job) { gone_.set_value(ends_job); },
                       .describe = [] { return std::string("{}"); }}};
};

TEST_F(FrontServerTest, EveryFrontReceivesWhatIsPublished) {
  Start();
  AgentLink first, second;
  first.Open(std::move(connection_.ours));
  EXPECT_TRUE(first.Receive()->has_hello());
  Connect(&second);
  server_.Publish(Text("hello"));
  EXPECT_EQ(first.Receive()->text().text(), "hello");
  EXPECT_EQ(second.Receive()->text().text(), "hello");
}

TEST_F(FrontServerTest, ASignalOfAnyFrontReachesTheAgent) {
  Start();
  AgentLink second;
  Connect(&second);
  second.SendSignal(SIGTERM);
  EXPECT_EQ(signal_.get_future().get(), SIGTERM);
}

TEST_F(FrontServerTest, TheJobEndsWithItsFirstFrontUnlessItIsDetached) {
  Start();
  connection_.ours.Reset();
  EXPECT_TRUE(gone_.get_future().get());
}

TEST_F(FrontServerTest, ADetachedJobGoesOn) {
  Start();
  AgentLink second;
  Connect(&second);
  v1::FromFront detach;
  detach.mutable_detach();
  second.Send(detach);
  EXPECT_TRUE(second.Receive()->has_detached());
  connection_.ours.Reset();
  EXPECT_FALSE(gone_.get_future().get());
}

TEST_F(FrontServerTest, AFrontThatConnectsLateReceivesTheOutcome) {
  Start();
  v1::JobEnded ended;
  ended.set_exit_code(7);
  server_.PublishEnd(ended);
  AgentLink late;
  late.Open(*ConnectToAgent(folder_.path()));
  EXPECT_TRUE(late.Receive()->has_hello());
  EXPECT_EQ(late.Receive()->ended().exit_code(), 7);
}

// The front does not read: what the socket and the queue do not hold is dropped and counted.
TEST_F(FrontServerTest, ABlockedFrontBlocksNobody) {
  Start();
  const std::string line = std::string((1 << 20) - 1, 'x') + "\n";
  for (int i = 0; i < 80; ++i) server_.Publish(OutputOf(0, line));
  AgentLink first;
  first.Open(std::move(connection_.ours));
  int lines = 0;
  std::string report;
  while (report.empty()) {
    const auto message = first.Receive();
    ASSERT_TRUE(message.has_value());
    if (message->has_event()) ++lines;
    if (message->has_text()) report = message->text().text();
  }
  EXPECT_LT(lines, 80);
  EXPECT_THAT(report, HasSubstr(std::to_string(80 - lines) + " line"));
}

TEST_F(FrontServerTest, ALosslessFrontReceivesEverything) {
  Start();
  AgentLink first;
  first.Open(std::move(connection_.ours));
  first.Send(Hello(true));
  EXPECT_TRUE(first.Receive()->has_hello());
  v1::FromFront status;
  status.mutable_status();
  first.Send(status);
  EXPECT_TRUE(first.Receive()->has_status());
  constexpr int kLines = 100;
  std::thread publisher([this] {
    const std::string line = std::string((1 << 20) - 1, 'x') + "\n";
    for (int i = 0; i < kLines; ++i) server_.Publish(OutputOf(0, line));
  });
  for (int lines = 0; lines < kLines;) lines += first.Receive()->has_event() ? 1 : 0;
  publisher.join();
}

TEST_F(FrontServerTest, CloseWaitsForFrontsThatRead) {
  Start();
  server_.Publish(OutputOf(0, std::string(8 << 20, 'x')));
  std::thread closer([this] { server_.Close(); });
  AgentLink first;
  first.Open(std::move(connection_.ours));
  EXPECT_TRUE(first.Receive()->has_hello());
  EXPECT_TRUE(first.Receive()->has_event());
  EXPECT_FALSE(first.Receive().has_value());
  closer.join();
  EXPECT_EQ(ConnectToAgent(folder_.path()).status().code(), StatusCode::kNotFound);
}

TEST_F(FrontServerTest, AFrontThatSendsGarbageIsDropped) {
  Start();
  UniqueFd garbage = *ConnectToAgent(folder_.path());
  ASSERT_EQ(::send(garbage.get(), "\xFF\xFF\xFF\xFF", 4, MSG_NOSIGNAL), 4);
  AgentLink link;
  link.Open(std::move(garbage));
  EXPECT_TRUE(link.Receive()->has_hello());
  EXPECT_FALSE(link.Receive().has_value());
}

}  // namespace
}  // namespace ds::cli
