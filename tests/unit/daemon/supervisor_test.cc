// Service, supervisor and client in one process, with real ranks.

#include "daemon/job/supervisor.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <grpcpp/create_channel_posix.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "cli/host/daemon_client.h"
#include "daemon/network/daemon_service.h"
#include "runtime/process/unix_socket.h"
#include "tests/support/daemon_calls.h"
#include "tests/support/hung_folder.h"
#include "tests/support/program.h"
#include "tests/support/requirement.h"
#include "tests/support/wall_clock.h"

namespace ds::daemon {
namespace {

constexpr char kJob[] = "job";

// The loop has a thread of its own here, where dsrund runs it in main.
class SupervisorTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { BlockLoopSignals(); }

  void SetUp() override {
    std::array<int, 2> ends;
    ASSERT_EQ(::pipe2(ends.data(), O_CLOEXEC), 0);
    controller_.Reset(ends[1]);
    SupervisorOptions options;
    options.job_id = kJob;
    options.folder = folder_.path();
    options.controller.Reset(ends[0]);
    loop_ = std::move(EventLoop::Create()).value();
    supervisor_ = std::move(Supervisor::Create(loop_.get(), std::move(options))).value();
    service_ = std::make_unique<DaemonService>(loop_.get(), supervisor_.get());
    server_ = std::move(RpcServer::Start(service_.get())).value();
    client_ = std::make_unique<cli::DaemonClient>(kJob, Connect());
    thread_ = std::thread([this] { EXPECT_TRUE(loop_->Run().ok()); });
  }

  void TearDown() override {
    controller_.Reset();
    if (thread_.joinable()) thread_.join();
  }

  // The controller's end of a new connection.
  UniqueFd Connect() {
    SocketPair pair = std::move(MakeSocketPair()).value();
    server_->Serve(std::move(pair.theirs));
    return std::move(pair.ours);
  }

  // For calls that no DaemonClient makes.
  std::unique_ptr<v1::Daemon::Stub> Stub() {
    return v1::Daemon::NewStub(grpc::CreateInsecureChannelFromFd("dsrund", Connect().Release()));
  }

  static v1::LaunchRequest Request(const std::vector<std::string>& argv,
                                   std::uint32_t generation = 1) {
    v1::LaunchRequest request;
    request.set_job_id(kJob);
    request.set_generation(generation);
    for (std::uint32_t rank = 0; rank < 2; ++rank) {
      v1::RankSpec* spec = request.add_ranks();
      spec->set_rank(rank);
      for (const std::string& argument : argv) spec->add_argv(argument);
    }
    return request;
  }

