// `dsrund --serve`: jobs that take a waiting daemon are like those whose daemon dsrun starts.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "cli/host/local_daemon.h"
#include "cli/host/warm_daemon.h"
#include "proto/warm_socket.h"
#include "runtime/base/files.h"
#include "runtime/process/unix_socket.h"
#include "tests/places.h"
#include "tests/support/program.h"

namespace ds::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::ContainsRegex;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

// Where a process's parent's command can be read: who started the ranks.
constexpr const char* kSayDaemon = "tr '\\0' ' ' < /proc/$PPID/cmdline; echo";

class ServeTest : public ::testing::Test {
 protected:
  void SetUp() override {
    fs::create_directory(runtime());
    fs::permissions(runtime(), fs::perms::owner_all);
  }
  fs::path runtime() const { return folder_.path() / "runtime"; }

  std::unique_ptr<Program> Serve(const std::vector<std::string>& flags = {}) const {
    std::vector<std::string> command = {DS_BIN_DIR "/dsrund", "--serve"};
    command.insert(command.end(), flags.begin(), flags.end());
    auto server = std::make_unique<Program>(
        command, ProgramOptions{.environment = {"XDG_RUNTIME_DIR=" + runtime().string()}});
    EXPECT_TRUE(server->WaitForOutput("dsrund serves at ")) << server->err();
    return server;
  }
  // `prefix` wraps dsrun; `script` is what each rank runs.
  ProgramResult Run(const std::string& prefix, const std::string& script,
                    const std::string& flags = "") {
    const std::string dsrun = prefix + " " DS_BIN_DIR "/dsrun --device cpu --run_dir '" +
                              (folder_.path() / ("run-" + std::to_string(++runs_))).string() +
                              "' " + flags + " -- /bin/sh -c \"$SCRIPT\"";
    return RunProgram({"/bin/sh", "-c", dsrun},
                      {.environment = {"XDG_RUNTIME_DIR=" + runtime().string(), "SCRIPT=" + script,
                                       "GREETING=a b"},
                       .working_directory = folder_.path()});
  }

  TemporaryFolder folder_;
  int runs_ = 0;
};

TEST_F(ServeTest, AJobTakesAWaitingDaemonAndStillGetsItsOwnSurroundings) {
  const auto server = Serve();
  const ProgramResult result =
      Run("umask 027; ulimit -n 777; cd /usr;",
          std::string(kSayDaemon) + "; echo $GREETING; umask; ulimit -n; pwd");
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("0@localhost: dsrund --wait_for_job"));
  EXPECT_THAT(result.out, HasSubstr("0@localhost: a b\n"));
  EXPECT_THAT(result.out, HasSubstr("0@localhost: 0027\n"));
  EXPECT_THAT(result.out, HasSubstr("0@localhost: 777\n"));
  EXPECT_THAT(result.out, HasSubstr("0@localhost: /usr\n"));
}

// As dsrun itself takes one.
class HandoverTest : public ServeTest {
 protected:
  void SetUp() override {
    ServeTest::SetUp();
    ::setenv("XDG_RUNTIME_DIR", runtime().c_str(), 1);
    question_.set_job_id("job");
    question_.set_rank_count(1);
    question_.set_program("/bin/sh");
    question_.set_working_directory("/");
  }
  void TearDown() override { ::unsetenv("XDG_RUNTIME_DIR"); }

  StatusOr<std::unique_ptr<cli::LocalDaemon>> Start(
      const std::optional<cli::v1::LaunchRequest>& launch = std::nullopt) const {
    return cli::LocalDaemon::Start(
        {.job_id = "job",
         .dsrund = DS_BIN_DIR "/dsrund",
         .take_warm = true,
         .opening = cli::JobOpening{.prepare = question_, .launch = launch}});
  }
  // One rank that runs `script`.
  static cli::v1::LaunchRequest Launch(const std::string& script) {
    cli::v1::LaunchRequest launch;
    launch.set_job_id("job");
    launch.set_working_directory("/");
    launch.set_inherit_environment(true);
    launch.set_grace_seconds(5);
    cli::v1::RankSpec* rank = launch.add_ranks();
    for (const char* word : {"/bin/sh", "-c", script.c_str()}) rank->add_argv(word);
    return launch;
  }
  // The exit codes of the ranks.
  static std::vector<int> WatchToTheEnd(cli::LocalDaemon* daemon) {
    std::vector<int> codes;
    const Status watched =
        daemon->client().Watch({.job_id = "job"}, [&](const cli::v1::Event& event) {
          if (event.has_rank_exited()) codes.push_back(event.rank_exited().exit_code());
        });
    EXPECT_TRUE(watched.ok()) << watched.message();
    return codes;
  }
  static std::vector<std::string> Failures(const cli::v1::PrepareResponse& response) {
    std::vector<std::string> names;
    for (const auto& finding : response.findings()) {
      if (finding.level() == cli::v1::Finding::FAIL) names.push_back(finding.name());
    }
    return names;
  }

