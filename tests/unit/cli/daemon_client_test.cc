// What a caller sees of a daemon that does not answer.

#include "cli/host/daemon_client.h"

#include <grpc/support/log.h>
#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <thread>
#include <utility>

#include "runtime/process/unix_socket.h"

namespace ds::cli {
namespace {

constexpr std::chrono::hours kLongerThanATest{1};

class DaemonClientTest : public ::testing::Test {
 protected:
  SocketPair pair_ = std::move(MakeSocketPair()).value();  // nobody reads what comes to `theirs`
  DaemonClient client_{"test-job", std::move(pair_.ours), kLongerThanATest};
};

// Of a thread that it does not get, for one: a call says so, too.
TEST_F(DaemonClientTest, WhatGrpcLogsIsNotForTheUser) {
  ::testing::internal::CaptureStderr();
  gpr_log(GPR_ERROR, "Could not create a worker-thread");
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
}

TEST_F(DaemonClientTest, ALaunchNobodyAwaitsIsGivenUp) {
  std::promise<Status> answer;
  SocketPair pair = std::move(MakeSocketPair()).value();
  {
    DaemonClient client("test-job", std::move(pair.ours), kLongerThanATest);
    client.BeginLaunch({}, [&](const Status& status) { answer.set_value(status); });
  }
  EXPECT_EQ(answer.get_future().get().code(), StatusCode::kCancelled);
}

TEST_F(DaemonClientTest, AbandonEndsALaunchThatIsUnderWay) {
  std::jthread impatient([&] { client_.Abandon(); });
  EXPECT_EQ(client_.Launch({}).status().code(), StatusCode::kCancelled);
  EXPECT_EQ(client_.Launch({}).status().code(), StatusCode::kCancelled);
}

// Its daemon answers nothing else while a file system keeps it: the launch has its own limit.
TEST_F(DaemonClientTest, ALaunchThatIsUnderWayIsASignOfLife) {
  EXPECT_EQ(client_.LastEvent().count(), 0);
  std::promise<Status> answer;
  client_.BeginLaunch({}, [&](const Status& status) { answer.set_value(status); });
  const auto begun = std::chrono::steady_clock::now().time_since_epoch();
  EXPECT_GE(client_.LastEvent(), begun);
  client_.Abandon();
  answer.get_future().wait();
}

TEST_F(DaemonClientTest, ALaunchEndsWithItsDaemon) {
  std::jthread daemon([&] { pair_.theirs.Reset(); });
  EXPECT_EQ(client_.Launch({}).status().code(), StatusCode::kUnavailable);
}

}  // namespace
}  // namespace ds::cli