  ds::testing::TemporaryFolder folder_;
  UniqueFd controller_;
  std::unique_ptr<EventLoop> loop_;
  std::unique_ptr<Supervisor> supervisor_;
  std::unique_ptr<DaemonService> service_;
  std::unique_ptr<RpcServer> server_;
  std::unique_ptr<cli::DaemonClient> client_;
  std::thread thread_;
};

TEST_F(SupervisorTest, RunsTwoGenerations) {
  for (std::uint32_t generation = 1; generation <= 2; ++generation) {
    ASSERT_TRUE(ds::testing::Launch(*client_, Request({"/bin/echo", "hello"}, generation)).ok());
    std::string text;
    int ended = 0;
    const Status watched =
        ds::testing::Watch(*client_, {kJob, generation, 0}, [&](const v1::Event& event) {
          text += event.rank_output().data();
          ended += event.has_rank_exited();
        });
    EXPECT_TRUE(watched.ok()) << watched.message();
    EXPECT_EQ(text, "hello\nhello\n");
    EXPECT_EQ(ended, 2);
  }
}

TEST_F(SupervisorTest, TheEndOfTheControllerEndsRanksAndLoop) {
  const auto launched = ds::testing::Launch(*client_, Request({"/bin/cat", "/dev/zero"}));
  ASSERT_TRUE(launched.ok()) << launched.status().message();
  controller_.Reset();
  thread_.join();
  for (const auto pid : launched->pids()) EXPECT_NE(::kill(static_cast<pid_t>(pid), 0), 0);
  EXPECT_EQ(ds::testing::Launch(*client_, Request({"/bin/true"}, 2)).status().code(),
            StatusCode::kUnavailable);
}

TEST_F(SupervisorTest, ThePortIsLeasedAndNamed) {
  v1::PrepareRequest request;
  request.set_job_id(kJob);
  request.set_lease_master_port(true);
  const auto first = ds::testing::Prepare(*client_, request);
  ASSERT_TRUE(first.ok()) << first.status().message();
  EXPECT_GT(first->master_port(), 0U);
  request.set_master_port(70000);
  const auto second = ds::testing::Prepare(*client_, request);
  ASSERT_TRUE(second.ok());
  const v1::Finding& finding = second->findings(second->findings_size() - 1);
  EXPECT_EQ(finding.name(), "port");
  EXPECT_EQ(finding.level(), v1::Finding::FAIL);
}

TEST_F(SupervisorTest, ACallWithoutADeadlineIsRefused) {
  const auto stub = Stub();
  v1::PrepareResponse prepared;
  grpc::ClientContext prepare;
  EXPECT_EQ(stub->Prepare(&prepare, {}, &prepared).error_code(),
            grpc::StatusCode::INVALID_ARGUMENT);
  v1::LaunchResponse launched;
  grpc::ClientContext launch;
  EXPECT_EQ(stub->Launch(&launch, Request({"/bin/true"}), &launched).error_code(),
            grpc::StatusCode::INVALID_ARGUMENT);
  v1::StopResponse stopped;
  grpc::ClientContext stop;
  EXPECT_EQ(stub->Stop(&stop, {}, &stopped).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  grpc::ClientContext watch;
  EXPECT_EQ(stub->Watch(&watch)->Finish().error_code(), grpc::StatusCode::INVALID_ARGUMENT);
}

// Whatever the loop waits for, the lease of the daemon goes on.
TEST_F(SupervisorTest, ARenewalIsAnsweredWhileTheLoopHangs) {
  std::promise<void> hung;
  ASSERT_TRUE(loop_->Post([done = hung.get_future().share()] { done.wait(); }));
  std::promise<Status> answer;
  client_->Renew({.timeout = std::chrono::seconds(60)},
                 [&](const Status& status) { answer.set_value(status); });
  const Status renewed = answer.get_future().get();
  hung.set_value();
  EXPECT_TRUE(renewed.ok()) << renewed.message();
}

// So many at once that its threads are all at work: the others may come again.
TEST_F(SupervisorTest, AStopThatFindsEveryThreadAtWorkIsUnanswered) {
  constexpr int kCalls = 24;
  std::promise<void> hung;
  ASSERT_TRUE(loop_->Post([done = hung.get_future().share()] { done.wait(); }));
  std::promise<Status> first;
  std::once_flag once;
  std::vector<std::jthread> calls;
  for (int i = 0; i < kCalls; ++i) {
    calls.emplace_back([&] {
      const Status status = ds::testing::Stop(*client_, {}).status();
      std::call_once(once, [&] { first.set_value(status); });
    });
  }
  const Status status = first.get_future().get();
  hung.set_value();
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_EQ(status.message(), "the daemon has no thread for another call");
}

// The machine's wall clock is set back while the daemon serves calls that it bounds.
class WallClockTest : public SupervisorTest {
 protected:
  // Far more than a bound, far less than the clock is set back by.
  static constexpr std::chrono::seconds kTimeout{60};

  static void SetWallClockRight() {
    ds::testing::SetWallClockBackAtEachLook(std::chrono::seconds(0));
    ds::testing::SetWallClockAhead(std::chrono::seconds(0));
  }
  // gRPC's threads for callbacks rest for a tenth of a second, to a time that they take from the
  // wall clock just before: one that goes back at each look is slept for, in the client's end.
  void Launch(const v1::LaunchRequest& request) {
    ASSERT_TRUE(ds::testing::Launch(*client_, request).ok());
    client_.reset();
  }
  void TearDown() override {
    SetWallClockRight();
    SupervisorTest::TearDown();
  }
};

TEST_F(WallClockTest, AWatchEndsInItsTime) {
  Launch(Request({"/bin/sleep", "600"}));
  ds::testing::SetWallClockAhead(std::chrono::hours(1));
  const auto stub = Stub();
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(2));
  const auto stream = stub->Watch(&context);
  v1::WatchRequest request;
  request.set_job_id(kJob);
  request.set_generation(1);
  ASSERT_TRUE(stream->Write(request));
  v1::EventBatch batch;
  ASSERT_TRUE(stream->Read(&batch)) << "the daemon has begun to wait";
  std::promise<void> hung;  // no heartbeat comes that it could miss its watcher by
  ASSERT_TRUE(loop_->Post([done = hung.get_future().share()] { done.wait(); }));
  SetWallClockRight();
  const auto longest = std::chrono::steady_clock::now() + kTimeout;
  service_->AwaitWatchers(longest);
  EXPECT_LT(std::chrono::steady_clock::now(), longest) << "it waits by the wall clock";
  hung.set_value();
  context.TryCancel();
}

TEST_F(WallClockTest, UnreadInputIsHeldForItsTime) {
  v1::LaunchRequest launch = Request({"/bin/sleep", "600"});
  launch.set_forward_input(true);
  Launch(launch);
  v1::InputRequest input;
  input.set_job_id(kJob);
  input.set_generation(1);
  input.set_data(std::string(1 << 20, 'x'));
  const auto stub = Stub();
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::hours(1000));
  ds::testing::SetWallClockBackAtEachLook(std::chrono::hours(1));
  auto answer = std::async(std::launch::async, [&] {
    v1::InputResponse response;
    const grpc::Status status = stub->Input(&context, input, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return response.accepted();
  });
  const bool in_time = answer.wait_for(kTimeout) == std::future_status::ready;
  EXPECT_TRUE(in_time) << "it waits for a rank that does not read";
  SetWallClockRight();
  controller_.Reset();  // its ranks end: nothing holds the input any more
  const std::uint64_t accepted = answer.get();
  EXPECT_GT(accepted, 0U);
  EXPECT_LT(accepted, input.data().size());
}

TEST_F(SupervisorTest, AnotherProtocolIsNamed) {
  const auto stub = Stub();
  v1::PrepareRequest request;
  request.set_job_id(kJob);
  request.set_protocol_version(99);
  request.set_dsrun_version("9.9.9");
  v1::PrepareResponse response;
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + cli::deadlines::kCall);
  const grpc::Status status = stub->Prepare(&context, request, &response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_NE(status.error_message().find("dsrun 9.9.9 speaks protocol 99"), std::string::npos)
      << status.error_message();
}

// Its limit is a part of the time that the call has.
TEST_F(SupervisorTest, AFileSystemThatDoesNotAnswerIsAFinding) {
  const ds::testing::HungFolder hung;
  if (!hung.why_not().empty()) return ds::testing::SkipWithout("fuse", hung.why_not());
  const std::string folder = (hung.path() / "work").string();
  v1::PrepareRequest request;
  request.set_job_id(kJob);
  request.set_protocol_version(v1::PROTOCOL_CURRENT);
  request.set_program("/bin/true");
  request.set_working_directory(folder);
  const auto stub = Stub();
  v1::PrepareResponse response;
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(3));
  const grpc::Status status = stub->Prepare(&context, request, &response);
  ASSERT_TRUE(status.ok()) << status.error_message();
  ASSERT_EQ(response.findings_size(), 1);
  EXPECT_EQ(response.findings(0).level(), v1::Finding::FAIL);
  EXPECT_THAT(response.findings(0).message(),
              ::testing::StartsWith("looking at working directory " + folder +
                                    " on fuse has not ended for "));
}

TEST(MakeRefusalTest, AFileSystemThatDoesNotAnswerIsNoDaemonThatDoesNot) {
  for (const int error : {ETIMEDOUT, EHOSTUNREACH, ENETUNREACH, ECONNREFUSED}) {
    const Status refusal = MakeRefusal(ErrnoError(error, "program 'x'"));
    EXPECT_EQ(refusal.code(), StatusCode::kFailedPrecondition) << error;
    EXPECT_EQ(refusal.message(), ErrnoError(error, "program 'x'").message());
  }
  EXPECT_EQ(MakeRefusal(NotFoundError("x")).code(), StatusCode::kNotFound);
}

}  // namespace
}  // namespace ds::daemon