  cli::v1::PrepareRequest question_;
};

TEST_F(HandoverTest, TheHostIsLookedAtAlongWithTakingTheJob) {
  const auto server = Serve();
  const auto daemon = Start();
  ASSERT_TRUE(daemon.ok()) << daemon.status().message();
  ::kill((*daemon)->pid(), SIGSTOP);  // a call would get no answer
  const auto answer = (*daemon)->Prepare(question_);
  ::kill((*daemon)->pid(), SIGCONT);
  ASSERT_TRUE(answer.ok()) << answer.status().message();
  EXPECT_GT(answer->core_count(), 0u);
  EXPECT_THAT(Failures(*answer), IsEmpty());
}

TEST_F(HandoverTest, RanksAreStartedAlongWithTakingTheJob) {
  const auto server = Serve();
  const auto launch = Launch("sleep 600");
  const auto daemon = Start(launch);
  ASSERT_TRUE(daemon.ok()) << daemon.status().message();
  EXPECT_TRUE((*daemon)->ranks_run());
  ::kill((*daemon)->pid(), SIGSTOP);  // a call would get no answer
  const auto answer = (*daemon)->BeginLaunch(launch).get();
  ::kill((*daemon)->pid(), SIGCONT);
  ASSERT_TRUE(answer.ok()) << answer.status().message();
  ASSERT_EQ(answer->pids_size(), 1);
  const pid_t rank = static_cast<pid_t>(answer->pids(0));
  EXPECT_EQ(::kill(rank, 0), 0);
  EXPECT_FALSE((*daemon)->ranks_run()) << "it is the caller's now";
  EXPECT_TRUE((*daemon)->Close().ok());
  EXPECT_NE(::kill(rank, 0), 0) << "the rank outlives its daemon";
}

TEST_F(HandoverTest, AHostThatFailsACheckStartsNoRank) {
  const auto server = Serve();
  question_.set_program("/no/such/program");
  const fs::path mark = folder_.path() / "mark";
  const auto daemon = Start(Launch("touch " + mark.string()));
  ASSERT_TRUE(daemon.ok()) << daemon.status().message();
  EXPECT_FALSE((*daemon)->ranks_run());
  EXPECT_THAT(Failures((*daemon)->Prepare(question_).value()), ElementsAre("program"));
  EXPECT_TRUE((*daemon)->Close().ok());
  EXPECT_FALSE(fs::exists(mark));
}

TEST_F(HandoverTest, ALaunchThatFailsIsToldByTheCall) {
  const auto server = Serve();
  cli::v1::LaunchRequest launch = Launch("exit 0");
  launch.set_working_directory("/no/such/folder");
  const auto daemon = Start(launch);
  ASSERT_TRUE(daemon.ok()) << daemon.status().message();
  EXPECT_FALSE((*daemon)->ranks_run());
  const auto answer = (*daemon)->BeginLaunch(launch).get();
  EXPECT_EQ(answer.status().code(), StatusCode::kNotFound) << answer.status().message();
  launch.set_working_directory("/");
  EXPECT_TRUE((*daemon)->BeginLaunch(launch).get().ok());
  EXPECT_THAT(WatchToTheEnd(daemon->get()), ElementsAre(0));
}

TEST_F(HandoverTest, EventsOfRanksThatAreStartedAlongAreSeenFromTheFirst) {
  const auto server = Serve();
  const auto daemon = Start(Launch("exit 7"));
  ASSERT_TRUE(daemon.ok()) << daemon.status().message();
  EXPECT_TRUE((*daemon)->ranks_run());
  EXPECT_EQ((*daemon)->client().Watch({.job_id = "job", .generation = 1}, {}).code(),
            StatusCode::kNotFound)
      << "what it asks for counts, not what was asked ahead";
  EXPECT_THAT(WatchToTheEnd(daemon->get()), ElementsAre(7));
}

TEST_F(HandoverTest, OtherRanksThanThoseThatRunAreAnError) {
  const auto server = Serve();
  const auto daemon = Start(Launch("sleep 600"));
  ASSERT_TRUE(daemon.ok()) << daemon.status().message();
  const auto answer = (*daemon)->BeginLaunch(Launch("sleep 601")).get();
  EXPECT_EQ(answer.status().code(), StatusCode::kInternal);
}

