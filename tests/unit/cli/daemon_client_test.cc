// What a caller sees of a daemon that does not answer.

#include "cli/host/daemon_client.h"

#include <fcntl.h>
#include <grpc/support/log.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/server_posix.h>
#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <memory>
#include <thread>
#include <utility>

#include "runtime/process/boot_time.h"
#include "runtime/process/unix_socket.h"
#include "tests/support/daemon_calls.h"

namespace ds::cli {
namespace {

constexpr std::chrono::hours kLongerThanATest{1};

class DaemonClientTest : public ::testing::Test {
 protected:
  SocketPair pair_ = std::move(MakeSocketPair()).value();  // nobody reads what comes to `theirs`
  DaemonClient client_{"test-job", std::move(pair_.ours), kLongerThanATest};
};

// Of a thread that it does not get, for one: a call says so, too.
TEST_F(DaemonClientTest, HidesTheLogOfGrpc) {
  ::testing::internal::CaptureStderr();
  gpr_log(GPR_ERROR, "Could not create a worker-thread");
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
}

TEST_F(DaemonClientTest, KnowsTheClockThatAnotherAgentKnewBeforeAnyRenewal) {
  EXPECT_FALSE(client_.ConvertTime(std::chrono::seconds(5)).has_value());
  const HostClock::Offset offset{
      .lowest = -std::chrono::hours(1), .highest = -std::chrono::hours(1), .taken = BootTime()};
  client_.RestoreClock(offset);
  EXPECT_EQ(client_.ClockOffset()->highest, offset.highest);
  EXPECT_GE(client_.ConvertTime(std::chrono::seconds(5))->latest, std::chrono::hours(1));
}

TEST_F(DaemonClientTest, ALaunchThatIsNotAwaitedIsGivenUp) {
  std::promise<StatusCode> answer;
  SocketPair pair = std::move(MakeSocketPair()).value();
  {
    DaemonClient client("test-job", std::move(pair.ours), kLongerThanATest);
    client.Begin(v1::LaunchRequest(),
                 [&](const auto& launched) { answer.set_value(launched.status().code()); });
  }
  EXPECT_EQ(answer.get_future().get(), StatusCode::kCancelled);
}

TEST_F(DaemonClientTest, AbandonEndsALaunchThatIsUnderWay) {
  std::jthread impatient([&] { client_.Abandon(); });
  EXPECT_EQ(ds::testing::Launch(client_, {}).status().code(), StatusCode::kCancelled);
  EXPECT_EQ(ds::testing::Launch(client_, {}).status().code(), StatusCode::kCancelled);
}

TEST_F(DaemonClientTest, ALaunchEndsWithItsDaemon) {
  std::jthread daemon([&] { pair_.theirs.Reset(); });
  EXPECT_EQ(ds::testing::Launch(client_, {}).status().code(), StatusCode::kUnavailable);
}

// All of whose threads are at work, as gRPC says it.
class BusyDaemon : public v1::Daemon::Service {
 public:
  grpc::Status Share(grpc::ServerContext*, const v1::ShareRequest*, v1::ShareResponse*) override {
    return {grpc::StatusCode::RESOURCE_EXHAUSTED, "No thread available in threadpool"};
  }
};

// Else the ranks of its host would wait in vain for what others have put.
TEST_F(DaemonClientTest, RetriesAShareRefusedForLackOfThreads) {
  BusyDaemon service;
  grpc::ServerBuilder builder;
  const std::unique_ptr<grpc::Server> server = builder.RegisterService(&service).BuildAndStart();
  const int fd = pair_.theirs.Release();
  ::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) | O_NONBLOCK);
  grpc::AddInsecureChannelFromFd(server.get(), fd);
  std::promise<Status> answer;
  client_.Begin(v1::ShareRequest(), [&](const auto& shared) { answer.set_value(shared.status()); });
  EXPECT_TRUE(NobodyAnswered(answer.get_future().get()));
}

}  // namespace
}  // namespace ds::cli
