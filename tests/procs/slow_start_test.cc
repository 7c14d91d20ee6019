// Programs whose file cannot be opened for a time, as on a file server that does not answer: the
// daemon goes on, and the start has a limit of its own.

#include <fcntl.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "daemon/inspect/mounts.h"
#include "runtime/base/unique_fd.h"
#include "tests/procs/network_daemon.h"
#include "tests/support/daemon_calls.h"
#include "tests/support/hung_folder.h"
#include "tests/support/program.h"
#include "tests/support/requirement.h"

namespace ds::procs {
namespace {

constexpr double kLease = 5;

// A copy of test_rank that nobody can open while it is held: this process has a lease on the file
// (fcntl(2)), which the kernel revokes after 45 s.
class HeldProgram {
 public:
  HeldProgram() {
    std::signal(SIGIO, SIG_IGN);  // the kernel tells of who waits
    std::filesystem::copy_file(TestRankPath(), path_);
    file_.Reset(::open(path_.c_str(), O_RDONLY | O_CLOEXEC));
    EXPECT_EQ(::fcntl(file_.get(), F_SETLEASE, F_WRLCK), 0) << std::strerror(errno);
  }
  void Release() { EXPECT_EQ(::fcntl(file_.get(), F_SETLEASE, F_UNLCK), 0); }
  std::string path() const { return path_.string(); }
  std::string doing() const {
    const std::filesystem::path real = std::filesystem::canonical(path_);
    return "execve of " + real.string() + " on " + daemon::FindFileSystemType(real.string());
  }

 private:
  const ds::testing::TemporaryFolder folder_;
  const std::filesystem::path path_ = folder_.path() / "program";
  UniqueFd file_;
};

class SlowStartTest : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(daemon_.ok()); }

  // Rank 0 runs the program that is held, others do not.
  v1::LaunchRequest Request(int count, const std::vector<std::string>& arguments) const {
    v1::LaunchRequest request = RanksOf(count, arguments);
    request.mutable_ranks(0)->set_argv(0, program_.path());
    return request;
  }
  void Stop() {
    v1::StopRequest request;
    request.set_job_id(kJob);
    request.set_generation(1);
    EXPECT_TRUE(testing::Stop(*client_, request).ok());
  }
  // Renews the lease at each heartbeat; every event goes to `on_event`.
  Status Watch(const std::function<void(const v1::Event&)>& on_event) {
    return testing::Watch(*client_, {kJob, 1, 0}, [&](const v1::Event& event) {
      if (event.has_heartbeat()) {
        EXPECT_TRUE(Renew(*client_).ok());
      }
      on_event(event);
    });
  }

  HeldProgram program_;
  const NetworkDaemon daemon_{{.lease_seconds = kLease}};
  std::unique_ptr<cli::DaemonClient> client_ = daemon_.Connect();
};

// Heartbeats come four times in a lease.
TEST_F(SlowStartTest, TheDaemonOutlivesItsLeaseAndSaysWhatItWaitsFor) {
  const auto launched = testing::Launch(*client_, Request(1, {"wait"}));
  ASSERT_TRUE(launched.ok()) << launched.status().message();
  int heartbeats = 0;
  bool started = false;
  std::string out;
  const Status watched = Watch([&](const v1::Event& event) {
    started = started || event.has_rank_started();
    out += event.rank_output().data();
    if (out == "ready\n" && event.has_rank_output()) Stop();
    if (!event.has_heartbeat() || started) return;
    ASSERT_EQ(event.heartbeat().starting_size(), 1);
    const v1::StartingRank& starting = event.heartbeat().starting(0);
    EXPECT_EQ(starting.rank(), 0U);
    EXPECT_EQ(starting.doing(), program_.doing());
    EXPECT_GT(starting.seconds(), 0);
    if (++heartbeats == 9) program_.Release();
  });
  EXPECT_TRUE(watched.ok()) << watched.message();
  EXPECT_TRUE(started);
  EXPECT_GE(heartbeats, 9) << "two leases";
}