// In the place of a daemon that waits: what comes is received, and nobody answers.
class SilentDaemon {
 public:
  SilentDaemon() {
    fs::create_directory(WarmFolder());
    fs::permissions(WarmFolder(), fs::perms::owner_all);
    listener_ = ListenUnix(WarmSocket()).value();
  }
  // The claim of the ranks that the offer wants started.
  Claim Receive() {
    pollfd offered{listener_.get(), POLLIN, 0};
    EXPECT_EQ(::poll(&offered, 1, 10'000), 1);
    connection_.Reset(::accept(listener_.get(), nullptr, nullptr));
    auto message = ReceiveMessage(connection_.get(), kMaxHandoverBytes, std::chrono::seconds(10));
    EXPECT_TRUE(message.ok()) << message.status().message();
    return Claim(std::move(message->descriptors.at(2)));
  }
  void HangUp() { connection_.Reset(); }

 private:
  UniqueFd listener_;
  UniqueFd connection_;
};

class OfferTest : public HandoverTest {
 protected:
  cli::WarmOffer Offer() const {
    const cli::JobOpening opening{.prepare = question_, .launch = Launch("exit 0")};
    auto offer = cli::OfferJob({.dsrund = DS_BIN_DIR "/dsrund",
                                .job_id = "job",
                                .connection = STDERR_FILENO,
                                .opening = &opening});
    EXPECT_TRUE(offer.ok()) << offer.status().message();
    return std::move(offer).value();
  }
};

TEST_F(OfferTest, ASilentDaemonMayNotStartTheRanksLater) {
  SilentDaemon daemon;
  cli::WarmOffer offer = Offer();
  const Claim claim = daemon.Receive();
  const auto taken = cli::TakeWarmDaemon(std::move(offer));
  ASSERT_TRUE(taken.ok()) << taken.status().message();
  EXPECT_FALSE(taken->has_value());
  EXPECT_FALSE(claim.Take());
}

TEST_F(OfferTest, RanksThatADeadDaemonMayHaveStartedAreNotStartedAgain) {
  SilentDaemon daemon;
  cli::WarmOffer offer = Offer();
  EXPECT_TRUE(daemon.Receive().Take());
  daemon.HangUp();
  const auto taken = cli::TakeWarmDaemon(std::move(offer));
  EXPECT_EQ(taken.status().code(), StatusCode::kUnavailable);
  EXPECT_THAT(taken.status().message(), HasSubstr("was starting the ranks"));
}

TEST_F(HandoverTest, AnotherQuestionIsAskedByACall) {
  const auto server = Serve();
  const auto daemon = Start();
  ASSERT_TRUE(daemon.ok()) << daemon.status().message();
  question_.set_program("/no/such/program");
  const auto answer = (*daemon)->Prepare(question_);
  ASSERT_TRUE(answer.ok()) << answer.status().message();
  EXPECT_THAT(Failures(*answer), ElementsAre("program"));
}

TEST_F(HandoverTest, ARefusalComesWithTheCall) {
  const auto server = Serve();
  question_.set_job_id("another");
  const auto daemon = Start();
  ASSERT_TRUE(daemon.ok()) << daemon.status().message();
  EXPECT_EQ((*daemon)->Prepare(question_).status().code(), StatusCode::kNotFound);
  question_.set_job_id("job");
  EXPECT_TRUE((*daemon)->Prepare(question_).ok());
}

TEST_F(ServeTest, WithoutAPoolDsrunStartsItsOwnDaemon) {
  const ProgramResult result = Run("", kSayDaemon);
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.out, Not(HasSubstr("--wait_for_job")));
  EXPECT_TRUE(fs::is_empty(runtime()));
}

TEST_F(ServeTest, MoreJobsThanWaitingDaemons) {
  const auto server = Serve({"--waiting", "1"});
  for (int i = 0; i < 5; ++i) EXPECT_EQ(Run("", "exit 0", "--num_gpus 2").status, 0);
  EXPECT_EQ(Run("", "exit 7").status, 7);
}

TEST_F(ServeTest, JobsShareNothing) {
  const auto server = Serve();
  const std::string daemon = "echo $PPID > ";
  ASSERT_EQ(Run("", daemon + "first; cd /; umask 0").status, 0);
  ASSERT_EQ(Run("", daemon + "second; umask > mask").status, 0);
  const auto first = ReadFile(folder_.path() / "first");
  const auto second = ReadFile(folder_.path() / "second");
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_NE(*first, *second) << "each job has a daemon of its own";
  EXPECT_NE(ReadFile(folder_.path() / "mask").value(), "0000\n");
}

TEST_F(ServeTest, AnotherBuildIsNotTaken) {
  const auto server = Serve();
  const fs::path other = folder_.path() / "bin";
  fs::create_directory(other);
  for (const char* name : {"dsrun", "dsrund"})
    fs::copy_file(fs::path(DS_BIN_DIR) / name, other / name);
  const ProgramResult result =
      RunProgram({(other / "dsrun").string(), "--device", "cpu", "--", "/bin/sh", "-c", kSayDaemon},
                 {.environment = {"XDG_RUNTIME_DIR=" + runtime().string()},
                  .working_directory = folder_.path()});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr((other / "dsrund").string()));
}

TEST_F(ServeTest, ADaemonThatDoesNotAnswerIsNotWaitedForLong) {
  const auto server = Serve({"--waiting", "1"});
  const std::string pool = std::to_string(server->pid());
  const auto children = ReadFile("/proc/" + pool + "/task/" + pool + "/children");
  ASSERT_TRUE(children.ok()) << children.status().message();
  const pid_t waiting = std::stoi(*children);
  ::kill(waiting, SIGSTOP);
  // It finds its offer while the job runs, and ends, for nobody reads its answer.
  const std::string pid = std::to_string(waiting);
  const ProgramResult result =
      Run("", std::string(kSayDaemon) + "; echo ran >> ran; kill -CONT " + pid +
                  "; while kill -0 " + pid + "; do sleep 0.01; done");
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.out, Not(HasSubstr("--wait_for_job")));
  EXPECT_EQ(ReadFile(folder_.path() / "ran").value(), "ran\n") << "no rank is started twice";
}

TEST_F(ServeTest, WithoutARunDirectoryNothingRuns) {
  const auto server = Serve();
  const ProgramResult result = Run("", "touch ran", "--run_dir /dev/null/run");
  EXPECT_EQ(result.status, 2);
  EXPECT_FALSE(fs::exists(folder_.path() / "ran"));
}

TEST_F(ServeTest, TheMasterPortIsKeptForTheRanks) {
  const auto server = Serve();
  const ProgramResult result = Run("", "echo port $MASTER_PORT", "--num_gpus 2");
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.out, ContainsRegex("0-1. port [1-9][0-9]+ "));
  const ProgramResult named = Run("", "echo port $MASTER_PORT", "--master_port 29431");
  EXPECT_THAT(named.out, HasSubstr("port 29431\n")) << named.err;
}

TEST_F(ServeTest, RankZeroReadsStandardInput) {
  const auto server = Serve();
  const ProgramResult result = Run("echo hello |", "cat");
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("0@localhost: hello\n"));
}

TEST_F(ServeTest, AFolderThatOthersMayEnterIsNotTrusted) {
  const auto server = Serve();
  fs::permissions(runtime() / "dsrund-serve", fs::perms::all);
  const ProgramResult result = Run("", kSayDaemon);
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.out, Not(HasSubstr("--wait_for_job")));
}

TEST_F(ServeTest, ASecondPoolIsRefused) {
  const auto server = Serve();
  const ProgramResult second =
      RunProgram({DS_BIN_DIR "/dsrund", "--serve"},
                 {.environment = {"XDG_RUNTIME_DIR=" + runtime().string()}});
  EXPECT_EQ(second.status, 1);
  EXPECT_THAT(second.err, HasSubstr("another dsrund --serve has "));
  EXPECT_EQ(Run("", "exit 0").status, 0) << "the first one goes on";
}

TEST_F(ServeTest, AKilledPoolIsReplacedByTheNext) {
  auto server = Serve();
  server->Signal(SIGKILL);
  server->Wait();
  server = Serve();
  const ProgramResult result = Run("", kSayDaemon);
  EXPECT_THAT(result.out, HasSubstr("--wait_for_job"));
}

TEST_F(ServeTest, TheRanksEndWithTheirDsrun) {
  const auto server = Serve();
  Program dsrun(
      {DS_BIN_DIR "/dsrun", "--device", "cpu", "--run_dir", (folder_.path() / "run").string(), "--",
       "/bin/sh", "-c", "echo pid $$; exec sleep 600"},
      {.environment = {"XDG_RUNTIME_DIR=" + runtime().string()},
       .working_directory = folder_.path()});
  ASSERT_TRUE(dsrun.WaitForOutput("pid "));
  ASSERT_TRUE(dsrun.WaitForOutput("\n"));
  const pid_t rank = std::stoi(dsrun.out().substr(dsrun.out().find("pid ") + 4));
  const int rank_fd = static_cast<int>(::syscall(SYS_pidfd_open, rank, 0));
  ASSERT_GE(rank_fd, 0);
  dsrun.Signal(SIGKILL);
  dsrun.Wait();
  pollfd ended{rank_fd, POLLIN, 0};
  EXPECT_EQ(::poll(&ended, 1, 20'000), 1) << "the rank outlives its dsrun";
  ::close(rank_fd);
}

TEST_F(ServeTest, NothingIsLeftWhenItEnds) {
  auto server = Serve();
  EXPECT_EQ(Run("", "exit 0").status, 0);
  server->Signal(SIGTERM);
  EXPECT_EQ(server->Wait().status, 0);
  EXPECT_FALSE(fs::exists(runtime() / "dsrund-serve"));
}

}  // namespace
}  // namespace ds::testing