TEST_F(SlowStartTest, AStopEndsIt) {
  const auto launched = testing::Launch(*client_, Request(2, {"wait"}));
  ASSERT_TRUE(launched.ok()) << launched.status().message();
  v1::StopCause cause = v1::STOP_NONE;
  const Status watched = Watch([&](const v1::Event& event) {
    if (event.has_heartbeat() && !event.heartbeat().starting().empty()) Stop();
    if (event.has_generation_ended()) cause = event.generation_ended().stop_cause();
  });
  EXPECT_TRUE(watched.ok()) << watched.message();
  EXPECT_EQ(cause, v1::STOP_REQUESTED);
  for (const auto pid : launched->pids()) EXPECT_FALSE(Exists(static_cast<pid_t>(pid)));
}

TEST_F(SlowStartTest, AStopAtOnceReachesAProcessThatHasNoGroupYet) {
  const auto launched = testing::Launch(*client_, Request(1, {"wait"}));
  ASSERT_TRUE(launched.ok()) << launched.status().message();
  Stop();
  EXPECT_TRUE(Watch([](const v1::Event&) {}).ok());
  EXPECT_FALSE(Exists(static_cast<pid_t>(launched->pids(0))));
}

TEST_F(SlowStartTest, AnotherRankRunsAndFailsMeanwhile) {
  v1::LaunchRequest request = Request(2, {"exit", "7"});
  ASSERT_TRUE(testing::Launch(*client_, request).ok());
  std::vector<v1::RankExited> exits;
  v1::StopCause cause = v1::STOP_NONE;
  EXPECT_TRUE(Watch([&](const v1::Event& event) {
                if (event.has_rank_exited()) exits.push_back(event.rank_exited());
                if (event.has_generation_ended()) cause = event.generation_ended().stop_cause();
              }).ok());
  ASSERT_FALSE(exits.empty());
  EXPECT_EQ(exits[0].rank(), 1U);
  EXPECT_EQ(exits[0].exit_code(), 7);
  EXPECT_EQ(cause, v1::STOP_RANK_FAILED) << "the rank that waits is stopped";
}

TEST_F(SlowStartTest, ItsLimitNamesRankProgramAndFileSystem) {
  v1::LaunchRequest request = Request(2, {"wait"});
  request.set_start_seconds(1);
  const auto launched = testing::Launch(*client_, request);
  ASSERT_TRUE(launched.ok()) << launched.status().message();
  std::vector<v1::StartFailed> failures;
  v1::StopCause cause = v1::STOP_NONE;
  EXPECT_TRUE(Watch([&](const v1::Event& event) {
                if (event.has_start_failed()) failures.push_back(event.start_failed());
                if (event.has_generation_ended()) cause = event.generation_ended().stop_cause();
              }).ok());
  ASSERT_EQ(failures.size(), 1U);
  EXPECT_EQ(failures[0].rank(), 0U);
  EXPECT_EQ(failures[0].code(), static_cast<int>(StatusCode::kFailedPrecondition));
  EXPECT_EQ(failures[0].message(),
            "rank 0: " + program_.doing() + " has not ended for 1 s (--start_timeout)");
  EXPECT_EQ(cause, v1::STOP_START_FAILED);
  for (const auto pid : launched->pids()) EXPECT_FALSE(Exists(static_cast<pid_t>(pid)));
}

// Before the processes exist, the daemon looks for their program.
TEST_F(SlowStartTest, ASearchForTheProgramThatHangsIsNamed) {
  const ds::testing::HungFolder hung;
  if (!hung.why_not().empty()) return ds::testing::SkipWithout("fuse", hung.why_not());
  v1::LaunchRequest request = RanksOf(1, {"wait"});
  request.mutable_ranks(0)->set_argv(0, (hung.path() / "program").string());
  request.set_start_seconds(1);
  const Status refused = testing::Launch(*client_, request).status();
  EXPECT_EQ(refused.code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(refused.message(), "rank 0: looking for program " + (hung.path() / "program").string() +
                                   " on fuse has not ended for 1 s");
  EXPECT_TRUE(Renew(*client_).ok());
}

}  // namespace
}  // namespace ds::procs
